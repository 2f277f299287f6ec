"""S23: a small disk fills up while nothing can be deleted, then has room again; and one on which old files make room."""

from __future__ import annotations

import re
import time
from pathlib import Path

from real_server import RawLink, RealServer, pull_header, send_header
from small_disks import SmallDisk, on_tmpfs

from txrocketmq.codec.bodies import KVTable
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import GetMinOffsetRequestHeader, GetMinOffsetResponseHeader
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.model.codes import ResponseCode as C

MIB = 1 << 20
PATIENCE_S = 10.0
BODY = bytes(50_000)
SETTINGS = {"mappedFileSizeCommitLog": str(MIB), "fileReservedTime": "72", "deleteWhen": "25"}


def send(link: RawLink) -> RemotingCommand:
    return link.ask(R.SEND_MESSAGE_V2, send_header("S23"), body=BODY)


def first_answer(link: RawLink, code: int) -> RemotingCommand:
    """Send until the answer has this code."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        answer = send(link)
        if answer.code == code:
            return answer
    raise AssertionError(
        f"no answer {code} in time, the last one is {answer.code}: {answer.remark}"
    )


def figures(link: RawLink) -> dict[str, str]:
    return dict(decode_body(KVTable, link.ask(R.GET_BROKER_RUNTIME_INFO).body).table)


def count_stored(link: RawLink) -> int:
    offset = 0
    while found := link.pull("S23", 0, offset):
        assert [message.queue_offset for message in found] == list(
            range(offset, offset + len(found))
        )
        offset += len(found)
    return offset


def test_a_disk_that_fills_up_and_gets_room_again(tmp_path: Path) -> None:
    # Nothing is old enough to be deleted, and forced cleaning is off: the slowest deletion there is.
    settings = {**SETTINGS, "cleanFileForciblyEnable": "false"}
    store = tmp_path / "store"
    wrapper = on_tmpfs(store, "size=96m")
    with (
        RealServer("rocketmq", tmp_path, settings=settings, wrapper=wrapper) as server,
        server.link() as link,
    ):
        disk = SmallDisk(server)
        disk.fill("ballast", 32 * MIB)
        accepted, most, crossed = 0, 0.0, None
        while True:
            answer = send(link)
            most = max(most, disk.used())
            if crossed is None and most > 0.90:
                crossed = time.monotonic()
            if answer.code == C.SERVICE_NOT_AVAILABLE:
                break
            assert answer.code in (0, C.SYSTEM_BUSY), answer.remark
            accepted += answer.code == 0
        assert crossed is None or time.monotonic() - crossed < PATIENCE_S
        # The watch names ratio and path, also when the log's last reserve ran out before it came by.
        until = time.monotonic() + PATIENCE_S
        while "diskSpaceWarningLevelRatio" not in (answer.remark or ""):
            assert time.monotonic() < until, answer.remark
            answer = send(link)
            assert answer.code == C.SERVICE_NOT_AVAILABLE
        found = re.search(r"the disk of (\S+) is (\d+)% used", answer.remark or "")
        assert found is not None, answer.remark
        assert found[1].startswith(str(store))
        assert int(found[2]) > 90
        assert found[0] in figures(link)["messagesRefused"]
        assert most < 0.97
        assert accepted > 400
        assert count_stored(link) == accepted
        assert disk.used() < 0.97

        disk.free("ballast")
        freed = time.monotonic()
        first_answer(link, 0)
        assert time.monotonic() - freed < PATIENCE_S
        assert count_stored(link) == accepted + 1
        assert "messagesRefused" not in figures(link)
        assert server.end() == 0
        server.assert_calm()


def test_old_files_make_room_and_messages_are_taken_all_the_time(tmp_path: Path) -> None:
    settings = {**SETTINGS, "cleanResourceInterval": "200", "deleteCommitLogFilesInterval": "10"}
    wrapper = on_tmpfs(tmp_path / "store", "size=96m")
    with (
        RealServer("rocketmq", tmp_path, settings=settings, wrapper=wrapper) as server,
        server.link() as link,
    ):
        disk = SmallDisk(server)
        most, accepted = 0.0, 0
        while accepted < 3000:
            answer = send(link)
            most = max(most, disk.used())
            assert answer.code in (0, C.SERVICE_NOT_AVAILABLE, C.SYSTEM_BUSY), answer.remark
            accepted += answer.code == 0
        assert most < 0.97
        asked = GetMinOffsetRequestHeader(topic="S23", queue_id=0)
        first = link.ask_for(GetMinOffsetResponseHeader, R.GET_MIN_OFFSET, asked).offset
        assert 0 < first < accepted
        # Who is too late is sent to the first message that is left, which is the first of the log's oldest file.
        late = link.ask(R.PULL_MESSAGE, pull_header("S23", 0, 0))
        assert late.code == C.PULL_OFFSET_MOVED
        assert int((late.ext_fields or {})["nextBeginOffset"]) >= first
        assert link.pull("S23", 0, accepted - 1)
        assert len(disk.log_files()) < 96
        assert server.end() == 0
        server.assert_calm()
