import org.apache.kafka.common.utils.Exit;

/**
 * Format the storage of a Kafka node and serve it, in one JVM: `OneNode CLUSTER_ID server.properties`.
 *
 * <p>Standard input is a pipe of the test that started it. When that ends, with the test or because the test was
 * killed, the node is stopped at once: no node survives its test.
 */
public final class OneNode {
    private static final class Ended extends Error {
        final int status;

        Ended(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Child.haltAtEndOfInput();
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status);
        });
        String[] format = {"format", "--ignore-formatted", "-t", arguments[0], "-c", arguments[1]};
        try {
            kafka.tools.StorageTool.main(format);
        } catch (Ended ended) {
            if (ended.status != 0) {
                Runtime.getRuntime().halt(ended.status);
            }
        }
        Exit.resetExitProcedure();
        kafka.Kafka.main(new String[] {arguments[1]});
    }
}
