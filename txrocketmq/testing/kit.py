"""How does an application test itself against RocketMQ? In one process, in milliseconds, with time in its hands.

`RocketMQ` is a name server and brokers of ours on a network in memory. Real clients talk to them through the whole protocol. Nothing happens
by itself: `RocketMQ.wait` lets time go by until something is done, `RocketMQ.advance` lets so many seconds go by, with every delay, retry, timer and
transaction check that falls due. ::

    with RocketMQ() as mq:
        producer = mq.producer("orders")
        mq.wait(producer.send(Message(topic="Orders", body=b"one")))
        mq.assert_stored("Orders", body=b"one")

In an ``async with`` block the bytes on the network move by themselves, so Deferreds can be awaited; longer times are still the test's to
advance. docs/test-kit.md is the tour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from string import ascii_lowercase
from types import TracebackType
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.consumer.config import PullConfig, PushConfig, Subscriptions
from txrocketmq.client.consumer.handlers import HandlerFunction
from txrocketmq.client.consumer.lite_pull import LitePullConsumer
from txrocketmq.client.consumer.push import PushConsumer
from txrocketmq.client.producer.config import ProducerConfig
from txrocketmq.client.producer.producer import Producer
from txrocketmq.client.producer.transactions import Check
from txrocketmq.client.results import SendResult
from txrocketmq.model.message import Message
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.remoting.dispatch import Dispatcher
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.faults import FaultCalls, Faults, FaultyDispatcher
from txrocketmq.testing.network import SOON_S, Network, Node
from txrocketmq.testing.servers import MemoryBroker, MemoryNameServer
from txrocketmq.testing.stored import StoredMessages

T = TypeVar("T")

NAME_SERVER = "192.0.2.1"
NAME_SERVER_PORT = 9876
BROKER_PORT = 10911
FIRST_BROKER = 11
NAMESRV = "namesrv"
OPERATOR = "txrocketmq-testing"
PATIENCE_S = 60.0


class _Server:
    """A broker of the test, up or down."""

    def __init__(self, host: str, disk: MemoryDisk) -> None:
        self.host = host
        self.disk = disk
        self.node: Node | None = None
        self.broker: MemoryBroker | None = None

    @property
    def is_up(self) -> bool:
        return self.node is not None and self.node.is_alive


class RocketMQ(StoredMessages[_Server], FaultCalls):
    """A name server and brokers in memory, and a virtual clock. ``with`` or ``async with``, or `start` and `stop`.

    Times are in seconds of the virtual clock, unless a name says otherwise.

    :param brokers: how many; their names are ``broker-a``, ``broker-b`` ...
    :param topics: made at the start, with four queues each. Other topics come with their first message, as brokers are set by default.
    :param name_server: settings of the name server, by their attribute's name.
    :param settings: of the brokers, by their attribute's name (`config.schema.BrokerConfig`, `config.schema.MessageStoreConfig`).
    :ivar network: the network in memory.
    :ivar reactor: what clients of the application under test are given as their reactor.
    :ivar faults: what goes wrong, and every request that came.
    """

    def __init__(
        self,
        brokers: int = 1,
        topics: Iterable[str] = (),
        name_server: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.network = Network()
        self.reactor = self.network.node()
        self.faults = Faults(self.reactor)
        self._settings = settings
        self._name_server_settings = dict(name_server or {})
        self._name_server_disk = MemoryDisk()
        self._name_server_node: Node | None = None
        self._servers = {
            f"broker-{ascii_lowercase[number]}": _Server(
                f"192.0.2.{FIRST_BROKER + number}", MemoryDisk()
            )
            for number in range(brokers)
        }
        self._first_topics = tuple(topics)
        self._clients: list[Any] = []
        self._operator: Producer | None = None
        self._is_moving = False
        self._has_started = False

    @property
    def namesrv_addr(self) -> str:
        """The address that clients are given."""
        return f"{NAME_SERVER}:{NAME_SERVER_PORT}"

    # ------------------------------------------------------------------ life

    def start(self) -> RocketMQ:
        """Start the servers; the brokers are registered when it returns."""
        if self._has_started:
            raise RuntimeError("this RocketMQ was started already; make a new one")
        self._has_started = True
        self.restart_name_server()
        for name in self._servers:
            self._start_broker(name)
        self.settle()
        for topic in self._first_topics:
            self.create_topic(topic)
        return self

    def stop(self) -> None:
        """Stop the clients that were made here, the newest first; the servers just end.

        :raises Exception: what the stop of a client failed with.
        """
        clients, self._clients = self._clients, []
        try:
            for client in reversed(clients):
                self.wait(client.stop(), 300)
        finally:
            self._end()

    def _end(self) -> None:
        """All processes end as they are."""
        for server in self._servers.values():
            if server.node is not None:
                server.node.kill()
        if self._name_server_node is not None:
            self._name_server_node.kill()
        self.reactor.kill()

    def __enter__(self) -> RocketMQ:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            # The test's own error is what counts.
            self._end()

    async def __aenter__(self) -> RocketMQ:
        self.network.clock.when_soon(_turns(self._turn))
        return self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.network.clock.when_soon(None)
        self.__exit__(kind, error, trace)

    def _turn(self) -> bool:
        """One turn of the real loop: what falls due at once happens. True when there is more of it."""
        if not self._is_moving:
            self.settle()
        wait_s = self.network.next_s
        return wait_s is not None and wait_s <= SOON_S

    # ------------------------------------------------------------------ time

    @property
    def now_ms(self) -> int:
        """The virtual clock's wall-clock time in ms."""
        return int(self.reactor.seconds() * 1000)

    def advance(self, seconds: float) -> None:
        """Let time go by, from one thing that falls due to the next."""
        self._move(lambda: False, seconds)

    def settle(self) -> None:
        """Let everything happen that falls due at once: bytes on their way, and what follows from them. Timers wait."""

        def quiet() -> bool:
            wait_s = self.network.next_s
            return wait_s is None or wait_s > SOON_S

        self._move(quiet, 1.0)

    def until(self, condition: Callable[[], object], timeout: float = PATIENCE_S) -> None:
        """Let time go by until something is so.

        :raises AssertionError: it was not so in time.
        """
        if not self._move(lambda: bool(condition()), timeout):
            raise AssertionError(
                f"it was not so within {timeout:g} s of virtual time{self._circumstances()}"
            )

    def wait(self, awaitable: Awaitable[T], timeout: float = PATIENCE_S) -> T:
        """Let time go by until a Deferred or coroutine is done; its value. Its error is raised.

        :raises AssertionError: nothing came of it in time.
        """
        if not isinstance(awaitable, Deferred):
            awaitable = Deferred.fromCoroutine(cast("Any", awaitable))
        outcome: list[Any] = []
        awaitable.addBoth(outcome.append)
        if not self._move(lambda: bool(outcome), timeout):
            awaitable.addErrback(lambda _: None)
            raise AssertionError(
                f"nothing came of {awaitable!r:.200} within {timeout:g} s of virtual "
                f"time{self._circumstances()}; if it waits for something outside, a thread or "
                "a real timer, the virtual clock does not bring it"
            )
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return cast("T", outcome[0])

    def _move(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Step through time until it is done or so many seconds are over; whether it is."""
        if not self._has_started:
            raise RuntimeError("RocketMQ is not started: use it as `with RocketMQ() as mq`")
        if self._is_moving:
            raise RuntimeError(
                "time moves already: advance, wait, settle and until must not be called from a "
                "handler or callback; return a Deferred there, or use a coroutine"
            )
        end_s = self.reactor.seconds() + seconds
        self._is_moving = True
        try:
            while not is_done():
                left_s = end_s - self.reactor.seconds()
                if left_s < 0 or (not self.network.step(left_s) and not is_done()):
                    return False
        finally:
            self._is_moving = False
        return True

    def _circumstances(self) -> str:
        down = [name for name, server in self._servers.items() if not server.is_up]
        if self._name_server_node is None or not self._name_server_node.is_alive:
            down.insert(0, "the name server")
        told = f"; down: {', '.join(down)}" if down else ""
        if self.faults.rules:
            told += f"; faults in force: {', '.join(map(repr, self.faults.rules))}"
        return told

    # ------------------------------------------------------------------ clients

    def process(self) -> Node:
        """A client process of its own, which can be killed. Clients are made in it with ``process=``, or get it as their reactor."""
        return self.network.node()

    def client_config(self, **settings: Any) -> ClientConfig:
        """Settings with which a client finds these servers."""
        settings.setdefault("namesrv_addr", self.namesrv_addr)
        settings.setdefault("client_ip", self.reactor.host)
        return ClientConfig(**settings)

    def producer(
        self,
        group: str = "test-producer",
        *,
        check: Check | None = None,
        client: ClientConfig | None = None,
        process: Node | None = None,
        **settings: Any,
    ) -> Producer:
        """A producer that is started, and stopped at the end; ``settings`` are those of `txrocketmq.client.ProducerConfig`."""
        producer = Producer(
            process or self.reactor,
            group,
            client or self.client_config(),
            ProducerConfig(**settings),
            check=check,
        )
        return self._started(producer)

    def push_consumer(
        self,
        group: str,
        subscriptions: Subscriptions,
        handler: HandlerFunction,
        *,
        client: ClientConfig | None = None,
        process: Node | None = None,
        **settings: Any,
    ) -> PushConsumer:
        """A push consumer that is started, and stopped at the end; ``settings`` are those of `txrocketmq.client.PushConfig`. With
        ``in_thread`` its handler is called at once all the same."""
        consumer = PushConsumer(
            process or self.reactor,
            group,
            subscriptions,
            handler,
            client or self.client_config(),
            PushConfig(**settings),
        )
        return self._started(consumer)

    def lite_pull_consumer(
        self,
        group: str,
        topic: str | None = None,
        *,
        client: ClientConfig | None = None,
        process: Node | None = None,
        **settings: Any,
    ) -> LitePullConsumer:
        """A lite pull consumer that is started, subscribed to a topic when one is named, and stopped at the end; ``settings`` are those of
        `txrocketmq.client.PullConfig`."""
        consumer = LitePullConsumer(
            process or self.reactor,
            group,
            client or self.client_config(),
            PullConfig(**settings),
        )
        if topic is not None:
            consumer.subscribe(topic)
        return self._started(consumer)

    def _started(self, client: T) -> T:
        role = cast("Any", client)
        self.wait(role.start())
        # A consumer has asked then where to begin, so that it misses nothing of what is sent from now on.
        self.settle()
        self._clients.append(role)
        return client

    def send(
        self, topic: str, body: bytes | str, *, tags: str | None = None, keys: str | None = None
    ) -> SendResult:
        """Send a message for a test to work on, from a producer of the kit's own."""
        if self._operator is None:
            self._operator = self.producer(OPERATOR)
        message = Message(topic=topic, body=body.encode() if isinstance(body, str) else body)
        message.tags, message.keys = tags, keys
        return self.wait(self._operator.send(message))

    # ------------------------------------------------------------------ topics and groups

    def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        kind: str = "",
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Make a topic; its route is known when this returns.

        :param kind: ``NORMAL``, ``FIFO``, ``DELAY``, ``TRANSACTION``; nothing leaves it open.
        :param brokers: names of those that shall have it; all by default.
        """
        self._create(topic, queues, kind, None if brokers is None else set(brokers))
        self.settle()

    def assert_consumed(self, group: str, topic: str, timeout: float = PATIENCE_S) -> None:
        """Let time go by until a group has committed all of a topic.

        :raises AssertionError: it has not in time; with where it stands.
        """
        if not self._move(lambda: self.lag(group, topic) == 0, timeout):
            behind = ", ".join(
                f"{name} queue {number}: {at} of {end}"
                for (name, number), (at, end) in self.positions(group, topic).items()
                if at < end
            )
            raise AssertionError(
                f"group {group} did not consume topic {topic} within {timeout:g} s of virtual "
                f"time; it stands at {behind}{self._circumstances()}"
            )

    def broker(self, name: str = "") -> MemoryBroker:
        """A broker as it is inside; the first one unless named.

        :raises KeyError: there is none of that name.
        """
        broker = self._server(name).broker
        assert broker is not None, "it is not started"
        return broker

    # ------------------------------------------------------------------ faults

    def cut_connections(self, at: str = "") -> int:
        """All connections of clients are lost at once, or those to one broker; how many there were. Clients may connect again."""
        addresses = [self.namesrv_addr] if at in ("", NAMESRV) else []
        for name in [] if at == NAMESRV else [at] if at else list(self._servers):
            host = self._server(name).host
            addresses += [f"{host}:{BROKER_PORT}", f"{host}:{BROKER_PORT - 2}"]
        count = 0
        for address in addresses:
            for wire in self.network.connections(address):
                if wire.peer_host == self.reactor.host:
                    wire.cut(ConnectionLost())
                    count += 1
        self._settle_if_idle()
        return count

    def kill_broker(self, name: str = "") -> None:
        """A broker's process ends without a word, the first one's unless named. What it acknowledged is on its disk."""
        server = self._server(name)
        if server.node is not None:
            server.node.kill()
        self._settle_if_idle()

    def stop_broker(self, name: str = "") -> None:
        """A broker stops in order."""
        server = self._server(name)
        if server.is_up and server.node is not None and server.broker is not None:
            self.wait(server.broker.stop())
            server.node.kill()
            self.settle()

    def restart_broker(self, name: str = "", **settings: Any) -> None:
        """Start a broker again on its disk, with other settings where some are given; one that runs is stopped in order first."""
        name = name or next(iter(self._servers))
        self.stop_broker(name)
        self._start_broker(name, **settings)
        self.settle()

    def kill_name_server(self) -> None:
        """The name server's process ends."""
        if self._name_server_node is not None:
            self._name_server_node.kill()
        self._settle_if_idle()

    def restart_name_server(self) -> None:
        """Start the name server again. It knows nothing until brokers register, which they do every 30 s."""
        if self._name_server_node is not None:
            self._name_server_node.kill()
        node = self._name_server_node = self.network.node(NAME_SERVER)
        server = MemoryNameServer(node, self._name_server_disk, **self._name_server_settings)
        node.listenTCP(NAME_SERVER_PORT, server.factory(self._faulty(server.dispatcher, NAMESRV)))

    def _settle_if_idle(self) -> None:
        """Handlers may do harm as well; then time moves already."""
        if not self._is_moving:
            self.settle()

    def _start_broker(self, name: str, **settings: Any) -> None:
        server = self._servers[name]
        server.disk.locked.clear()
        node = server.node = self.network.node(server.host)
        broker = server.broker = MemoryBroker(
            node,
            RemotingClient(node, endpoint=self.network.endpoint, random=lambda: 0.5),
            server.disk,
            host=server.host,
            port=BROKER_PORT,
            broker_name=name,
            **{"namesrv_addr": self.namesrv_addr, **self._settings, **settings},
        )
        fast = broker.dispatcher.for_vip()
        node.listenTCP(BROKER_PORT, broker.factory(self._faulty(broker.dispatcher, name)))
        node.listenTCP(BROKER_PORT - 2, broker.factory(self._faulty(fast, name)))
        broker.start()

    def _faulty(self, dispatcher: Dispatcher, server: str) -> Dispatcher:
        return cast("Dispatcher", FaultyDispatcher(dispatcher, self.faults, server))


def _turns(work: Callable[[], bool]) -> Callable[[], None]:
    """A function that has work done in the next turns of the loop that runs now, asyncio's or the installed reactor's."""
    call_soon: Callable[[Callable[[], None]], object]
    try:
        call_soon = asyncio.get_running_loop().call_soon
    except RuntimeError:
        from twisted.internet import reactor

        loop: Any = reactor

        def call_soon(turn: Callable[[], None]) -> object:
            return loop.callLater(0, turn)

    waiting = False

    def turn() -> None:
        nonlocal waiting
        waiting = False
        if work():
            ask()

    def ask() -> None:
        nonlocal waiting
        if not waiting:
            waiting = True
            call_soon(turn)

    return ask
