"""Which official defaults depend on the machine, and how are they worked out?

The words are those of the official reference; home directory, environment, host name and processors are looked at when
a configuration object is made, never at import.
"""

from __future__ import annotations

import os
import socket

from txrocketmq.config.keys import Computed, cpu_count


def _below_home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), *parts)


ROCKETMQ_HOME = Computed(
    "property rocketmq.home.dir, else environment ROCKETMQ_HOME",
    lambda: os.environ.get("ROCKETMQ_HOME"),
)
NAMESRV_ADDR = Computed(
    "property rocketmq.namesrv.addr, else environment NAMESRV_ADDR",
    lambda: os.environ.get("NAMESRV_ADDR"),
)
# Empty until the service layer has looked at the network interfaces.
LOCAL_ADDRESS = Computed("first non-loopback local address (IPv4 preferred)", lambda: "")
HOST_NAME = Computed(
    "host name, else DEFAULT_BROKER", lambda: socket.gethostname() or "DEFAULT_BROKER"
)
STORE_HOME = Computed("~/store", lambda: _below_home("store"))
KV_CONFIG_HOME = Computed(
    "~/namesrv/kvConfig.json", lambda: _below_home("namesrv", "kvConfig.json")
)
NAMESRV_CONFIG_HOME = Computed(
    "~/namesrv/namesrv.properties", lambda: _below_home("namesrv", "namesrv.properties")
)
CPUS = Computed("number of CPUs", cpu_count)
UP_TO_4_CPUS = Computed("min(CPUs, 4)", lambda: min(cpu_count(), 4))
UP_TO_32_CPUS = Computed("min(32, CPUs)", lambda: min(32, cpu_count()))
CPUS_PLUS_8 = Computed("8 + CPUs", lambda: 8 + cpu_count())
TWICE_CPUS_PLUS_16 = Computed("16 + 2*CPUs", lambda: 16 + 2 * cpu_count())
END_TRANSACTION_THREADS = Computed(
    "max(8 + 2*CPUs, 4*sendMessageThreadPoolNums)",
    lambda: max(8 + 2 * cpu_count(), 4 * min(cpu_count(), 4)),
)
TLS_WANTED = Computed(
    "property tls.enable, else true when tls.server.mode is enforcing", lambda: False
)
