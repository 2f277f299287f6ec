"""A whole broker in memory: store on a memory disk, dispatcher, links on string transports, a clock that the test moves."""

from __future__ import annotations

from typing import Any, TypeVar

from fakes import FakeClient
from request_headers import pull_header, send_header
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from txrocketmq.broker.config_files import ConfigFiles
from txrocketmq.broker.core import FROZEN_KEYS, BrokerCore
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.headers import (
    Header,
    PullMessageResponseHeader,
    SendMessageResponseHeader,
)
from txrocketmq.codec.record import decode_records
from txrocketmq.config.reload import RunTimeConfiguration
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message import MessageExt
from txrocketmq.remoting.dispatch import Dispatcher
from txrocketmq.remoting.protocol import RemotingServerFactory
from txrocketmq.store.message_store import MessageStore
from txrocketmq.store.upkeep import StoreUpkeep
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ImmediatePool

START_S = 1_700_000_000
PORT = 10911
ROOT = "/store"

H = TypeVar("H", bound=Header)


class Peer:
    """A client's link to the broker."""

    def __init__(self, broker: SmallBroker, address: Any) -> None:
        self._broker = broker
        self.clock = broker.clock
        protocol = broker.factory.buildProtocol(address)
        assert protocol is not None
        self.protocol = protocol
        local = IPv4Address("TCP", "192.0.2.1", PORT)
        self.transport = StringTransport(local, address)
        protocol.makeConnection(self.transport)
        self._opaque = 0
        self.told: list[RemotingCommand] = []
        self._answers: dict[int, RemotingCommand] = {}

    def tell(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        ext_fields: dict[str, str] | None = None,
        flag: int = 0,
        serialize_type: int = 0,
        version: int = 493,
    ) -> int:
        """Send a request; its opaque."""
        self._opaque += 1
        command = RemotingCommand.create_request(
            code,
            header,
            body=body,
            ext_fields=ext_fields,
            opaque=self._opaque,
            flag=flag,
            serialize_type=serialize_type,
            version=version,
        )
        self.protocol.dataReceived(command.encode())
        return self._opaque

    def answer(self, opaque: int) -> RemotingCommand | None:
        """The answer to a request, None while there is none; what the broker says by itself goes to `told`."""
        for frame in FrameSplitter().feed(self.transport.value()):
            command = decode_command(frame)
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.told.append(command)
        self.transport.clear()
        return self._answers.get(opaque)

    def new_answers(self) -> dict[int, RemotingCommand]:
        """The answers since the last such look, by opaque."""
        self.answer(-1)
        answers, self._answers = self._answers, {}
        return answers

    def ask(self, code: int, *arguments: Any, **options: Any) -> RemotingCommand:
        """Send a request that is answered at once."""
        answer = self.answer(self.tell(code, *arguments, **options))
        assert answer is not None, f"no answer to {code}"
        return answer

    def ask_for(self, kind: type[H], code: int, *arguments: Any, **options: Any) -> H:
        """Send a request that succeeds; the answer's header."""
        answer = self.ask(code, *arguments, **options)
        assert answer.code == 0, f"{answer.code}: {answer.remark}"
        return answer.decode_header(kind)

    def notices(self) -> list[RemotingCommand]:
        """What the broker said by itself since the last look."""
        self.answer(-1)
        told, self.told = self.told, []
        return told

    def send(self, topic: str = "TopicA", body: bytes = b"hello", **fields: Any) -> Any:
        """Send a message; the answer's header."""
        return self.ask_for(
            SendMessageResponseHeader,
            RequestCode.SEND_MESSAGE_V2,
            send_header(topic, **fields),
            body,
        )

    def pull(
        self, topic: str = "TopicA", queue_id: int = 0, offset: int = 0, **fields: Any
    ) -> Pulled:
        """Pull, not waiting."""
        return Pulled(
            self.ask(RequestCode.PULL_MESSAGE, pull_header(topic, queue_id, offset, **fields))
        )

    def close(self) -> None:
        self.protocol.connectionLost()


