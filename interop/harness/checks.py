"""What must hold for what consumers got? Every check raises AssertionError with the rows that break it."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from .clients import Row, SendReport, Sent


def expected_body(seed: str, seq: int, size: int) -> bytes:
    """The body that the puppet sends for a seed, sequence number and size (computed without Java)."""
    block = hashlib.sha256(f"{seed}:{seq}".encode()).hexdigest().encode()
    return (block * (size // len(block) + 1))[:size]


def expected_digest(seed: str, seq: int, size: int) -> str:
    """What the puppet reports for such a body."""
    return hashlib.sha256(expected_body(seed, seq, size)).hexdigest()[:16]


def bodies_are_whole(rows: Iterable[Row], seed: str, size: int) -> None:
    """Every body is the one that was sent under its sequence number."""
    bad = [row for row in rows if row.digest != expected_digest(seed, row.seq, size)]
    assert not bad, f"{len(bad)} damaged bodies, such as {bad[:3]}"


def nothing_is_lost(rows: Iterable[Row], seqs: Iterable[int]) -> None:
    """Each of the sequence numbers came, and no other."""
    came, due = {row.seq for row in rows}, set(seqs)
    assert not due - came, f"{len(due - came)} lost, such as {sorted(due - came)[:5]}"
    assert not came - due, f"{len(came - due)} not asked for, such as {sorted(came - due)[:5]}"


def nothing_came_twice(rows: Sequence[Row]) -> None:
    """Each message came once."""
    twice = [seq for seq, times in Counter(row.seq for row in rows).items() if times > 1]
    assert not twice, f"{len(twice)} messages came more than once, such as {sorted(twice)[:5]}"


def stored_once(rows: Sequence[Row]) -> None:
    """However often a message was delivered, it was stored in one place, and no place held two messages."""
    places = defaultdict(set)
    seqs = defaultdict(set)
    for row in rows:
        places[row.seq].add(row.place)
        seqs[row.place].add(row.seq)
    assert all(len(found) == 1 for found in places.values()), "a message is stored twice"
    assert all(len(found) == 1 for found in seqs.values()), "two messages came from one place"


def all_was_acknowledged(report: SendReport, count: int) -> None:
    """Each message of a run was answered with SEND_OK, at the first try."""
    assert report.failures == 0
    assert [sent.seq for sent in report.sent] == sorted({sent.seq for sent in report.sent})
    assert len(report.sent) == count
    assert {sent.status for sent in report.sent} <= {"SEND_OK"}


def each_is_where_it_was_said(rows: Iterable[Row], sent: Iterable[Sent]) -> None:
    """The place and the id that the producer was told are those that the consumer sees."""
    by_place = {row.place: row for row in rows}
    for result in sent:
        row = by_place.get(result.place)
        assert row is not None, f"nothing came from {result.place}, where {result.seq} was stored"
        assert row.seq == result.seq, f"{result} but {row}"
        assert row.msg_id == result.msg_id, f"{result} but {row}"


def queues_are_contiguous(rows: Iterable[Row], first: int = 0) -> None:
    """In each queue every offset from the first to the last came."""
    offsets = defaultdict(set)
    for row in rows:
        offsets[row.broker, row.queue].add(row.offset)
    for queue, found in offsets.items():
        missing = set(range(first, max(found) + 1)) - found
        assert not missing, f"queue {queue} misses offsets {sorted(missing)[:5]}"


def stored_in_send_order(rows: Iterable[Row]) -> None:
    """In each queue, offsets rise with sequence numbers (one thread sent them)."""
    queues: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for row in rows:
        queues[row.broker, row.queue][row.offset] = row.seq
    for queue, by_offset in queues.items():
        seqs = [by_offset[offset] for offset in sorted(by_offset)]
        assert seqs == sorted(seqs), f"queue {queue} holds sequence numbers out of order"


def received_in_queue_order(rows: Iterable[Row]) -> None:
    """One consumer got each queue's messages with rising offsets, none twice."""
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        queue = row.broker, row.queue
        assert row.offset > last.get(queue, -1), f"{row} came after offset {last[queue]}"
        last[queue] = row.offset


def keys_stay_together(rows: Iterable[Row], order_keys: int) -> None:
    """All messages of one ordering key are in one queue, in send order."""
    by_key = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.queue, row.offset)):
        by_key[row.seq % order_keys].append(row)
    for key, found in by_key.items():
        assert len({(row.broker, row.queue) for row in found}) == 1, f"key {key} is spread"
        seqs = [row.seq for row in found]
        assert seqs == sorted(seqs), f"key {key} is out of order"


def queues_change_hands_cleanly(earlier: Iterable[Row], later: Iterable[Row]) -> None:
    """For each queue that moved, the old owner was done before the new one began."""
    ended: dict[tuple[str, int], Row] = {}
    for row in earlier:
        ended[row.broker, row.queue] = row
    for row in later:
        before = ended.get((row.broker, row.queue))
        if before is not None:
            assert row.received_ms >= before.received_ms, f"{before} and {row} overlap"
            assert row.offset >= before.offset, f"{row} goes back behind {before}"
