"""The table of our requests that wait for an answer: numbers, without a socket."""

from __future__ import annotations

from txrocketmq.remoting.connection import MAX_OPAQUE, PendingRequests, Permits


def test_a_number_that_still_waits_is_not_given_out_again() -> None:
    pending = PendingRequests("192.0.2.1:10911", Permits(10))
    for taken in (0, 1, 3):
        pending.add(taken, 5.0, 3000)
    assert [pending.next_opaque() for _ in range(3)] == [2, 4, 5]


def test_numbers_begin_again_behind_the_largest_java_int() -> None:
    pending = PendingRequests("192.0.2.1:10911", Permits(10))
    first = pending.next_opaque()
    pending._next_opaque = MAX_OPAQUE
    assert (first, pending.next_opaque(), pending.next_opaque()) == (0, 2**31 - 1, 0)
