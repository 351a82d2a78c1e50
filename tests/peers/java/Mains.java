import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.kafka.common.utils.Exit;

/**
 * Run the main methods of Kafka's tools one after another in this JVM: a JVM of its own for each costs seconds.
 *
 * <p>A line of JSON in: {"main": class, "arguments": […], "input": text, "seconds": limit}. A line of JSON out:
 * {"exit": status, "out": text, "err": text}; the status is -1 for a tool that has not ended in time. A tool that
 * calls Exit.exit stops there: its thread is parked and never continues, as in a process that has ended.
 */
public final class Mains {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final class Run {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final CountDownLatch ended = new CountDownLatch(1);
        final List<Runnable> hooks = new CopyOnWriteArrayList<>();
        int status;

        synchronized void end(int value) {
            if (ended.getCount() > 0) {
                status = value;
                ended.countDown();
            }
        }
    }

    /** What is written is the output of the current tool. */
    private static final class Current extends OutputStream {
        private final Function<Run, OutputStream> which;

        Current(Function<Run, OutputStream> which) {
            this.which = which;
        }

        @Override
        public void write(int one) throws IOException {
            which.apply(current).write(one);
        }

        @Override
        public void write(byte[] data, int from, int count) throws IOException {
            which.apply(current).write(data, from, count);
        }
    }

    private static volatile Run current = new Run();

    public static void main(String[] none) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.Procedure exit = (status, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            current.end(status);
            park();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> current.hooks.add(hook));
        // Scala keeps the streams of its first use, so these stay and their target changes.
        System.setOut(new PrintStream(new Current(run -> run.out), true, "UTF-8"));
        System.setErr(new PrintStream(new Current(run -> run.err), true, "UTF-8"));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(JSON.writeValueAsString(run(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode run(JsonNode command) throws Exception {
        Run run = new Run();
        current = run;
        System.setIn(new ByteArrayInputStream(command.path("input").asText("").getBytes(StandardCharsets.UTF_8)));
        String[] arguments = JSON.convertValue(command.get("arguments"), String[].class);
        Thread thread = new Thread(() -> call(run, command.get("main").asText(), arguments), "tool");
        thread.setDaemon(true);
        thread.start();
        boolean inTime = run.ended.await(command.get("seconds").asLong(), TimeUnit.SECONDS);
        // What a JVM does when it ends: many tools close their clients and print their totals there.
        for (Runnable hook : run.hooks) {
            end(new Thread(hook, "hook"));
        }
        Map<Thread, Thread> hooks = hooksOfThisJvm();
        for (Thread hook : List.copyOf(hooks.keySet())) {
            hooks.remove(hook);
            end(hook);
        }
        System.out.flush();
        System.err.flush();
        ObjectNode answer = JSON.createObjectNode();
        answer.put("exit", inTime ? run.status : -1);
        answer.put("out", run.out.toString("UTF-8"));
        answer.put("err", run.err.toString("UTF-8"));
        return answer;
    }

    private static void call(Run run, String main, String[] arguments) {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
            run.end(0);
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace();
            run.end(1);
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            run.end(1);
        }
    }

    private static void end(Thread hook) throws InterruptedException {
        hook.setDaemon(true);
        hook.start();
        hook.join(TimeUnit.SECONDS.toMillis(10));
    }

    /** Some tools add their hooks to the JVM itself, which has no public way to run them before its end. */
    @SuppressWarnings("unchecked")
    private static Map<Thread, Thread> hooksOfThisJvm() throws ReflectiveOperationException {
        Field hooks = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        hooks.setAccessible(true);
        return (Map<Thread, Thread>) hooks.get(null);
    }

    private static void park() {
        while (true) {
            try {
                Thread.sleep(Long.MAX_VALUE);
            } catch (InterruptedException ignored) {
                // A client that is being closed interrupts its threads; this one stays where it is.
            }
        }
    }
}
