package org.txrocketmq.interop;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.NotifyResult;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PeekMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PollingInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PollingInfoResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * What proxies ask brokers about messages that are popped, by the client library that the official proxy uses (5.x).
 *
 * <p>A popped message is {@code [row, handle]}; the handle is what an acknowledgement names.
 */
final class Pops {
    private final Registry<MQClientAPIExt> clients = new Registry<>("popping client");

    void register(Map<String, Puppet.Operation> operations) {
        operations.put("pops.start", this::start);
        operations.put("pops.stop", args -> {
            clients.remove(args.text("name")).shutdown();
            return null;
        });
        operations.put("pops.pop", this::pop);
        operations.put("pops.ack", this::acknowledge);
        operations.put("pops.later", this::later);
        operations.put("pops.peek", this::peek);
        operations.put("pops.news", this::news);
        operations.put("pops.waiting", this::waiting);
    }

    private Object start(Args args) {
        ClientConfig settings = new ClientConfig();
        Clients.configure(settings, args);
        MQClientAPIExt client = new MQClientAPIExt(settings, new NettyClientConfig(), new ClientRemotingProcessor(null), null);
        client.updateNameServerAddressList();
        client.start();
        clients.put(args.text("name"), client);
        return null;
    }

    private Object pop(Args args) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(args.text("group"));
        header.setTopic(args.text("topic"));
        header.setQueueId(args.integer("queue", -1));
        header.setMaxMsgNums(args.integer("max"));
        header.setInvisibleTime(args.number("invisible_ms"));
        header.setPollTime(args.number("poll_ms", 0));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(ConsumeInitMode.MIN);
        header.setExpType(ExpressionType.TAG);
        header.setExp(args.text("expression", "*"));
        header.setOrder(false);
        PopResult popped = result(args, clients.get(args.text("name"))
            .popMessageAsync(args.text("broker_addr"), args.text("broker"), header, args.number("timeout_ms")));
        List<Object> rows = new ArrayList<>();
        if (popped.getMsgFoundList() != null) {
            for (MessageExt message : popped.getMsgFoundList()) {
                rows.add(Arrays.asList(Received.row(message), message.getProperty(MessageConst.PROPERTY_POP_CK)));
            }
        }
        return rows;
    }

    /** Acknowledge popped messages all at once; OK, or NO_EXIST when the broker refused. */
    private Object acknowledge(Args args) throws Exception {
        return result(args, clients.get(args.text("name")).batchAckMessageAsync(args.text("broker_addr"), args.text("topic"),
            args.text("group"), args.texts("handles"), args.number("timeout_ms"))).getStatus().name();
    }

    /** Ask for one popped message to come again after another time; its new handle. */
    private Object later(Args args) throws Exception {
        String handle = args.text("handle");
        String[] parts = ExtraInfoUtil.split(handle);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, args.text("topic"), args.text("group")));
        header.setConsumerGroup(args.text("group"));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(handle);
        header.setInvisibleTime(args.number("invisible_ms"));
        return result(args, clients.get(args.text("name")).changeInvisibleTimeAsync(
            args.text("broker_addr"), args.text("broker"), header, args.number("timeout_ms"))).getExtraInfo();
    }

    /** Messages as they are found, not taken; the client library has no method for it. */
    private Object peek(Args args) throws Exception {
        PeekMessageRequestHeader header = new PeekMessageRequestHeader();
        header.setConsumerGroup(args.text("group"));
        header.setTopic(args.text("topic"));
        header.setQueueId(args.integer("queue", -1));
        header.setMaxMsgNums(args.integer("max"));
        RemotingCommand answer = result(args, clients.get(args.text("name")).invoke(args.text("broker_addr"),
            RemotingCommand.createRequestCommand(RequestCode.PEEK_MESSAGE, header), args.number("timeout_ms")));
        List<Object> rows = new ArrayList<>();
        if (answer.getCode() == ResponseCode.SUCCESS) {
            MessageDecoder.decodesBatch(ByteBuffer.wrap(answer.getBody()), true, true, false)
                .forEach(message -> rows.add(Received.row(message)));
        } else if (answer.getCode() != ResponseCode.PULL_NOT_FOUND) {
            throw new MQBrokerException(answer.getCode(), answer.getRemark());
        }
        return rows;
    }

    /** Wait for a message that could be popped: {@code [there is one, too many wait]}. */
    private Object news(Args args) throws Exception {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setConsumerGroup(args.text("group"));
        header.setTopic(args.text("topic"));
        header.setQueueId(args.integer("queue", -1));
        header.setPollTime(args.number("poll_ms"));
        header.setBornTime(System.currentTimeMillis());
        header.setOrder(false);
        NotifyResult told = result(args, clients.get(args.text("name"))
            .notificationWithPollingStats(args.text("broker_addr"), header, args.number("timeout_ms")));
        return Arrays.asList(told.isHasMsg(), told.isPollingFull());
    }

    /** How many pops wait. */
    private Object waiting(Args args) throws Exception {
        PollingInfoRequestHeader header = new PollingInfoRequestHeader();
        header.setConsumerGroup(args.text("group"));
        header.setTopic(args.text("topic"));
        header.setQueueId(args.integer("queue", -1));
        RemotingCommand answer = result(args, clients.get(args.text("name")).invoke(args.text("broker_addr"),
            RemotingCommand.createRequestCommand(RequestCode.POLLING_INFO, header), args.number("timeout_ms")));
        if (answer.getCode() != ResponseCode.SUCCESS) {
            throw new MQBrokerException(answer.getCode(), answer.getRemark());
        }
        return ((PollingInfoResponseHeader) answer.decodeCommandCustomHeader(PollingInfoResponseHeader.class)).getPollingNum();
    }

    private static <T> T result(Args args, CompletableFuture<T> answer) throws Exception {
        try {
            return answer.get(args.number("timeout_ms"), TimeUnit.MILLISECONDS);
        } catch (ExecutionException failure) {
            Throwable cause = failure.getCause();
            if (cause instanceof CompletionException && cause.getCause() != null) {
                cause = cause.getCause();
            }
            throw cause instanceof Exception ? (Exception) cause : failure;
        }
    }
}
