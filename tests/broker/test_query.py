"""Finding messages: by key, by unique key, by id."""

from __future__ import annotations

import pytest
from operators import refused, tell
from small_broker import START_S, Peer, SmallBroker, properties

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode, ResponseCode

R = RequestCode
EVER = {"beginTimestamp": 0, "endTimestamp": 2**63 - 1, "maxNum": 32, "topic": "T"}


def send(peer: Peer, body: bytes, **named: str) -> str:
    """A message with properties; its id."""
    sent = peer.send("T", body, properties=properties(**named))
    found: str = sent.msg_id
    return found


def bodies(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == 0, answer.remark
    return [message.body for message in decode_records(answer.body)]


# ----------------------------------------------------------------- BR-54


def test_each_key_of_a_message_finds_it(peer: Peer) -> None:
    send(peer, b"one", KEYS="order-1 customer-7")
    send(peer, b"two", KEYS="order-2 customer-7")
    send(peer, b"other", KEYS="order-3")
    assert bodies(tell(peer, R.QUERY_MESSAGE, key="order-1", **EVER)) == [b"one"]
    assert bodies(tell(peer, R.QUERY_MESSAGE, key="customer-7", **EVER)) == [b"one", b"two"]
    # The newest ones, where not all are wanted.
    assert bodies(tell(peer, R.QUERY_MESSAGE, key="customer-7", **{**EVER, "maxNum": 1})) == [
        b"two"
    ]


def test_the_unique_key_finds_its_message(peer: Peer) -> None:
    send(peer, b"one", UNIQ_KEY="C000020A5FF54E0E2F2A93FC7FEE0000")
    asked = {"key": "C000020A5FF54E0E2F2A93FC7FEE0000", **EVER, "_UNIQUE_KEY_QUERY": True}
    assert bodies(tell(peer, R.QUERY_MESSAGE, **asked)) == [b"one"]
    assert bodies(tell(peer, R.QUERY_MESSAGE, **asked, indexType="U")) == [b"one"]


def test_only_the_asked_time_is_searched(broker: SmallBroker, peer: Peer) -> None:
    for hour in range(4):
        send(peer, f"{hour}".encode(), KEYS="k")
        broker.clock.advance(3600)

    def found(begin_h: float, end_h: float) -> list[bytes]:
        begin, end = (int((START_S + hours * 3600) * 1000) for hours in (begin_h, end_h))
        asked = {**EVER, "beginTimestamp": begin, "endTimestamp": end}
        return bodies(tell(peer, R.QUERY_MESSAGE, key="k", **asked))

    assert found(0.5, 2.5) == [b"1", b"2"]
    assert found(3, 9) == [b"3"]


def test_what_is_not_found(peer: Peer) -> None:
    send(peer, b"one", KEYS="k")
    nothing = (
        ResponseCode.QUERY_NOT_FOUND,
        "can not find message, maybe time range not correct",
    )
    assert refused(peer, R.QUERY_MESSAGE, key="other", **EVER) == nothing
    assert refused(peer, R.QUERY_MESSAGE, key="k", **{**EVER, "topic": "U"}) == nothing
    late = {**EVER, "beginTimestamp": (START_S + 60) * 1000}
    assert refused(peer, R.QUERY_MESSAGE, key="k", **late) == nothing


def test_the_answer_tells_how_far_the_index_is(broker: SmallBroker, peer: Peer) -> None:
    send(peer, b"one", KEYS="k")
    broker.clock.advance(1)
    send(peer, b"two", KEYS="k")
    second = broker.store.max_physical_offset() // 2
    answer = tell(peer, R.QUERY_MESSAGE, key="k", **EVER)
    assert answer.ext_fields == {
        "indexLastUpdateTimestamp": str((START_S + 1) * 1000),
        "indexLastUpdatePhyoffset": str(second),
    }


# ----------------------------------------------------------------- BR-55


def test_a_message_by_its_id(peer: Peer) -> None:
    send(peer, b"before")
    message_id = send(peer, b"this one", TAGS="x")
    answer = tell(peer, R.VIEW_MESSAGE_BY_ID, offset=int(message_id[-16:], 16))
    (message,) = decode_records(answer.body)
    assert (message.body, message.msg_id, message.tags) == (b"this one", message_id, "x")


@pytest.mark.parametrize("offset", [1, 200, 10**12, -1])
def test_where_no_message_begins_none_is_shown(peer: Peer, offset: int) -> None:
    send(peer, b"one")
    assert refused(peer, R.VIEW_MESSAGE_BY_ID, offset=offset) == (
        ResponseCode.SYSTEM_ERROR,
        f"can not find message by the offset, {offset}",
    )