class Pulled:
    """The answer to a pull."""

    def __init__(self, command: RemotingCommand) -> None:
        self.command = command
        self.code = command.code
        self.remark = command.remark
        self.messages: list[MessageExt] = decode_records(command.body)

    @property
    def header(self) -> PullMessageResponseHeader:
        return self.command.decode_header(PullMessageResponseHeader)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class SmallBroker:
    """The broker. ``settings`` are attributes of `BrokerConfig` or `MessageStoreConfig`; ``pool`` does all work with the disk,
    ``read_pool`` what is read of it, where that is another one."""

    def __init__(
        self,
        disk: MemoryDisk | None = None,
        clock: Clock | None = None,
        *,
        memory_bytes: int = 1 << 30,
        more_sections: tuple[object, ...] = (),
        client: Any = None,
        pool: Any = None,
        read_pool: Any = None,
        limits: Any = None,
        dial: Any = None,
        one_slave_by_default: bool = False,
        **settings: Any,
    ) -> None:
        self.disk = disk or MemoryDisk()
        if clock is None:
            clock = Clock()
            clock.advance(START_S)
        self.clock = clock
        self.config = BrokerConfig(
            broker_name="broker-a",
            broker_cluster_name="ClusterA",
            broker_ip1="192.0.2.1",
            broker_ip2="192.0.2.1",
            namesrv_addr="",
        )
        self.store_config = MessageStoreConfig(
            store_path_root_dir=ROOT,
            store_path_commit_log=f"{ROOT}/commitlog",
            mapped_file_size_commit_log=1024 * 1024,
            mapped_file_size_consume_queue=20 * 1000,
            max_hash_slot_num=100,
            max_index_num=400,
            mapped_file_size_timer_log=52 * 1000 + 16,
        )
        for name, value in settings.items():
            owner = self.config if hasattr(self.config, name) else self.store_config
            assert hasattr(owner, name), name
            setattr(owner, name, value)
        pool = pool or ImmediatePool()
        self.store = MessageStore(
            self.store_config,
            self.disk,
            self.clock,
            pool=pool,
            flush_pool=pool,
            read_pool=read_pool or pool,
            limits=limits,
            memory_bytes=memory_bytes,
            is_controlled=self.config.enable_controller_mode,
        )
        self.client = client or FakeClient()
        self.kept: dict[str, str] = {}
        self.core = BrokerCore(
            self.config,
            self.store_config,
            self.store,
            StoreUpkeep(self.store, self.store_config, self.disk, pool, self.clock),
            self.client,
            self.clock,
            ConfigFiles(self.disk, pool, f"{ROOT}/config"),
            listen_port=PORT,
            configuration=RunTimeConfiguration(
                (self.config, self.store_config, *more_sections),
                self.now_ms,
                frozen=FROZEN_KEYS,
                black_list=lambda: self.config.config_black_list,
            ),
            keep_change=lambda changes: succeed(self.kept.update(changes)),
            dial=dial,
            disk=self.disk,
            one_slave_by_default=one_slave_by_default,
        )
        self.dispatcher = Dispatcher(
            self.core.operations,
            self.core.handlers(),
            self.clock,
            not_served=self.core.not_served,
            lane_limits=self.core.lane_limits(),
        )
        self.factory = RemotingServerFactory(
            self.dispatcher, self.clock, self.core.connection_listener
        )
        assert_fired(self.store.load())
        self.store.start()
        self.core.start()

    def now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    def connect(self, port: int = 40000, host: str = "192.0.2.10") -> Peer:
        kind = IPv6Address if ":" in host else IPv4Address
        return Peer(self, kind("TCP", host, port))

    def stop(self) -> None:
        assert_fired(self.core.stop())
        assert_fired(self.store.stop())

    def restarted(self, **settings: Any) -> SmallBroker:
        """An orderly stop, then a new broker on the same disk."""
        self.stop()
        return SmallBroker(self.disk, self.clock, **settings)


def assert_fired(deferred: Any) -> None:
    """A Deferred that has its result, which is no failure."""
    outcome: list[Any] = []
    deferred.addCallbacks(outcome.append, lambda failure: failure.raiseException())
    assert outcome, "not finished"


def properties(**values: str) -> str:
    """Property text as 5.x clients write it."""
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items())
