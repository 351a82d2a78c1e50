import java.io.IOException;
import java.util.Arrays;

/**
 * Run a main class in this JVM for as long as the test that started it lives: `Child CLASS ARGUMENT…`.
 *
 * <p>Standard input is a pipe of the test. When it ends, with the test or because the test was killed, the JVM is
 * stopped at once: no program survives its test.
 */
public final class Child {
    public static void main(String[] arguments) throws Exception {
        haltAtEndOfInput();
        String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        Class.forName(arguments[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }

    static void haltAtEndOfInput() {
        Thread watch = new Thread(Child::readInput, "end-of-input");
        watch.setDaemon(true);
        watch.start();
    }

    private static void readInput() {
        try {
            while (System.in.read() >= 0) {
                // Only the end matters.
            }
        } catch (IOException ignored) {
            // A broken pipe is an end as well.
        }
        Runtime.getRuntime().halt(0);
    }
}
