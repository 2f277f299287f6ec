"""The admin client beside brokers of ours on a network in memory: what is said is done, and what is asked is so."""

from __future__ import annotations

import pytest
from admin_world import CLUSTER, AdminWorld, address
from consumer_world import LATER, TOPIC, Diary

from txrocketmq.client.admin.errors import (
    BroadcastConsumptionError,
    NoSuchBrokerError,
    NotOnlineError,
    PartialFailureError,
)
from txrocketmq.client.admin.messages import decode_message_id
from txrocketmq.client.admin.offsets import NEWEST
from txrocketmq.client.admin.results import TrackType
from txrocketmq.client.routes import NoSuchTopicError
from txrocketmq.errors import BrokerError, MQClientError, RemotingError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.heartbeat import MessageModel, MessageRequestMode
from txrocketmq.model.message import Message, MessageQueue
from txrocketmq.model.properties import UNIQ_KEY
from txrocketmq.model.topic import TopicConfig

A, B = address(2), address(3)


def queue(number: int, broker: int = 2, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=f"broker-{broker}", queue_id=number)


@pytest.fixture(scope="module")
def two() -> AdminWorld:
    """Two brokers; every test has topics and groups of its own."""
    return AdminWorld(2)


# --------------------------------------------------------------------- topics


def test_a_topic_comes_changes_and_goes(two: AdminWorld) -> None:
    topics, wait = two.admin.topics, two.wait
    made = wait(topics.create("T-life", cluster=CLUSTER, write_queue_nums=3, read_queue_nums=5))
    assert sorted(made) == [A, B]
    two.network.run(0.2)
    route = wait(topics.route("T-life"))
    assert {(q.broker_name, q.write_queue_nums, q.read_queue_nums) for q in route.queue_datas} == {
        ("broker-2", 3, 5),
        ("broker-3", 3, 5),
    }
    assert wait(topics.clusters("T-life")) == {CLUSTER}
    assert "T-life" in wait(topics.names())
    assert "T-life" in wait(topics.names(CLUSTER))
    assert wait(topics.update_perm("T-life", 4, broker=A)) == {A: 6}
    config = wait(topics.config(A, "T-life"))
    assert (config.perm, config.write_queue_nums, config.read_queue_nums) == (4, 3, 5)
    assert wait(topics.config(B, "T-life")).perm == 6
    assert sorted(wait(topics.delete("T-life", CLUSTER))) == [A, B]
    with pytest.raises(NoSuchTopicError, match="T-life"):
        wait(topics.route("T-life"))


def test_attributes_are_set_and_taken_away(two: AdminWorld) -> None:
    topics = two.admin.topics
    two.wait(topics.create("T-attr", broker=A, attributes={"+message.type": "FIFO"}))
    assert two.wait(topics.config(A, "T-attr")).attributes == {"message.type": "FIFO"}
    two.wait(topics.create("T-attr-2", broker=A, attributes={"message.type": "DELAY"}))
    assert two.wait(topics.config(A, "T-attr-2")).attributes == {"message.type": "DELAY"}
    with pytest.raises(BrokerError) as caught:
        two.wait(topics.create("T-attr", broker=A, attributes={"no.such": "x"}))
    assert "no.such" in caught.value.remark


def test_topics_and_groups_by_the_list(two: AdminWorld) -> None:
    admin = two.admin
    names = ["T-list-1", "T-list-2"]
    configs = [TopicConfig(topic_name=name, read_queue_nums=2) for name in names]
    assert sorted(two.wait(admin.topics.create_list(configs, cluster=CLUSTER))) == [A, B]
    assert set(names) <= set(two.wait(admin.topics.configs(A)).topic_config_table)
    assert set(names) <= set(two.wait(admin.topics.user_configs(B)))
    groups = [SubscriptionGroupConfig(group_name=f"G-list-{n}") for n in (1, 2)]
    two.wait(admin.groups.create_list(groups, broker=A))
    assert {"G-list-1", "G-list-2"} <= set(two.wait(admin.groups.user_configs(A)))
    assert "G-list-1" not in two.wait(admin.groups.user_configs(B))


