package org.txrocketmq.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;

/** Producers, and bulk sends that run while other operations go on. */
final class Producers {
    private static final String COMPRESS_TYPE = "rocketmq.message.compressType";
    private static final int ASYNC_IN_FLIGHT = 64;

    private final Registry<DefaultMQProducer> producers = new Registry<>("producer");
    private final Registry<SendJob> jobs = new Registry<>("send");

    void register(Map<String, Puppet.Operation> operations) {
        operations.put("producer.start", this::start);
        operations.put("producer.stop", args -> {
            producers.remove(args.text("name")).shutdown();
            return null;
        });
        operations.put("producer.send", this::send);
        operations.put("producer.send_start", this::sendStart);
        operations.put("producer.send_wait", args -> jobs.get(args.text("job"))
            .awaitAttempted(args.integer("at_least"), args.number("timeout_ms")));
        operations.put("producer.send_join", args -> jobs.remove(args.text("job")).finish(args.number("timeout_ms")));
        operations.put("producer.send_text", this::sendText);
        operations.put("producer.recall", this::recall);
        operations.put("producer.queues", args -> {
            List<Object> queues = new ArrayList<>();
            producers.get(args.text("name")).fetchPublishMessageQueues(args.text("topic"))
                .forEach(queue -> queues.add(Arrays.asList(queue.getBrokerName(), queue.getQueueId())));
            return queues;
        });
    }

    private Object start(Args args) throws Exception {
        // Both lines read the compression type once, when the producer is made.
        System.setProperty(COMPRESS_TYPE, args.text("compress_type", "ZLIB"));
        DefaultMQProducer producer = new DefaultMQProducer(args.text("group"));
        System.clearProperty(COMPRESS_TYPE);
        Clients.configure(producer, args);
        producer.setSendMsgTimeout(args.integer("timeout_ms", 3000));
        producer.setRetryTimesWhenSendFailed(args.integer("retries", 2));
        producer.setRetryTimesWhenSendAsyncFailed(args.integer("retries", 2));
        producer.setDefaultTopicQueueNums(args.integer("topic_queues", 4));
        if (args.has("topic_key")) {
            producer.setCreateTopicKey(args.text("topic_key"));
        }
        if (args.has("max_message_bytes")) {
            producer.setMaxMessageSize(args.integer("max_message_bytes"));
        }
        producers.put(args.text("name"), producer);
        producer.start();
        return null;
    }

    private Object send(Args args) throws Exception {
        SendJob job = new SendJob(producers.get(args.text("name")), args);
        job.run();
        return job.summary();
    }

    private Object sendStart(Args args) {
        SendJob job = new SendJob(producers.get(args.text("name")), args);
        jobs.put(args.text("job"), job);
        job.start();
        return null;
    }

    /** One message with given text, tag, keys and properties; the whole send result. */
    private Object sendText(Args args) throws Exception {
        Message message = new Message(args.text("topic"), args.text("tag", null), args.text("keys", null),
            args.text("body").getBytes(StandardCharsets.UTF_8));
        for (String property : args.texts("properties")) {
            int at = property.indexOf('=');
            message.putUserProperty(property.substring(0, at), property.substring(at + 1));
        }
        for (String time : args.texts("timed")) {
            askForTime(message, time);
        }
        SendResult sent = producers.get(args.text("name")).send(message);
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("status", sent.getSendStatus().name());
        result.put("broker", sent.getMessageQueue().getBrokerName());
        result.put("queue", sent.getMessageQueue().getQueueId());
        result.put("offset", sent.getQueueOffset());
        result.put("msg_id", sent.getMsgId());
        result.put("offset_msg_id", sent.getOffsetMsgId());
        result.put("recall_handle", recallHandle(sent));
        return result;
    }

    /** Ask for a time of delivery: {@code NAME=value}, with {@code NAME=+value} for so many ms from now. */
    private static void askForTime(Message message, String time) {
        int at = time.indexOf('=');
        String value = time.substring(at + 1);
        if (value.startsWith("+")) {
            value = Long.toString(System.currentTimeMillis() + Long.parseLong(value));
        }
        MessageAccessor.putProperty(message, time.substring(0, at), value);
    }

    /** Clients of the 4.x line have no such thing. */
    private static Object recallHandle(SendResult sent) throws ReflectiveOperationException {
        try {
            return sent.getClass().getMethod("getRecallHandle").invoke(sent);
        } catch (NoSuchMethodException older) {
            return null;
        }
    }

