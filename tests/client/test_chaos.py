"""A producer in trouble: brokers and name servers that come and go, connections cut in the middle, answers that refuse or never come.

What is acknowledged is stored, every send ends once, and nothing is left behind. All choices come from the seed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest
from client_world import NAME_SERVER, ClientWorld
from small_world import run_until
from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from txrocketmq.client.producer.config import ProducerConfig
from txrocketmq.client.producer.producer import Producer
from txrocketmq.errors import RocketMQError
from txrocketmq.model.message import Message
from txrocketmq.remoting.dispatch import Reply
from txrocketmq.remoting.limits import RemotingLimits

FIRST, COUNT = map(int, os.environ.get("CLIENT_SEEDS", "0+6").split("+"))
"""`CLIENT_SEEDS=4711+1000` runs a thousand seeds from 4711 on, `CLIENT_SEEDS=4711+1` that one again."""
KEPT = (700467, 701119, 800087) if COUNT <= 6 else ()
"""Seeds that found something: both brokers gone for so long that they are not tried for a while when they are back, and four permits that all wait for answers
which never come, so that what waits for them runs into an outage; a batch that is under way when all its sends were cancelled."""
BACKOFF_MAX_S = RemotingLimits().backoff_max_s
LEAST_SHARE = {4: 0.25, 64: 0.5}
"""Of what a broker could have taken so much gets through in spite of everything, by permits."""
TROUBLES, SENDS_BETWEEN = 60, 12
ADDRESSES = ("192.0.2.2:10911", "192.0.2.3:10911", NAME_SERVER)


class Trouble:
    """Does one bad thing at a time, and undoes it after a while."""

    def __init__(self, world: ClientWorld, chance: random.Random) -> None:
        self._world = world
        self._network = world.network
        self._chance = chance
        self._gone: dict[str, Any] = {}
        self._gone_since: dict[str, float] = {}
        self._not_tried_before: dict[str, float] = {}
        self.done: Counter[str] = Counter()
        self._plan: list[str] = []
        for broker in world.brokers.values():
            table = broker.dispatcher._table
            for code in (310, 320):
                handler, *rest = table[code]
                table[code] = (self._serve(handler), *rest)

    @property
    def lets_through(self) -> bool:
        """Whether a broker is there that the client may try: one that was gone is tried again after at most as long as it was gone, and some."""
        now = self._world.clock.seconds()
        return any(
            address not in self._gone and self._not_tried_before.get(address, 0.0) <= now
            for address in ADDRESSES[:2]
        )

    def _serve(self, handler: Any) -> Any:
        def serve(request: Any) -> Any:
            plan = self._plan.pop() if self._plan else ""
            if plan == "refuse before":
                return Reply(self._chance.choice((1, 2, 14)), remark="chaos")
            reply = handler(request)
            if plan == "silent after":
                return None
            return Reply(2, remark="chaos") if plan == "refuse after" else reply

        return serve

    def step(self) -> None:
        """Something happens."""
        chance, network = self._chance, self._network
        kind = chance.choice(
            ["kill", "cut", "refuse before", "refuse after", "silent after", "heal"]
        )
        self.done[kind] += 1
        if kind == "kill" and len(self._gone) < 2:
            address = chance.choice([a for a in ADDRESSES if a not in self._gone])
            self._gone[address] = network._factories[address]
            self._gone_since[address] = self._world.clock.seconds()
            network.kill(address)
        elif kind == "cut":
            for address in ADDRESSES:
                for wire in network._wires.get(address, ()):
                    if wire.is_up and chance.random() < 0.5:
                        wire.cut(ConnectionLost())
        elif kind == "heal":
            self.heal()
        else:
            self._plan += [kind] * chance.randrange(1, 4)

    def heal(self) -> None:
        """Everybody is back."""
        now = self._world.clock.seconds()
        for address, factory in self._gone.items():
            self._network.listen(address, factory)
            wait_s = min(BACKOFF_MAX_S, 1.5 * (now - self._gone_since[address]))
            self._not_tried_before[address] = now + wait_s
        self._gone.clear()
        self._plan.clear()


@pytest.mark.parametrize("seed", [*KEPT, *range(FIRST, FIRST + COUNT)])
def test_what_is_acknowledged_is_stored_and_nothing_is_left_behind(seed: int) -> None:
    chance = random.Random(seed)
    random.seed(seed)  # for the choices of routes
    world = ClientWorld(brokers=2)
    before = len(world.clock.getDelayedCalls())
    producer = Producer(
        world.clock,
        "PG",
        instance=world.instance(send_latency_enable=bool(seed % 2)),
        settings=ProducerConfig(
            send_msg_timeout=2000,
            back_pressure_for_async_send_num=chance.choice((4, 64)),
            auto_batch=seed % 3 == 2,
        ),
    )
    world.wait(producer.start())
    for _ in range(16):
        world.wait(producer.send(Message("TopicTest", b"warm up")))
    trouble = Trouble(world, chance)
    ends: Counter[int] = Counter()
    acknowledged: dict[int, str] = {}
    failures: list[BaseException] = []
    number = possible = 0

    def ended(outcome: Any, which: int) -> None:
        ends[which] += 1
        if isinstance(outcome, Failure):
            failures.append(outcome.value)
        else:
            acknowledged[which] = outcome.msg_id

    for _ in range(TROUBLES):
        trouble.step()
        for _ in range(SENDS_BETWEEN):
            possible += trouble.lets_through
            sending = producer.send(Message("TopicTest", b"%d" % number))
            sending.addBoth(ended, number)
            if chance.random() < 0.03:
                world.clock.callLater(chance.choice((0.0, 0.001, 0.1)), sending.cancel)
            number += 1
            world.network.run(chance.choice((0.0, 0.002, 0.05)))
    trouble.heal()
    run_until(world.network, lambda: len(ends) == number, 300)
    world.network.run(1)
    # A batch goes on when the sends that it was collected of were cancelled; its time-out ends it.
    run_until(world.network, lambda: producer.in_flight == 0, 2)
    assert set(ends.values()) == {1}
    assert all(isinstance(error, RocketMQError | CancelledError) for error in failures), failures
    stored = Counter(body for _, _, body, _ in world.stored("TopicTest"))
    lost = [which for which in acknowledged if b"%d" % which not in stored]
    assert lost == []
    # The troubles were real, and not all there was.
    assert (
        len(acknowledged)
        > possible * LEAST_SHARE[producer.settings.back_pressure_for_async_send_num]
    )
    assert sum(trouble.done.values()) == TROUBLES
    assert (producer.in_flight, producer.in_flight_bytes) == (0, 0)
    world.network.skip(60)
    assert world.wait(producer.send(Message("TopicTest", b"end"))).queue.topic == "TopicTest"
    world.wait(producer.stop())
    world.network.run(0.2)
    assert len(producer.instance.remoting.group.connections) == 0
    assert len(world.clock.getDelayedCalls()) <= before + 2
