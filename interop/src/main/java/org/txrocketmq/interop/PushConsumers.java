package org.txrocketmq.interop;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers that keep a record of all they get. */
final class PushConsumers {
    private final Registry<Consumer> consumers = new Registry<>("push consumer");
    private final Map<String, Integer> failuresLeft = new ConcurrentHashMap<>();

    void register(Map<String, Puppet.Operation> operations) {
        operations.put("push.start", this::start);
        operations.put("push.stop", args -> {
            Consumer consumer = consumers.remove(args.text("name"));
            consumer.gate.countDown();
            consumer.client.shutdown();
            return consumer.received.rows();
        });
        operations.put("push.wait", args -> consumers.get(args.text("name")).received
            .awaitDistinct(args.integer("at_least"), args.number("timeout_ms")));
        operations.put("push.report", args -> consumers.get(args.text("name")).received.rows());
        operations.put("push.wait_rows", args -> consumers.get(args.text("name")).received
            .awaitRows(args.integer("at_least"), args.number("timeout_ms")));
        operations.put("push.times", args -> consumers.get(args.text("name")).received.times());
        operations.put("push.assigned", args -> assigned(consumers.get(args.text("name")), args.text("topic")));
        operations.put("push.wait_assigned", this::waitAssigned);
        operations.put("push.ahead", args -> ahead(consumers.get(args.text("name")), args.text("topic")));
        operations.put("push.release", args -> {
            consumers.get(args.text("name")).gate.countDown();
            return null;
        });
    }

    /** A consumer that is held keeps every listener waiting until its gate is open. */
    private record Consumer(DefaultMQPushConsumer client, Received received, CountDownLatch gate) {
    }

    /**
     * Start a consumer. A 5.4.0 one fails at once when the name server that it happens to ask first is down, or a loaded machine
     * takes long to connect; it is made anew then ({@code start_tries} in all), as its user would do.
     */
    private Object start(Args args) throws Exception {
        for (int left = args.integer("start_tries", 3) - 1; ; left--) {
            try {
                startOnce(args);
                return null;
            } catch (IllegalStateException noRoute) {
                if (left <= 0) {
                    throw noRoute;
                }
            }
        }
    }