    /** Take a timed message back; its id. Only clients of the 5.x line can. */
    private Object recall(Args args) throws ReflectiveOperationException {
        DefaultMQProducer producer = producers.get(args.text("name"));
        return producer.getClass().getMethod("recallMessage", String.class, String.class)
            .invoke(producer, args.text("topic"), args.text("handle"));
    }

    /**
     * A run of messages with sequence numbers {@code first .. first+count-1}.
     *
     * <p>With {@code insist} a message that failed is sent again until it is acknowledged, so the run ends with every
     * message stored at least once; else a failure is reported and the run goes on. With {@code rate} no more messages
     * than that are begun in a second; {@code took_ms} of the summary is for how long the run went on.
     */
    private static final class SendJob extends Thread {
        private final DefaultMQProducer producer;
        private final Args args;
        private final String mode;
        private final String topic;
        private final String seed;
        private final int first;
        private final int count;
        private final int size;
        private final List<String> tags;
        private final List<Integer> delayLevels;
        private final List<String> timed;
        private final List<String> properties;
        private final int rate;
        private final long began = System.nanoTime();
        private final long insistUntil;
        private final List<List<Object>> results = new ArrayList<>();
        private final List<List<Object>> errors = new ArrayList<>();
        private final Semaphore inFlight = new Semaphore(ASYNC_IN_FLIGHT);
        private int attempted;
        private int failures;
        private long tookMs;
        private Throwable crash;

        SendJob(DefaultMQProducer producer, Args args) {
            super("puppet-send");
            setDaemon(true);
            this.producer = producer;
            this.args = args;
            mode = args.text("mode", "sync");
            topic = args.text("topic");
            seed = args.text("seed");
            first = args.integer("first", 0);
            count = args.integer("count");
            size = args.integer("size", 128);
            tags = args.texts("tags");
            delayLevels = args.integers("delay_levels");
            timed = args.texts("timed");
            properties = args.texts("properties");
            rate = args.integer("rate", 0);
            insistUntil = System.currentTimeMillis() + args.number("insist_ms", 0);
        }

        @Override
        public void run() {
            try {
                if (mode.equals("batch")) {
                    sendBatches(args.integer("batch", 32));
                } else {
                    for (int sequence = first; sequence < first + count; sequence++) {
                        keepPace(sequence - first);
                        sendOne(sequence);
                    }
                }
                inFlight.acquire(ASYNC_IN_FLIGHT);
            } catch (Throwable failure) {
                crash = failure;
            }
            progressed(0);
        }

        private void keepPace(int done) throws InterruptedException {
            if (rate > 0) {
                long ahead = began + done * 1_000_000_000L / rate - System.nanoTime();
                if (ahead > 0) {
                    Thread.sleep(ahead / 1_000_000, (int) (ahead % 1_000_000));
                }
            }
        }

        private Message message(int sequence) {
            String tag = tags.isEmpty() ? null : tags.get(sequence % tags.size());
            String keys = args.flag("keys") ? seed + "-" + sequence : null;
            Message message = new Message(topic, tag, keys, Bodies.make(seed, sequence, size));
            message.putUserProperty(Received.SEQUENCE, Integer.toString(sequence));
            for (String property : properties) {
                int at = property.indexOf('=');
                MessageAccessor.putProperty(message, property.substring(0, at), property.substring(at + 1));
            }
            if (!delayLevels.isEmpty()) {
                message.setDelayTimeLevel(delayLevels.get(sequence % delayLevels.size()));
            }
            if (!timed.isEmpty()) {
                askForTime(message, timed.get(sequence % timed.size()));
            }
            return message;
        }

        private void sendOne(int sequence) throws InterruptedException {
            switch (mode) {
                case "sync" -> insist(sequence, () -> producer.send(message(sequence)));
                case "ordered" -> insist(sequence, () ->
                    producer.send(message(sequence), BY_KEY, "key-" + sequence % args.integer("order_keys", 7)));
                case "queue" -> insist(sequence, () ->
                    producer.send(message(sequence), BY_NUMBER, args.integer("queue")));
                case "oneway" -> insist(sequence, () -> {
                    producer.sendOneway(message(sequence));
                    return null;
                });
                case "async" -> {
                    inFlight.acquire();
                    sendAsync(sequence);
                }
                default -> throw new IllegalArgumentException("no send mode " + mode);
            }
            if (!mode.equals("async")) {
                progressed(1);
            }
        }

