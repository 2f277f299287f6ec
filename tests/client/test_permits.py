"""The brake of a producer: counts, bytes, order, and that no permit gets lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txrocketmq.client.producer.permits import SendPermits


class One:
    """Wants a permit, and notes that it got it."""

    def __init__(self, size: int, began: list[One], permits: SendPermits | None = None) -> None:
        self.size = size
        self._began = began
        self._ends_at_once = permits

    def begin(self) -> None:
        self._began.append(self)
        if self._ends_at_once is not None:
            self._ends_at_once.release(self.size)


def test_what_does_not_fit_waits_in_order() -> None:
    permits, began = SendPermits(2, 100, 10), []  # type: ignore[var-annotated]
    all_of_them = [One(10, began) for _ in range(5)]
    for one in all_of_them:
        assert permits.acquire(one)
    assert (began, permits.waiting) == (all_of_them[:2], 3)
    permits.release(10)
    assert began == all_of_them[:3]


def test_bytes_count_and_the_first_waits_for_all_it_needs() -> None:
    permits, began = SendPermits(10, 100, 10), []  # type: ignore[var-annotated]
    large, small, later = One(60, began), One(60, began), One(1, began)
    for one in (large, small, later):
        permits.acquire(one)
    assert began == [large]  # nobody overtakes
    permits.release(60)
    assert began == [large, small, later]


def test_one_larger_than_everything_goes_alone() -> None:
    permits, began = SendPermits(10, 100, 10), []  # type: ignore[var-annotated]
    one, huge = One(1, began), One(1000, began)
    permits.acquire(one)
    permits.acquire(huge)
    assert began == [one]
    permits.release(1)
    assert began == [one, huge]


def test_there_is_a_bound_on_waiting_ones() -> None:
    permits, began = SendPermits(1, 100, 1), []  # type: ignore[var-annotated]
    assert permits.acquire(One(1, began))
    assert permits.acquire(One(1, began))
    assert not permits.acquire(One(1, began))


def test_one_that_gives_up_leaves_its_place() -> None:
    permits, began = SendPermits(1, 100, 10), []  # type: ignore[var-annotated]
    first, second, third = (One(1, began) for _ in range(3))
    for one in (first, second, third):
        permits.acquire(one)
    permits.give_up(second)
    permits.give_up(second)
    assert permits.waiting == 1
    permits.release(1)
    assert began == [first, third]


def test_thousands_that_give_up_do_not_look_at_one_another() -> None:
    looks: list[object] = []

    class Seen(One):
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            looks.append(other)
            return self is other

    permits, began = SendPermits(1, 100, 10_000), []  # type: ignore[var-annotated]
    waiting = [Seen(1, began) for _ in range(1000)]
    for one in waiting:
        permits.acquire(one)
    for one in reversed(waiting[1:]):
        permits.give_up(one)
    assert permits.waiting == 0
    assert len(looks) < 100


def test_many_that_end_at_once_do_not_nest() -> None:
    permits, began = SendPermits(1, 100, 100_000), []  # type: ignore[var-annotated]
    permits.acquire(One(1, began))
    for _ in range(5000):
        permits.acquire(One(1, began, permits))
    permits.release(1)
    assert len(began) == 5001
    assert (permits.count, permits.size) == (0, 0)


def test_the_free_are_told() -> None:
    permits, told = SendPermits(1, 100, 10), []  # type: ignore[var-annotated]
    permits.call_when_free(lambda: told.append("at once"))
    permits.acquire(One(1, []))
    permits.call_when_free(lambda: told.append("later"))
    assert told == ["at once"]
    permits.release(1)
    assert told == ["at once", "later"]


@given(st.lists(st.tuples(st.sampled_from(["take", "end", "give up"]), st.integers(1, 40))))
def test_limits_hold_and_nothing_is_lost(steps: list[tuple[str, int]]) -> None:
    permits, began = SendPermits(3, 50, 1000), []  # type: ignore[var-annotated]
    running: list[One] = []
    waiting: list[One] = []
    for step, number in steps:
        if step == "take":
            one = One(number, began)
            waiting.append(one)
            assert permits.acquire(one)
        elif step == "end" and running:
            permits.release(running.pop(number % len(running)).size)
        elif step == "give up" and waiting:
            permits.give_up(waiting.pop(number % len(waiting)))
        running += [one for one in waiting if one in began]
        waiting = [one for one in waiting if one not in began]
        assert permits.count == len(running) <= 3
        assert permits.size == sum(one.size for one in running) <= 50
        assert permits.waiting == len(waiting)
        assert not waiting or running
