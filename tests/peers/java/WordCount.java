import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Count the words of topic `lines` into topic `counts`: `WordCount BOOTSTRAP APPLICATION STATE GUARANTEE`.
 *
 * <p>The words pass a repartition topic and the counts are kept in a state store with a changelog topic. STATE is
 * the directory of the store; where it is empty, the store is restored from the changelog. GUARANTEE is
 * `at_least_once` or `exactly_once_v2`.
 */
public final class WordCount {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[3]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        // Every update reaches the changelog and `counts`; commits and purges are often enough to be seen.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        // What a store is restored from has been compacted many times.
        settings.put(StreamsConfig.topicPrefix("segment.bytes"), 65536);
        settings.put(StreamsConfig.topicPrefix("min.cleanable.dirty.ratio"), 0.01);
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 500);
        // After a kill the group must not wait 45 s for a member that is dead.
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 3000);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // Nor the partitions for the transaction of a producer that is dead.
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 5000);

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.as("words"))
                .count(Materialized.as("counted"))
                .toStream()
                .to("counts", Produced.with(Serdes.String(), Serdes.Long()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(thrown -> {
            thrown.printStackTrace();
            Runtime.getRuntime().halt(1);
            throw new IllegalStateException(thrown);
        });
        streams.start();
    }
}