def test_an_ordered_topic_is_fixed_at_the_name_servers(two: AdminWorld) -> None:
    topics = two.admin.topics
    two.wait(two.admin.name_servers.update_config({"orderMessageEnable": True}))
    two.wait(topics.create("T-order", cluster=CLUSTER, write_queue_nums=4, order=True))
    assert two.wait(topics.order("T-order")) == "broker-2:4;broker-3:4"
    two.wait(topics.create("T-order", broker=B, write_queue_nums=6, order=True))
    assert two.wait(topics.order("T-order")) == "broker-2:4;broker-3:6"
    two.network.run(0.2)
    assert two.wait(topics.route("T-order")).order_topic_conf == "broker-2:4;broker-3:6"
    two.wait(topics.delete_order("T-order"))
    with pytest.raises(BrokerError) as caught:
        two.wait(topics.order("T-order"))
    assert caught.value.code == ResponseCode.QUERY_NOT_FOUND


def test_who_is_meant_must_be_said(two: AdminWorld) -> None:
    with pytest.raises(MQClientError, match="for whom"):
        two.wait(two.admin.topics.create("T-nobody"))
    with pytest.raises(MQClientError, match="for whom"):
        two.wait(two.admin.topics.create("T-both", broker=A, cluster=CLUSTER))
    with pytest.raises(NoSuchBrokerError, match="known: ClusterA"):
        two.wait(two.admin.topics.create("T-typo", cluster="ClusterB"))
    with pytest.raises(MQClientError, match="illegal"):
        two.wait(two.admin.topics.create("no good", broker=A))


def test_allocation_is_told_without_members(two: AdminWorld) -> None:
    found = two.wait(two.admin.topics.allocate(TOPIC, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]))
    assert [len(queues) for queues in found.values()] == [3, 3, 2]
    assert len({q for queues in found.values() for q in queues}) == 8


# --------------------------------------------------------------------- several brokers, some of which fail


def test_what_the_others_did_is_told_when_one_broker_fails() -> None:
    world = AdminWorld(3)
    world.network.kill(address(4))
    with pytest.raises(PartialFailureError) as caught:
        world.wait(world.admin.topics.create("T-part", cluster=CLUSTER))
    assert sorted(caught.value.results) == [A, B]
    assert list(caught.value.failures) == [address(4)]
    assert isinstance(caught.value.failures[address(4)], RemotingError)
    assert address(4) in str(caught.value)
    assert "1 of 3" in str(caught.value)
    assert world.wait(world.admin.topics.config(A, "T-part")).topic_name == "T-part"
    members = world.wait(world.admin.brokers.members(CLUSTER))
    assert [(m.broker_name, bool(m.runtime)) for m in members] == [
        ("broker-2", True),
        ("broker-3", True),
        ("broker-4", False),
    ]
    with pytest.raises(RemotingError):
        world.wait(world.admin.brokers.config(address(4)))


# --------------------------------------------------------------------- groups and offsets


def test_a_group_comes_changes_and_goes(two: AdminWorld) -> None:
    groups, wait = two.admin.groups, two.wait
    assert sorted(wait(groups.create("G-life", cluster=CLUSTER))) == [A, B]
    changed = SubscriptionGroupConfig(group_name="G-life", retry_max_times=3)
    wait(groups.create(changed, broker=B))
    found = wait(groups.configs_of("G-life"))
    assert {name: config.retry_max_times for name, config in found.items()} == {
        "broker-2": 16,
        "broker-3": 3,
    }
    assert wait(groups.config(B, "G-life")).retry_max_times == 3
    assert sorted(wait(groups.delete("G-life", cluster=CLUSTER, clean_offset=True))) == [A, B]
    assert wait(groups.configs_of("G-life")) == {}
    with pytest.raises(MQClientError):
        wait(groups.create("no good", broker=A))


def test_a_group_is_forbidden_to_read(two: AdminWorld) -> None:
    groups = two.admin.groups
    two.wait(groups.create("G-forbidden", broker=A))
    assert two.wait(groups.set_readable(A, "G-forbidden", TOPIC, False)).readable is False
    assert two.wait(groups.set_readable(A, "G-forbidden", TOPIC, None)).readable is False


@pytest.fixture
def world() -> AdminWorld:
    """One broker with twelve messages in four queues; resets need members there, as up to 5.1."""
    made = AdminWorld(use_server_side_reset_offset=False)
    made.fill(12)
    return made


