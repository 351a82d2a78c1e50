import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
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
    /** Whether the broker assigns (KIP-848); all partitions are revoked before others are assigned if not. */
    private static final boolean NEW_PROTOCOL = "consumer".equals(System.getenv("PROTOCOL"));

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
        Map<String, Object> settings = new TreeMap<>(Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "fetch.max.wait.ms", 50));
        if (NEW_PROTOCOL) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.putAll(Map.of(
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
                "session.timeout.ms", 3000,
                "heartbeat.interval.ms", 300));
        }
        String instance = System.getenv().getOrDefault("INSTANCE", "");
        if (!instance.isEmpty()) {
            settings.put("group.instance.id", instance);
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            subscribe(consumer, arguments[2]);
            while (!stopping) {
                consume(consumer);
            }
        } finally {
            left.countDown();
        }
    }

    /** Subscribe to a topic, or to a pattern of the broker, which begins with ^ and which Kafka 4 brought. */
    private static void subscribe(KafkaConsumer<String, String> consumer, String topic) {
        if (!topic.startsWith("^")) {
            consumer.subscribe(List.of(topic), new Listener());
            return;
        }
        try {
            Class<?> pattern = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            KafkaConsumer.class.getMethod("subscribe", pattern, ConsumerRebalanceListener.class)
                .invoke(consumer, pattern.getConstructor(String.class).newInstance(topic), new Listener());
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
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
        private final TreeSet<Integer> owned = new TreeSet<>();

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            revoked.forEach(one -> owned.remove(one.partition()));
            if (NEW_PROTOCOL) {
                say("{\"assigned\": " + owned + "}");
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            assigned.forEach(one -> owned.add(one.partition()));
            say("{\"assigned\": " + owned + "}");
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
