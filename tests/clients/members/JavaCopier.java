import java.io.File;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A group member that consumes, transforms and produces, by Kafka's own Java client: `JavaCopier BOOTSTRAP GROUP TOPIC`.
 * It does and says what python_copier.py does.
 */
public final class JavaCopier {
    private static final String ID = "copier-" + UUID.randomUUID();
    private static volatile boolean stopping;
    private static String hold = System.getenv("HOLD");

    public static void main(String[] arguments) {
        CountDownLatch left = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                left.await();
            } catch (InterruptedException ignored) {
                // The process ends in any case.
            }
        }));
        try {
            while (!stopping) {
                copyUntilRefused(arguments[0], arguments[1], arguments[2]);
            }
        } finally {
            left.countDown();
        }
    }

    private static void copyUntilRefused(String bootstrap, String group, String topic) {
        Map<String, Object> reading = Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "isolation.level", "read_committed",
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "session.timeout.ms", 3000,
            "heartbeat.interval.ms", 300,
            "fetch.max.wait.ms", 50,
            "max.poll.records", 10);
        String timeout = System.getenv().getOrDefault("TRANSACTION_TIMEOUT_MS", "60000");
        Map<String, Object> writing = Map.of(
            "bootstrap.servers", bootstrap,
            "transactional.id", ID,
            "transaction.timeout.ms", Integer.parseInt(timeout));
        try (KafkaConsumer<String, String> consumer =
                    new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
                KafkaProducer<String, String> producer =
                    new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic), new Listener());
            while (!stopping) {
                copy(consumer, producer, topic + "-copy");
            }
        } catch (KafkaException error) {
            // The next producer of the id aborts what is open.
            say("{\"refused\": \"" + error.getClass().getSimpleName() + "\"}");
        }
    }

    private static void copy(
            KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer, String topic) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> next = new TreeMap<>(
            (one, other) -> Integer.compare(one.partition(), other.partition()));
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(topic, record.partition(), null, record.value()));
            TopicPartition tp = new TopicPartition(record.topic(), record.partition());
            next.put(tp, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.flush();
        hold();
        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
        producer.commitTransaction();
        say("{\"committed\": {" + next.entrySet().stream()
            .map(one -> "\"" + one.getKey().partition() + "\": " + one.getValue().offset())
            .collect(Collectors.joining(", ")) + "}}");
    }

    private static void hold() {
        if (hold == null) {
            return;
        }
        say("{\"holding\": true}");
        while (!new File(hold).exists()) {
            try {
                Thread.sleep(20);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
        hold = null;
    }

    private static final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            // Nothing is kept.
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            say("{\"assigned\": " + assigned.stream().map(TopicPartition::partition).sorted()
                .collect(Collectors.toList()) + "}");
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
