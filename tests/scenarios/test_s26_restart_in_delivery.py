"""S26: the broker ends while thousands of delayed messages come due; and a delay level that does not exist."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

from real_server import RawLink, RealServer, asks_to_slow_down, send_header

from txrocketmq.codec.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    SendMessageResponseHeader,
)
from txrocketmq.model.codes import RequestCode as R

LEVEL_1 = "DELAY\x011\x02"
IN_FLIGHT = 200


def send_delayed(link: RawLink, topic: str, count: int) -> list[bytes]:
    """Send messages of level 1, many at a time; their bodies in the order in which they were taken."""
    left = [b"%d" % number for number in range(count)]
    taken: dict[int, bytes] = {}
    while left:
        bodies, left = left[:IN_FLIGHT], left[IN_FLIGHT:]
        header = send_header(topic, properties=LEVEL_1)
        opaques = [link.tell(R.SEND_MESSAGE_V2, header, body=body) for body in bodies]
        for opaque, body in zip(opaques, bodies, strict=True):
            answer = link.answer(opaque)
            if asks_to_slow_down(answer):
                left.append(body)
                continue
            assert answer.code == 0, answer.remark
            taken[answer.decode_header(SendMessageResponseHeader).queue_offset] = body
    return [body for _, body in sorted(taken.items())]


def delivered(link: RawLink, topic: str) -> int:
    header = GetMaxOffsetRequestHeader(topic=topic, queue_id=0)
    return link.ask_for(GetMaxOffsetResponseHeader, R.GET_MAX_OFFSET, header).offset


def wait_delivered(link: RawLink, topic: str, count: int) -> None:
    """Wait until a queue has so many messages."""
    while delivered(link, topic) < count:
        # Held until there is one more than now, or for a second.
        link.pull(topic, 0, delivered(link, topic), sys_flag=6, suspend_timeout_millis=1000)


def bodies(link: RawLink, topic: str) -> list[bytes]:
    found: list[bytes] = []
    while more := link.pull(topic, 0, len(found)):
        found += [message.body for message in more]
    return found


def test_a_clean_restart_doubles_nothing_and_a_kill_only_the_last_seconds(tmp_path: Path) -> None:
    count = 10_000
    with RealServer("rocketmq", tmp_path) as server:
        with server.link() as link:
            wanted = send_delayed(link, "S26", count)
            assert len(wanted) == count
            wait_delivered(link, "S26", 1)
        assert server.end(signal.SIGTERM) == 0
        server.start()
        with server.link() as link:
            saved = delivered(link, "S26")
            assert 0 < saved < count
            wait_delivered(link, "S26", count)
            assert bodies(link, "S26") == wanted

            some = count // 5
            wanted_then = send_delayed(link, "S26Kill", some)
            wait_delivered(link, "S26Kill", 1)
        server.restart(signal.SIGKILL)
        with server.link() as link:
            wait_delivered(link, "S26Kill", some)
            # Whatever comes twice follows the whole of what was due.
            send_delayed(link, "S26After", 1)
            wait_delivered(link, "S26After", 1)
            found = bodies(link, "S26Kill")
            assert set(found) == set(wanted_then)
            assert len(wanted_then) == some
            assert max(Counter(found).values()) <= 2
            # What was delivered before the offsets were saved, at the clean stop, does not come again.
            again = bodies(link, "S26")[count:]
            assert Counter(again) <= Counter(wanted[saved:])
        server.assert_calm()


def test_a_level_beyond_the_table_is_the_highest(tmp_path: Path) -> None:
    settings = {"messageDelayLevel": "1d 1s"}
    with RealServer("rocketmq", tmp_path, settings=settings) as server, server.link() as link:
        link.send_message("S26", b"not parked", properties="DELAY\x011959\x02")
        wait_delivered(link, "S26", 1)
        (message,) = link.pull("S26")
        assert message.body == b"not parked"
        assert message.properties["DELAY"] == "2"
