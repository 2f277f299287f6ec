package org.txrocketmq.interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** What operators ask, by the admin library, and whole mqadmin commands. */
final class Admin {
    private static final String NAMESRV_PROPERTY = "rocketmq.namesrv.addr";

    private final Map<String, DefaultMQAdminExt> admins = new ConcurrentHashMap<>();

    void register(Map<String, Puppet.Operation> operations) {
        operations.put("admin.command", this::command);
        operations.put("admin.create_topic", this::createTopic);
        operations.put("admin.wait_broker", this::waitBroker);
        operations.put("admin.wait_route", this::waitRoute);
        operations.put("admin.brokers", args -> brokers(admin(args)));
        operations.put("admin.route", args -> routeBrokers(admin(args), args.text("topic")));
        operations.put("admin.offsets", args ->
            Arrays.asList(admin(args).minOffset(queue(args)), admin(args).maxOffset(queue(args))));
        operations.put("admin.search_offset", args -> admin(args).searchOffset(queue(args), args.number("timestamp_ms")));
        operations.put("admin.view", args ->
            message(admin(args).viewMessage(args.text("topic"), args.text("id"))));
        operations.put("admin.query", this::query);
        operations.put("admin.wait_key", args -> await(args, () -> !query(args).isEmpty()));
        operations.put("admin.consumer_ids", this::consumerIds);
        operations.put("admin.topic_stats", this::topicStats);
        operations.put("admin.consume_offsets", this::consumeOffsets);
        operations.put("admin.topics", args ->
            new ArrayList<>(admin(args).fetchAllTopicList().getTopicList()));
        operations.put("admin.read_topics", this::readTopics);
        operations.put("admin.read_queue", this::readQueue);
        operations.put("admin.pull", this::pull);
        operations.put("admin.consumers_of", args ->
            new ArrayList<>(admin(args).queryTopicConsumeByWho(args.text("topic")).getGroupList()));
        operations.put("admin.time_spans", this::timeSpans);
        operations.put("admin.slowest_offsets", this::slowestOffsets);
        operations.put("admin.forget", args -> {
            DefaultMQAdminExt admin = admins.remove(args.text("namesrv"));
            if (admin != null) {
                admin.shutdown();
            }
            return null;
        });
    }

    private synchronized DefaultMQAdminExt admin(Args args) throws Exception {
        String namesrv = args.text("namesrv");
        DefaultMQAdminExt admin = admins.get(namesrv);
        if (admin == null) {
            admin = new DefaultMQAdminExt(args.number("admin_timeout_ms", 5000));
            Clients.configure(admin, args);
            admin.start();
            admins.put(namesrv, admin);
        }
        return admin;
    }

    /**
     * Run one mqadmin command in this process; what it printed, the exception it printed if any, and its exit code.
     *
     * <p>mqadmin ends with 0 after an exception, so a caller looks at {@code exception} and at the output. Some commands go on
     * for ever: after {@code limit_ms} a command is broken off and {@code broken_off} is true.
     */
    private synchronized Object command(Args args) throws Exception {
        List<String> words = args.texts("words");
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream screen = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream out = System.out;
        PrintStream err = System.err;
        String namesrv = System.getProperty(NAMESRV_PROPERTY);
        AtomicInteger exit = new AtomicInteger();
        forgetCommands();
        Thread running = new Thread(() -> {
            try {
                MQAdminStartup.main0(words.toArray(new String[0]), null);
            } catch (ExitTrap.Exit end) {
                exit.set(end.code);
            }
        }, "mqadmin");
        Map<String, Object> result = new LinkedHashMap<>();
        ExitTrap.arm();
        System.setOut(screen);
        System.setErr(screen);
        String text;
        try {
            running.start();
            running.join(args.number("limit_ms", 60_000));
            result.put("broken_off", running.isAlive());
            text = printed.toString(StandardCharsets.UTF_8);
            running.interrupt();
            running.join(10_000);
        } finally {
            System.setOut(out);
            System.setErr(err);
            ExitTrap.disarm();
            if (namesrv == null) {
                System.clearProperty(NAMESRV_PROPERTY);
            } else {
                System.setProperty(NAMESRV_PROPERTY, namesrv);
            }
        }
        result.put("exit", exit.get());
        result.put("output", text);
        result.put("exception", text.contains("Exception") || text.contains("\tat org.apache.rocketmq"));
        return result;
    }

