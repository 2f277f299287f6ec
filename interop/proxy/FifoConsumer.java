import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * An official push consumer of a proxy: {@code FifoConsumer ENDPOINT GROUP TOPIC FAIL_EVERY}.
 *
 * <p>A line for each delivery: sequence number, which try it is, digest of the body, time. Of each {@code FAIL_EVERY} messages the last
 * one fails at its first try. The end of the input ends the process.
 */
public final class FifoConsumer {
    private FifoConsumer() {
    }

    public static void main(String[] argv) throws Exception {
        int failEvery = Integer.parseInt(argv[3]);
        // So that a machine that is busy does not end it before it began.
        ClientConfiguration where = ClientConfiguration.newBuilder()
            .setEndpoints(argv[0]).enableSsl(false).setRequestTimeout(Duration.ofSeconds(60)).build();
        PushConsumer consumer = ClientServiceProvider.loadService().newPushConsumerBuilder()
            .setClientConfiguration(where)
            .setConsumerGroup(argv[1])
            .setSubscriptionExpressions(Map.of(argv[2], new FilterExpression("*", FilterExpressionType.TAG)))
            .setConsumptionThreadCount(4)
            .setMessageListener(message -> consume(message, failEvery))
            .build();
        System.out.println("ready");
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.close();
        System.exit(0);
    }

    private static ConsumeResult consume(MessageView message, int failEvery) {
        byte[] body = new byte[message.getBody().remaining()];
        message.getBody().get(body);
        String seq = message.getProperties().getOrDefault("seq", "-1");
        synchronized (System.out) {
            System.out.println(seq + " " + message.getDeliveryAttempt() + " " + digest(body) + " " + System.currentTimeMillis());
            System.out.flush();
        }
        boolean fails = Integer.parseInt(seq) % failEvery == failEvery - 1 && message.getDeliveryAttempt() == 1;
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    }

    private static String digest(byte[] body) {
        try {
            String whole = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
            return new String(whole.getBytes(StandardCharsets.US_ASCII), 0, 16, StandardCharsets.US_ASCII);
        } catch (java.security.NoSuchAlgorithmException missing) {
            throw new IllegalStateException(missing);
        }
    }
}