    private void startOnce(Args args) throws Exception {
        DefaultMQPushConsumer client = new DefaultMQPushConsumer(args.text("group"));
        Clients.configure(client, args);
        client.setConsumeFromWhere(ConsumeFromWhere.valueOf(args.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        // The enum lives in another package in each line; its value is found from the default.
        client.setMessageModel(Enum.valueOf(client.getMessageModel().getDeclaringClass(), args.text("model", "CLUSTERING")));
        int threads = args.integer("threads", 4);
        client.setConsumeThreadMin(threads);
        client.setConsumeThreadMax(threads);
        // A stop lets listeners that run come to their end, so that what they took is committed.
        client.setAwaitTerminationMillisWhenShutdown(10_000);
        client.setPullBatchSize(args.integer("pull_batch", 32));
        limitReadAhead(client, args);
        if (args.has("strategy")) {
            client.setAllocateMessageQueueStrategy(strategy(args));
        }
        if (args.has("pop_invisible_ms")) {
            letBrokerDecide(client, args.number("pop_invisible_ms"));
        }
        if (args.has("sql")) {
            client.subscribe(args.text("topic"), MessageSelector.bySql(args.text("sql")));
        } else {
            client.subscribe(args.text("topic"), args.text("expression", "*"));
        }
        Received received = new Received(args.text("record_file", null));
        String name = args.text("name");
        failuresLeft.put(name, args.integer("fail_first", 0));
        if (args.has("max_reconsume")) {
            client.setMaxReconsumeTimes(args.integer("max_reconsume"));
        }
        List<Integer> failTimes = args.integers("fail_times");
        CountDownLatch gate = new CountDownLatch(args.flag("held") ? 1 : 0);
        if (args.text("listener", "concurrent").equals("orderly")) {
            client.setSuspendCurrentQueueTimeMillis(args.integer("suspend_ms", 1000));
            client.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                pass(gate);
                messages.forEach(received::add);
                return mustFail(failTimes, messages)
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            int retryLevel = args.integer("retry_level", 0);
            client.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                pass(gate);
                messages.forEach(received::add);
                context.setDelayLevelWhenNextConsume(retryLevel);
                return mayFail(name) || mustFail(failTimes, messages) ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        try {
            client.start();
        } catch (Exception failure) {
            client.shutdown();
            throw failure;
        }
        consumers.put(name, new Consumer(client, received, gate));
    }

    private static void pass(CountDownLatch gate) {
        try {
            gate.await();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** How much a consumer may hold that its listener has not seen yet; what is not named stays as it is. */
    private static void limitReadAhead(DefaultMQPushConsumer client, Args args) {
        client.setPullThresholdForQueue(args.integer("queue_messages", client.getPullThresholdForQueue()));
        client.setPullThresholdSizeForQueue(args.integer("queue_mib", client.getPullThresholdSizeForQueue()));
        client.setPullThresholdForTopic(args.integer("topic_messages", client.getPullThresholdForTopic()));
        client.setPullThresholdSizeForTopic(args.integer("topic_mib", client.getPullThresholdSizeForTopic()));
        client.setConsumeConcurrentlyMaxSpan(args.integer("span", client.getConsumeConcurrentlyMaxSpan()));
    }

    /** What a consumer holds of each queue of a topic: {@code [queue, messages, bytes of their bodies]}. */
    private static List<List<Object>> ahead(Consumer consumer, String topic) {
        List<List<Object>> held = new ArrayList<>();
        consumer.client.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().forEach((queue, process) -> {
            if (queue.getTopic().equals(topic)) {
                held.add(Arrays.asList(queue.getQueueId(), process.getMsgCount().get(), process.getMsgSize().get()));
            }
        });
        return held;
    }

    /** The broker says which queues are consumed, and whether they are popped. Clients of the 4.9 line have no such methods. */
    private static void letBrokerDecide(DefaultMQPushConsumer client, long invisibleMs) throws ReflectiveOperationException {
        Class<?> type = client.getClass();
        type.getMethod("setClientRebalance", boolean.class).invoke(client, false);
        type.getMethod("setPopInvisibleTime", long.class).invoke(client, invisibleMs);
    }

    /** Whether a message is to fail again: it fails as often as its sequence number says, numbers taken in turn. */
    private static boolean mustFail(List<Integer> failTimes, List<MessageExt> messages) {
        MessageExt message = messages.get(0);
        String sequence = message.getUserProperty(Received.SEQUENCE);
        return sequence != null && !failTimes.isEmpty()
            && message.getReconsumeTimes() < failTimes.get(Integer.parseInt(sequence) % failTimes.size());
    }

    /** The official strategy of that name; {@code rooms} are those of MACHINE_ROOM, {@code numbers} of {@code broker} the queues of CONFIG. */
    private static AllocateMessageQueueStrategy strategy(Args args) {
        String name = args.text("strategy");
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms());
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(args.texts("rooms")));
                return byRoom;
            case "CONFIG":
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                byConfig.setMessageQueueList(args.integers("numbers").stream()
                    .map(number -> new MessageQueue(args.text("topic"), args.text("broker"), number)).toList());
                return byConfig;
            default:
                throw new IllegalArgumentException("no strategy " + name);
        }
    }

    /** Queues with even numbers are in the room {@code even}, and so are clients whose id has an even length; the others are in {@code odd}. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getQueueId() % 2 == 0 ? "even" : "odd";
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.length() % 2 == 0 ? "even" : "odd";
        }
    }

    private boolean mayFail(String name) {
        return failuresLeft.computeIfPresent(name, (key, left) -> Math.max(left - 1, -1)) >= 0;
    }

    /** The queues of a topic that a consumer holds now, as {@code [broker, queue]}. */
    private static List<List<Object>> assigned(Consumer consumer, String topic) throws ReflectiveOperationException {
        List<List<Object>> queues = new ArrayList<>();
        RebalanceImpl rebalance = consumer.client.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        Set<MessageQueue> held = new HashSet<>(rebalance.getProcessQueueTable().keySet());
        for (Method method : RebalanceImpl.class.getMethods()) {
            // Clients of the 4.9 line pop nothing.
            if (method.getName().equals("getPopProcessQueueTable")) {
                ((Map<?, ?>) method.invoke(rebalance)).keySet().forEach(queue -> held.add((MessageQueue) queue));
            }
        }
        for (MessageQueue queue : held) {
            if (queue.getTopic().equals(topic)) {
                queues.add(Arrays.asList(queue.getBrokerName(), queue.getQueueId()));
            }
        }
        return queues;
    }

    private Object waitAssigned(Args args) throws Exception {
        Consumer consumer = consumers.get(args.text("name"));
        long deadline = System.currentTimeMillis() + args.number("timeout_ms");
        while (true) {
            List<List<Object>> queues = assigned(consumer, args.text("topic"));
            if (queues.size() == args.integer("count") || System.currentTimeMillis() > deadline) {
                return queues;
            }
            Thread.sleep(20);
        }
    }
}
