"""A producer or consumer that is started, stopped and cancelled at bad moments: nothing is left behind, and nothing hangs."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from client_world import NAME_SERVER, ClientWorld
from consumer_world import DONE, SUCCESS, TOPIC, ConsumerWorld, Diary
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from txrocketmq.client.config import ClientConfig
from txrocketmq.client.consumer.config import PushConfig
from txrocketmq.client.consumer.push import PushConsumer
from txrocketmq.client.instance import _shelves, shared_instance
from txrocketmq.client.life import RoleService
from txrocketmq.client.producer.producer import Producer
from txrocketmq.errors import MQClientError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.heartbeat import MessageModel
from txrocketmq.model.message import Message
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.pools import ManualPool


def silence(world: ClientWorld, code: RequestCode, number: int = 2) -> list[bool]:
    """A broker answers a request no more, as long as the one element is true."""
    table = world.brokers[number].dispatcher._table
    handler, *rest = table[int(code)]
    silent = [True]
    table[int(code)] = (lambda request: None if silent[0] else handler(request), *rest)
    return silent


def hold_back(world: ClientWorld, code: RequestCode, seconds: float, number: int = 2) -> None:
    """A broker does what it is asked at once, and says so later."""
    table = world.brokers[number].dispatcher._table
    handler, *rest = table[int(code)]

    def serve(request: Any) -> Deferred[Any]:
        later: Deferred[Any] = Deferred()
        world.clock.callLater(seconds, later.callback, handler(request))
        return later

    table[int(code)] = (serve, *rest)


def kept(deferred: Deferred[Any]) -> list[Any]:
    """What a Deferred fires with."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    return found


class Role(RoleService):
    """Enters and settles when it is told to, and writes down what happens.

    :ivar log: in order.
    """

    def __init__(self) -> None:
        super().__init__("role")
        self.log: list[str] = []
        self.gates: dict[str, Deferred[None]] = {
            name: Deferred() for name in ("enter", "settle", "leave")
        }

    async def _pass(self, name: str) -> None:
        self.log.append(name)
        await self.gates[name]
        self.log.append(f"{name} done")

    async def _enter(self) -> None:
        await self._pass("enter")

    async def _settle(self) -> None:
        await self._pass("settle")

    async def _leave(self) -> None:
        await self._pass("leave")


class TestRole:
    def test_a_stop_before_it_has_entered_waits_and_leaves(self) -> None:
        role = Role()
        started, stopped = kept(role.start()), kept(role.stop())
        assert role.log == ["enter"]
        assert not stopped
        role.gates["enter"].callback(None)
        assert role.log == ["enter", "enter done", "leave"]
        assert "stopped before it had started" in str(started[0].value)
        role.gates["leave"].callback(None)
        assert stopped == [None]
        assert not role.is_running

    def test_a_stop_before_an_entry_that_fails_has_nothing_to_leave(self) -> None:
        role = Role()
        started, stopped = kept(role.start()), kept(role.stop())
        role.gates["enter"].errback(MQClientError("no"))
        assert str(started[0].value) == "no"
        assert stopped == [None]
        assert role.log == ["enter"]

    def test_a_cancelled_start_leaves(self) -> None:
        role = Role()
        starting = role.start()
        started = kept(starting)
        role.gates["enter"].callback(None)
        starting.cancel()
        assert started[0].check(CancelledError)
        assert role.log[-1] == "leave"
        stopped = kept(role.stop())
        role.gates["leave"].callback(None)
        assert stopped == [None]

    def test_a_cancelled_stop_goes_on_and_others_hear_its_end(self) -> None:
        role = Role()
        role.start().addErrback(lambda _: None)
        role.gates["enter"].callback(None)
        role.gates["settle"].callback(None)
        first = role.stop()
        cancelled, second = kept(first), kept(role.stop())
        first.cancel()
        assert cancelled[0].check(CancelledError)
        assert not second
        role.gates["leave"].callback(None)
        assert second == [None]
        assert role.log.count("leave") == 1
        assert kept(role.stop()) == [None]

    def test_it_runs_once(self) -> None:
        role = Role()
        kept(role.start())
        assert "maybe started once" in str(kept(role.start())[0].value)
        role.gates["enter"].callback(None)
        assert role.log == ["enter", "enter done", "settle"]

    def test_a_stop_before_the_start_changes_nothing(self) -> None:
        role = Role()
        assert kept(role.stop()) == [None]
        kept(role.start())
        assert role.log == ["enter"]


