package org.txrocketmq.interop;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Consuming as fast as it goes, and the time from send to consumption at a low rate: loads of the side-by-side bench. */
final class LoadConsumers {
    private LoadConsumers() {
    }

    private static DefaultMQPushConsumer consumer(Args args, ConsumeFromWhere from, MessageListenerConcurrently listener)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.text("group"));
        Clients.configure(consumer, args);
        consumer.setConsumeFromWhere(from);
        consumer.subscribe(args.text("topic"), "*");
        consumer.registerMessageListener(listener);
        return consumer;
    }

    /**
     * Consume {@code count} messages from the topic's beginning with a new group.
     *
     * @return seconds from the first message to the last, and from the consumer's start to the first message
     */
    static Object drain(Args args) throws Exception {
        long count = args.number("count");
        AtomicLong left = new AtomicLong(count);
        AtomicLong firstAt = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        long begin = System.nanoTime();
        DefaultMQPushConsumer consumer = consumer(args, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (messages, context) -> {
            firstAt.compareAndSet(0, System.nanoTime());
            if (left.addAndGet(-messages.size()) <= 0) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!done.await(args.number("timeout_ms"), TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException(left.get() + " of " + count + " messages are left");
            }
            long end = System.nanoTime();
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("consumed", count - left.get());
            result.put("seconds", (end - firstAt.get()) / 1e9);
            result.put("to_first_seconds", (firstAt.get() - begin) / 1e9);
            return result;
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * Send at a fixed rate while a consumer of this process waits; each message carries when it was due.
     *
     * <p>A message that could not be sent when it was due counts with its delay.
     *
     * @return the times from due to consumed in microseconds, sorted
     */
    static Object latency(DefaultMQProducer producer, Args args) throws Exception {
        int warmUp = args.integer("warm_up");
        int count = args.integer("count");
        long gapNanos = 1_000_000_000L / args.integer("rate");
        long[] micros = new long[count];
        AtomicInteger taken = new AtomicInteger();
        CountDownLatch ready = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(1);
        // What earlier runs sent is in the topic, too.
        long run = System.nanoTime();
        DefaultMQPushConsumer consumer = consumer(args, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                if (body.getLong() != run) {
                    continue;
                }
                long due = body.getLong();
                if (due == 0) {
                    ready.countDown();
                } else {
                    int index = taken.getAndIncrement() - warmUp;
                    if (index >= 0 && index < count) {
                        micros[index] = (now - due) / 1000;
                    }
                    if (index == count - 1) {
                        done.countDown();
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        AtomicReference<Throwable> failure = new AtomicReference<>();
        consumer.start();
        try {
            // The consumer has its queues once it gets what is sent now.
            long deadline = System.nanoTime() + args.number("timeout_ms") * 1_000_000;
            while (!ready.await(100, TimeUnit.MILLISECONDS)) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the consumer gets nothing");
                }
                producer.send(message(args, run, 0));
            }
            // Whatever else was sent to find that out has to pass first.
            Thread.sleep(1000);
            long due = System.nanoTime();
            for (int number = 0; number < warmUp + count; number++) {
                due += gapNanos;
                for (long wait = due - System.nanoTime(); wait > 0; wait = due - System.nanoTime()) {
                    LockSupport.parkNanos(wait);
                }
                producer.send(message(args, run, due), new Sent(failure));
            }
            if (!done.await(args.number("timeout_ms"), TimeUnit.MILLISECONDS)) {
                throw new IllegalStateException(taken.get() + " of " + (warmUp + count) + " messages came", failure.get());
            }
        } finally {
            consumer.shutdown();
        }
        Arrays.sort(micros);
        return micros;
    }

    private static Message message(Args args, long run, long due) {
        byte[] body = new byte[args.integer("size")];
        ByteBuffer.wrap(body).putLong(run).putLong(due);
        return new Message(args.text("topic"), body);
    }

    /** What comes of a send: the consumer tells, but for a failure. */
    private record Sent(AtomicReference<Throwable> failure) implements SendCallback {
        @Override
        public void onSuccess(SendResult sent) {
            // the consumer tells
        }

        @Override
        public void onException(Throwable problem) {
            failure.compareAndSet(null, problem);
        }
    }
}
