"""How do tests of clients in other processes and languages get a cluster? On real ports of this machine, in a thread of the test's process.

`LoopbackRocketMQ` is what `kit.RocketMQ` is, with a reactor and sockets of its own in place of a clock by hand and a network in memory: ports
that the system chose on 127.0.0.1, and real time, which `LoopbackRocketMQ.advance` lets run ahead for the servers. The test's thread is free
to run a child process, or a reactor of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from string import ascii_lowercase
from types import TracebackType
from typing import Any, TypeVar, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.threads import blockingCallFromThread

from txrocketmq.model.codes import RequestCode
from txrocketmq.remoting.client import RemotingClient
from txrocketmq.remoting.dispatch import Dispatcher
from txrocketmq.remoting.transport import DEFAULT_BACKLOG, listen
from txrocketmq.service.ports import claim_broker_ports
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.faults import FaultCalls, Faults, FaultyDispatcher
from txrocketmq.testing.servers import MemoryBroker, MemoryNameServer
from txrocketmq.testing.stored import StoredMessages

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
NAMESRV = "namesrv"
PATIENCE_S = 30.0
LOOK_S = 0.01


class ShiftedReactor(EPollReactor):
    """A reactor whose time can run ahead. Not one of ``select``: a test's process may have more than 1,024 descriptors open."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ahead_s = 0.0
        real = self.seconds
        self.seconds = lambda: real() + self._ahead_s

    def advance(self, seconds: float) -> Deferred[None]:
        """Let so much time be over, from one thing that falls due to the next; fires when it is."""
        done: Deferred[None] = Deferred()
        end_s = self.seconds() + seconds

        def go_on() -> None:
            left_s = end_s - self.seconds()
            if left_s <= 0:
                done.callback(None)
                return
            times = [call.getTime() for call in self.getDelayedCalls()]
            wait_s = min(times, default=end_s) - self.seconds()
            self._ahead_s += max(0.0, min(left_s, wait_s))
            self.callLater(0, go_on)

        go_on()
        return done


class _Life:
    """The reactor as one broker sees it: once it is dead, no timer of it fires."""

    def __init__(self, reactor: Any) -> None:
        self.is_alive = True
        self._reactor = reactor

    def callLater(self, delay: float, function: Any, *args: object, **kwargs: object) -> Any:
        """See ``IReactorTime``."""
        return self._reactor.callLater(delay, self._run, function, args, kwargs)

    def _run(self, function: Any, args: Any, kwargs: Any) -> None:
        if self.is_alive:
            function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)


