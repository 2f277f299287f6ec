"""Do our clients send to, and read, the logical queues of static topics, and follow them when they move between brokers?"""

from __future__ import annotations

import pytest
from admin.admin_world import AdminWorld
from consumer_world import DONE, FIRST, LATER, SUCCESS, TOPIC, Diary

from txrocketmq.client.consumer.config import PullConfig
from txrocketmq.client.consumer.lite_pull import LitePullConsumer
from txrocketmq.client.static_topics import NOBODY, leaders
from txrocketmq.errors import MQClientError
from txrocketmq.model.message import Message, MessageQueue
from txrocketmq.model.route import TopicRouteData
from txrocketmq.model.static_topic import (
    LogicQueueMappingItem,
    TopicQueueMappingInfo,
    TopicRemappingDetailWrapper,
)

STATIC = "Static"
LOGICAL = "__syslo__global__"
NEXT_LOGICAL = 1_000
QUEUES = 4
QUICK = {"poll_name_server_interval": 1_000}


def logical(queue_id: int) -> MessageQueue:
    return MessageQueue(topic=STATIC, broker_name=LOGICAL, queue_id=queue_id)


def static_world() -> AdminWorld:
    """Two brokers that lead two logical queues each."""
    world = AdminWorld(brokers=2)
    world.wait(world.admin.static_topics.create(STATIC, QUEUES, ["broker-2", "broker-3"]))
    world.network.run(1)
    return world


def move_all(world: AdminWorld) -> None:
    """What ``remappingStaticTopic`` does: all queues go on at broker-3, in new stretches behind the old ones."""
    known = world.wait(world.admin.static_topics.examine(STATIC))
    old, new = (known[name].mapping_detail for name in ("broker-2", "broker-3"))
    assert old is not None
    assert new is not None
    for number, (queue_id, stretches) in enumerate(sorted(old.hosted_queues.items())):
        last = stretches[-1]
        last.end_offset = world.brokers[2].store.max_offset(STATIC, last.queue_id)
        begin = LogicQueueMappingItem(
            gen=1,
            queue_id=QUEUES // 2 + number,
            bname="broker-3",
            logic_offset=NEXT_LOGICAL,
        )
        new.hosted_queues[queue_id] = old.hosted_queues[queue_id] = [last, begin]
    old.epoch = new.epoch = old.epoch + 1
    for item in known.values():
        item.read_queue_nums = item.write_queue_nums = QUEUES
    plan = TopicRemappingDetailWrapper(
        topic=STATIC,
        type="REMAPPING",
        epoch=old.epoch,
        broker_config_map=known,
        broker_to_map_in={"broker-3"},
    )
    world.wait(world.admin.static_topics.apply(plan))
    world.network.run(1)


def test_queues_are_followed_to_another_broker_and_keep_their_numbers() -> None:
    world = static_world()
    producer, diary = world.producer(client=QUICK), Diary(DONE)
    world.consumer(diary, subscriptions=STATIC, client=QUICK, orderly=True)
    bodies = [b"%d" % number for number in range(4 * QUEUES)]
    for number, body in enumerate(bodies):
        if number == len(bodies) // 2:
            move_all(world)
            world.network.run(3)
        result = world.wait(producer.send(Message(STATIC, body), queue=logical(number % QUEUES)))
        moved = number >= len(bodies) // 2
        assert result.queue.broker_name == ("broker-3" if moved or number % 2 else "broker-2")
    # Who comes later reads the old stretches through the new leader.
    late = Diary()
    world.consumer(late, group="late", subscriptions=STATIC, client=QUICK)
    world.until(lambda: len(diary.seen) >= len(bodies) and len(late.seen) >= len(bodies))
    for seen in (diary.seen, late.seen):
        assert sorted(one.body for one in seen) == sorted(bodies)
        places = sorted((one.queue_id, one.queue_offset) for one in seen)
        assert places == [
            (queue, offset)
            for queue in range(QUEUES)
            for offset in ((0, 1, 2, 3) if queue % 2 else (0, 1, NEXT_LOGICAL, NEXT_LOGICAL + 1))
        ]