def test_progress_of_a_group(world: AdminWorld) -> None:
    diary = Diary()
    consumer = world.consumer(diary)
    world.until(lambda: len(diary.seen) == 12)
    world.network.run(12)
    found = world.wait(world.admin.groups.progress("CG", client_ips=True))
    rows = [row for row in found.queues if row.queue.topic == TOPIC]
    assert [(row.queue.queue_id, row.broker_offset, row.diff) for row in rows] == [
        (number, 3, 0) for number in range(4)
    ]
    assert {row.client_ip for row in rows} == {consumer.instance.config.client_ip}
    world.put(b"later", 1)
    world.wait(consumer.stop())
    world.put(b"left", 2)
    found = world.wait(world.admin.groups.progress("CG", TOPIC))
    assert found.diff_total == 1
    [line] = world.wait(world.admin.groups.overview())
    assert (line.group, line.count, line.version_text, line.diff_total) == ("CG", 0, "OFFLINE", 1)
    in_broker = world.wait(world.admin.groups.stats_in_broker(A))
    assert in_broker.total_diff == 1


def test_members_and_what_they_tell(world: AdminWorld) -> None:
    diary = Diary()
    consumer = world.consumer(diary)
    world.until(lambda: len(diary.seen) == 12)
    clients = world.admin.clients
    client_id = consumer.instance.client_id
    found = world.wait(clients.consumers("CG"))
    assert [member.client_id for member in found.connection_set] == [client_id]
    assert set(found.subscription_table) == {TOPIC, "%RETRY%CG"}
    infos = world.wait(clients.all_running_infos("CG", jstack=True))
    assert list(infos) == [client_id]
    assert "test_admin_operations" in (infos[client_id].jstack or "")
    assert {q for q in infos[client_id].mq_table if q.topic == TOPIC} == set(map(queue, range(4)))
    [line] = world.wait(world.admin.groups.overview())
    assert (line.count, line.message_model) == (1, MessageModel.CLUSTERING)
    status = world.wait(clients.status(TOPIC, "CG"))
    assert status[client_id][queue(0)] == 3
    with pytest.raises(BrokerError, match="nobody"):
        world.wait(clients.running_info("CG", "nobody@1"))
    with pytest.raises(NoSuchTopicError, match="group never-ran never ran: "):
        world.wait(clients.consumers("never-ran"))
    world.wait(consumer.stop())
    with pytest.raises(NotOnlineError, match="CG"):
        world.wait(clients.consumers("CG"))


def test_producers_are_seen(world: AdminWorld) -> None:
    producer = world.producer("PG")
    world.wait(producer.send(Message(TOPIC, b"one")))
    world.network.run(1.5)
    found = world.wait(world.admin.clients.producers("PG", TOPIC))
    assert [member.client_id for member in found.connection_set] == [producer.instance.client_id]
    table = world.wait(world.admin.clients.all_producers(A)).data
    assert [item.client_id for item in table["PG"]] == [producer.instance.client_id]
    with pytest.raises(NotOnlineError, match="no-such"):
        world.wait(world.admin.clients.producers("no-such", TOPIC))


@pytest.mark.parametrize("server_side", [False, True])
def test_a_connected_group_is_reset(server_side: bool) -> None:
    world = AdminWorld(use_server_side_reset_offset=server_side)
    world.fill(12)
    diary = Diary()
    consumer = world.consumer(diary)
    world.until(lambda: len(diary.seen) == 12)
    world.network.run(12)  # the broker knows the group by its offsets
    found = world.wait(world.admin.offsets.reset("CG", TOPIC, 0))
    assert found.offsets == {queue(number): 0 for number in range(4)}
    assert found.rollbacks == []
    world.until(lambda: len(diary.seen) == 24)
    world.wait(consumer.stop())


def test_a_group_without_members_is_moved_at_the_brokers(world: AdminWorld) -> None:
    diary = Diary()
    consumer = world.consumer(diary)
    world.until(lambda: len(diary.seen) == 12)
    world.wait(consumer.stop())
    found = world.wait(world.admin.offsets.reset("CG", TOPIC, 0))
    assert found.offsets == {}
    assert [(r.queue_id, r.consumer_offset, r.rollback_offset) for r in found.rollbacks] == [
        (number, 3, 0) for number in range(4)
    ]
    assert world.wait(world.admin.groups.progress("CG", TOPIC)).diff_total == 12
    # Only back: a later time changes nothing.
    rows = world.wait(world.admin.offsets.reset_offline("CG", TOPIC, NEWEST, force=False))
    assert [(row.timestamp_offset, row.rollback_offset) for row in rows] == [(3, 0)] * 4
    world.wait(world.admin.offsets.skip("CG", TOPIC))
    assert world.wait(world.admin.groups.progress("CG", TOPIC)).diff_total == 0


