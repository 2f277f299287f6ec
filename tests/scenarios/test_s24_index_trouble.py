"""S24: an index that cannot be written, that belongs to another store, that was left half-filled, or whose keys collide."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from launch import wait_until
from real_server import RawLink, RealServer

from txrocketmq.codec.headers import QueryMessageRequestHeader
from txrocketmq.codec.record import decode_records
from txrocketmq.model.codes import RequestCode as R

TOPIC = "S24"
SMALL_INDEX = {"maxHashSlotNum": "50", "maxIndexNum": "200"}


def send(link: RawLink, numbers: range, topic: str = TOPIC) -> None:
    for number in numbers:
        link.send_message(topic, b"%d" % number, properties=f"KEYS\x01key{number}\x02")


def find(link: RawLink, key: str, topic: str = TOPIC) -> list[bytes]:
    """Bodies of the messages that a key finds."""
    header = QueryMessageRequestHeader(
        topic=topic, key=key, max_num=32, begin_timestamp=0, end_timestamp=2**62
    )
    answer = link.ask(R.QUERY_MESSAGE, header)
    return [message.body for message in decode_records(answer.body)] if answer.code == 0 else []


def check_found(link: RawLink, numbers: range) -> None:
    for number in numbers:
        key, wanted = f"key{number}", [b"%d" % number]
        wait_until(lambda k=key, w=wanted: find(link, k) == w, f"{key} is found")  # type: ignore[misc]


def check_pulls(link: RawLink, count: int) -> None:
    found: list[bytes] = []
    while messages := link.pull(TOPIC, 0, len(found)):
        found += [message.body for message in messages]
    assert found == [b"%d" % number for number in range(count)]


def test_an_index_that_cannot_be_written_disturbs_nobody(tmp_path: Path) -> None:
    index = tmp_path / "store" / "index"
    index.mkdir(parents=True)
    mount = f'mount -t tmpfs -o ro none "{index}" && exec "$@"'
    wrapper = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    server = RealServer("rocketmq", tmp_path, settings=SMALL_INDEX, wrapper=wrapper)
    with server, server.link() as link:
        send(link, range(500))
        check_pulls(link, 500)
        assert find(link, "key1") == []
        assert server.count("the index cannot be written") == 1
        assert server.end() == 0
        server.assert_calm()
    # The directory may be written again: what was missing is made.
    server = RealServer("rocketmq", tmp_path, settings=SMALL_INDEX)
    with server, server.link() as link:
        check_found(link, range(0, 500, 25))
        check_pulls(link, 500)
        files = len(list(index.iterdir()))
        # Each message has its key and its unique id.
        assert files <= 1000 // 190 + 2
        assert server.end() == 0
        server.assert_calm()


def test_an_index_of_another_store_is_noticed(tmp_path: Path) -> None:
    other = RealServer("rocketmq", tmp_path / "other", settings=SMALL_INDEX)
    with other, other.link() as link:
        send(link, range(120), "Foreign")
        assert other.end() == 0
    server = RealServer("rocketmq", tmp_path / "own", settings=SMALL_INDEX)
    with server, server.link() as link:
        send(link, range(300))
        assert server.end() == 0
        index = tmp_path / "own" / "store" / "index"
        shutil.rmtree(index)
        shutil.copytree(tmp_path / "other" / "store" / "index", index)
        server.start()
        with server.link() as again:
            check_found(again, range(0, 300, 17))
            assert find(again, "key5", "Foreign") == []
            send(again, range(300, 310))
            check_found(again, range(300, 310))
            check_pulls(again, 310)
        assert server.end() == 0
        server.assert_calm()


def test_a_kill_with_a_part_filled_index(tmp_path: Path) -> None:
    server = RealServer("rocketmq", tmp_path, settings=SMALL_INDEX)
    with server:
        with server.link() as link:
            send(link, range(450))
        server.restart(signal.SIGKILL)
        with server.link() as link:
            check_found(link, range(0, 450, 9))
            send(link, range(450, 460))
            check_found(link, range(450, 460))
        assert server.end() == 0
        server.assert_calm()


def test_keys_with_one_hash_are_told_apart(tmp_path: Path) -> None:
    with RealServer("rocketmq", tmp_path) as server, server.link() as link:
        for key in ("Aa", "BB", "Aa"):
            link.send_message(TOPIC, key.encode(), properties=f"KEYS\x01{key}\x02")
        # The first index file is made meanwhile.
        wait_until(lambda: len(find(link, "Aa")) == 2, "the index has them all")
        assert find(link, "Aa") == [b"Aa", b"Aa"]
        assert find(link, "BB") == [b"BB"]
        assert find(link, "C#") == []
