package org.txrocketmq.interop;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * Message bodies that both ends can compute from a seed, a sequence number and a size.
 *
 * <p>A body is the hex SHA-256 of {@code seed:sequence}, repeated and cut to the size.
 */
final class Bodies {
    private Bodies() {
    }

    static byte[] make(String seed, int sequence, int size) {
        byte[] block = hex((seed + ":" + sequence).getBytes(StandardCharsets.UTF_8)).getBytes(StandardCharsets.US_ASCII);
        byte[] body = new byte[size];
        for (int at = 0; at < size; at += block.length) {
            System.arraycopy(block, 0, body, at, Math.min(block.length, size - at));
        }
        return body;
    }

    /** The first 16 hex digits of a body's SHA-256: what reports carry. */
    static String digest(byte[] body) {
        return hex(body).substring(0, 16);
    }

    private static String hex(byte[] data) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(data);
            return HexFormat.of().formatHex(Arrays.copyOf(hash, 32));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