def test_one_queue_is_reset_and_offsets_are_cloned(world: AdminWorld) -> None:
    diary = Diary()
    consumer = world.consumer(diary)
    world.until(lambda: len(diary.seen) == 12)
    world.wait(consumer.stop())
    offsets = world.admin.offsets
    for group in ("copy", "copy-2"):
        world.wait(world.admin.groups.create(group, broker=A))
    world.wait(offsets.update(A, "CG", queue(2), 1))
    with pytest.raises(MQClientError, match="negative"):
        world.wait(offsets.update(A, "CG", queue(2), -1))
    cloned = world.wait(offsets.clone("CG", "copy", TOPIC))
    places = {q.queue_id: o for q, o in cloned.items() if q.topic == TOPIC}
    assert places == {0: 3, 1: 3, 2: 1, 3: 3}
    table = world.wait(world.admin.groups.consume_stats_at(A, "copy", TOPIC)).offset_table
    assert {q.queue_id: place.consumer_offset for q, place in table.items()} == places
    assert world.wait(offsets.clone_at_brokers("CG", "copy-2", TOPIC)) == [A]
    assert world.wait(offsets.maximum(queue(0))) == 3
    assert world.wait(offsets.minimum(queue(0))) == 0
    assert world.wait(offsets.search(queue(0), 0)) == 0
    assert world.wait(offsets.earliest_store_time(queue(0))) > 0


def test_a_broadcasting_group_has_no_offsets_at_brokers(world: AdminWorld) -> None:
    diary = Diary()
    world.consumer(diary, "BG", message_model=MessageModel.BROADCASTING)
    world.until(lambda: len(diary.seen) == 12)
    with pytest.raises(BroadcastConsumptionError, match="BG"):
        world.wait(world.admin.groups.progress("BG"))


# --------------------------------------------------------------------- messages


def test_messages_are_found_in_every_way(world: AdminWorld) -> None:
    producer = world.producer("PG")
    message = Message(TOPIC, b"wanted")
    message.keys, message.tags = "order-7 order-8", "TagW"
    sent = world.wait(producer.send(message, queue(3)))
    messages = world.admin.messages
    unique, offset_id = sent.msg_id, sent.offset_msg_id
    assert decode_message_id(offset_id).address == A
    for message_id in (unique, offset_id):
        found = world.wait(messages.by_id(TOPIC, message_id))
        assert (found.body, found.queue_offset, found.properties[UNIQ_KEY]) == (
            b"wanted",
            3,
            unique,
        )
    assert world.wait(messages.by_id(TOPIC, "0" * 32)) is None
    assert world.wait(messages.by_id(TOPIC, "not an id")) is None
    by_key = world.wait(messages.by_key(TOPIC, "order-8"))
    assert [m.body for m in by_key.messages] == [b"wanted"]
    assert by_key.index_last_update_timestamp > 0
    assert world.wait(messages.by_key(TOPIC, "order")).messages == []
    assert len(world.wait(messages.by_unique_key(TOPIC, unique)).messages) == 1
    found = world.wait(messages.by_offset(TOPIC, "broker-2", 3, 3))
    assert found.body == b"wanted"
    assert world.wait(messages.by_offset(TOPIC, "broker-2", 3, 99)) is None
    with pytest.raises(NoSuchBrokerError, match="broker-9"):
        world.wait(messages.by_offset(TOPIC, "broker-9", 3, 3))


def test_messages_are_read_one_after_the_other(world: AdminWorld) -> None:
    scan, collect = world.admin.messages.scan, world.collect
    assert sorted(int(m.body) for m in collect(scan(TOPIC))) == list(range(12))
    assert [m.body for m in collect(scan(TOPIC, broker_name="broker-2", queue_id=1))] == [
        b"1",
        b"5",
        b"9",
    ]
    assert [m.body for m in collect(scan(TOPIC, queue_id=1, offset=1, max_num=1))] == [b"5"]
    world.clock.advance(10)
    now_ms = int(world.clock.seconds() * 1000)
    world.clock.advance(10)
    world.put(b"new", 1, properties={"TAGS": "TagN"})
    assert [m.body for m in collect(scan(TOPIC, begin_ms=now_ms))] == [b"new"]
    assert len(collect(scan(TOPIC, end_ms=now_ms))) == 12
    assert [m.body for m in collect(scan(TOPIC, expression="TagN || TagX"))] == [b"new"]
    with pytest.raises(NoSuchBrokerError):
        collect(scan(TOPIC, broker_name="broker-2", queue_id=17))
    with pytest.raises(NoSuchTopicError):
        collect(scan("no-such-topic"))


