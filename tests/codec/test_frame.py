"""Frames out of a stream: any cut, any glue, damaged lengths, linear work."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.codec.frame import MAX_FRAME_BYTES, FrameSplitter
from txrocketmq.errors import ProtocolError

frames_strategy = st.lists(st.binary(min_size=4, max_size=300), max_size=8)


def as_stream(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def split(pieces: list[bytes]) -> list[bytes]:
    splitter = FrameSplitter()
    return [frame for piece in pieces for frame in splitter.feed(piece)]


@given(frames_strategy, st.lists(st.integers(0, 2000), max_size=12))
def test_any_cut_of_a_stream_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    stream = as_stream(frames)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(bounds)]
    assert split(pieces) == frames


def test_frames_byte_by_byte_and_cut_at_every_byte() -> None:
    frames = [b"\0\0\0\0", b"first frame", b"x" * 70]
    stream = as_stream(frames)
    assert split([stream[i : i + 1] for i in range(len(stream))]) == frames
    for cut in range(len(stream) + 1):
        assert split([stream[:cut], stream[cut:]]) == frames


def test_an_unfinished_frame_is_held_and_counted() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(b"\0\0\0\x08abc") == []
    assert splitter.pending_bytes == 7
    assert splitter.feed(b"defgh\0") == [b"abcdefgh"]
    assert splitter.pending_bytes == 1


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        (b"\xff\xff\xff\xff", "frame length -1 is too small, the least is 4"),
        (b"\x80\0\0\0", "frame length -2147483648 is too small, the least is 4"),
        (b"\0\0\0\x03", "frame length 3 is too small, the least is 4"),
        (b"\0\xff\xff\xfd", "frame length 16777213 exceeds the limit of 16777212"),
        (b"GET ", "this is HTTP, not the remoting protocol"),
        (b"\x16\x03\x01\0", "this is a TLS handshake, and TLS is not served on this port"),
        (b"SSH-", "frame length 1397966893 exceeds the limit of 16777212"),
    ],
)
def test_an_impossible_length_is_refused_as_soon_as_its_four_bytes_are_there(
    prefix: bytes, reason: str
) -> None:
    splitter = FrameSplitter()
    splitter.feed(prefix[:3])
    with pytest.raises(ProtocolError, match=f"^{reason}$"):
        splitter.feed(prefix[3:])


def test_the_largest_frame_is_taken() -> None:
    frame = b"z" * (MAX_FRAME_BYTES - 4)
    assert split([as_stream([frame])]) == [frame]


def test_good_frames_before_a_bad_one_are_kept() -> None:
    with pytest.raises(ProtocolError) as caught:
        FrameSplitter().feed(as_stream([b"good one", b"another"]) + b"\0\0\0\0")
    assert caught.value.frames == [b"good one", b"another"]


def cpu_to_split(frame_bytes: int) -> float:
    """CPU seconds for one frame that comes in 1 KiB pieces; the best of three."""
    piece = bytes(1024)
    best = float("inf")
    for _ in range(3):
        splitter = FrameSplitter()
        start = time.process_time()
        splitter.feed((frame_bytes - 4).to_bytes(4, "big") + piece[4:])
        for _ in range(frame_bytes // 1024 - 2):
            assert not splitter.feed(piece)
        [frame] = splitter.feed(piece)
        best = min(best, time.process_time() - start)
        assert len(frame) == frame_bytes - 4
    return best


def test_a_frame_in_small_pieces_costs_work_in_proportion_to_its_size() -> None:
    half, whole = cpu_to_split(8 << 20), cpu_to_split(16 << 20)
    # Twice the bytes: twice the work, with room for a noisy machine; work by the square would be four times.
    assert whole < 3.2 * half + 0.02
    assert whole < 1.0