def test_an_operator_moves_queues_and_adds_some() -> None:
    """As `move_all` by hand, with the operations of the admin client: no message is lost, none is read twice, no place is given twice."""
    world = AdminWorld(brokers=2)
    statics = world.admin.static_topics
    world.wait(statics.grow(STATIC, QUEUES, ["broker-2"]))
    world.network.run(1)
    # The other broker of the cluster knows the topic, and that it has none of its queues.
    assert world.wait(statics.examine(STATIC))["broker-3"].write_queue_nums == 0
    producer, diary = world.producer(client=QUICK), Diary(DONE)
    world.consumer(diary, subscriptions=STATIC, client=QUICK, orderly=True)
    places: list[tuple[int, int]] = []

    def send(count: int, queues: int) -> set[str]:
        world.network.run(3)
        results = [
            world.wait(
                producer.send(
                    Message(STATIC, b"%d" % (len(places) + number)), logical(number % queues)
                )
            )
            for number in range(count)
        ]
        places.extend((result.queue.queue_id, result.queue_offset) for result in results)
        return {result.queue.broker_name for result in results}

    assert send(8, QUEUES) == {"broker-2"}
    moved = world.wait(statics.move(STATIC, ["broker-3", "broker-2"]))
    # As few as that takes: two queues stay.
    assert (moved.broker_to_map_in, moved.broker_to_map_out) == (["broker-3"], ["broker-2"])
    assert send(8, QUEUES) == {"broker-2", "broker-3"}
    world.wait(statics.move(STATIC, ["broker-3"]))
    assert send(8, QUEUES) == {"broker-3"}
    grown = world.wait(statics.grow(STATIC, QUEUES + 2, ["broker-2"]))
    assert {name: item.write_queue_nums for name, item in grown.broker_config_map.items()} == {
        "broker-2": QUEUES + 2,
        "broker-3": QUEUES,
    }
    assert send(12, QUEUES + 2) == {"broker-2", "broker-3"}
    late = Diary()
    world.consumer(late, group="late", subscriptions=STATIC, client=QUICK)
    total = len(places)
    world.until(lambda: len(diary.seen) >= total and len(late.seen) >= total)
    assert len(set(places)) == total
    for seen in (diary.seen, late.seen):
        assert sorted((one.queue_id, one.queue_offset) for one in seen) == sorted(places)
    for number in range(QUEUES):
        offsets = [offset for queue, offset in places if queue == number]
        assert offsets == sorted(offsets)
    for wrong in (QUEUES, QUEUES + 2):
        with pytest.raises(MQClientError, match="can only get more"):
            world.wait(statics.grow(STATIC, wrong, ["broker-2"]))
    with pytest.raises(MQClientError, match="no topic"):
        world.wait(statics.move("Nobody", ["broker-2"]))
    with pytest.raises(MQClientError, match="is no static topic"):
        world.wait(statics.move(TOPIC, ["broker-2"]))


def test_what_is_sent_to_logical_queues_is_consumed_with_their_numbers_and_offsets() -> None:
    world = static_world()
    producer = world.producer()
    results = [
        world.wait(producer.send(Message(STATIC, b"%d" % number))) for number in range(4 * QUEUES)
    ]
    assert {result.queue.broker_name for result in results} == {"broker-2", "broker-3"}
    places = sorted((result.queue.queue_id, result.queue_offset) for result in results)
    assert places == [(queue, offset) for queue in range(QUEUES) for offset in range(4)]
    diary = Diary()
    consumer = world.consumer(diary, subscriptions=STATIC)
    assert [queue for queue in consumer.queues if queue.topic == STATIC] == [
        logical(number) for number in range(QUEUES)
    ]
    world.until(lambda: len(diary.seen) == 4 * QUEUES)
    assert sorted((one.queue_id, one.queue_offset) for one in diary.seen) == places
    assert {one.broker_name for one in diary.seen} == {LOGICAL}
    world.wait(consumer.stop())
    again = Diary()
    late = world.consumer(again, subscriptions=STATIC)
    world.wait(producer.send(Message(STATIC, b"last")))
    world.until(lambda: bool(again.seen))
    world.network.run(1)
    assert again.bodies == [b"last"]
    world.wait(late.stop())