def test_a_handler_tries_one_message(world: AdminWorld) -> None:
    diary = Diary()
    consumer = world.consumer(diary)
    world.until(lambda: len(diary.seen) == 12)
    sent = world.wait(world.admin.messages.send(Message(TOPIC, b"again")))
    world.until(lambda: len(diary.seen) == 13)
    for message_id in (sent.msg_id, sent.offset_msg_id):
        result = world.wait(
            world.admin.messages.consume_directly(
                "CG", consumer.instance.client_id, TOPIC, message_id
            )
        )
        assert result.consume_result == "CR_SUCCESS"
    assert diary.bodies[-2:] == [b"again"] * 2
    with pytest.raises(MQClientError, match="no message"):
        world.wait(world.admin.messages.consume_directly("CG", "c", TOPIC, "0" * 32))


def test_a_consume_queue_is_shown(world: AdminWorld) -> None:
    found = world.wait(world.admin.messages.consume_queue(A, TOPIC, 1, 0, 2))
    assert (found.min_queue_index, found.max_queue_index, len(found.queue_data)) == (0, 3, 2)


def test_tracks_say_what_became_of_a_message(world: AdminWorld) -> None:
    diary, slow = Diary(), Diary(lambda messages, context: LATER)
    world.consumer(diary, "G-done")
    world.consumer(Diary(), "G-other-tag", {TOPIC: "TagZ"})
    world.until(lambda: len(diary.seen) == 12)
    gone = world.consumer(slow, "G-gone")
    world.until(lambda: len(slow.seen) >= 12)
    world.network.run(12)
    world.wait(gone.stop())
    message = world.wait(world.admin.messages.by_offset(TOPIC, "broker-2", 1, 0))
    tracks = {t.group: t for t in world.wait(world.admin.message_track(message))}
    assert {group: track.track_type for group, track in tracks.items()} == {
        "G-done": TrackType.CONSUMED,
        "G-other-tag": TrackType.CONSUMED_BUT_FILTERED,
        "G-gone": TrackType.NOT_ONLINE,
    }
    assert "G-gone" in tracks["G-gone"].reason
    # One beyond what was committed.
    world.wait(world.admin.offsets.update(A, "G-done", queue(1), 0))
    [done] = [t for t in world.wait(world.admin.message_track(message)) if t.group == "G-done"]
    assert done.track_type is TrackType.NOT_CONSUME_YET


# --------------------------------------------------------------------- brokers and name servers


def test_settings_of_brokers(two: AdminWorld) -> None:
    brokers = two.admin.brokers
    assert two.wait(brokers.config(A))["brokerName"] == "broker-2"
    assert sorted(two.wait(brokers.update_config({"traceOn": False}, cluster=CLUSTER))) == [A, B]
    found = two.wait(brokers.configs(CLUSTER))
    assert {address: settings["traceOn"] for address, settings in found.items()} == {
        A: "false",
        B: "false",
    }
    with pytest.raises(MQClientError, match="no setting"):
        two.wait(brokers.update_config({}, broker=A))


def test_figures_cleaning_and_replication_of_brokers(two: AdminWorld) -> None:
    brokers, wait = two.admin.brokers, two.wait
    assert "putTps" in wait(brokers.runtime_info(A))
    assert sorted(wait(brokers.runtime_infos(CLUSTER))) == [A, B]
    for clean in (
        brokers.clean_expired_queues,
        brokers.clean_unused_topics,
        brokers.delete_expired_commit_log,
    ):
        assert sorted(wait(clean(cluster=CLUSTER))) == [A, B]
    assert wait(brokers.ha_status(A)).master is True
    assert sorted(wait(brokers.ha_statuses(CLUSTER))) == [A, B]
    assert wait(brokers.consumer_offsets(A)).offset_table is not None
    assert wait(brokers.delay_offsets(A)).offset_table is not None
    with pytest.raises(BrokerError) as caught:
        wait(brokers.stats(A, "TOPIC_PUT_NUMS", "no-such"))
    assert caught.value.address == A


def test_writing_is_forbidden_and_allowed_again(two: AdminWorld) -> None:
    servers = two.admin.name_servers
    [count] = two.wait(servers.wipe_write_perm("broker-3")).values()
    assert count > 0
    route = two.wait(two.admin.topics.route(TOPIC))
    assert {q.broker_name: q.perm for q in route.queue_datas} == {"broker-2": 6, "broker-3": 4}
    assert list(two.wait(servers.add_write_perm("broker-3")).values()) == [count]
    route = two.wait(two.admin.topics.route(TOPIC))
    assert {q.perm for q in route.queue_datas} == {6}


