package org.txrocketmq.interop;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;

/** Settings that every client of the puppet gets. */
final class Clients {
    private static final AtomicInteger NUMBER = new AtomicInteger();

    private Clients() {
    }

    /**
     * Give a client its name servers and a client instance of its own, so that stopping one leaves the others alone.
     * Intervals stay at the official defaults unless asked otherwise.
     */
    static void configure(ClientConfig client, Args args) {
        client.setNamesrvAddr(args.text("namesrv"));
        client.setInstanceName(args.text("instance", "puppet-" + ProcessHandle.current().pid() + "-" + NUMBER.incrementAndGet()));
        if (args.has("poll_namesrv_ms")) {
            client.setPollNameServerInterval(args.integer("poll_namesrv_ms"));
        }
        if (args.has("heartbeat_ms")) {
            client.setHeartbeatBrokerInterval(args.integer("heartbeat_ms"));
        }
        if (args.has("persist_offset_ms")) {
            client.setPersistConsumerOffsetInterval(args.integer("persist_offset_ms"));
        }
        client.setUnitMode(args.flag("unit_mode"));
        client.setVipChannelEnabled(args.flag("vip_channel"));
        if (args.has("namespace")) {
            client.setNamespace(args.text("namespace"));
        }
    }
}
