"""Parts of the admin client that need no server: traces that are read, mappings that are planned, copies of users and rules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from golden import LINES, frame_body, wire_frames
from golden_servers import BROKER, golden_admin
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocketmq.client.admin.messages import decode_message_id
from txrocketmq.client.admin.static_plans import (
    begin_behind,
    known_mapping,
    plan_mapping,
    plan_move,
)
from txrocketmq.client.admin.traces import decode_traces
from txrocketmq.client.trace import TraceBean, TraceRecord, TraceType, encode_trace
from txrocketmq.codec import fastjson
from txrocketmq.codec.bodies.wire import encode_body
from txrocketmq.errors import MQClientError, RemotingConnectError
from txrocketmq.model.codes import RequestCode
from txrocketmq.model.message_id import offset_message_id

TEXT = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="\x01\x02"), min_size=1
).filter(lambda text: text != "null")
NUMBER = st.integers(0, 2**31 - 1)


# --------------------------------------------------------------------- traces


@given(st.sampled_from(list(TraceType)), st.data())
def test_traces_that_we_write_are_read(kind: TraceType, data: st.DataObject) -> None:
    draw = data.draw
    bean = TraceBean(msg_id=draw(TEXT))
    record = TraceRecord(type=kind, time=draw(NUMBER), group=draw(TEXT), beans=[bean])
    if kind in (TraceType.PUB, TraceType.END_TRANSACTION, TraceType.RECALL):
        bean.topic = draw(TEXT)
    if kind in (TraceType.PUB, TraceType.END_TRANSACTION):
        bean.tags, bean.keys = draw(st.none() | TEXT), draw(st.none() | TEXT)
        bean.store_host = draw(TEXT)
    if kind is TraceType.PUB:
        bean.offset_msg_id, bean.body_length = draw(TEXT), draw(NUMBER)
        bean.kind = draw(st.sampled_from(["normal", "half", "delay", "order"]))
        record.cost, record.success = draw(NUMBER), draw(st.booleans())
    elif kind is TraceType.END_TRANSACTION:
        bean.kind, bean.transaction_id = "commit", draw(TEXT)
        bean.transaction_state, bean.from_check = "COMMIT_MESSAGE", draw(st.booleans())
    elif kind is TraceType.SUB_BEFORE:
        record.request_id, bean.retry_times, bean.keys = draw(TEXT), draw(NUMBER), draw(TEXT)
    elif kind is TraceType.SUB_AFTER:
        record.request_id, record.cost = draw(TEXT), draw(NUMBER)
        record.context_code, record.success = draw(NUMBER), draw(st.booleans())
    else:
        record.success = draw(st.booleans())
    assert decode_traces(encode_trace(record)) == [record]


def test_traces_of_official_clients_are_read() -> None:
    found: dict[str, list[TraceRecord]] = {}
    for frame in wire_frames():
        if frame["conversation"] in ("c49.message-trace", "c54.message-trace"):
            body = frame_body(frame) if frame["kind"] == "remoting" else b""
            if body.startswith((b"Pub\x01", b"SubBefore\x01", b"SubAfter\x01")):
                found.setdefault(frame["conversation"], []).extend(decode_traces(body.decode()))
    assert len(found) == len(LINES)
    for records in found.values():
        [pub] = [record for record in records if record.type is TraceType.PUB]
        assert (pub.group, pub.success, pub.beans[0].topic) == ("PG_trace", True, "TopicA")
        assert (pub.beans[0].keys, pub.beans[0].body_length) == ("traced", 11)


@pytest.mark.parametrize("text", ["", "Pub\x01x\x02", "Pub\x011\x02", "Else\x011\x02\x02", "\x02"])
def test_what_is_no_trace_is_left_out(text: str) -> None:
    assert decode_traces(text) == []


def test_old_traces_without_an_offset_id_are_read() -> None:
    fields = ["Pub", "7", "R", "G", "T", "ID", "null", "k", "host", "3", "9", "0", "true"]
    [record] = decode_traces("\x01".join(fields) + "\x02")
    assert (record.success, record.beans[0].offset_msg_id, record.beans[0].tags) == (True, "", None)


# --------------------------------------------------------------------- ids


def test_an_offset_message_id_names_broker_and_place() -> None:
    for host, address in (("192.0.2.7", "192.0.2.7:10911"), ("2001:db8::1", "[2001:db8::1]:10911")):
        parts = decode_message_id(offset_message_id(host, 10911, 12345))
        assert (parts.address, parts.physical_offset) == (address, 12345)
    with pytest.raises(MQClientError, match="hexadecimal"):
        decode_message_id("no id")


# --------------------------------------------------------------------- static topics


def test_a_mapping_is_as_mqadmin_plans_it() -> None:
    [theirs] = [
        fastjson.loads(frame_body(frame))
        for frame in wire_frames()
        if frame["conversation"] == "adm54.updateStaticTopic"
        and frame["decoded"].get("codeName") == "UPDATE_AND_CREATE_STATIC_TOPIC"
    ]
    wrapper = plan_mapping("TopicStatic", 2, ["broker-a"], theirs["epoch"])
    item = wrapper.broker_config_map["broker-a"]
    assert item.mapping_detail is not None
    assert fastjson.loads(encode_body(item.mapping_detail)) == theirs
    assert (item.read_queue_nums, item.write_queue_nums) == (2, 2)


@given(st.integers(1, 40), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_each_logical_queue_has_one_place_of_its_own(total: int, names: set[str]) -> None:
    table = plan_mapping("T", total, names, 1).broker_config_map
    places: dict[int, tuple[str | None, int]] = {}
    for item in table.values():
        assert item.mapping_detail is not None
        for global_id, [first] in item.mapping_detail.hosted_queues.items():
            places[global_id] = (first.bname, first.queue_id)
    assert sorted(places) == list(range(total))
    assert len(set(places.values())) == total
    sizes = [item.write_queue_nums for item in table.values()]
    assert sum(sizes) == total
    assert max(sizes) - min(sizes) <= 1


@given(
    st.integers(1, 30),
    st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=2, max_size=5),
)
def test_moves_spread_the_queues_and_move_no_more_than_that_takes(
    total: int, steps: list[set[str]]
) -> None:
    table = plan_mapping("T", total, steps[0], 1).broker_config_map
    for names in steps[1:]:
        known = known_mapping("T", table)
        before = {number: known.leader(number) for number in range(total)}
        plan = plan_move("T", known, names, 2)
        table = plan.broker_config_map
        for into in plan.broker_to_map_in:
            detail = table[into].mapping_detail
            assert detail is not None
            for stretches in detail.hosted_queues.values():
                if stretches[-1].logic_offset < 0:
                    stretches[-1].logic_offset = stretches[-2].logic_offset + 10_000
        after = known_mapping("T", table)
        load = Counter(after.leader(number) for number in range(total))
        assert set(load) <= names
        assert max(load.values()) - min(load[name] for name in names) <= 1
        moved = [number for number in range(total) if after.leader(number) != before[number]]
        held = Counter(leader for leader in before.values() if leader in names)
        least = total - sum(min(held[name], load[name]) for name in names)
        assert len(moved) == least
        assert not set(plan.broker_to_map_in) & set(plan.broker_to_map_out)
        assert plan.epoch == known.epoch + 1000


def test_mappings_that_contradict_one_another_are_refused() -> None:
    table = plan_mapping("T", 3, ["a", "b"], 1).broker_config_map
    first, second = (table[name].mapping_detail for name in "ab")
    assert first is not None
    assert second is not None
    second.total_queues = 4
    with pytest.raises(MQClientError, match="differ"):
        known_mapping("T", table)
    second.total_queues = 3
    del first.hosted_queues[0]
    with pytest.raises(MQClientError, match="no broker leads queue 0"):
        known_mapping("T", table)


@pytest.mark.parametrize(
    ("end", "begin"), [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (14_999, 20_000)]
)
def test_a_new_stretch_begins_well_behind_the_old_one(end: int, begin: int) -> None:
    """As ``TopicQueueMappingUtils.blockSeqRoundUp``."""
    assert begin_behind(end) == begin


def test_a_mapping_of_nothing_is_refused() -> None:
    for total, names in ((0, ["a"]), (1, [])):
        with pytest.raises(MQClientError):
            plan_mapping("T", total, names, 1)


# --------------------------------------------------------------------- copies


def finished(awaited: Any) -> Any:
    found: list[Any] = []
    done = Deferred.fromCoroutine(awaited)
    done.addCallbacks(found.append, lambda failure: failure.raiseException())
    [value] = found
    return value


def test_users_and_rules_are_copied_from_broker_to_broker() -> None:
    admin, servers = golden_admin("auth54", "copy")
    names = finished(admin.access.copy_users(BROKER, "192.0.2.9:1"))
    told = {msgspec.json.decode(body)["username"] for code, _, body, _ in servers.asked if body}
    assert set(names) == told
    assert names
    subjects = finished(admin.access.copy_acls(BROKER, "192.0.2.9:1"))
    rules = [body for code, _, body, _ in servers.asked if code == RequestCode.AUTH_UPDATE_ACL]
    assert [msgspec.json.decode(body)["subject"] for body in rules] == subjects


def test_elections_and_cleaning_ask_the_leader() -> None:
    admin, servers = golden_admin("haauto54", "any")
    election = finished(admin.controllers.elect_master("192.0.2.9:1", "C", "broker-c", 2))
    assert election.result.master_epoch
    codes = [code for code, *_ in servers.asked]
    assert codes == [RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CONTROLLER_ELECT_MASTER]
    assert servers.asked[1][1]["designateElect"] == "true"
    # No answer to it was recorded.
    cleaning = admin.controllers.clean_broker_data(
        "c:1", "broker-c", cluster="C", broker_ids=[2, 3]
    )
    failures: list[Failure] = []
    Deferred.fromCoroutine(cleaning).addErrback(failures.append)
    assert failures[0].check(RemotingConnectError)
    assert servers.asked[2][0] == RequestCode.CONTROLLER_GET_METADATA_INFO
    code, fields, *_ = servers.asked[3]
    assert code == RequestCode.CLEAN_BROKER_DATA
    assert (
        fields.items()
        >= {
            "clusterName": "C",
            "brokerName": "broker-c",
            "brokerControllerIdsToClean": "2;3",
            "isCleanLivingBroker": "false",
        }.items()
    )
