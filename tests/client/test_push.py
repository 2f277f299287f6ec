"""Does a push consumer consume all of its topics, once, and leave its group as it should?"""

from __future__ import annotations

from consumer_world import ConsumerWorld, Diary


def test_messages_of_all_queues_are_consumed_and_committed() -> None:
    world = ConsumerWorld(brokers=2)
    sent = world.fill(20)
    sent_too = world.fill(8, number=3)
    diary = Diary()
    consumer = world.consumer(diary)
    world.until(lambda: len(diary.seen) >= 28)
    assert sorted(diary.bodies) == sorted(sent + sent_too)
    assert len(consumer.queues) == 10  # two retry queues among them
    world.put(b"later", 2)
    assert world.until(lambda: b"later" in diary.bodies) < 0.2
    world.wait(consumer.stop())
    assert world.offsets() == [5, 5, 6, 5]
    assert world.offsets(number=3) == [2, 2, 2, 2]
    assert world.members() is None
    assert set(diary.batches) == {1}
    assert world.clock.getDelayedCalls()  # of the brokers
