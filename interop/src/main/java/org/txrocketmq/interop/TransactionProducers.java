package org.txrocketmq.interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers of transactional messages whose outcomes are known beforehand.
 *
 * <p>An outcome is the local one, then what checks are answered, such as {@code unknown:unknown:commit}; the last
 * word counts for ever. Message {@code n} of a run has the outcome {@code n} modulo their number.
 */
final class TransactionProducers {
    private final Registry<Producer> producers = new Registry<>("transaction producer");

    void register(Map<String, Puppet.Operation> operations) {
        operations.put("transaction.start", this::start);
        operations.put("transaction.stop", args -> {
            producers.remove(args.text("name")).client.shutdown();
            return null;
        });
        operations.put("transaction.send", this::send);
        operations.put("transaction.asked", args -> producers.get(args.text("name")).plan.asked());
        operations.put("transaction.wait_asked", args -> producers.get(args.text("name")).plan
            .awaitAsked(args.integer("at_least"), args.number("timeout_ms")));
    }

    private record Producer(TransactionMQProducer client, Plan plan) {
    }

    private Object start(Args args) throws Exception {
        TransactionMQProducer client = new TransactionMQProducer(args.text("group"));
        Clients.configure(client, args);
        Plan plan = new Plan(args.texts("outcomes"));
        client.setTransactionListener(plan);
        producers.put(args.text("name"), new Producer(client, plan));
        client.start();
        return null;
    }

    /** Send a run of messages; of each {@code [sequence, send status, local state]}. */
    private Object send(Args args) throws Exception {
        TransactionMQProducer client = producers.get(args.text("name")).client;
        String seed = args.text("seed");
        int first = args.integer("first", 0);
        List<List<Object>> results = new ArrayList<>();
        for (int sequence = first; sequence < first + args.integer("count"); sequence++) {
            Message message = new Message(args.text("topic"), Bodies.make(seed, sequence, args.integer("size", 128)));
            message.putUserProperty(Received.SEQUENCE, Integer.toString(sequence));
            for (String property : args.texts("properties")) {
                int at = property.indexOf('=');
                MessageAccessor.putProperty(message, property.substring(0, at), property.substring(at + 1));
            }
            if (args.has("immunity_s")) {
                message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", args.text("immunity_s"));
            }
            TransactionSendResult sent = client.sendMessageInTransaction(message, sequence);
            results.add(Arrays.asList(sequence, sent.getSendStatus().name(), sent.getLocalTransactionState().name()));
        }
        return results;
    }

    /** The outcomes, and how often each message was asked for. */
    private static final class Plan implements TransactionListener {
        private final List<String> outcomes;
        private final Map<Integer, Integer> asked = new TreeMap<>();

        Plan(List<String> outcomes) {
            this.outcomes = outcomes;
        }

        private LocalTransactionState outcome(int sequence, int step) {
            String[] words = outcomes.get(sequence % outcomes.size()).split(":");
            return switch (words[Math.min(step, words.length - 1)]) {
                case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object sequence) {
            return outcome((Integer) sequence, 0);
        }

        @Override
        public synchronized LocalTransactionState checkLocalTransaction(MessageExt message) {
            int sequence = Integer.parseInt(message.getUserProperty(Received.SEQUENCE));
            int times = asked.merge(sequence, 1, Integer::sum);
            notifyAll();
            return outcome(sequence, times);
        }

        synchronized Map<String, Integer> asked() {
            Map<String, Integer> found = new LinkedHashMap<>();
            asked.forEach((sequence, times) -> found.put(sequence.toString(), times));
            return found;
        }

        /** Wait until so many messages were asked for, or the time is over; how many were. */
        synchronized int awaitAsked(int atLeast, long timeoutMs) throws InterruptedException {
            long deadline = System.currentTimeMillis() + timeoutMs;
            while (asked.size() < atLeast) {
                long left = deadline - System.currentTimeMillis();
                if (left <= 0) {
                    break;
                }
                wait(left);
            }
            return asked.size();
        }
    }
}
