"""The soak's books notice what must not be, and excuse only what an event explains."""

from __future__ import annotations

import pytest

from bench.soak_ledger import Ledger, Seen, Sent

PLACE = ("T", 0, 0)


def ledger(**sent: object) -> Ledger:
    found = Ledger(ordered=["o"], dead={"g": "d"}, slack_s={"slow": 5.0})
    values: dict[str, object] = {"groups": ("g",), "began_s": 100.0, "due_s": 100.0, **sent}
    message = Sent("kind-0", **values)  # type: ignore[arg-type]
    message.ended_s, message.is_acknowledged = 100.1, True
    found.sent[message.key] = message
    return found


def seen(at_s: float, group: str = "g", offset: int = 0, **more: object) -> Seen:
    values: dict[str, object] = {"key": "kind-0", "tries": 0, "is_done": True, **more}
    return Seen(at_s, group, place=("T", 0, offset), **values)  # type: ignore[arg-type]


def faults(found: Ledger) -> list[str]:
    return found.verdict().faults


def test_what_comes_once_in_time_is_no_fault() -> None:
    found = ledger()
    found.seen.append(seen(101))
    verdict = found.verdict()
    assert verdict.faults == []
    assert (verdict.rows["kind"].consumed, verdict.rows["kind"].latest_s) == (1, 1.0)


def test_what_never_comes_is_told_unless_it_is_a_dead_letter() -> None:
    found = ledger()
    found.seen.append(seen(101, is_done=False))
    assert faults(found) == ["kind-0 never came to g"]
    found.seen.append(seen(102, group="d", tries=1))
    assert faults(found) == []
    assert found.verdict().rows["kind"].dead == 1


@pytest.mark.parametrize(
    ("sent", "what", "fault"),
    [
        ({"due_s": 105.0}, seen(104.9), "kind-0 came to g 100 ms early"),
        ({"is_secret": True}, seen(101), "kind-0 came to g and was rolled back"),
        ({"groups": ()}, seen(101), "kind-0 came to g, whose filter does not match"),
        ({"groups": ()}, seen(101, key="kind-1"), "kind-1 came to g, and nobody sent it"),
    ],
)
def test_what_must_not_come_is_told(sent: dict[str, object], what: Seen, fault: str) -> None:
    found = ledger(**sent)
    found.seen.append(what)
    assert faults(found) == [fault]


def test_a_queue_out_of_order_is_told() -> None:
    found = ledger(groups=("o",))
    found.sent["kind-1"] = found.sent["kind-0"]
    found.seen += [seen(101, "o", 1, key="kind-1"), seen(102, "o", 0)]
    assert [fault for fault in faults(found) if "first after offset 1" in fault]


@pytest.mark.parametrize(("at_s", "group", "is_excused"), [
    (104.9, "g", True), (105.1, "g", False), (109.9, "slow", True), (110.1, "slow", False),
])  # fmt: skip
def test_messages_come_twice_only_soon_after_an_event(
    at_s: float, group: str, is_excused: bool
) -> None:
    found = ledger(groups=(group,))
    found.seen += [seen(99.9 + 0.2, group), seen(at_s, group)]
    found.event("member killed", 100.0)
    verdict = found.verdict()
    assert (verdict.faults == []) is is_excused
    assert verdict.twice == {"member killed" if is_excused else "nothing": 1}
    assert verdict.rows["kind"].twice == 1


def test_a_send_that_met_an_event_may_be_stored_twice_and_the_copy_come_late() -> None:
    found = ledger()
    found.seen += [seen(101), seen(200, offset=1)]
    assert len(faults(found)) == 1
    event = found.event("broker SIGKILL", 99.0, lasts=True)
    event.ended_s = 99.5
    verdict = found.verdict()
    assert verdict.faults == []
    assert verdict.twice == {"broker SIGKILL, sent again": 1}
    assert verdict.rows["kind"].stored_twice == 1
