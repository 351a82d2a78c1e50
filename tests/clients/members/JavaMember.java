import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A group member by Kafka's own Java client: `JavaMember BOOTSTRAP GROUP TOPIC`. It says what python_member.py says;
 * SIGTERM makes it leave. It is compiled against each release that the tests drive.
 */
public final class JavaMember {
    private static volatile boolean stopping;

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
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "session.timeout.ms", 3000,
            "heartbeat.interval.ms", 300,
            "fetch.max.wait.ms", 50);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]), new Listener());
            while (!stopping) {
                consume(consumer);
            }
        } finally {
            left.countDown();
        }
    }

    private static void consume(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> next = new TreeMap<>(
            (one, other) -> Integer.compare(one.partition(), other.partition()));
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
            say("{\"read\": [" + record.partition() + ", " + record.offset() + ", \"" + record.value() + "\"]}");
            TopicPartition tp = new TopicPartition(record.topic(), record.partition());
            next.put(tp, new OffsetAndMetadata(record.offset() + 1));
        }
        if (next.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(next);
            say("{\"committed\": {" + next.entrySet().stream()
                .map(one -> "\"" + one.getKey().partition() + "\": " + one.getValue().offset())
                .collect(Collectors.joining(", ")) + "}}");
        } catch (KafkaException error) {
            say("{\"refused\": \"" + error.getClass().getSimpleName() + "\"}");
        }
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
