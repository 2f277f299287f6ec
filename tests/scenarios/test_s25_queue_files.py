"""S25: the newest file of a queue is all zeros; the log ends before a queue's first message."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from real_server import RawLink, RealServer

from txrocketmq.codec.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
)
from txrocketmq.model.codes import RequestCode as R

TOPIC = "S25"
FILE_UNITS = 50
SETTINGS = {
    "mappedFileSizeConsumeQueue": str(20 * FILE_UNITS),
    "mappedFileSizeCommitLog": str(64 * 1024),
}


def span(link: RawLink, queue_id: int) -> tuple[int, int]:
    """Smallest and next offset of a queue."""
    least = link.ask_for(
        GetMinOffsetResponseHeader,
        R.GET_MIN_OFFSET,
        GetMinOffsetRequestHeader(topic=TOPIC, queue_id=queue_id),
    )
    most = link.ask_for(
        GetMaxOffsetResponseHeader,
        R.GET_MAX_OFFSET,
        GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=queue_id),
    )
    assert least.offset <= most.offset
    return least.offset, most.offset


def bodies(link: RawLink, queue_id: int) -> list[bytes]:
    found: list[bytes] = []
    while messages := link.pull(TOPIC, queue_id, len(found)):
        found += [message.body for message in messages]
    return found


@pytest.mark.parametrize("abort", [False, True], ids=["after a stop", "after a crash"])
@pytest.mark.parametrize("count", [30, 2 * FILE_UNITS, 2 * FILE_UNITS + 20])
def test_the_newest_file_of_a_queue_is_all_zeros(tmp_path: Path, count: int, abort: bool) -> None:
    with RealServer("rocketmq", tmp_path, settings=SETTINGS) as server:
        with server.link() as link:
            for number in range(count):
                link.send_message(TOPIC, b"%d" % number)
        assert server.end() == 0
        store = tmp_path / "store"
        newest = max((store / "consumequeue" / TOPIC / "0").iterdir())
        newest.write_bytes(bytes(newest.stat().st_size))
        if abort:
            (store / "abort").write_text("0")
        server.start()
        with server.link() as link:
            assert span(link, 0) == (0, count)
            assert bodies(link, 0) == [b"%d" % number for number in range(count)]
            assert link.send_message(TOPIC, b"next").queue_offset == count
        assert server.end() == 0
        server.assert_calm()


@pytest.mark.parametrize("abort", [False, True], ids=["after a stop", "after a crash"])
def test_the_log_ends_before_the_first_message_of_a_queue(tmp_path: Path, abort: bool) -> None:
    with RealServer("rocketmq", tmp_path, settings=SETTINGS) as server:
        with server.link() as link:
            while link.send_message(TOPIC, bytes(1000), queue_id=0).queue_offset < 70:
                pass
            for _ in range(70):
                link.send_message(TOPIC, bytes(1000), queue_id=1)
        assert server.end() == 0
        store = tmp_path / "store"
        # All of queue 1 lies behind the first file.
        for path in sorted((store / "commitlog").iterdir())[1:]:
            path.unlink()
        if abort:
            (store / "abort").write_text("0")
        server.start()
        with server.link() as link:
            least, most = span(link, 0)
            assert least == 0
            assert 0 < most < 70
            assert len(bodies(link, 0)) == most
            assert span(link, 1) == (0, 0)
            assert bodies(link, 1) == []
            assert link.send_message(TOPIC, b"next", queue_id=1).queue_offset == 0
            assert bodies(link, 1) == [b"next"]
            assert link.send_message(TOPIC, b"next", queue_id=0).queue_offset == most
        assert server.end() == 0
        server.assert_calm()


def test_a_queue_without_any_file_is_made_again(tmp_path: Path) -> None:
    with RealServer("rocketmq", tmp_path, settings=SETTINGS) as server:
        with server.link() as link:
            for number in range(20):
                link.send_message(TOPIC, b"%d" % number)
        assert server.end() == 0
        shutil.rmtree(tmp_path / "store" / "consumequeue" / TOPIC)
        server.start()
        with server.link() as link:
            assert span(link, 0) == (0, 20)
            assert len(bodies(link, 0)) == 20
        assert server.end() == 0
        server.assert_calm()