@pytest.mark.parametrize("orderly", [False, True])
def test_failed_messages_of_logical_queues_come_again(orderly: bool) -> None:
    world = static_world()
    producer = world.producer()
    world.wait(producer.send(Message(STATIC, b"hard")))
    failed: list[bytes] = []

    def handle(messages: list[object], context: object) -> object:
        if not failed:
            failed.append(b"hard")
            if orderly:
                raise ValueError("not yet")
            return LATER
        return DONE if orderly else SUCCESS

    diary = Diary(handle)
    world.consumer(diary, subscriptions=STATIC, orderly=orderly)
    world.until(lambda: len(diary.seen) == 2, 120)
    assert diary.bodies == [b"hard", b"hard"]
    assert [one.reconsume_times for one in diary.seen][-1] == 1
    assert {one.topic for one in diary.seen} == {STATIC}


def test_a_lite_pull_consumer_reads_and_seeks_in_logical_queues() -> None:
    world = static_world()
    producer = world.producer()
    for number in range(QUEUES):
        world.wait(producer.send(Message(STATIC, b"%d" % number), queue=logical(number)))
    consumer = LitePullConsumer(
        world.clock,
        "CG",
        settings=PullConfig(consume_from_where=FIRST),
        instance=world.instance(instance_name="a"),
    )
    consumer.subscribe(STATIC)
    world.wait(consumer.start())
    found: list[bytes] = []
    while len(found) < QUEUES:
        found += [one.body for one in world.wait(consumer.poll(5000))]
    assert sorted(found) == [b"0", b"1", b"2", b"3"]
    world.wait(consumer.seek(logical(2), 0))
    assert [one.body for one in world.wait(consumer.poll(5000))] == [b"2"]
    world.wait(consumer.stop())


class TestLeaders:
    """Of `leaders`."""

    def route(self, *infos: TopicQueueMappingInfo) -> TopicRouteData:
        return TopicRouteData(
            topic_queue_mapping_by_broker={info.bname or "": info for info in infos}
        )

    def test_the_newer_mapping_counts_and_gaps_are_nobodys(self) -> None:
        route = self.route(
            TopicQueueMappingInfo(
                bname="old", epoch=1, total_queues=3, curr_id_map={0: 0, 1: 1}, topic=STATIC
            ),
            TopicQueueMappingInfo(
                bname="new", epoch=2, total_queues=4, curr_id_map={1: 0}, topic=STATIC
            ),
        )
        found = leaders(STATIC, route, 100)
        assert list(found.values()) == ["old", "new", NOBODY, NOBODY]
        assert list(found) == [logical(number) for number in range(4)]

    def test_each_scope_has_queues_of_its_own_and_no_more_than_are_believed(self) -> None:
        route = self.route(
            TopicQueueMappingInfo(bname="a", total_queues=9, curr_id_map={0: 0}, topic=STATIC),
            TopicQueueMappingInfo(
                bname="b", scope="room", total_queues=1, curr_id_map={0: 5}, topic=STATIC
            ),
        )
        found = leaders(STATIC, route, 2)
        assert [(queue.broker_name, queue.queue_id) for queue in found] == [
            (LOGICAL, 0),
            (LOGICAL, 1),
            ("__syslo__room", 0),
        ]

    def test_an_ordinary_topic_has_none(self) -> None:
        assert leaders(STATIC, TopicRouteData(), 100) == {}
