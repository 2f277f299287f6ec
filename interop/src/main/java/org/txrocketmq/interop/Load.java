package org.txrocketmq.interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Sends as fast as they go, for a time or up to a count: the load of the side-by-side bench. */
final class Load {
    private static final int SEND_TIMEOUT_MS = 10_000;

    private final Registry<DefaultMQProducer> producers = new Registry<>("load producer");

    void register(Map<String, Puppet.Operation> operations) {
        operations.put("load.open", this::open);
        operations.put("load.close", args -> {
            producers.remove(args.text("name")).shutdown();
            return null;
        });
        operations.put("load.send", this::send);
        operations.put("load.first_send", this::firstSend);
        operations.put("load.drain", LoadConsumers::drain);
        operations.put("load.latency", args -> LoadConsumers.latency(producers.get(args.text("name")), args));
    }

    private Object open(Args args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(args.text("group"));
        Clients.configure(producer, args);
        producer.setSendMsgTimeout(args.integer("send_timeout_ms", SEND_TIMEOUT_MS));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producers.put(args.text("name"), producer);
        producer.start();
        return null;
    }

    /** {@code mode}: sync, async or batch; ends after {@code seconds}, or once {@code count} messages are stored. */
    private Object send(Args args) throws Exception {
        Run run = new Run(producers.get(args.text("name")), args);
        List<Thread> threads = new ArrayList<>();
        long begin = System.nanoTime();
        for (int number = 0; number < args.integer("threads", 1); number++) {
            Thread thread = new Thread(run, "load-" + number);
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        run.inFlight.acquire(run.window);
        return run.summary(System.nanoTime() - begin);
    }

    /**
     * Send one message again and again, {@code retry_ms} apart, until it is acknowledged.
     *
     * @return when that was, in nanoseconds since the epoch, and after how many attempts
     */
    private Object firstSend(Args args) throws Exception {
        DefaultMQProducer producer = producers.get(args.text("name"));
        long deadline = System.nanoTime() + args.number("timeout_ms") * 1_000_000;
        Exception failure = null;
        for (int attempts = 1; System.nanoTime() < deadline; attempts++) {
            try {
                SendResult sent = producer.send(new Message(args.text("topic"), new byte[128]));
                if (sent.getSendStatus() == SendStatus.SEND_OK) {
                    java.time.Instant now = java.time.Instant.now();
                    return Arrays.asList(now.getEpochSecond() * 1_000_000_000 + now.getNano(), attempts);
                }
            } catch (InterruptedException interrupted) {
                throw interrupted;
            } catch (Exception notYet) {
                failure = notYet;
            }
            Thread.sleep(args.integer("retry_ms"));
        }
        throw new IllegalStateException("nothing was acknowledged in time", failure);
    }

    /** One run of load; its threads share the counters. */
    private static final class Run implements Runnable {
        private final DefaultMQProducer producer;
        private final String topic;
        private final String mode;
        private final byte[] body;
        private final int perSend;
        private final int window;
        private final Semaphore inFlight;
        private final long until;
        private final AtomicLong toSend;
        private final AtomicLong stored = new AtomicLong();
        private final AtomicLong failed = new AtomicLong();
        private final AtomicReference<Throwable> failure = new AtomicReference<>();

        Run(DefaultMQProducer producer, Args args) {
            this.producer = producer;
            topic = args.text("topic");
            mode = args.text("mode");
            body = new byte[args.integer("size")];
            Arrays.fill(body, (byte) 'x');
            perSend = mode.equals("batch") ? args.integer("batch") : 1;
            window = args.integer("in_flight", 256);
            inFlight = new Semaphore(window);
            until = args.has("seconds") ? System.nanoTime() + args.number("seconds") * 1_000_000_000 : Long.MAX_VALUE;
            toSend = new AtomicLong(args.number("count", Long.MAX_VALUE));
        }

        @Override
        public void run() {
            while (System.nanoTime() < until) {
                int share = (int) Math.min(perSend, toSend.getAndAdd(-perSend));
                if (share <= 0) {
                    return;
                }
                try {
                    sendOnce(share);
                } catch (InterruptedException interrupted) {
                    return;
                } catch (Exception problem) {
                    failed(share, problem);
                }
            }
        }

        private void sendOnce(int share) throws Exception {
            if (mode.equals("async")) {
                inFlight.acquire();
                try {
                    producer.send(new Message(topic, body), new Settled());
                } catch (Exception problem) {
                    inFlight.release();
                    throw problem;
                }
            } else if (mode.equals("batch")) {
                List<Message> messages = new ArrayList<>(share);
                for (int number = 0; number < share; number++) {
                    messages.add(new Message(topic, body));
                }
                count(producer.send(messages), share);
            } else {
                count(producer.send(new Message(topic, body)), 1);
            }
        }

        private void count(SendResult sent, int share) {
            if (sent.getSendStatus() == SendStatus.SEND_OK) {
                stored.addAndGet(share);
            } else {
                failed(share, new IllegalStateException(sent.getSendStatus().name()));
            }
        }

        private void failed(int share, Throwable problem) {
            failed.addAndGet(share);
            failure.compareAndSet(null, problem);
            // What was to be stored has to be sent again.
            toSend.addAndGet(share);
        }

        private Map<String, Object> summary(long nanos) {
            Map<String, Object> summary = new LinkedHashMap<>();
            summary.put("stored", stored.get());
            summary.put("failed", failed.get());
            summary.put("failure", failure.get() == null ? null : failure.get().toString());
            summary.put("seconds", nanos / 1e9);
            return summary;
        }

        /** What comes of an asynchronous send. */
        private final class Settled implements SendCallback {
            @Override
            public void onSuccess(SendResult sent) {
                count(sent, 1);
                inFlight.release();
            }

            @Override
            public void onException(Throwable problem) {
                failed(1, problem);
                inFlight.release();
            }
        }
    }
}
