package org.txrocketmq.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Clients that ask, and clients that reply. A reply is the body of its request behind {@code re:}. */
final class Requests {
    private final Registry<DefaultMQProducer> askers = new Registry<>("asker");
    private final Registry<Replier> repliers = new Registry<>("replier");

    void register(Map<String, Puppet.Operation> operations) {
        operations.put("asker.start", args -> {
            DefaultMQProducer producer = new DefaultMQProducer(args.text("group"));
            Clients.configure(producer, args);
            askers.put(args.text("name"), producer);
            producer.start();
            return null;
        });
        operations.put("asker.stop", args -> {
            askers.remove(args.text("name")).shutdown();
            return null;
        });
        operations.put("asker.ask", this::ask);
        operations.put("asker.ask_async", this::askAsync);
        operations.put("replier.start", this::startReplier);
        operations.put("replier.stop", args -> {
            Replier replier = repliers.remove(args.text("name"));
            replier.consumer.shutdown();
            replier.producer.shutdown();
            return null;
        });
        operations.put("replier.failures", args -> new ArrayList<>(repliers.get(args.text("name")).failures.values()));
    }

    private record Replier(DefaultMQPushConsumer consumer, DefaultMQProducer producer, Map<String, String> failures) {
    }

    private Object startReplier(Args args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args.text("group") + "-replies");
        Clients.configure(producer, args);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.text("group"));
        Clients.configure(consumer, args);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args.text("topic"), "*");
        Map<String, String> failures = new ConcurrentHashMap<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                // The message that made the topic asks nothing.
                if (message.getProperty("CORRELATION_ID") == null) {
                    continue;
                }
                try {
                    String text = "re:" + new String(message.getBody(), StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8)));
                } catch (Exception failure) {
                    failures.put(message.getMsgId(), failure.getMessage() + " " + failure.getCause());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        repliers.put(args.text("name"), new Replier(consumer, producer, failures));
        consumer.start();
        return null;
    }

    private static Message question(Args args, int sequence) {
        return new Message(args.text("topic"), (args.text("seed") + "-" + sequence).getBytes(StandardCharsets.UTF_8));
    }

    private static String text(Message reply) {
        return new String(reply.getBody(), StandardCharsets.UTF_8);
    }

    /** Ask one after the other: the replies in the same order. */
    private Object ask(Args args) throws Exception {
        List<String> replies = new ArrayList<>();
        for (int sequence = 0; sequence < args.integer("count"); sequence++) {
            replies.add(text(askers.get(args.text("name")).request(question(args, sequence), args.number("timeout_ms"))));
        }
        return replies;
    }

    /** Ask all at once: what became of each, in the order of the questions. */
    private Object askAsync(Args args) throws Exception {
        int count = args.integer("count");
        String[] replies = new String[count];
        CountDownLatch left = new CountDownLatch(count);
        for (int sequence = 0; sequence < count; sequence++) {
            int number = sequence;
            askers.get(args.text("name")).request(question(args, sequence), new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    replies[number] = text(reply);
                    left.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    replies[number] = failure.getClass().getSimpleName();
                    left.countDown();
                }
            }, args.number("timeout_ms"));
        }
        left.await(2 * args.number("timeout_ms"), TimeUnit.MILLISECONDS);
        return Arrays.asList(replies);
    }
}
