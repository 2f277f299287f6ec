"""S19: an ordered consumer whose first offset query fails, whose handler suspends for long, whose broker restarts, whose group grows under load."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from consumer_world import DONE, SUSPEND, ConsumerWorld, Diary, queue
from small_world import start_broker, stop_broker
from twisted.internet.defer import Deferred, fail

from txrocketmq.errors import BrokerError, RemotingTimeoutError
from txrocketmq.model.codes import RequestCode


def watch_offsets(world: ConsumerWorld) -> list[tuple[int, int]]:
    """Every offset that anybody tells broker 2, or pulls from."""
    told: list[tuple[int, int]] = []
    for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE):
        _spy(world, int(code), told)
    return told


def _spy(world: ConsumerWorld, code: int, told: list[tuple[int, int]]) -> None:
    api_offset = {
        int(RequestCode.UPDATE_CONSUMER_OFFSET): "commit_offset",
        int(RequestCode.PULL_MESSAGE): "queue_offset",
    }[code]
    make = world.instance

    def spied(**settings: Any) -> Any:
        instance = make(**settings)
        for name in ("request", "oneway"):
            call = getattr(instance.remoting, name)

            def noted(address: str, asked: int, header: Any, *more: Any, call: Any = call) -> Any:
                if asked == code:
                    told.append((code, getattr(header, api_offset)))
                return call(address, asked, header, *more)

            setattr(instance.remoting, name, noted)
        return instance

    world.instance = spied  # type: ignore[method-assign]


@pytest.mark.parametrize("failure", [BrokerError(1, "busy"), RemotingTimeoutError("b", "late")])
def test_a_first_offset_query_that_fails_is_asked_again(failure: Exception) -> None:
    world = ConsumerWorld(queues=1)
    told = watch_offsets(world)
    world.fill(10, 1)
    world.commit(6)
    diary = Diary(DONE)
    consumer = world.consumer(diary, orderly=True, start=False)
    query = consumer.instance.api.query_consumer_offset
    failures = [failure]

    def first_fails(*arguments: Any, **more: Any) -> Any:
        return fail(failures.pop()) if failures else query(*arguments, **more)

    consumer.instance.api.query_consumer_offset = first_fails  # type: ignore[method-assign]
    began = world.clock.seconds()
    world.wait(consumer.start())
    world.until(lambda: bool(diary.seen))
    assert world.clock.seconds() - began < 2
    world.until(lambda: len(diary.seen) == 4)
    assert diary.bodies == [b"6", b"7", b"8", b"9"]
    assert min(offset for _, offset in told) >= 0
    assert {offset for code, offset in told if code == RequestCode.PULL_MESSAGE} >= {6, 10}
    assert 0 not in {o for c, o in told if c == RequestCode.PULL_MESSAGE and o != 0}


@pytest.mark.parametrize("kind", ["suspends", "works"])
def test_a_queue_that_stands_for_minutes_goes_on_by_itself(kind: str) -> None:
    world = ConsumerWorld(queues=1)
    told = watch_offsets(world)
    world.fill(5, 1)
    began = world.clock.seconds()
    done: list[bytes] = []

    def answer(messages: Any, context: Any) -> Any:
        ready = world.clock.seconds() - began >= 150
        if messages[0].body == b"2" and not ready:
            if kind == "suspends":
                return SUSPEND
            slow: Deferred[Any] = Deferred()
            world.clock.callLater(150, slow.callback, DONE)
            return slow.addCallback(lambda status: done.append(messages[0].body) or status)
        done.append(messages[0].body)
        return DONE

    consumer = world.consumer(answer, orderly=True)
    world.until(lambda: len(done) == 5, 170)
    assert done == [b"0", b"1", b"2", b"3", b"4"]
    world.wait(consumer.stop())
    assert world.offset("CG", 0) == 5
    assert min(offset for _, offset in told) >= 0


def test_a_restarted_broker_is_consumed_on_in_order() -> None:
    world = ConsumerWorld(queues=2)
    told = watch_offsets(world)
    world.fill(20, 2)
    diary = Diary(DONE)
    consumer = world.consumer(diary, orderly=True)
    world.until(lambda: len(diary.seen) == 20)
    world.network.skip(6)
    old = world.brokers[2]
    stop_broker(world.network, old)
    world.network.skip(30)
    world.brokers[2] = start_broker(world.network, 2, old.disk, namesrv_addr="192.0.2.1:9876")
    world.network.run(1)
    for number in range(20, 30):
        world.put(b"%d" % number, number % 2)
    world.until(lambda: len(set(diary.bodies)) == 30, 90)
    for queue_id in range(2):
        mine = [int(m.body) for m in diary.seen if m.queue_id == queue_id]
        first = list(dict.fromkeys(mine))
        assert first == list(range(queue_id, 30, 2))
        # Nothing far back comes again: what was committed at the stop stays consumed.
        assert len(mine) - len(first) <= 2
    assert min(offset for _, offset in told) >= 0
    world.wait(consumer.stop())
    assert world.offsets(queues=2) == [15, 15]


def test_members_that_come_under_load_never_overlap() -> None:
    world = ConsumerWorld(queues=4)
    told = watch_offsets(world)
    running: dict[int, str] = {}
    seen: dict[int, list[tuple[str, int]]] = defaultdict(list)
    overlaps: list[int] = []

    def handler(name: str) -> Any:
        def handle(messages: Any, context: Any) -> Any:
            queue_id = context.queue.queue_id
            if context.queue.topic != "TopicTest":
                return DONE
            if queue_id in running:
                overlaps.append(queue_id)
            running[queue_id] = name
            seen[queue_id].append((name, messages[0].queue_offset))
            slow: Deferred[Any] = Deferred()

            def end() -> None:
                del running[queue_id]
                slow.callback(DONE)

            world.clock.callLater(0.08, end)
            return slow

        return handle

    total = 240
    members = []
    for number in range(total):
        world.put(b"%d" % number, number % 4)
    for name in "abc":
        members.append(world.consumer(handler(name), orderly=True, client={"instance_name": name}))
        world.network.run(0.7)
    world.network.run(0.5)
    world.wait(members[0].stop())
    world.until(lambda: sum(len({o for _, o in s}) for s in seen.values()) == total, 120)
    assert overlaps == []
    for queue_id in range(4):
        offsets = [offset for _, offset in seen[queue_id]]
        assert list(dict.fromkeys(offsets)) == list(range(total // 4))
        # Each queue went from owner to owner without a message twice.
        assert len(offsets) == total // 4
    assert len({name for s in seen.values() for name, _ in s}) == 3
    assert min(offset for _, offset in told) >= 0
    assert queue(0)
