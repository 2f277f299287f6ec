"""How fast does an empty slave catch up, and what does a synchronous slave cost a send? Ours beside the official pair.

``python -m bench.replication [--mib 512] [--size 1024] [--repeats 1] [--catch-up]``: for each pair (official 5.4.0 with official 5.4.0, ours with ours) a
master is filled by an official producer, then its slave is started on an empty store; timed from the slave's first byte to the
last, and until its queues and index are derived too (``dispatchBehindBytes``), which an official slave does in a thread of its own. Then
64 threads send to a synchronous master with its slave (``inSyncReplicas=2``, so that both makes wait). The pairs take
turns and do not run side by side.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import time
from pathlib import Path
from typing import Any

from interop.harness.clients import Admin
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet
from interop.harness.replicas import GROUP, ReplicaGroup
from interop.harness.waiting import wait_until
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.fastjson import loads
from txrocketmq.model.codes import RequestCode

PAIRS = ("official-5.4.0", "ours")
TOPIC = "BenchReplication"
SEND_S = 8
OFFICIAL_FILE_BYTES = 1024 * 1024 * 1024
OVERHEAD_BYTES = 200
"""Of a record, besides its body, at most."""
PAUSE_S = 0.01


def figures_of(address: str) -> dict[str, str]:
    """What a running broker says of itself."""
    host, _, port = address.partition(":")
    asked = RemotingCommand.create_request(RequestCode.GET_BROKER_RUNTIME_INFO, None, opaque=1)
    with socket.create_connection((host, int(port)), 5) as link:
        link.sendall(asked.encode())
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            piece = link.recv(1 << 16)
            if not piece:
                raise ConnectionError(f"{address} hung up")
            data += piece
    body = decode_command(data[4:]).body
    # A broker that has just begun to listen may not know yet.
    told: Any = loads(body) if body else {"table": {}}
    table: dict[str, str] = told["table"]
    return table


def log_end(address: str) -> int:
    """End of a running broker's log."""
    return int(figures_of(address).get("commitLogMaxOffset", 0))


def is_derived(address: str) -> bool:
    """Whether a broker's queues have all that its log has."""
    return int(figures_of(address).get("dispatchBehindBytes", 1)) <= 0


def make_group(slots: JvmSlots, make: str, role: str) -> ReplicaGroup:
    """A master and a slave of one make, with files as large as the official default."""
    group = ReplicaGroup(slots, make, make, {"mappedFileSizeCommitLog": str(OFFICIAL_FILE_BYTES)})
    group.master.change_settings({"brokerRole": role, "inSyncReplicas": "2"})
    return group


def catch_up(
    slots: JvmSlots, puppet: Puppet, make: str, mib: int, size: int
) -> tuple[float, float]:
    """MB a second of a slave that has nothing, or next to nothing: until its log is whole, and until its queues are too."""
    group = make_group(slots, make, "ASYNC_MASTER")
    try:
        group.start_name_server()
        group.master.start_broker()
        slave, known = group.slave.broker_address, 0
        if mib * 1024 * 1024 * (size + OVERHEAD_BYTES) // size >= OFFICIAL_FILE_BYTES:
            # An empty slave begins with the master's last file: this one has the log's beginning.
            load(puppet, group, mode="sync", threads=1, size=size, count=1)
            known = log_end(group.master.broker_address)
            group.slave.start_broker()
            wait_until(lambda: log_end(slave) >= known, "the slave has the beginning", 120)
            group.slave.stop_broker(signal.SIGTERM)
        load(puppet, group, mode="batch", threads=4, batch=32, size=size,
             count=mib * 1024 * 1024 // size)  # fmt: skip
        end = log_end(group.master.broker_address)
        group.slave.start_broker()
        wait_until(lambda: log_end(slave) > known, "the slave begins", 120, PAUSE_S)
        first, begin = log_end(slave), time.monotonic()
        wait_until(lambda: log_end(slave) >= end, "the slave has all", 600, PAUSE_S)
        logged = time.monotonic() - begin
        wait_until(lambda: is_derived(slave), "its queues have all", 600, PAUSE_S)
        derived = time.monotonic() - begin
        return (end - first) / 1e6 / logged, (end - first) / 1e6 / derived
    finally:
        group.close()


def synchronous(slots: JvmSlots, puppet: Puppet, make: str, size: int) -> float:
    """Messages a second of 64 threads that each wait for the slave."""
    group = make_group(slots, make, "SYNC_MASTER")
    with group:
        wait_until(lambda: log_end(group.slave.broker_address) >= 0, "the slave runs")
        time.sleep(6)  # an official slave reports five seconds after it connected
        return load(puppet, group, mode="sync", threads=64, size=size, seconds=SEND_S)


def load(puppet: Puppet, group: ReplicaGroup, **args: object) -> float:
    """Put a load on the master; messages a second."""
    admin = Admin(puppet, group.namesrv)
    admin.wait_broker(GROUP)
    admin.create_topic(group.master.broker_address, TOPIC, 4)
    admin.wait_route(TOPIC)
    puppet.call("load.open", name="replication", group="bench_producer", namesrv=group.namesrv)
    try:
        told = puppet.call("load.send", name="replication", topic=TOPIC, timeout_ms=600_000, **args)
        return float(told["stored"]) / float(told["seconds"])
    finally:
        puppet.call("load.close", name="replication")
        admin.forget()


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--catch-up", action="store_true", help="nothing else")
    options = parser.parse_args()
    slots = JvmSlots()
    puppet = Puppet(slots, "5.4.0")
    rates: dict[tuple[str, str], list[float]] = {}
    with puppet.in_use():
        for _ in range(options.repeats):
            for make in PAIRS:
                rate, derived = catch_up(slots, puppet, make, options.mib, options.size)
                rates.setdefault(("catch-up, MB/s", make), []).append(rate)
                rates.setdefault(("the same with queues, MB/s", make), []).append(derived)
                print(f"{make}: {rate:.0f} MB/s, with queues {derived:.0f}", flush=True)
                if options.catch_up:
                    continue
                rate = synchronous(slots, puppet, make, options.size)
                rates.setdefault(("64 synchronous threads, messages/s", make), []).append(rate)
    puppet.close()
    for (what, make), found in rates.items():
        print(f"{what:40} {make:16} {statistics.median(found):12.0f}")
    print(f"load average {os.getloadavg()[0]:.1f}, {Path.cwd().name}")


if __name__ == "__main__":
    main()
