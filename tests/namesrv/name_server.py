"""A name server without ports: connections on string transports, a virtual clock, files in memory."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from zope.interface import implementer

from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.codec.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    encode_register_broker,
    register_body_crc32,
)
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.headers import RegisterBrokerRequestHeader
from txrocketmq.config.schema import NamesrvConfig
from txrocketmq.config.write_back import write_back
from txrocketmq.errors import RemotingConnectError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import CURRENT_VERSION, RequestCode
from txrocketmq.model.static_topic import TopicQueueMappingInfo
from txrocketmq.model.topic import DataVersion, TopicConfig
from txrocketmq.namesrv.server import NameServer
from txrocketmq.remoting.protocol import RemotingProtocol, RemotingServerFactory
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool

START_S = 1_700_000_000
CLUSTER = "DefaultCluster"
CONFIG_FILE = "/namesrv/namesrv.properties"
SELF_TOPIC = "SELF_TEST_TOPIC"


class Peer:
    """One connection to the name server, seen from its other end."""

    def __init__(self, factory: RemotingServerFactory, number: int) -> None:
        address = IPv4Address("TCP", "192.0.2.10", 40000 + number)
        protocol = factory.buildProtocol(address)
        assert protocol is not None
        self.protocol: RemotingProtocol = protocol
        self.transport = StringTransport(IPv4Address("TCP", "192.0.2.1", 9876), address)
        self.protocol.makeConnection(self.transport)

    def send_frame(self, frame: bytes) -> list[RemotingCommand]:
        """Hand bytes over; what is answered at once."""
        self.protocol.dataReceived(frame)
        data = self.transport.value()
        self.transport.clear()
        return [decode_command(answer) for answer in FrameSplitter().feed(data)]

    def ask(self, code: RequestCode | int, header: Any = None, **options: Any) -> RemotingCommand:
        """Send a request; its answer."""
        request = RemotingCommand.create_request(int(code), header, opaque=7, **options)
        (answer,) = self.send_frame(request.encode())
        assert answer.opaque == 7
        return answer

    def drop(self) -> None:
        """Lose the connection."""
        self.protocol.connectionLost()


@implementer(IRemotingClient)
class Notices:
    """Remembers what the name server tells brokers; those in ``absent`` cannot be reached."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, Any]] = []
        self.absent: set[str] = set()

    def oneway(
        self, address: str, code: int, header: object, body: bytes, timeout_ms: int
    ) -> Deferred[None]:
        if address in self.absent:
            return fail(RemotingConnectError(address, "connection refused"))
        self.told.append((address, code, header))
        return succeed(None)

    def request(self, *args: Any, **options: Any) -> Deferred[Any]:
        raise AssertionError("a name server asks nobody")

    def close_address(self, address: str) -> None:
        raise AssertionError("a name server keeps its links")

    def stop(self) -> Deferred[None]:
        return succeed(None)


class World:
    """The server with its clock and disk."""

    def __init__(self, disk: MemoryDisk | None = None, **settings: Any) -> None:
        self.clock = Clock()
        self.notices = Notices()
        self.clock.advance(START_S)
        self.disk = disk or MemoryDisk()
        self.config = NamesrvConfig(**settings)
        pool = ImmediatePool()
        self.server = NameServer(
            self.config,
            self.clock,
            ConfigFiles(self.disk, pool, "/namesrv"),
            client=self.notices,
            unknown={"ownKey": "kept"},
            keep=partial(pool.submit, write_back, self.disk, CONFIG_FILE),
        )
        self.server.start()
        self.factory = RemotingServerFactory(self.server.dispatcher, self.clock, self.server)
        self._peers = 0

    def connect(self) -> Peer:
        """A new connection."""
        self._peers += 1
        return Peer(self.factory, self._peers)

    def pass_seconds(self, seconds: float) -> None:
        """Let time go by in steps of a second, as a reactor would."""
        whole = int(seconds)
        self.clock.pump([1] * whole + ([seconds - whole] if seconds > whole else []))


def topics(*names: str, perm: int = 6, queues: int = 4, flag: int = 0) -> dict[str, TopicConfig]:
    """A broker's topic table; brokers always have some topic of their own besides."""
    return {
        name: TopicConfig(
            topic_name=name,
            perm=perm,
            read_queue_nums=queues,
            write_queue_nums=queues,
            topic_sys_flag=flag,
        )
        for name in (SELF_TOPIC, *names)
    }


def register(
    peer: Peer,
    *,
    table: dict[str, TopicConfig] | None = None,
    name: str = "broker-a",
    address: str = "192.0.2.10:10911",
    broker_id: int = 0,
    cluster: str = CLUSTER,
    counter: int = 1,
    state_version: int = 0,
    compressed: bool = False,
    version: int = CURRENT_VERSION,
    crc32: int | None = None,
    filter_servers: list[str] | None = None,
    mappings: dict[str, TopicQueueMappingInfo] | None = None,
    ext_fields: dict[str, str] | None = None,
    **fields: Any,
) -> RemotingCommand:
    """Register a broker; the answer."""
    body = encode_register_broker(
        RegisterBrokerBody(
            filter_server_list=filter_servers or [],
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                data_version=DataVersion(
                    counter=counter, state_version=state_version, timestamp=START_S * 1000
                ),
                topic_config_table=topics("TopicA") if table is None else table,
                topic_queue_mapping_info_map=mappings or {},
            ),
        ),
        compressed=compressed,
    )
    header = RegisterBrokerRequestHeader(
        broker_name=name,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr=address + "1",
        broker_id=broker_id,
        compressed=compressed,
        body_crc32=register_body_crc32(body) if crc32 is None else crc32,
        **fields,
    )
    return peer.ask(
        RequestCode.REGISTER_BROKER, header, body=body, version=version, ext_fields=ext_fields
    )