class TestInstances:
    def test_it_begins_anew_for_a_role_that_comes_after_the_last_has_gone(self) -> None:
        world = ClientWorld()
        instance = world.instance()
        one, two = (Producer(world.clock, group, instance=instance) for group in ("A", "B"))
        world.wait(one.start())
        world.wait(one.send(Message("T", b"one")))
        world.wait(one.stop())
        world.wait(two.start())
        world.wait(two.send(Message("T", b"two")))
        world.wait(two.stop())
        assert sorted(body for *_, body, _ in world.stored("T")) == [b"one", b"two"]

    def test_a_role_that_comes_while_it_closes_waits_for_that(self) -> None:
        """What it opens is not among what must be closed, or the other's stop would wait for it."""
        world = ClientWorld()
        instance = world.instance()
        one, two = (Producer(world.clock, group, instance=instance) for group in ("A", "B"))
        world.wait(one.start())
        world.wait(one.send(Message("T", b"one")))
        closed: Deferred[None] = Deferred()
        stop = instance.remoting.stop
        instance.remoting.stop = lambda: stop().addCallback(lambda _: closed)  # type: ignore[method-assign]
        stopping = kept(one.stop())
        world.network.run(1)
        starting = kept(two.start())
        assert (stopping, starting) == ([], [])
        closed.callback(None)
        assert (stopping, starting) == ([None], [None])
        world.wait(two.send(Message("T", b"two")))
        world.wait(two.stop())

    def test_one_that_was_stopped_does_not_run_beside_its_successor(self) -> None:
        world = ClientWorld()
        config = ClientConfig(namesrv_addr=NAME_SERVER, instance_name="shared")
        late = Producer(world.clock, "A", config)
        first = Producer(world.clock, "B", config)
        world.wait(first.start())
        world.wait(first.stop())
        successor = Producer(world.clock, "C", config)
        assert successor.instance is not late.instance
        world.wait(successor.start())
        with pytest.raises(MQClientError, match="another one of that id"):
            world.wait(late.start())
        world.wait(successor.stop())
        world.wait(late.stop())

    def test_one_that_nobody_started_is_not_kept(self) -> None:
        clock = Clock()
        instance = shared_instance(clock, ClientConfig(namesrv_addr=NAME_SERVER))
        assert len(_shelves[clock]) == 1
        gone = weakref.ref(instance), weakref.ref(clock)
        del instance, clock
        gc.collect()
        assert [reference() for reference in gone] == [None, None]


class TestConsumers:
    def test_a_broadcasting_one_that_is_stopped_while_its_file_is_read(self) -> None:
        world = ConsumerWorld()
        pool = ManualPool()
        instance = world.instance()
        consumer = PushConsumer(
            world.clock,
            "CG",
            TOPIC,
            Diary(),
            settings=PushConfig(message_model=MessageModel.BROADCASTING),
            instance=instance,
            pool=pool,
            disk=MemoryDisk(),
        )
        started, stopped = kept(consumer.start()), kept(consumer.stop())
        pool.run()
        world.network.run(1)
        assert isinstance(started[0], Failure)
        assert stopped == [None]
        assert not instance.running
        assert not instance.consumers

    @pytest.mark.parametrize("code", [RequestCode.HEART_BEAT, RequestCode.QUERY_CONSUMER_OFFSET])
    def test_a_start_that_is_cancelled_leaves_no_consumer(self, code: RequestCode) -> None:
        world = ConsumerWorld()
        silence(world, code)
        consumer = world.consumer(Diary(), start=False)
        starting = consumer.start()
        started = kept(starting)
        world.network.run(0.5)
        assert not started
        starting.cancel()
        assert started[0].check(CancelledError)
        world.until(lambda: not consumer.instance.running)
        assert not consumer.is_running

    def test_a_cancelled_stop_gives_locks_back_and_leaves_the_group(self) -> None:
        world = ConsumerWorld(queues=1)
        world.fill(1, 1)
        answer: Deferred[Any] = Deferred()
        consumer = world.consumer(
            Diary(lambda *_: answer), orderly=True, await_termination_millis_when_shutdown=5000
        )
        stopping = consumer.stop()
        kept(stopping)
        world.network.run(0.1)
        stopping.cancel()
        stopped = kept(consumer.stop())
        answer.callback(DONE)
        world.until(lambda: bool(stopped))
        assert stopped == [None]
        assert world.offset("CG", 0) == 1
        assert not consumer.instance.running
        diary = Diary(DONE)
        world.put(b"next")
        world.consumer(diary, orderly=True)
        assert world.until(lambda: bool(diary.seen)) < 5

    @pytest.mark.parametrize("late", ["lock", "offset"])
    def test_locks_of_a_start_that_is_stopped_are_given_back(self, late: str) -> None:
        """Others would wait a minute for them."""
        world = ConsumerWorld(queues=1)
        silent = [False]
        if late == "lock":
            hold_back(world, RequestCode.LOCK_BATCH_MQ, 0.5)
        else:
            silent = silence(world, RequestCode.QUERY_CONSUMER_OFFSET)
        first = world.consumer(Diary(DONE), orderly=True, start=False)
        kept(first.start())
        world.network.run(0.3)
        silent[0] = False
        world.wait(first.stop())
        diary = Diary(DONE)
        world.put(b"next")
        world.consumer(diary, orderly=True)
        assert world.until(lambda: bool(diary.seen)) < 8


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_a_group_whose_trace_group_is_too_long_runs_without_traces(kind: str) -> None:
    world = ConsumerWorld()
    group = "G" * 110
    instance = world.instance(enable_trace=True)
    role: Any = (
        Producer(world.clock, group, instance=instance)
        if kind == "producer"
        else PushConsumer(world.clock, group, TOPIC, Diary(SUCCESS), instance=instance)
    )
    world.wait(role.start())
    assert role.is_running
    world.wait(role.stop())
    assert not instance.running
