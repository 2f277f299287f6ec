package org.txrocketmq.interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers, by subscription or by assignment. */
final class LitePullConsumers {
    private final Registry<DefaultLitePullConsumer> consumers = new Registry<>("lite pull consumer");

    void register(Map<String, Puppet.Operation> operations) {
        operations.put("pull.start", this::start);
        operations.put("pull.stop", args -> {
            consumers.remove(args.text("name")).shutdown();
            return null;
        });
        operations.put("pull.assign", args -> {
            DefaultLitePullConsumer consumer = consumers.get(args.text("name"));
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(args.text("topic"));
            consumer.assign(queues);
            return queues.size();
        });
        operations.put("pull.poll", this::poll);
        operations.put("pull.seek", args -> {
            consumers.get(args.text("name")).seek(queue(args), args.number("offset"));
            return null;
        });
        operations.put("pull.committed", args -> consumers.get(args.text("name")).committed(queue(args)));
        operations.put("pull.commit", args -> {
            consumers.get(args.text("name")).commitSync();
            return null;
        });
        operations.put("pull.offset_for_time", args ->
            consumers.get(args.text("name")).offsetForTimestamp(queue(args), args.number("timestamp_ms")));
    }

    private Object start(Args args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args.text("group"));
        Clients.configure(consumer, args);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(args.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        consumer.setAutoCommit(!args.flag("manual_commit"));
        consumer.setPullBatchSize(args.integer("pull_batch", 32));
        if (args.has("expression")) {
            consumer.subscribe(args.text("topic"), args.text("expression"));
        }
        consumers.put(args.text("name"), consumer);
        consumer.start();
        return null;
    }

    /** Poll until that many rows are there or the time is over; what came. */
    private Object poll(Args args) throws Exception {
        DefaultLitePullConsumer consumer = consumers.get(args.text("name"));
        List<List<Object>> rows = new ArrayList<>();
        long deadline = System.currentTimeMillis() + args.number("timeout_ms");
        while (rows.size() < args.integer("at_least") && System.currentTimeMillis() < deadline) {
            for (MessageExt message : consumer.poll(200)) {
                rows.add(Received.row(message));
            }
        }
        return rows;
    }

    private static MessageQueue queue(Args args) {
        return new MessageQueue(args.text("topic"), args.text("broker"), args.integer("queue"));
    }
}
