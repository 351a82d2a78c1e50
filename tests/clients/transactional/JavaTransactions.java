import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The transactions of Kafka's own Java client, asked by lines of JSON: `JavaTransactions BOOTSTRAP LOG`. LOG is the
 * file for what the client logs.
 */
public final class JavaTransactions {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long SECONDS = 25;

    private final String bootstrap;
    private final Map<String, Producer<String, String>> producers = new HashMap<>();

    private JavaTransactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        System.setErr(new PrintStream(new FileOutputStream(arguments[1]), true, "UTF-8"));
        JavaTransactions client = new JavaTransactions(arguments[0]);
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("result", JSON.valueToTree(client.answer(JSON.readTree(line))));
            } catch (Exception thrown) {
                ObjectNode told = answer.putObject("error");
                told.put("code", code(thrown));
                told.put("message", String.valueOf(thrown));
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        // Without a good-bye to a broker: what is open is left open.
        Runtime.getRuntime().halt(0);
    }

    /** The number of the first cause that has one; the client wraps some errors in a plain KafkaException. */
    private static int code(Throwable thrown) {
        for (Throwable one = thrown; one != null; one = one.getCause()) {
            boolean plain = one instanceof ExecutionException || one.getClass() == KafkaException.class;
            if (!plain) {
                return Errors.forException(one).code();
            }
        }
        return Errors.UNKNOWN_SERVER_ERROR.code();
    }

    private Object answer(JsonNode command) throws Exception {
        String name = command.path("producer").asText();
        Producer<String, String> producer = producers.get(name);
        switch (command.get("verb").asText()) {
            case "open":
                producer = made(command.get("transactional_id").asText(), command.get("timeout_ms").asInt());
                producers.put(name, producer);
                producer.initTransactions();
                return null;
            case "identity": return identity(producer);
            case "resume":
                producer = made(command.get("transactional_id").asText(), command.get("timeout_ms").asInt());
                producers.put(name, producer);
                resume(producer, command.get("id").asLong(), (short) command.get("epoch").asInt());
                return null;
            case "begin":
                producer.beginTransaction();
                return null;
            case "send": return send(producer, command.get("topic").asText(), command.get("values"));
            case "send_offset":
                producer.sendOffsetsToTransaction(
                    Map.of(
                        new TopicPartition(command.get("topic").asText(), 0),
                        new OffsetAndMetadata(command.get("offset").asLong())),
                    new ConsumerGroupMetadata(command.get("group").asText()));
                return null;
            case "commit":
                producer.commitTransaction();
                return null;
            case "abort":
                producer.abortTransaction();
                return null;
            case "values":
                return values(
                    new TopicPartition(command.get("topic").asText(), 0),
                    command.get("committed").asBoolean() ? "read_committed" : "read_uncommitted",
                    command.get("last").asText());
            default: throw new IllegalArgumentException(command.toString());
        }
    }

    /** The producer id and the epoch of a producer, as connectors look them up that store them in a checkpoint. */
    private static Object identity(Producer<String, String> producer) throws ReflectiveOperationException {
        Object found = field(manager(producer), "producerIdAndEpoch");
        return Map.of("id", field(found, "producerId"), "epoch", field(found, "epoch"));
    }

    /**
     * Continue the transaction of a producer that has ended. Kafka's client has no call for that; Flink's sink sets the
     * same fields, and so EndTxn is sent without InitProducerId before it.
     */
    private static void resume(Producer<String, String> producer, long id, short epoch)
            throws ReflectiveOperationException {
        Object manager = manager(producer);
        Field identity = declared(manager, "producerIdAndEpoch");
        Constructor<?> made = identity.getType().getDeclaredConstructor(long.class, short.class);
        made.setAccessible(true);
        synchronized (manager) {
            move(manager, "INITIALIZING");
            identity.set(manager, made.newInstance(id, epoch));
            move(manager, "READY");
            move(manager, "IN_TRANSACTION");
            declared(manager, "transactionStarted").set(manager, true);
        }
    }

    private static Object manager(Producer<String, String> producer) throws ReflectiveOperationException {
        return field(producer, "transactionManager");
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void move(Object manager, String state) throws ReflectiveOperationException {
        Class<?> states = Class.forName(manager.getClass().getName() + "$State");
        Method moving = manager.getClass().getDeclaredMethod("transitionTo", states);
        moving.setAccessible(true);
        moving.invoke(manager, Enum.valueOf((Class<Enum>) states, state));
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        return declared(of, name).get(of);
    }

    private static Field declared(Object of, String name) throws ReflectiveOperationException {
        Field found = of.getClass().getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }

    private Producer<String, String> made(String transactionalId, int timeoutMs) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "transactional.id", transactionalId,
            "transaction.timeout.ms", timeoutMs,
            "delivery.timeout.ms", 25_000,
            "request.timeout.ms", 10_000);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static Object send(Producer<String, String> producer, String topic, JsonNode values) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : values) {
            sent.add(producer.send(new ProducerRecord<>(topic, 0, null, value.asText())));
        }
        for (Future<RecordMetadata> one : sent) {
            one.get(SECONDS, TimeUnit.SECONDS);
        }
        return null;
    }

    private Object values(TopicPartition tp, String isolation, String last) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "isolation.level", isolation,
            "enable.auto.commit", false,
            "fetch.max.wait.ms", 100);
        List<String> found = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(tp));
            consumer.seekToBeginning(List.of(tp));
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    if (record.value().equals(last)) {
                        return found;
                    }
                    found.add(record.value());
                }
            }
        }
        throw new IllegalStateException("the last record does not come after " + found);
    }
}