    /** Some command objects hold clients that work once; in a process of its own each would be new. */
    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private Object createTopic(Args args) throws Exception {
        int queues = args.integer("queues", 4);
        TopicConfig topic = new TopicConfig(args.text("topic"), queues, queues, args.integer("perm", 6));
        topic.setOrder(args.flag("order"));
        admin(args).createAndUpdateTopicConfig(args.text("broker_addr"), topic);
        return null;
    }

    /** Broker names to their members ({@code id -> address}) as the name server lists them. */
    private static Map<String, Object> brokers(DefaultMQAdminExt admin) throws Exception {
        Map<String, Object> names = new TreeMap<>();
        var table = admin.examineBrokerClusterInfo().getBrokerAddrTable();
        if (table != null) {
            table.forEach((name, data) -> {
                Map<String, String> members = new TreeMap<>();
                data.getBrokerAddrs().forEach((id, address) -> members.put(id.toString(), address));
                names.put(name, members);
            });
        }
        return names;
    }

    private Object waitBroker(Args args) throws Exception {
        String name = args.text("broker");
        boolean present = !args.flag("absent");
        return await(args, () -> brokers(admin(args)).containsKey(name) == present);
    }

    private static List<String> routeBrokers(DefaultMQAdminExt admin, String topic) throws Exception {
        List<String> names = new ArrayList<>();
        admin.examineTopicRouteInfo(topic).getQueueDatas().forEach(data -> names.add(data.getBrokerName()));
        return names;
    }

    private Object waitRoute(Args args) throws Exception {
        return await(args, () -> !routeBrokers(admin(args), args.text("topic")).isEmpty());
    }

    private List<Object> query(Args args) throws Exception {
        var found = admin(args).queryMessage(args.text("topic"), args.text("key"), args.integer("max", 64),
            args.number("begin_ms", 0), args.number("end_ms", Long.MAX_VALUE));
        List<Object> messages = new ArrayList<>();
        found.getMessageList().forEach(message -> messages.add(message(message)));
        return messages;
    }

    private Object consumerIds(Args args) throws Exception {
        List<String> ids = new ArrayList<>();
        admin(args).examineConsumerConnectionInfo(args.text("group")).getConnectionSet()
            .forEach(connection -> ids.add(connection.getClientId()));
        return ids;
    }

    private Object topicStats(Args args) throws Exception {
        List<Object> rows = new ArrayList<>();
        admin(args).examineTopicStats(args.text("topic")).getOffsetTable().forEach((queue, offset) ->
            rows.add(Arrays.asList(queue.getBrokerName(), queue.getQueueId(), offset.getMinOffset(), offset.getMaxOffset())));
        return rows;
    }

    private Object consumeOffsets(Args args) throws Exception {
        List<Object> rows = new ArrayList<>();
        admin(args).examineConsumeStats(args.text("group")).getOffsetTable().forEach((queue, offset) ->
            rows.add(Arrays.asList(queue.getTopic(), queue.getBrokerName(), queue.getQueueId(),
                offset.getBrokerOffset(), offset.getConsumerOffset())));
        return rows;
    }

    /** How late a group is: {@code [broker, queue, oldest, newest and consumed message's store time, delay]}, in ms. */
    private Object timeSpans(Args args) throws Exception {
        List<Object> rows = new ArrayList<>();
        admin(args).queryConsumeTimeSpan(args.text("topic"), args.text("group")).forEach(span ->
            rows.add(Arrays.asList(span.getMessageQueue().getBrokerName(), span.getMessageQueue().getQueueId(),
                span.getMinTimeStamp(), span.getMaxTimeStamp(), span.getConsumeTimeStamp(), span.getDelayTime())));
        return rows;
    }

    /** Where the slowest of the other groups stands in each queue, as {@code {queue: offset}}. Only the client's own library asks so. */
    @SuppressWarnings("deprecation")
    private Object slowestOffsets(Args args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("puppet-asker");
        Clients.configure(consumer, args);
        consumer.start();
        try {
            return consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQClientAPIImpl()
                .queryCorrectionOffset(args.text("broker_addr"), args.text("topic"), args.text("group"),
                    new HashSet<>(args.texts("without")), 5_000);
        } finally {
            consumer.shutdown();
        }
    }

