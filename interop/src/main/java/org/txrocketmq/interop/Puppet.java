package org.txrocketmq.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A process of official Java software that is driven from outside, one JSON object a line.
 *
 * <p>A request on standard input is {@code {"id": 7, "op": "producer.send", "args": {...}}}; its answer on standard
 * output is {@code {"id": 7, "result": ...}} or {@code {"id": 7, "error": {...}}}. Requests run side by side, so an
 * operation that waits delays no other. The first line written says what this process is. The end of the input ends
 * the process.
 */
public final class Puppet {
    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private final Map<String, Operation> operations = new LinkedHashMap<>();
    private final PrintStream wire;
    private final ExecutorService workers = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "puppet-op");
        thread.setDaemon(true);
        return thread;
    });

    private Puppet(PrintStream wire) {
        this.wire = wire;
    }

    public static void main(String[] argv) throws Exception {
        PrintStream wire = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        // Official tools print to System.out, which belongs to the wire here.
        System.setOut(System.err);
        Puppet puppet = new Puppet(wire);
        new Producers().register(puppet.operations);
        new PushConsumers().register(puppet.operations);
        new TransactionProducers().register(puppet.operations);
        new LitePullConsumers().register(puppet.operations);
        new Admin().register(puppet.operations);
        new Requests().register(puppet.operations);
        new Servers().register(puppet.operations);
        new Load().register(puppet.operations);
        registerPops(puppet.operations);
        puppet.serve();
        // Clients left open have threads of their own; whoever held the other end is gone.
        Runtime.getRuntime().halt(0);
    }

    /** Clients of the 4.9 line cannot pop; the puppet of that line is built without. */
    private static void registerPops(Map<String, Operation> operations) throws ReflectiveOperationException {
        Class<?> type;
        try {
            type = Class.forName("org.txrocketmq.interop.Pops");
        } catch (ClassNotFoundException olderLine) {
            return;
        }
        Constructor<?> constructor = type.getDeclaredConstructor();
        type.getDeclaredMethod("register", Map.class).invoke(constructor.newInstance(), operations);
    }

    private void serve() throws Exception {
        Map<String, Object> hello = new LinkedHashMap<>();
        hello.put("ready", true);
        hello.put("pid", ProcessHandle.current().pid());
        hello.put("serialize", System.getProperty("rocketmq.serialize.type", "JSON"));
        write(hello);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            workers.execute(() -> answer(request));
        }
    }

    private void answer(JsonObject request) {
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("id", request.get("id"));
        String name = request.get("op").getAsString();
        try {
            Operation operation = operations.get(name);
            if (operation == null) {
                throw new IllegalArgumentException("no operation " + name);
            }
            JsonElement args = request.get("args");
            reply.put("result", operation.run(new Args(args == null ? new JsonObject() : args.getAsJsonObject())));
        } catch (Throwable failure) {
            reply.put("error", describe(failure));
        }
        write(reply);
    }

    private static Map<String, Object> describe(Throwable failure) {
        StringWriter stack = new StringWriter();
        failure.printStackTrace(new PrintWriter(stack));
        Map<String, Object> error = new LinkedHashMap<>();
        error.put("type", failure.getClass().getSimpleName());
        error.put("message", String.valueOf(failure.getMessage()));
        error.put("code", responseCode(failure));
        error.put("stack", stack.toString());
        return error;
    }

    /** The response code that a client exception carries, null for any other exception. */
    static Integer responseCode(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            try {
                return (Integer) cause.getClass().getMethod("getResponseCode").invoke(cause);
            } catch (ReflectiveOperationException noSuchMethod) {
                continue;
            }
        }
        return null;
    }

    private void write(Map<String, Object> message) {
        byte[] line = (GSON.toJson(message) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (wire) {
            wire.write(line, 0, line.length);
            wire.flush();
        }
    }

    /** What runs for one operation name. */
    @FunctionalInterface
    interface Operation {
        Object run(Args args) throws Exception;
    }
}