class _Server:
    """A broker of the test, up or down."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.port = 0
        self.life: Any = None
        self.client: Any = None
        self.broker: MemoryBroker | None = None
        self.listening: list[Any] = []
        self.factories: list[Any] = []

    @property
    def is_up(self) -> bool:
        return self.life is not None and self.life.is_alive

    def abort_connections(self) -> int:
        """Cut all of its clients off; how many there were."""
        links = [link for factory in self.factories for link in factory.group.connections]
        for link in links:
            link.transport.abortConnection()
        return len(links)

    async def kill(self) -> None:
        """End it without a word."""
        self.life.is_alive = False
        for port in self.listening:
            await maybeDeferred(port.stopListening)
        self.abort_connections()
        await self.client.stop()


class LoopbackRocketMQ(StoredMessages[_Server], FaultCalls):
    """A name server and brokers on real ports, in a thread. ``with``, ``async with``, or `start` and `stop`; they block for moments only.

    :param brokers: how many; their names are ``broker-a``, ``broker-b`` ...
    :param topics: made at the start, with four queues each.
    :param settings: of the brokers, by their attribute's name.
    :ivar namesrv_addr: the name server's address, once it is started.
    :ivar reactor: the servers' reactor; of use only in its own thread.
    :ivar faults: what goes wrong, and every request that came.
    """

    def __init__(self, brokers: int = 1, topics: Iterable[str] = (), **settings: Any) -> None:
        self.reactor: Any = ShiftedReactor()
        self.faults = Faults(self.reactor)
        self.namesrv_addr = ""
        self._settings = settings
        self._first_topics = tuple(topics)
        self._servers = {
            f"broker-{ascii_lowercase[number]}": _Server() for number in range(brokers)
        }
        self._thread = threading.Thread(target=self._run, name="txrocketmq-testing", daemon=True)
        self._name_server_factory: Any = None
        self._name_server_port: Any = None

    def _run(self) -> None:
        self.reactor.run(installSignalHandlers=False)

    def _ask(self, question: Callable[[], T]) -> T:
        """Have something done in the servers' thread; its result, of a Deferred the value."""
        if threading.current_thread() is self._thread:
            return question()
        if not self._thread.is_alive():
            raise RuntimeError("LoopbackRocketMQ is not started: use it in a with block")
        return blockingCallFromThread(self.reactor, question)

    # ------------------------------------------------------------------ life

    def start(self) -> LoopbackRocketMQ:
        """Start the servers; the brokers are registered when it returns."""
        is_running = threading.Event()
        self.reactor.callWhenRunning(is_running.set)
        self._thread.start()
        is_running.wait(PATIENCE_S)
        self._ask(self._start_name_server)
        for name in self._servers:
            self._ask(partial(self._start_broker, name))
        self.until(lambda: self._registrations() >= len(self._servers))
        for topic in self._first_topics:
            self.create_topic(topic)
        return self

    def stop(self) -> None:
        """End everything."""
        if self._thread.is_alive():
            for name in self._servers:
                self.kill_broker(name)
            self._ask(self._end_name_server)
            self.reactor.callFromThread(self.reactor.stop)
            self._thread.join(PATIENCE_S)

    def __enter__(self) -> LoopbackRocketMQ:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> LoopbackRocketMQ:
        return self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start_name_server(self) -> None:
        server = MemoryNameServer(self.reactor)
        faulty = FaultyDispatcher(server.dispatcher, self.faults, NAMESRV)
        self._name_server_factory = server.factory(cast("Dispatcher", faulty))
        port = listen(self.reactor, LOOPBACK, 0, self._name_server_factory)
        self._name_server_port = cast("Any", port)
        self.namesrv_addr = f"{LOOPBACK}:{self._name_server_port.getHost().port}"

    def _start_broker(self, name: str, **settings: Any) -> None:
        server = self._servers[name]
        server.disk.locked.clear()
        claimed = claim_broker_ports(LOOPBACK, server.port)
        server.port = claimed[0].port
        life: Any = _Life(self.reactor)
        server.life, server.client = life, RemotingClient(life)
        broker = server.broker = MemoryBroker(
            life,
            server.client,
            server.disk,
            host=LOOPBACK,
            port=server.port,
            broker_name=name,
            **{"namesrv_addr": self.namesrv_addr, **self._settings, **settings},
        )
        server.factories, server.listening = [], []
        for port, dispatcher in zip(
            claimed, (broker.dispatcher, broker.dispatcher.for_vip()), strict=True
        ):
            faulty = FaultyDispatcher(dispatcher, self.faults, name)
            factory = broker.factory(cast("Dispatcher", faulty))
            server.factories.append(factory)
            server.listening.append(port.open(self.reactor, factory, DEFAULT_BACKLOG))
        broker.start()

    def _end_name_server(self) -> None:
        self._name_server_port.stopListening()
        for link in list(self._name_server_factory.group.connections):
            link.transport.abortConnection()

    # ------------------------------------------------------------------ time

    def advance(self, seconds: float) -> None:
        """Let the servers' time run ahead, with all that falls due in it. Clients live on in real time; those that were silent for two
        minutes of the servers' time are disconnected."""
        self._ask(lambda: self.reactor.advance(seconds))

    def until(self, condition: Callable[[], object], timeout: float = PATIENCE_S) -> None:
        """Wait, in real time, until something is so.

        :raises AssertionError: it was not so in time.
        """
        end_s = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end_s:
                raise AssertionError(f"it was not so within {timeout:g} s")
            time.sleep(LOOK_S)

    # ------------------------------------------------------------------ topics and groups

    def create_topic(self, topic: str, queues: int = 4, *, kind: str = "") -> None:
        """Make a topic at all brokers; the name server has heard of it when this returns."""
        before = self._registrations()
        self._ask(lambda: self._create(topic, queues, kind, None))
        up = sum(server.is_up for server in self._servers.values())
        self.until(lambda: self._registrations() >= before + up)

    # ------------------------------------------------------------------ faults

    def cut_connections(self, at: str = "") -> int:
        """All connections to brokers, or to one, are lost at once; how many there were. Clients may connect again."""
        servers = [self._server(at)] if at else list(self._servers.values())
        return self._ask(lambda: sum(server.abort_connections() for server in servers))

    def kill_broker(self, name: str = "") -> None:
        """A broker is gone without a word, the first one unless named; what it acknowledged is on its disk."""
        server = self._server(name)
        if server.is_up:
            self._ask(lambda: Deferred.fromCoroutine(server.kill()))

    def restart_broker(self, name: str = "", **settings: Any) -> None:
        """Start a broker again on its disk and port, with other settings where some are given; it is registered when this returns."""
        name = name or next(iter(self._servers))
        self.kill_broker(name)
        before = self._registrations()
        self._ask(lambda: self._start_broker(name, **settings))
        self.until(lambda: self._registrations() > before)

    def _registrations(self) -> int:
        return self.faults.requests.count((NAMESRV, int(RequestCode.REGISTER_BROKER)))
