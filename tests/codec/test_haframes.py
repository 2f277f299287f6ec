"""Replication frames: the quick forms, pieces of any size, and what official masters and slaves said to one another."""

from __future__ import annotations

from typing import Any

import construct
import golden
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.codec import haframes, layouts
from txrocketmq.codec.haframes import MAX_BODY_BYTES, REPORT, TRANSFER_HEADER
from txrocketmq.errors import ProtocolError

HEADER: construct.Construct = layouts.HA_TRANSFER_HEADER


def recorded(kind: str) -> list[dict[str, Any]]:
    return [frame for frame in golden.wire_frames() if frame["kind"] == kind]


@given(offset=st.integers(-(2**63), 2**63 - 1), size=st.integers(-(2**31), 2**31 - 1))
def test_quick_forms_equal_their_declarations(offset: int, size: int) -> None:
    report = layouts.HA_REPORT.build({"slave_offset": offset})
    assert REPORT.pack(offset) == report
    assert REPORT.unpack(report) == (layouts.HA_REPORT.parse(report).slave_offset,)
    header = HEADER.build({"physical_offset": offset, "body_size": size})
    assert TRANSFER_HEADER.pack(offset, size) == header
    parsed = HEADER.parse(header)
    assert TRANSFER_HEADER.unpack(header) == (parsed.physical_offset, parsed.body_size)


@given(frames=st.lists(st.tuples(st.integers(0, 2**60), st.binary(max_size=60))), data=st.data())
def test_transfers_come_out_whole_however_they_are_cut(
    frames: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(TRANSFER_HEADER.pack(offset, len(body)) + body for offset, body in frames)
    reader = haframes.TransferReader()
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        reader.feed(stream[:size])
        stream = stream[size:]
        while (frame := reader.peek()) is not None:
            assert reader.next_offset() == frame[0]
            found.append(frame)
            reader.drop()
    assert found == frames
    assert reader.waiting_bytes == 0


@given(offsets=st.lists(st.integers(-1, 2**60), min_size=1), data=st.data())
def test_reports_come_out_newest_last(offsets: list[int], data: st.DataObject) -> None:
    stream = b"".join(map(REPORT.pack, offsets))
    reader = haframes.ReportReader()
    found = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        offset = reader.feed(stream[:size])
        stream = stream[size:]
        if offset is not None:
            found.append(offset)
    assert found[-1] == offsets[-1]
    assert len(found) <= len(offsets)


@pytest.mark.parametrize(("offset", "size"), [(-1, 0), (0, -1), (0, MAX_BODY_BYTES + 1)])
def test_frames_that_cannot_be_are_refused(offset: int, size: int) -> None:
    reader = haframes.TransferReader()
    reader.feed(TRANSFER_HEADER.pack(offset, size))
    with pytest.raises(ProtocolError):
        reader.peek()


@pytest.mark.parametrize("tag", ["ha49", "ha54"])
def test_recorded_reports_decode_and_encode_to_the_same_bytes(tag: str) -> None:
    frames = [f for f in recorded("ha-report") if f["conversation"].startswith(tag)]
    assert len(frames) > 10
    for frame in frames:
        raw = bytes.fromhex(frame["frame_hex"])
        offset = haframes.ReportReader().feed(raw)
        assert offset is not None
        assert REPORT.pack(offset) == raw


@pytest.mark.parametrize("tag", ["ha49", "ha54"])
def test_recorded_transfers_decode_and_encode_to_the_same_bytes(tag: str) -> None:
    frames = [f for f in recorded("ha-transfer") if f["conversation"].startswith(tag)]
    assert len(frames) > 10
    bodies = 0
    for frame in frames:
        raw = bytes.fromhex(frame["frame_hex"])
        reader = haframes.TransferReader()
        reader.feed(raw)
        found = reader.peek()
        assert found is not None
        offset, body = found
        assert TRANSFER_HEADER.pack(offset, len(body)) + body == raw
        bodies += bool(body)
    assert bodies
