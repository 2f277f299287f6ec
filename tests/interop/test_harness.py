"""Do the harness's own checks see what they are there for? No Java is needed here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from interop.harness import checks, ports, results, runner
from interop.harness.clients import Row, SendReport, Sent
from interop.harness.cluster import make_cluster
from interop.harness.columns import ALL_COLUMNS, by_tier, chosen_columns
from interop.harness.jvm import JvmSlots

SEED, SIZE = "seed", 100


def row(seq: int, queue: int = 0, offset: int | None = None, **changes: object) -> Row:
    made = Row(
        broker="broker-a",
        queue=queue,
        offset=seq if offset is None else offset,
        seq=seq,
        digest=checks.expected_digest(SEED, seq, SIZE),
        tag=None,
        keys=None,
        reconsumed=0,
        msg_id=f"ID{seq}",
        received_ms=1_000 + seq,
    )
    return made._replace(**changes)  # type: ignore[arg-type]


GOOD = [row(seq) for seq in range(10)]
SENT = [Sent(r.seq, "SEND_OK", r.broker, r.queue, r.offset, r.msg_id) for r in GOOD]


def report(**changes: object) -> SendReport:
    return SendReport(
        {
            "attempted": 10,
            "failures": 0,
            "results": [list(s) for s in SENT],
            "errors": [],
            "took_ms": 12,
        }
        | changes
    )


def test_good_rows_pass_every_check() -> None:
    checks.bodies_are_whole(GOOD, SEED, SIZE)
    checks.nothing_is_lost(GOOD, range(10))
    checks.nothing_came_twice(GOOD)
    checks.stored_once(GOOD + GOOD)
    checks.all_was_acknowledged(report(), 10)
    checks.each_is_where_it_was_said(GOOD, SENT)
    checks.queues_are_contiguous(GOOD)
    checks.stored_in_send_order(GOOD)
    checks.received_in_queue_order(GOOD)
    checks.keys_stay_together(GOOD, 3)
    checks.queues_change_hands_cleanly(GOOD[:5], GOOD[5:])


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(
            lambda: checks.bodies_are_whole([row(1, digest="0" * 16)], SEED, SIZE), id="damaged"
        ),
        pytest.param(lambda: checks.bodies_are_whole([row(1)], SEED, SIZE + 1), id="cut"),
        pytest.param(lambda: checks.nothing_is_lost(GOOD[1:], range(10)), id="lost"),
        pytest.param(lambda: checks.nothing_is_lost(GOOD, range(9)), id="not asked for"),
        pytest.param(lambda: checks.nothing_came_twice([*GOOD, GOOD[0]]), id="twice"),
        pytest.param(lambda: checks.stored_once([*GOOD, row(3, offset=77)]), id="two places"),
        pytest.param(lambda: checks.stored_once([*GOOD, row(11, offset=3)]), id="one place"),
        pytest.param(lambda: checks.all_was_acknowledged(report(failures=1), 10), id="retried"),
        pytest.param(lambda: checks.all_was_acknowledged(report(), 11), id="unanswered"),
        pytest.param(
            lambda: checks.each_is_where_it_was_said([row(0, offset=1)], SENT[:1]), id="elsewhere"
        ),
        pytest.param(
            lambda: checks.each_is_where_it_was_said([row(0, msg_id="ID1")], SENT[:1]),
            id="another id",
        ),
        pytest.param(lambda: checks.queues_are_contiguous([GOOD[0], GOOD[2]]), id="gap"),
        pytest.param(
            lambda: checks.stored_in_send_order([row(2, offset=0), row(1, offset=1)]), id="swapped"
        ),
        pytest.param(lambda: checks.received_in_queue_order([GOOD[1], GOOD[0]]), id="backwards"),
        pytest.param(lambda: checks.received_in_queue_order([GOOD[1], GOOD[1]]), id="again"),
        pytest.param(
            lambda: checks.keys_stay_together([row(0), row(3, queue=1)], 3), id="key spread"
        ),
        pytest.param(
            lambda: checks.queues_change_hands_cleanly(GOOD[5:], GOOD[:5]), id="two owners"
        ),
    ],
)
def test_each_fault_fails_its_check(broken: Callable[[], None]) -> None:
    with pytest.raises(AssertionError):
        broken()


def test_port_blocks_do_not_overlap() -> None:
    blocks = [ports.reserve() for _ in range(20)]
    try:
        listen = sorted(block.listen for block in blocks)
        assert all(b - a >= 4 for a, b in itertools.pairwise(listen))
        assert not ports.accepts_connections(listen[0])
    finally:
        for block in blocks:
            block.release()


class Holder:
    """Something that holds a slot."""

    def __init__(self, slots: JvmSlots, needed: bool) -> None:
        self.slots, self.needed, self.closed = slots, needed, False
        slots.take(self)

    def may_be_closed(self) -> bool:
        return not self.needed

    def close(self) -> None:
        self.closed = True
        self.slots.give_back(self)


def test_the_one_unused_for_longest_makes_room() -> None:
    slots = JvmSlots(3)
    old, busy, young = (Holder(slots, needed) for needed in (False, True, False))
    slots.touch(old)
    Holder(slots, needed=True)
    assert (old.closed, busy.closed, young.closed) == (False, False, True)
    Holder(slots, needed=True)
    assert old.closed
    with pytest.raises(RuntimeError, match="all are needed"):
        Holder(slots, needed=True)


def test_the_process_of_official_servers_makes_no_room() -> None:
    slots = JvmSlots(1)
    with make_cluster("official-5.4.0", slots), pytest.raises(RuntimeError, match="all are needed"):
        Holder(slots, needed=True)


def test_columns_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTEROP_COLUMNS", raising=False)
    assert [str(column) for column in chosen_columns()] == [
        "ours/5.4.0-json",
        "ours/5.4.0-rocketmq",
        "ours/4.9.7-json",
        "ours/4.9.7-rocketmq",
        "official-5.4.0/5.4.0-json",
    ]
    monkeypatch.setenv("INTEROP_COLUMNS", "official-4.9.7/4.9.7-json")
    assert [str(column) for column in chosen_columns()] == ["official-4.9.7/4.9.7-json"]
    monkeypatch.setenv("INTEROP_COLUMNS", "theirs")
    with pytest.raises(ValueError, match="theirs"):
        chosen_columns()


def test_full_runs_have_more_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTEROP_TIER", raising=False)
    assert by_tier([1], [2]) == [1]
    monkeypatch.setenv("INTEROP_TIER", "full")
    assert by_tier([1], [2]) == [1, 2]


def test_results_are_kept_one_by_one_and_shown_as_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "r.json")
    monkeypatch.setattr(results, "TABLE", tmp_path / "r.md")
    cells = [f"t/test_java_a.py::T::test_x[{column}-ZLIB]" for column in ALL_COLUMNS]
    cells.append("t/test_java_b.py::T::test_y[ours-stopped]")
    results.record(cells[0], "passed", 10_000, 3.21, "abc")
    results.record(cells[1], "failed", 10_000, 1, "abc")
    assert results.load()[cells[0]] == {
        "outcome": "passed",
        "count": 10_000,
        "seconds": 3.2,
        "commit": "abc",
    }
    results.write_table(cells)
    table = (tmp_path / "r.md").read_text().splitlines()
    assert table[8].startswith("| a: T::test_x[ZLIB] | ok 10000 (abc) | **failed** 10000 (abc) | -")
    assert table[-1] == "| b: T::test_y[ours-stopped] | - |"


def test_the_command_knows_the_cells_of_every_file_that_needs_java() -> None:
    folder = Path(__file__).parent
    needed = {
        path.name for path in folder.glob("test_*.py") if "pytest.mark.java" in path.read_text()
    }
    needed.discard(Path(__file__).name)
    assert {Path(cell.partition("::")[0]).name for cell in runner.collect()} == needed
