package org.txrocketmq.interop;

import com.google.gson.Gson;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What one consumer got, in the order it got it.
 *
 * <p>A row is {@code [broker, queue, queue offset, sequence, body digest, tag, keys, reconsume times, message id,
 * time of receipt in ms]}. With a record file each row is also written there before the consumer's listener
 * returns, so that the rows of a killed process are not lost with it.
 */
final class Received {
    static final String SEQUENCE = "seq";
    private static final Gson GSON = new Gson();

    private final List<List<Object>> rows = new ArrayList<>();
    private final List<List<Object>> times = new ArrayList<>();
    private final Set<String> distinct = new HashSet<>();
    private final FileChannel record;

    Received(String recordFile) throws IOException {
        record = recordFile == null ? null
            : FileChannel.open(Path.of(recordFile), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    static List<Object> row(MessageExt message) {
        String sequence = message.getUserProperty(SEQUENCE);
        return Arrays.asList(
            message.getBrokerName(),
            message.getQueueId(),
            message.getQueueOffset(),
            sequence == null ? -1 : Integer.parseInt(sequence),
            Bodies.digest(message.getBody()),
            message.getTags(),
            message.getKeys(),
            message.getReconsumeTimes(),
            message.getMsgId(),
            System.currentTimeMillis());
    }

    synchronized void add(MessageExt message) {
        List<Object> row = row(message);
        if (record != null) {
            try {
                record.write(ByteBuffer.wrap((GSON.toJson(row) + "\n").getBytes(StandardCharsets.UTF_8)));
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
        rows.add(row);
        times.add(Arrays.asList(row.get(3), message.getReconsumeTimes(), message.getBornTimestamp(), message.getStoreTimestamp()));
        distinct.add(row.get(3) + " " + row.get(4));
        notifyAll();
    }

    /** Wait until that many different messages came, or the time is over; how many did. */
    synchronized int awaitDistinct(int atLeast, long timeoutMs) throws InterruptedException {
        long deadline = System.nanoTime() + timeoutMs * 1_000_000;
        while (distinct.size() < atLeast) {
            long left = (deadline - System.nanoTime()) / 1_000_000;
            if (left <= 0) {
                break;
            }
            wait(left);
        }
        return distinct.size();
    }

    /** Wait until that many messages came, each counted as often as it came, or the time is over; how many did. */
    synchronized int awaitRows(int atLeast, long timeoutMs) throws InterruptedException {
        long deadline = System.nanoTime() + timeoutMs * 1_000_000;
        while (rows.size() < atLeast) {
            long left = (deadline - System.nanoTime()) / 1_000_000;
            if (left <= 0) {
                break;
            }
            wait(left);
        }
        return rows.size();
    }

    /** Of each row: {@code [sequence, reconsume times, time of birth, time of storing]}, in ms. */
    synchronized List<List<Object>> times() {
        return new ArrayList<>(times);
    }

    synchronized List<List<Object>> rows() {
        return new ArrayList<>(rows);
    }
}
