"""S28: pops of a thousand messages, half of them acknowledged, some late, some asked for at the very time that they had; restarts in between."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pops import COMES_AGAIN_S, INVISIBLE_MS, PopConsumer, make_topic, pass_time
from small_broker import SmallBroker
from transactions import killed

COUNT = 1_000


def restarted(broker: SmallBroker, kill: bool) -> SmallBroker:
    if not kill:
        return broker.restarted()
    # The offsets are saved every five seconds; what a kill forgets of them is another test's.
    pass_time(broker, 5.5)
    return killed(broker)


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("merge", [False, True], ids=["written", "in-memory"])
def test_what_is_not_acknowledged_comes_again_and_nothing_else(kill: bool, merge: bool) -> None:
    chance = random.Random(28)
    broker = SmallBroker(enable_pop_buffer_merge=merge)
    make_topic(broker, queues=4)
    consumer = PopConsumer(broker)
    sent = [b"message %d" % number for number in range(COUNT)]
    for number, body in enumerate(sent):
        consumer.peer.send(body=body, queue_id=number % 4)
    receipts: dict[bytes, str] = {}
    while (popped := consumer.pop(max_msg_nums=32)).messages:
        assert len(popped.messages) <= 32
        for message in popped.messages:
            assert message.body not in receipts
            receipts[message.body] = popped.receipt(message)
    assert sorted(receipts) == sorted(sent)
    chosen = chance.sample(sent, COUNT // 2)
    early, late = chosen[: COUNT // 4], chosen[COUNT // 4 :]
    changed = chance.sample([body for body in sent if body not in chosen], 100)
    for body in early:
        assert consumer.ack_receipt(receipts[body]).code == 0
    # To the very same time: in the millisecond of the pop, and again later.
    for body in changed[:50]:
        receipts[body] = consumer.change(receipts[body], INVISIBLE_MS)
    pass_time(broker, 11)
    if merge and kill:
        # Until then check points are in memory: see the next test.
        pass_time(broker, 1)
    broker = restarted(broker, kill)
    consumer = PopConsumer(broker)
    begun_ms = int(receipts[sent[0]].split(" ")[1])
    for body in changed[50:]:
        left_ms = begun_ms + INVISIBLE_MS - broker.now_ms()
        receipts[body] = consumer.change(receipts[body], left_ms)
    pass_time(broker, begun_ms / 1000 + 25 - broker.clock.seconds())
    for body in late:
        assert consumer.ack_receipt(receipts[body]).code == 0
    assert consumer.pop().messages == []
    broker = restarted(broker, False)
    consumer = PopConsumer(broker)
    pass_time(broker, COMES_AGAIN_S)
    came: Counter[bytes] = Counter()
    while (popped := consumer.pop(max_msg_nums=32)).messages:
        for message in popped.messages:
            came[message.body] += 1
            assert consumer.ack(popped, message).code == 0
    assert came == Counter(set(sent) - set(chosen))
    pass_time(broker, COMES_AGAIN_S)
    assert consumer.pop().messages == []
    broker.stop()


def test_a_kill_with_check_points_in_memory_loses_nothing() -> None:
    broker = SmallBroker(enable_pop_buffer_merge=True)
    make_topic(broker)
    pass_time(broker, 6)
    consumer = PopConsumer(broker)
    sent = [b"message %d" % number for number in range(100)]
    for body in sent:
        consumer.peer.send(body=body)
    popped = consumer.pop()
    for message in popped.messages[::2]:
        assert consumer.ack(popped, message).code == 0
    broker = killed(broker, enable_pop_buffer_merge=True)
    consumer = PopConsumer(broker)
    came: Counter[bytes] = Counter()
    for _ in range(2):
        while (popped := consumer.pop(max_msg_nums=32)).messages:
            for message in popped.messages:
                came[message.body] += 1
                consumer.ack(popped, message)
        pass_time(broker, COMES_AGAIN_S)
    assert came == Counter(sent)
    broker.stop()
