"""S18, at the consumers: members that subscribe differently while three of ours are changed one after the other."""

from __future__ import annotations

from typing import Any

from consumer_world import ConsumerWorld, Diary

OLD, NEW = {"A": "x"}, {"A": "x || y", "B": "*"}


def put(world: ConsumerWorld, topic: str, tag: str, count: int = 8) -> None:
    for number in range(count):
        world.put(f"{topic}-{tag}".encode(), number % 4, topic=topic, properties={"TAGS": tag})


def test_a_rolling_change_ends_with_everything_consumed() -> None:
    world = ConsumerWorld(topic="A")
    world.create_topic("B")
    diaries = [Diary() for _ in range(6)]
    members: list[Any] = [
        world.consumer(diary, subscriptions=OLD, client={"instance_name": f"old-{n}"})
        for n, diary in enumerate(diaries[:3])
    ]
    world.network.skip(25)
    put(world, "A", "x")
    world.until(lambda: sum(len(diary.seen) for diary in diaries) == 8)
    for number in range(3):
        world.wait(members[number].stop())
        members[number] = world.consumer(
            diaries[3 + number], subscriptions=NEW, client={"instance_name": f"new-{number}"}
        )
        world.network.skip(25)
        before = sum(diary.bodies.count(b"A-x") for diary in diaries)
        put(world, "A", "x")
        # What all want is delivered throughout.
        world.until(
            lambda b=before: sum(diary.bodies.count(b"A-x") for diary in diaries) == b + 8  # type: ignore[misc]
        )
    shared = [consumer.queues for consumer in members]
    assert sorted(q for queues in shared for q in queues if q.topic in "AB") == sorted(
        {q for queues in shared for q in queues if q.topic in "AB"}
    )
    put(world, "A", "y")
    put(world, "B", "z")
    world.until(
        lambda: (
            sum(diary.bodies.count(b"A-y") for diary in diaries) == 8
            and sum(diary.bodies.count(b"B-z") for diary in diaries) == 8
        )
    )
    connected = world.members()
    assert connected is not None
    assert connected.subscription_table["A"].sub_string == "x || y"
    assert len(connected.connection_set) == 3


def test_a_member_with_an_older_subscription_gets_only_what_it_asked_for() -> None:
    """The broker keeps the newest subscription for all of the group; the older member's own filter still holds."""
    world = ConsumerWorld(topic="A")
    old, new = Diary(), Diary()
    world.consumer(old, subscriptions={"A": "x"}, client={"instance_name": "a-old"})
    world.network.run(2)
    world.consumer(new, subscriptions={"A": "y"}, client={"instance_name": "b-new"})
    world.network.skip(25)
    put(world, "A", "y")
    put(world, "A", "x")
    world.network.skip(40)
    assert set(old.bodies) <= {b"A-x"}
    assert set(new.bodies) == {b"A-y"}
