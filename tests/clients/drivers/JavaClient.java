import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client, asked by lines of JSON as child.py says: `JavaClient BOOTSTRAP`.
 *
 * <p>The same source is compiled against each release of the client that the tests drive, 2.8 to 4.1, and so it uses
 * only what all of them have.
 */
public final class JavaClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long SECONDS = 25;

    private final String bootstrap;
    private final Map<String, Producer<byte[], byte[]>> producers = new HashMap<>();
    private Consumer<byte[], byte[]> consumer;
    private Admin admin;

    private JavaClient(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        JavaClient client = new JavaClient(arguments[0]);
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("result", JSON.valueToTree(client.answer(JSON.readTree(line))));
            } catch (Exception thrown) {
                Throwable error = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
                ObjectNode told = answer.putObject("error");
                told.put("code", code(error));
                told.put("message", String.valueOf(error));
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        client.close();
    }

    /** The consumer makes an exception of its own, without a number, of error OFFSET_OUT_OF_RANGE. */
    private static int code(Throwable error) {
        boolean beyond = error instanceof OffsetOutOfRangeException;
        return (beyond ? Errors.OFFSET_OUT_OF_RANGE : Errors.forException(error)).code();
    }

    private Object answer(JsonNode command) throws Exception {
        String topic = command.path("topic").asText();
        TopicPartition tp = new TopicPartition(topic, command.path("partition").asInt());
        switch (command.get("verb").asText()) {
            case "write": return write(tp, command.get("messages"), command.get("codec").asText());
            case "choose": return choose(topic, bytes(command.get("key")));
            case "read": return read(tp, command.get("offset").asLong(), command.get("count").asInt());
            case "offset_for_time": return offsetForTime(tp, command.get("timestamp").asLong());
            case "bounds": return List.of(offset(tp, OffsetSpec.earliest()), offset(tp, OffsetSpec.latest()));
            case "create_topic":
                NewTopic made = new NewTopic(topic, command.get("partitions").asInt(), (short) 1);
                made.configs(JSON.convertValue(command.get("configs"), Map.class));
                return get(admin().createTopics(List.of(made)).all());
            case "topics": return topics();
            case "add_partitions":
                NewPartitions more = NewPartitions.increaseTo(command.get("total").asInt());
                return get(admin().createPartitions(Map.of(topic, more)).all());
            case "configs": return configs(new ConfigResource(ConfigResource.Type.TOPIC, topic));
            case "set_config":
                return setConfig(topic, command.get("key").asText(), command.get("value").asText());
            case "delete_records":
                RecordsToDelete before = RecordsToDelete.beforeOffset(command.get("before").asLong());
                return get(admin().deleteRecords(Map.of(tp, before)).lowWatermarks().get(tp)).lowWatermark();
            case "delete_topic": return get(admin().deleteTopics(List.of(topic)).all());
            default: return answerOfGroups(command, command.path("group").asText(), tp);
        }
    }

    private Object answerOfGroups(JsonNode command, String group, TopicPartition tp) throws Exception {
        switch (command.get("verb").asText()) {
            case "cluster": return cluster();
            case "groups":
                List<String> names = new ArrayList<>();
                get(admin().listConsumerGroups().all()).forEach(one -> names.add(one.groupId()));
                return names;
            case "describe_group": return describeGroup(group, tp.topic());
            case "group_offsets": return groupOffsets(group, tp.topic());
            case "group_metadata":
                return get(admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(tp).metadata();
            case "set_group_offset":
                OffsetAndMetadata to = new OffsetAndMetadata(
                    command.get("offset").asLong(), command.get("metadata").asText());
                return get(admin().alterConsumerGroupOffsets(group, Map.of(tp, to)).all());
            case "delete_group_offset":
                return get(admin().deleteConsumerGroupOffsets(group, Collections.singleton(tp)).all());
            case "delete_group": return get(admin().deleteConsumerGroups(List.of(group)).all());
            default: throw new IllegalArgumentException(command.toString());
        }
    }

    private Object write(TopicPartition tp, JsonNode messages, String codec) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode message : messages) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : message.get("headers")) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            Long timestamp = message.get("timestamp").isNull() ? null : message.get("timestamp").asLong();
            sent.add(producer(codec).send(new ProducerRecord<>(
                tp.topic(), tp.partition(), timestamp, bytes(message.get("key")), bytes(message.get("value")), headers)));
        }
        for (Future<RecordMetadata> one : sent) {
            one.get(SECONDS, TimeUnit.SECONDS);
        }
        return null;
    }

    private int choose(String topic, byte[] key) throws Exception {
        Future<RecordMetadata> sent = producer("none").send(new ProducerRecord<>(topic, key, new byte[0]));
        return sent.get(SECONDS, TimeUnit.SECONDS).partition();
    }

    private Object read(TopicPartition tp, long offset, int count) {
        consumer().assign(List.of(tp));
        consumer().seek(tp, offset);
        ArrayNode found = JSON.createArrayNode();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (found.size() < count && System.nanoTime() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : consumer().poll(Duration.ofMillis(500))) {
                if (found.size() < count) {
                    found.add(shown(record));
                }
            }
        }
        return found;
    }

    private static ObjectNode shown(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode message = JSON.createObjectNode();
        message.put("key", text(record.key()));
        message.put("value", text(record.value()));
        message.put("timestamp", record.timestamp());
        message.put("offset", record.offset());
        ArrayNode headers = message.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return message;
    }

    private long offsetForTime(TopicPartition tp, long timestamp) {
        OffsetAndTimestamp found = consumer().offsetsForTimes(Map.of(tp, timestamp)).get(tp);
        return found == null ? -1 : found.offset();
    }

    private long offset(TopicPartition tp, OffsetSpec which) throws Exception {
        return get(admin().listOffsets(Map.of(tp, which)).all()).get(tp).offset();
    }

    private Object topics() {
        Map<String, Integer> found = new HashMap<>();
        for (Map.Entry<String, List<PartitionInfo>> topic : consumer().listTopics().entrySet()) {
            found.put(topic.getKey(), topic.getValue().size());
        }
        return found;
    }

    private Object configs(ConfigResource resource) throws Exception {
        Map<String, String> found = new HashMap<>();
        for (ConfigEntry entry : get(admin().describeConfigs(List.of(resource)).all()).get(resource).entries()) {
            found.put(entry.name(), entry.value());
        }
        return found;
    }

    private Object setConfig(String topic, String key, String value) throws Exception {
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return get(admin().incrementalAlterConfigs(Map.of(resource, List.of(set))).all());
    }

    private Object cluster() throws Exception {
        ObjectNode found = JSON.createObjectNode();
        found.put("id", get(admin().describeCluster().clusterId()));
        found.put("controller", get(admin().describeCluster().controller()).id());
        ArrayNode nodes = found.putArray("nodes");
        for (Node node : get(admin().describeCluster().nodes())) {
            nodes.add(node.host() + ":" + node.port());
        }
        return found;
    }

    private Object describeGroup(String group, String topic) throws Exception {
        ConsumerGroupDescription described = get(admin().describeConsumerGroups(List.of(group)).all()).get(group);
        ObjectNode found = JSON.createObjectNode();
        found.put("state", described.state().toString());
        found.put("assignor", described.partitionAssignor());
        found.put("coordinator", described.coordinator().id());
        ArrayNode hosts = found.putArray("hosts");
        ObjectNode members = found.putObject("members");
        for (MemberDescription member : described.members()) {
            hosts.add(member.host());
            ArrayNode owned = members.putArray(member.consumerId());
            for (TopicPartition tp : member.assignment().topicPartitions()) {
                if (tp.topic().equals(topic)) {
                    owned.add(tp.partition());
                }
            }
        }
        return found;
    }

    private Object groupOffsets(String group, String topic) throws Exception {
        Map<Integer, Long> found = new HashMap<>();
        Map<TopicPartition, OffsetAndMetadata> offsets =
            get(admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : offsets.entrySet()) {
            if (entry.getKey().topic().equals(topic)) {
                found.put(entry.getKey().partition(), entry.getValue().offset());
            }
        }
        return found;
    }

    private Producer<byte[], byte[]> producer(String codec) {
        return producers.computeIfAbsent(codec, name -> new KafkaProducer<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "acks", "all",
                "enable.idempotence", true,
                "compression.type", name,
                "linger.ms", 20,
                "max.request.size", 10_000_000),
            new ByteArraySerializer(),
            new ByteArraySerializer()));
    }

    private Consumer<byte[], byte[]> consumer() {
        if (consumer == null) {
            Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "enable.auto.commit", false,
                "auto.offset.reset", "none",
                "fetch.max.wait.ms", 100);
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }
        return consumer;
    }

    private Admin admin() {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        }
        return admin;
    }

    private void close() {
        producers.values().forEach(Producer::close);
        Optional.ofNullable(consumer).ifPresent(Consumer::close);
        Optional.ofNullable(admin).ifPresent(Admin::close);
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(SECONDS, TimeUnit.SECONDS);
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