    /** One pull from one queue: its status, where the next one begins, and the messages. */
    @SuppressWarnings("deprecation")
    private Object pull(Args args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args.text("group", "puppet-reader"));
        Clients.configure(consumer, args);
        consumer.start();
        try {
            consumer.fetchSubscribeMessageQueues(args.text("topic"));
            PullResult pulled = consumer.pull(queue(args), "*", args.number("offset", 0), args.integer("max"));
            List<List<Object>> rows = new ArrayList<>();
            if (pulled.getMsgFoundList() != null) {
                pulled.getMsgFoundList().forEach(message -> rows.add(Received.row(message)));
            }
            return Arrays.asList(pulled.getPullStatus().name(), pulled.getNextBeginOffset(), rows);
        } finally {
            consumer.shutdown();
        }
    }

    /** Every message of some topics, read queue by queue from the first offset to the last. */
    @SuppressWarnings("deprecation")
    private Object readTopics(Args args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args.text("group", "puppet-reader"));
        Clients.configure(consumer, args);
        consumer.start();
        try {
            Map<String, Object> found = new LinkedHashMap<>();
            for (String topic : args.texts("topics")) {
                found.put(topic, readTopic(consumer, topic));
            }
            return found;
        } finally {
            consumer.shutdown();
        }
    }

    /** Every message of a queue that has no route of its own, such as a light queue, from the first offset on; {@code beside} is a topic of the same broker. */
    @SuppressWarnings("deprecation")
    private Object readQueue(Args args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(args.text("group", "puppet-reader"));
        Clients.configure(consumer, args);
        consumer.start();
        try {
            // The client learns the broker's address by a question about a topic that has a route.
            consumer.maxOffset(consumer.fetchSubscribeMessageQueues(args.text("beside")).iterator().next());
            List<List<Object>> rows = new ArrayList<>();
            MessageQueue queue = queue(args);
            long at = args.number("offset", 0);
            for (PullResult pulled = consumer.pull(queue, "*", at, 32); pulled.getPullStatus() == PullStatus.FOUND;
                pulled = consumer.pull(queue, "*", at, 32)) {
                pulled.getMsgFoundList().forEach(message -> rows.add(Received.row(message)));
                at = pulled.getNextBeginOffset();
            }
            consumer.updateConsumeOffset(queue, at);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
            return rows;
        } finally {
            consumer.shutdown();
        }
    }

    @SuppressWarnings("deprecation")
    private static List<List<Object>> readTopic(DefaultMQPullConsumer consumer, String topic) throws Exception {
        List<List<Object>> rows = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long end = consumer.maxOffset(queue);
            long at = consumer.minOffset(queue);
            while (at < end) {
                PullResult pulled = consumer.pull(queue, "*", at, 32);
                if (pulled.getPullStatus() != PullStatus.FOUND) {
                    throw new IllegalStateException(queue + " at " + at + " of " + end + ": " + pulled);
                }
                for (MessageExt message : pulled.getMsgFoundList()) {
                    rows.add(Received.row(message));
                }
                at = pulled.getNextBeginOffset();
            }
        }
        return rows;
    }

    private static Map<String, Object> message(MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("row", Received.row(message));
        fields.put("topic", message.getTopic());
        fields.put("store_host", String.valueOf(message.getStoreHost()));
        fields.put("properties", new TreeMap<>(message.getProperties()));
        return fields;
    }

    private static MessageQueue queue(Args args) {
        return new MessageQueue(args.text("topic"), args.text("broker"), args.integer("queue"));
    }

    /** Ask again until the answer is yes or the time is over; an exception counts as no, the last one is thrown. */
    private static boolean await(Args args, Question question) throws Exception {
        long deadline = System.currentTimeMillis() + args.number("timeout_ms");
        while (true) {
            Exception failure = null;
            try {
                if (question.ask()) {
                    return true;
                }
            } catch (InterruptedException interrupted) {
                throw interrupted;
            } catch (Exception notYet) {
                failure = notYet;
            }
            if (System.currentTimeMillis() > deadline) {
                if (failure != null) {
                    throw failure;
                }
                return false;
            }
            Thread.sleep(50);
        }
    }

    @FunctionalInterface
    private interface Question {
        boolean ask() throws Exception;
    }

    /** Turns {@code System.exit} into an exception while a command runs. */
    @SuppressWarnings("removal")
    private static final class ExitTrap extends SecurityManager {
        static void arm() {
            System.setSecurityManager(new ExitTrap());
        }

        static void disarm() {
            System.setSecurityManager(null);
        }

        @Override
        public void checkExit(int status) {
            throw new Exit(status);
        }

        @Override
        public void checkPermission(Permission permission) {
            // everything else is allowed
        }

        @Override
        public void checkPermission(Permission permission, Object context) {
            // everything else is allowed
        }

        /** An error, so that the command's own catch of exceptions lets it pass. */
        private static final class Exit extends Error {
            private static final long serialVersionUID = 1L;
            private final int code;

            Exit(int code) {
                super("exit " + code);
                this.code = code;
            }
        }
    }
}
