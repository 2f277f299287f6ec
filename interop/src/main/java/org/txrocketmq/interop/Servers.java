package org.txrocketmq.interop;

import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.namesrv.NamesrvStartup;

/** Official servers hosted in the puppet's process, so that a control cluster needs few processes. */
final class Servers {
    private final Registry<NamesrvController> nameServers = new Registry<>("name server");
    private final Registry<BrokerController> brokers = new Registry<>("broker");

    void register(Map<String, Puppet.Operation> operations) {
        operations.put("server.start_namesrv", args -> {
            NamesrvController controller = NamesrvStartup.main0(new String[] {"-c", args.text("config")});
            nameServers.put(args.text("name"), controller);
            return null;
        });
        operations.put("server.stop_namesrv", args -> {
            nameServers.remove(args.text("name")).shutdown();
            return null;
        });
        operations.put("server.start_broker", args -> {
            BrokerController controller = BrokerStartup.createBrokerController(new String[] {"-c", args.text("config")});
            brokers.put(args.text("name"), BrokerStartup.start(controller));
            registerSoon(args.text("name"), controller);
            return null;
        });
        operations.put("server.stop_broker", args -> {
            brokers.remove(args.text("name")).shutdown();
            return null;
        });
    }

    /**
     * A broker of the 5.x line knows no name server as available in its first three seconds and then registers only
     * after ten; tests need not wait for that.
     */
    private void registerSoon(String name, BrokerController controller) {
        Thread thread = new Thread(() -> {
            try {
                for (int round = 0; round < 10; round++) {
                    Thread.sleep(500);
                    if (brokers.find(name) == controller) {
                        controller.registerBrokerAll(true, false, true);
                    }
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }, "puppet-register");
        thread.setDaemon(true);
        thread.start();
    }
}
