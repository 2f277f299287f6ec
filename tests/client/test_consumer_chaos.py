"""Consumers in trouble: servers that come and go, connections cut in the middle, answers that refuse or never come, handlers that fail, members that
join and leave. Every message is consumed, in order where that is asked for, and nothing is left behind. All choices come from the seed.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from typing import Any

import pytest
from client_world import NAME_SERVER
from consumer_world import DONE, LATER, SUCCESS, SUSPEND, TOPIC, ConsumerWorld, set_mode
from pops import service as pop_service
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost

from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.message import MessageExt
from txrocketmq.remoting.dispatch import Reply

ADDRESSES = ("192.0.2.2:10911", "192.0.2.3:10911", NAME_SERVER)
FIRST, COUNT = map(int, os.environ.get("CLIENT_SEEDS", "0+4").split("+"))
"""`CLIENT_SEEDS=4711+1000` runs a thousand seeds of each kind from 4711 on, `CLIENT_SEEDS=4711+1` those again."""
TROUBLES = 40
ODD = (
    R.PULL_MESSAGE,
    R.QUERY_CONSUMER_OFFSET,
    R.UPDATE_CONSUMER_OFFSET,
    R.GET_CONSUMER_LIST_BY_GROUP,
    R.LOCK_BATCH_MQ,
    R.CONSUMER_SEND_MSG_BACK,
    R.HEART_BEAT,
)


class Chaos:
    """Bad things, one at a time, until they are undone."""

    def __init__(self, world: ConsumerWorld, chance: random.Random) -> None:
        self._network = world.network
        self._chance = chance
        self._gone: dict[str, Any] = {}
        self._plan: dict[int, list[str]] = defaultdict(list)
        for broker in world.brokers.values():
            table = broker.dispatcher._table
            for code in map(int, ODD):
                handler, *rest = table[code]
                table[code] = (self._odd(code, handler), *rest)

    def _odd(self, code: int, handler: Any) -> Any:
        def serve(request: Any) -> Any:
            plan = self._plan[code].pop() if self._plan[code] else ""
            if plan == "refuse":
                return Reply(self._chance.choice((1, 2, 215)), remark="chaos")
            if plan == "silent":
                return None
            return handler(request)

        return serve

    def step(self) -> None:
        chance, network = self._chance, self._network
        kind = chance.choice(["kill", "cut", "refuse", "silent", "heal"])
        if kind == "kill" and len(self._gone) < 2:
            address = chance.choice([a for a in ADDRESSES if a not in self._gone])
            self._gone[address] = network._factories[address]
            network.kill(address)
        elif kind == "cut":
            for address in ADDRESSES:
                for wire in network._wires.get(address, ()):
                    if wire.is_up and chance.random() < 0.5:
                        wire.cut(ConnectionLost())
        elif kind == "heal":
            self.heal()
        else:
            self._plan[int(chance.choice(ODD))] += [kind] * chance.randrange(1, 4)

    def heal(self) -> None:
        for address, factory in self._gone.items():
            self._network.listen(address, factory)
        self._gone.clear()
        self._plan.clear()


class Ledger:
    """What handlers saw, however they answer."""

    def __init__(self, world: ConsumerWorld, chance: random.Random, orderly: bool) -> None:
        self._clock = world.clock
        self._chance = chance
        self._orderly = orderly
        self.is_calm = False
        self.seen: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.processed: Counter[bytes] = Counter()
        self.running: Counter[tuple[str, int]] = Counter()
        self.overlaps = 0

    def __call__(self, messages: list[MessageExt], context: Any) -> Any:
        place = (context.queue.broker_name, context.queue.queue_id)
        is_topic = context.queue.topic == TOPIC
        if self._orderly and is_topic:
            self.overlaps += bool(self.running[place])
            self.running[place] += 1
        fate = 1.0 if self.is_calm else self._chance.random()
        if fate < 0.05:
            self._end(place, is_topic)
            raise ValueError("chaos")
        if fate < 0.1:
            self._end(place, is_topic)
            return SUSPEND if self._orderly else LATER
        if fate < 0.4:
            later: Deferred[Any] = Deferred()

            def answer() -> None:
                if not later.called:
                    later.callback(self._good(messages, place, is_topic))

            self._clock.callLater(self._chance.random(), answer)
            return later
        return self._good(messages, place, is_topic)

    def _good(self, messages: list[MessageExt], place: tuple[str, int], is_topic: bool) -> Any:
        self._end(place, is_topic)
        for message in messages:
            self.processed[message.body] += 1
            if is_topic:
                self.seen[place].append(message.body)
        return DONE if self._orderly else SUCCESS

    def _end(self, place: tuple[str, int], is_topic: bool) -> None:
        if self._orderly and is_topic:
            self.running[place] -= 1


def agree(world: ConsumerWorld, members: list[Any]) -> bool:
    """Whether each member knows all queues, and each broker all members."""
    running = [member for member in members if member.is_running]
    ids = {member.instance.client_id for member in running}
    for broker in world.brokers.values():
        group = broker.core.consumers.get("CG")
        if {one.client_id for one in group.members.values()} != ids if group else ids:
            return False
    return all(len(one.instance.routes.subscribe.get(TOPIC, ())) == 4 for one in running)


def play(kind: str, seed: int) -> str:
    """One run; a digest of how much was sent, in the order of sending."""
    chance = random.Random(seed)
    random.seed(seed)  # for the choices of routes
    world = ConsumerWorld(brokers=2, queues=2)
    for broker in world.brokers.values():
        pop_service(broker).chance.seed(seed)
    if kind == "pop":
        for number in world.brokers:
            set_mode(world, number=number)
    ledger = Ledger(world, chance, kind == "orderly")
    settings = {
        "orderly": kind == "orderly",
        "client_rebalance": kind != "pop",
        "suspend_current_queue_time_millis": 50,
        "pop_invisible_time": 10_000,
    }
    names = iter("abcdefghijklmnopqrstuvwxyz" * 4)

    def joined() -> Any:
        return world.consumer(ledger, client={"instance_name": next(names)}, **settings)

    members = [joined(), joined()]
    world.network.run(2)
    before = len(world.clock.getDelayedCalls())
    chaos = Chaos(world, chance)
    sent: list[bytes] = []
    for _ in range(TROUBLES):
        chaos.step()
        if chance.random() < 0.15 and len(members) > 1:
            leaving = members.pop(chance.randrange(len(members)))
            stopping = leaving.stop().addErrback(lambda failure: None)
            if chance.random() < 0.3:
                # Nobody waits for it any more; it ends all the same.
                world.clock.callLater(chance.choice((0.0, 0.01)), stopping.cancel)
        elif chance.random() < 0.15 and len(members) < 4:
            member = world.consumer(
                ledger, client={"instance_name": next(names)}, start=False, **settings
            )
            starting = member.start().addErrback(lambda failure: None)
            if chance.random() < 0.2:
                world.clock.callLater(chance.choice((0.0, 0.01, 0.3)), starting.cancel)
            members.append(member)
        for number in world.brokers:
            address = f"192.0.2.{number}:10911"
            if address in world.network._factories:
                for queue_id in range(2):
                    body = b"%d" % len(sent)
                    peer = world.brokers[number].connect(50_000 + len(sent))
                    peer.send(TOPIC, body, queue_id=queue_id)
                    peer.close()
                    sent.append(body)
        world.network.run(chance.choice((0.05, 0.5, 2.0)))
    chaos.heal()
    ledger.is_calm = True
    # Those whose start was cancelled are none; all that are left may be among them.
    members = [member for member in members if member.is_running] or [joined()]
    # Who looked up the route while a broker was away knows nothing of its queues until the next look, half a minute later; and a
    # broker that was cut off knows a member from its next heartbeat on. Until then two may hold one queue, as officially.
    world.until(lambda: agree(world, members), 120)
    world.network.run(1)
    for number in world.brokers:
        for queue_id in range(2):
            # The last one of each queue: when it has come, whoever has the queue now is at its end.
            sent.append(b"%d" % len(sent))
            world.put(sent[-1], queue_id, number=number)
    world.until(lambda: set(sent) <= set(ledger.processed), 300)
    world.network.run(3)
    assert ledger.overlaps == 0
    if kind == "orderly":
        for bodies in ledger.seen.values():
            numbers = [int(body) for body in dict.fromkeys(bodies)]
            assert numbers == sorted(numbers)
    for member in members:
        world.wait(member.stop())
        assert member.running_handlers == 0
        assert len(member.instance.remoting.group.connections) == 0
    world.network.run(1)
    if kind != "pop":
        for number in world.brokers:
            ends = [
                world.brokers[number].store.max_offset(TOPIC, queue_id) for queue_id in range(2)
            ]
            assert world.offsets(queues=2, number=number) == ends
    assert len(world.clock.getDelayedCalls()) <= before
    return hashlib.sha256(repr(world.network.sent_bytes).encode()).hexdigest()


@pytest.mark.parametrize("kind", ["concurrent", "orderly", "pop"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_every_message_is_consumed_and_nothing_is_left_behind(kind: str, seed: int) -> None:
    play(kind, seed)


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Neither the hashes of this process nor where its objects lie in memory decide anything, so a seed that fails fails again."""
    code = "import test_consumer_chaos as chaos; print(chaos.play('concurrent', 18))"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": number},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for number in ("1", "2")
    ]
    digests = {run.communicate(timeout=120)[0] for run in runs}
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64