def test_the_key_value_table(two: AdminWorld) -> None:
    servers, wait = two.admin.name_servers, two.wait
    wait(servers.put_kv("NS", "k", "v=1;2"))
    assert wait(servers.get_kv("NS", "k")) == "v=1;2"
    assert wait(servers.list_kv("NS")) == {"k": "v=1;2"}
    wait(servers.delete_kv("NS", "k"))
    with pytest.raises(BrokerError):
        wait(servers.get_kv("NS", "k"))


def test_settings_of_name_servers(two: AdminWorld) -> None:
    servers = two.admin.name_servers
    [settings] = two.wait(servers.config()).values()
    assert "kvConfigPath" in settings
    two.wait(servers.update_config({"orderMessageEnable": True}))
    [settings] = two.wait(servers.config()).values()
    assert settings["orderMessageEnable"] == "true"
    group = two.wait(servers.member_group(CLUSTER, "broker-2"))
    assert group.broker_addrs == {0: A}


def test_what_our_brokers_do_not_serve_is_an_error_with_its_reason(two: AdminWorld) -> None:
    with pytest.raises(BrokerError, match="RocksDB") as caught:
        two.wait(two.admin.brokers.check_rocksdb_queues(A))
    assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


# --------------------------------------------------------------------- figures, probes, copies


def test_traffic_of_topics() -> None:
    world = AdminWorld()
    diary = Diary()
    world.consumer(diary)
    world.fill(12)
    world.until(lambda: len(diary.seen) == 12)
    world.network.run(30)
    [line] = world.wait(world.admin.traffic.topic(TOPIC))
    assert (line.group, line.accumulation, line.in_messages_24h) == ("CG", 0, 12)
    assert line.out_messages_24h == 12
    active = world.wait(world.admin.traffic.all(active=True))
    assert [item.topic for item in active] == [TOPIC]


def test_probes_send(two: AdminWorld) -> None:
    probes = two.wait(two.admin.probes.topic(TOPIC, amount=9, size=10))
    assert [probe.error for probe in probes] == [None] * 9
    assert len({(probe.broker_name, probe.queue_id) for probe in probes}) == 8
    summaries = two.wait(two.admin.probes.clusters(amount=3))
    assert [(s.broker_name, s.success_count, s.fail_count) for s in summaries] == [
        ("broker-2", 3, 0),
        ("broker-3", 3, 0),
    ]


def test_a_queue_of_a_sent_message_is_said_whole(two: AdminWorld) -> None:
    sent = two.wait(
        two.admin.messages.send(Message(TOPIC, b"x"), broker_name="broker-3", queue_id=2)
    )
    assert sent.queue == queue(2, 3)
    with pytest.raises(MQClientError, match="queue_id"):
        two.wait(two.admin.messages.send(Message(TOPIC, b"x"), broker_name="broker-3"))


def test_copies_of_a_cluster(two: AdminWorld) -> None:
    exports = two.admin.exports
    found = two.wait(exports.metadata(cluster=CLUSTER))
    assert found.topics[TOPIC].write_queue_nums == 8
    assert not any(name.startswith("%RETRY%") for name in found.topics)
    configs = two.wait(exports.configs(CLUSTER))
    assert (configs.master_count, configs.slave_count) == (2, 0)
    assert configs.broker_configs["broker-2"]["brokerId"] == "0"
    metrics = two.wait(exports.metrics(CLUSTER))
    assert metrics[A].topic_count >= 1


def test_a_group_is_told_to_pop(two: AdminWorld) -> None:
    mode = MessageRequestMode.POP
    done = two.wait(two.admin.groups.set_request_mode(TOPIC, "G-pop", mode, 2, cluster=CLUSTER))
    assert sorted(done) == [A, B]


def test_large_tables_are_read_in_pages(two: AdminWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        two.wait(two.admin.topics.create(f"T-page-{number}", broker=A))
        two.wait(two.admin.groups.create(f"G-page-{number}", broker=A))
    topics = two.wait(two.admin.topics.configs(A)).topic_config_table
    groups = two.wait(two.admin.groups.configs(A)).subscription_group_table
    for module in ("topics", "groups"):
        monkeypatch.setattr(f"txrocketmq.client.admin.{module}.PAGE", 3)
    assert two.wait(two.admin.topics.configs(A)).topic_config_table == topics
    assert two.wait(two.admin.groups.configs(A)).subscription_group_table == groups
    assert {f"T-page-{number}" for number in range(7)} <= set(topics)