        private void insist(int sequence, Call call) throws InterruptedException {
            while (true) {
                try {
                    SendResult sent = call.send();
                    if (sent != null) {
                        acknowledged(sequence, sent, 0);
                    }
                    return;
                } catch (InterruptedException interrupted) {
                    throw interrupted;
                } catch (Exception failure) {
                    if (!tryAgain(sequence, failure)) {
                        return;
                    }
                }
            }
        }

        private void sendAsync(int sequence) {
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    acknowledged(sequence, sent, 0);
                    inFlight.release();
                    progressed(1);
                }

                @Override
                public void onException(Throwable failure) {
                    failedAsync(sequence, failure);
                }
            };
            try {
                producer.send(message(sequence), callback);
            } catch (Exception failure) {
                failedAsync(sequence, failure);
            }
        }

        private void failedAsync(int sequence, Throwable failure) {
            Thread again = new Thread(() -> {
                try {
                    if (tryAgain(sequence, failure)) {
                        sendAsync(sequence);
                        return;
                    }
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
                inFlight.release();
                progressed(1);
            }, "puppet-send-again");
            again.setDaemon(true);
            again.start();
        }

        private void sendBatches(int batchSize) throws InterruptedException {
            for (int from = first; from < first + count; from += batchSize) {
                int to = Math.min(from + batchSize, first + count);
                List<Message> batch = new ArrayList<>();
                for (int sequence = from; sequence < to; sequence++) {
                    batch.add(message(sequence));
                }
                int start = from;
                while (true) {
                    try {
                        SendResult sent = producer.send(batch);
                        for (int sequence = start; sequence < to; sequence++) {
                            acknowledged(sequence, sent, sequence - start);
                        }
                        break;
                    } catch (InterruptedException interrupted) {
                        throw interrupted;
                    } catch (Exception failure) {
                        if (!tryAgain(start, failure)) {
                            break;
                        }
                        batch.forEach(message -> message.getProperties()
                            .remove(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
                    }
                }
                progressed(to - from);
            }
        }

        /** Count a failure; true after a short pause when the message is to be sent again. */
        private boolean tryAgain(int sequence, Throwable failure) throws InterruptedException {
            synchronized (this) {
                failures++;
            }
            if (System.currentTimeMillis() >= insistUntil) {
                synchronized (this) {
                    errors.add(Arrays.asList(sequence, failure.toString(), Puppet.responseCode(failure)));
                }
                return false;
            }
            Thread.sleep(100);
            return true;
        }

        private synchronized void acknowledged(int sequence, SendResult sent, int inBatch) {
            String[] ids = sent.getMsgId().split(",");
            results.add(Arrays.asList(sequence, sent.getSendStatus().name(), sent.getMessageQueue().getBrokerName(),
                sent.getMessageQueue().getQueueId(), sent.getQueueOffset() + inBatch, ids[Math.min(inBatch, ids.length - 1)]));
        }

        private synchronized void progressed(int messages) {
            attempted += messages;
            tookMs = (System.nanoTime() - began) / 1_000_000;
            notifyAll();
        }

        synchronized Object awaitAttempted(int atLeast, long timeoutMs) throws InterruptedException {
            long deadline = System.currentTimeMillis() + timeoutMs;
            while (attempted < atLeast && crash == null) {
                long left = deadline - System.currentTimeMillis();
                if (left <= 0) {
                    break;
                }
                wait(left);
            }
            return attempted;
        }

        Object finish(long timeoutMs) throws Exception {
            join(timeoutMs);
            if (isAlive()) {
                interrupt();
                throw new IllegalStateException("still sending: " + attempted + " of " + count + " attempted, "
                    + failures + " failures");
            }
            return summary();
        }

        synchronized Map<String, Object> summary() throws Exception {
            if (crash != null) {
                throw new IllegalStateException("the send run ended early", crash);
            }
            Map<String, Object> summary = new LinkedHashMap<>();
            summary.put("attempted", attempted);
            summary.put("failures", failures);
            summary.put("took_ms", tookMs);
            summary.put("results", new ArrayList<>(results));
            summary.put("errors", new ArrayList<>(errors));
            return summary;
        }
    }

    private static final MessageQueueSelector BY_KEY =
        (queues, message, key) -> queues.get(Math.floorMod(key.hashCode(), queues.size()));
    private static final MessageQueueSelector BY_NUMBER = (queues, message, queueId) -> queues.stream()
        .filter(queue -> queue.getQueueId() == (Integer) queueId).findFirst().orElseThrow();

    @FunctionalInterface
    private interface Call {
        SendResult send() throws Exception;
    }
}
