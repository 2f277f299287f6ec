"""How is a group of brokers made, of whatever makes, whose master the official controller elects?"""

from __future__ import annotations

import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from txrocketmq.codec.bodies import SyncStateSet, decode_body
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.headers import (
    GetMetaDataResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    Header,
    SendMessageRequestHeaderV2,
)
from txrocketmq.model.codes import RequestCode

from . import ports
from .cluster import Cluster, make_broker, make_cluster
from .jvm import JavaProcess, JvmSlots
from .together import Closes, Together
from .waiting import wait_until

LINE = "5.4.0"
GROUP = "controlled"
MAIN = "org.apache.rocketmq.controller.ControllerStartup"
START_S = 60.0


class Rule(NamedTuple):
    """Who rules a group."""

    master: str | None
    epoch: int
    members: frozenset[int]


def ask(
    address: str, code: RequestCode, header: Header | None, body: bytes = b""
) -> RemotingCommand:
    """One request on a connection of its own."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as link:
        link.sendall(RemotingCommand.create_request(code.value, header, body=body).encode())
        splitter = FrameSplitter()
        while data := link.recv(65536):
            for frame in splitter.feed(data):
                return decode_command(frame)
    raise OSError(f"{address} closed the connection")


class Controller:
    """One official controller in a process of its own.

    :param number: which one of its Raft group.
    :param peers: all of the group, in order, as ``n0-host:port``; None when it is alone.
    """

    def __init__(self, slots: JvmSlots, number: int = 0, peers: list[str] | None = None) -> None:
        self._slots = slots
        self._ports = ports.reserve()
        self._number = number
        self._peers = [] if peers is None else peers
        self._peers.append(f"n{number}-{self.address}")
        self._home = Path(tempfile.mkdtemp(prefix="txrocketmq-controller-"))
        self.process: JavaProcess | None = None

    @property
    def address(self) -> str:
        """Where it is asked."""
        return f"127.0.0.1:{self._ports.listen}"

    def may_be_closed(self) -> bool:
        """Never while it is needed."""
        return False

    def start(self) -> None:
        """Returns once it listens."""
        self._slots.take(self)
        config = self._home / "controller.properties"
        config.write_text(
            "controllerDLegerGroup=group1\n"
            f"controllerDLegerPeers={';'.join(self._peers)}\n"
            f"controllerDLegerSelfId=n{self._number}\n"
            f"controllerStorePath={self._home / 'store'}\n"
            "scanNotActiveBrokerInterval=1000\n"
        )
        self.process = JavaProcess(LINE, {}, main=(MAIN, "-c", str(config)))
        wait_until(
            lambda: ports.accepts_connections(self._ports.listen), "the controller listens", START_S
        )

    def rule(self, name: str = GROUP) -> Rule:
        """Who rules a group now."""
        try:
            answer = ask(
                self.address,
                RequestCode.CONTROLLER_GET_REPLICA_INFO,
                GetReplicaInfoRequestHeader(broker_name=name),
            )
        except OSError:
            return Rule(None, 0, frozenset())
        if answer.code:
            return Rule(None, 0, frozenset())
        header = answer.decode_header(GetReplicaInfoResponseHeader)
        members = decode_body(SyncStateSet, answer.body).sync_state_set
        return Rule(header.master_address or None, header.master_epoch or 0, frozenset(members))

    def leader(self) -> str | None:
        """Who leads, as this one knows; None while it knows nobody or does not answer."""
        try:
            answer = ask(self.address, RequestCode.CONTROLLER_GET_METADATA_INFO, None)
        except OSError:
            return None
        found = answer.decode_header(GetMetaDataResponseHeader).controller_leader_address
        return found or None

    def end(self) -> None:
        """End the process; its files stay."""
        if self.process is not None:
            self.process.end()
            self._slots.give_back(self)
            self.process = None

    def close(self) -> None:
        """End it, and delete its files."""
        self.end()
        self._ports.release()
        shutil.rmtree(self._home, ignore_errors=True)


class ControlledGroup(Together):
    """A name server of ours, the controllers and the brokers of one group.

    :param makes: of the brokers; the first one becomes master first.
    :param controllers: how many there are.
    :ivar controller: the one that is asked who rules; any of them may be, as long as it leads.
    """

    def __init__(
        self,
        slots: JvmSlots,
        makes: Sequence[str],
        settings: Mapping[str, str] | None = None,
        controllers: int = 1,
    ) -> None:
        super().__init__(make_cluster("ours", slots))
        peers: list[str] = []
        self.controllers = [Controller(slots, number, peers) for number in range(controllers)]
        self.controller = self.controllers[0]
        self._common = {
            "brokerName": GROUP,
            "namesrvAddr": self._names.namesrv,
            "registerNameServerPeriod": "10000",
            "timerWheelEnable": "false",
            "enableControllerMode": "true",
            "controllerAddr": ";".join(one.address for one in self.controllers),
            "controllerHeartBeatTimeoutMills": "3000",
            "syncBrokerMetadataPeriod": "1000",
            "checkSyncStateSetPeriod": "1000",
            "haSendHeartbeatInterval": "1000",
            **(settings or {}),
        }
        self.brokers = [make_broker(make, slots, self._common) for make in makes]

    def _brokers(self) -> list[Cluster]:
        return self.brokers

    def _parts(self) -> Sequence[Closes]:
        return (self._names, *self.controllers, *self.brokers)

    def _start(self) -> None:
        self._names.start_name_servers()
        for one in self.controllers:
            one.start()
        self.wait_leader()
        for number, broker in enumerate(self.brokers):
            broker.start_broker()
            self.wait_members(number + 1)

    def wait_leader(self) -> Controller:
        """Until one of the controllers that run leads, by its own word: `controller` from now on."""

        def leading() -> Controller | None:
            living = [one for one in self.controllers if one.process is not None]
            return next((one for one in living if one.leader() == one.address), None)

        wait_until(lambda: leading() is not None, "a controller leads", 90)
        found = leading()
        assert found is not None
        self.controller = found
        return found

    def wait_members(self, count: int) -> Rule:
        """Until so many replicas are in sync."""
        wait_until(
            lambda: (
                (rule := self.controller.rule()).master is not None and len(rule.members) == count
            ),
            f"{count} replicas are in sync",
            90,
        )
        return self.controller.rule()

    @property
    def master(self) -> Cluster:
        """Who is master now."""
        address = self.controller.rule().master
        return next(broker for broker in self.brokers if broker.broker_address == address)

    def kill_master(self) -> tuple[Cluster, float]:
        """SIGKILL: who it was, and in how many seconds another one took its place and sends."""
        old, epoch = self.master, self.controller.rule().epoch
        old.stop_broker(signal.SIGKILL)
        began = time.monotonic()

        def is_replaced() -> bool:
            rule = self.controller.rule()
            return rule.epoch > epoch and rule.master is not None and self.takes(rule.master)

        wait_until(is_replaced, "another master", 90)
        return old, time.monotonic() - began

    def takes(self, address: str) -> bool:
        """Whether a broker takes a message."""
        return self.send(address, "ControlledProbe", b"probe")

    def send(self, address: str, topic: str, body: bytes) -> bool:
        """Send one message to one broker, past all routes."""
        header = SendMessageRequestHeaderV2(
            producer_group="probes",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=int(time.time() * 1000),
            flag=0,
        )
        try:
            return ask(address, RequestCode.SEND_MESSAGE_V2, header, body).code == 0
        except OSError:
            return False

    def give_a_tail(self, broker: Cluster, topic: str, count: int) -> None:
        """Let a broker that does not run take messages that nobody else gets, as if it had still been master."""
        broker.change_settings(
            {"enableControllerMode": "false", "brokerRole": "ASYNC_MASTER", "namesrvAddr": ""}
        )
        broker.start_broker()
        for number in range(count):
            assert self.send(broker.broker_address, topic, b"nobody else has this %d" % number)
        broker.stop_broker(signal.SIGTERM)
        broker.change_settings({"enableControllerMode": "true", "namesrvAddr": self.namesrv})

    def logs(self, lines: int = 40) -> str:
        """The last lines of what all wrote."""
        processes = [one.process for one in self.controllers if one.process is not None]
        told = "".join(process.tail(lines) for process in processes)
        return told + super().logs(lines)


def stop_all(group: ControlledGroup) -> list[Any]:
    """Slaves first; their stores, the master's first."""
    master = group.master
    for broker in group.brokers:
        if broker is not master:
            broker.stop_broker(signal.SIGTERM)
    master.stop_broker(signal.SIGTERM)
    return [master.store, *(b.store for b in group.brokers if b is not master)]
