import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group by Kafka's own Java client: `JavaShareMember BOOTSTRAP GROUP TOPIC`. MODE says what it does
 * with records, and share_member.py what it says; SIGTERM makes it leave. It is compiled against each release that
 * the tests drive.
 */
public final class JavaShareMember {
    private static volatile boolean stopping;
    private static final String MODE = System.getenv("MODE");
    private static final Set<String> RENEWED = new HashSet<>();

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
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "share.acknowledgement.mode", MODE.equals("implicit") ? "implicit" : "explicit",
            "fetch.max.wait.ms", 100));
        if (System.getenv("MAX_RECORDS") != null) {
            settings.put("max.poll.records", Integer.parseInt(System.getenv("MAX_RECORDS")));
            settings.put("share.acquire.mode", "record_limit");
        }
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]));
            while (!stopping) {
                consume(consumer);
            }
        } finally {
            left.countDown();
        }
    }

    private static void consume(KafkaShareConsumer<String, String> consumer) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) {
            return;
        }
        say("{\"polled\": " + records.count() + "}");
        for (ConsumerRecord<String, String> record : records) {
            int deliveries = record.deliveryCount().orElse((short) 0);
            say("{\"read\": [" + record.partition() + ", " + record.offset() + ", \"" + record.value() + "\", "
                + deliveries + "]}");
            if (!MODE.equals("implicit")) {
                consumer.acknowledge(record, type(record, deliveries));
            }
        }
        if (MODE.equals("implicit")) {
            return;
        }
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> one : consumer.commitSync().entrySet()) {
            String why = one.getValue().map(error -> error.getClass().getSimpleName()).orElse("");
            say(why.isEmpty()
                ? "{\"acknowledged\": " + one.getKey().partition() + "}" : "{\"refused\": \"" + why + "\"}");
        }
    }

    private static AcknowledgeType type(ConsumerRecord<String, String> record, int deliveries) {
        switch (MODE) {
            case "release":
                return deliveries == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
            case "reject":
                return AcknowledgeType.REJECT;
            case "renew":
                // By name, because releases before 4.2 do not have it.
                return RENEWED.add(record.partition() + "-" + record.offset())
                    ? AcknowledgeType.valueOf("RENEW") : AcknowledgeType.ACCEPT;
            default:
                return AcknowledgeType.ACCEPT;
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
