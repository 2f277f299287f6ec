"""The soak's books notice what must not be, and excuse only what an event explains."""

from __future__ import annotations

import pytest

from bench.soak import BEGIN, END, page
from bench.soak_ledger import Ledger, Seen, Sent

PLACE = ("T", 0, 0)


def ledger(**sent: object) -> Ledger:
    found = Ledger(ordered=["o"], dead={"g": "d"})
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
    (104.9, "g", True), (105.1, "g", False), (109.9, "popped", True), (110.1, "popped", False),
])  # fmt: skip
def test_messages_come_twice_only_soon_after_an_event(
    at_s: float, group: str, is_excused: bool
) -> None:
    found = ledger(groups=(group,))
    found.seen += [seen(99.9 + 0.2, group), seen(at_s, group)]
    found.event("member killed", 100.0)
    found.event("invisible time over", 105.0, group="popped")
    verdict = found.verdict()
    assert (verdict.faults == []) is is_excused
    assert sum(verdict.twice.values()) == 1
    assert ("nothing" in verdict.twice) is not is_excused
    assert verdict.rows["kind"].twice == 1


def test_a_copy_is_excused_by_when_it_comes_and_not_by_when_it_was_sent() -> None:
    found = ledger()
    found.seen += [seen(101), seen(200, offset=1)]
    event = found.event("broker SIGKILL", 99.0, lasts=True)
    event.ended_s = 99.5
    verdict = found.verdict()
    assert verdict.twice == {"nothing": 1}
    assert verdict.rows["kind"].stored_twice == 1
    assert len(verdict.faults) == 1


def test_tries_of_a_copy_are_counted_and_no_fault() -> None:
    found = ledger()
    found.event("broker SIGKILL", 101.0)
    found.seen += [seen(101, is_done=False), seen(102, offset=1, is_done=False)]
    # Both copies are tried again, and given up.
    found.seen += [seen(120, offset=2, tries=1), seen(121, offset=3, tries=1)]
    found.seen += [seen(130, "d", offset=4, tries=2), seen(131, "d", offset=5, tries=2)]
    verdict = found.verdict()
    assert verdict.faults == []
    assert verdict.twice == {
        "broker SIGKILL": 1,
        "tries of a copy that came by an event": 2,
    }


@pytest.mark.parametrize(("event_s", "is_excused"), [(101.0, True), (90.0, False)])
def test_what_a_member_could_not_give_back_it_handles_again(
    event_s: float, is_excused: bool
) -> None:
    found = ledger()
    found.event("broker SIGTERM", event_s)
    # The broker has it, and did not say so: its copy comes, and the member handles its own after five seconds.
    found.seen += [seen(101, is_done=False), seen(102.1, offset=7, tries=1), seen(106.2, tries=1)]
    assert (faults(found) == []) is is_excused
    assert ("message not given back" in found.verdict().twice) is is_excused


def test_the_page_keeps_what_people_wrote() -> None:
    old = f"# Soak\n\nWhat it is.\n\n{BEGIN}\nold figures\n{END}\nWhat it means.\n"
    new = page(old, "| new |", 10, "abc", 0)
    assert new.startswith(f"# Soak\n\nWhat it is.\n\n{BEGIN}")
    assert new.endswith(f"{END}\nWhat it means.\n")
    assert "old figures" not in new
    assert "10 minutes at commit abc. **Faults: 0.**\n\n| new |" in new
    with pytest.raises(ValueError, match="no place for the figures"):
        page("# Soak\n", "| new |", 10, "abc", 0)
