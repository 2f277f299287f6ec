"""Does a process queue know what was processed, and never let an offset past a message that was not?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from received import received

from txrocketmq.client.consumer.process_queue import PopProcessQueue, ProcessQueue


def filled(*offsets: int) -> ProcessQueue:
    made = ProcessQueue(0.0)
    made.put([received(offset, b"12345") for offset in offsets])
    return made


def test_the_offset_is_that_of_the_first_message_that_is_not_processed() -> None:
    held = filled(10, 11, 12, 15)
    messages = [received(offset) for offset in (10, 11, 12, 15)]
    assert (held.count, held.size_bytes, held.span) == (4, 20, 5)
    assert held.remove([messages[1]], 1.0) == 10
    assert held.remove([messages[3]], 1.0) == 10
    assert held.span == 2
    assert held.remove([messages[0]], 1.0) == 12
    assert held.remove([messages[2]], 1.0) == 16
    assert (held.count, held.size_bytes, held.span) == (0, 0, 0)
    assert held.remove([messages[2]], 1.0) == -1


def test_what_comes_twice_is_held_once() -> None:
    held = filled(1, 2)
    held.put([received(2, b"x"), received(3, b"x")])
    assert (held.count, held.size_bytes) == (3, 11)
    first = held.take(1, 0.0)
    held.put(first)
    assert held.count == 3


def test_a_message_that_was_removed_and_came_again_is_another_one() -> None:
    held = filled()
    old, new = received(5), received(5)
    held.put([old])
    assert held.holds(old)
    held.remove([old], 0.0)
    held.put([new])
    assert not held.holds(old)
    assert held.holds(new)


@given(st.sets(st.integers(0, 50), min_size=1), st.randoms(use_true_random=False))
def test_in_any_order_the_committed_offset_never_passes_a_held_one(offsets, random) -> None:  # type: ignore[no-untyped-def]
    held = ProcessQueue(0.0)
    messages = [received(offset, b"x") for offset in sorted(offsets)]
    for start in range(0, len(messages), 7):
        held.put(messages[start : start + 7])
    waiting = set(offsets)
    committed = 0
    for message in random.sample(messages, len(messages)):
        waiting.discard(message.queue_offset)
        offset = held.remove([message], 0.0)
        assert offset == (min(waiting) if waiting else max(offsets) + 1)
        assert offset >= committed
        committed = offset
        assert held.span == (max(waiting) - min(waiting) if waiting else 0)
        assert held.count == held.size_bytes == len(waiting)


def test_taken_messages_are_committed_together() -> None:
    held = filled(1, 2, 3)
    assert [message.queue_offset for message in held.take(2, 5.0)] == [1, 2]
    assert held.count == 3
    assert held.commit_taken() == 3
    assert (held.count, held.size_bytes) == (1, 5)
    assert held.commit_taken() == -1
    assert held.last_consume_s == 5.0


def test_what_is_put_back_is_taken_again_first() -> None:
    held = filled(1, 2, 3, 4)
    batch = held.take(3, 0.0)
    held.put_back(batch[1:])
    assert [message.queue_offset for message in held.take(9, 0.0)] == [2, 3, 4]
    held.put_back()
    assert [message.queue_offset for message in held.take(9, 0.0)] == [1, 2, 3, 4]
    assert held.commit_taken() == 5
    assert held.take(1, 0.0) == []


def test_a_seek_forgets_all() -> None:
    held = filled(7, 8)
    held.take(1, 0.0)
    held.clear()
    assert (held.count, held.size_bytes, held.first_offset(), held.has_waiting) == (
        0,
        0,
        None,
        False,
    )
    held.put([received(1)])
    assert held.remove([received(1)], 0.0) == 2


def test_locks_and_pulls_expire() -> None:
    held = ProcessQueue(100.0)
    assert not held.lock_expired(130.0)
    assert held.lock_expired(130.1)
    assert not held.pull_expired(220.0)
    assert held.pull_expired(220.1)
    popped = PopProcessQueue(100.0)
    assert not popped.pull_expired(220.0)
    assert popped.pull_expired(220.1)


def test_running_info_shows_what_is_held_and_what_is_taken() -> None:
    held = filled(3, 4, 9)
    held.take(1, 2.0)
    held.locked = True
    info = held.info(3, 1_000.0)
    assert (info.cached_msg_count, info.cached_msg_min_offset, info.cached_msg_max_offset) == (
        2,
        4,
        9,
    )
    assert (
        info.transaction_msg_count,
        info.transaction_msg_min_offset,
        info.transaction_msg_max_offset,
    ) == (1, 3, 3)
    assert (info.commit_offset, info.locked, info.droped) == (3, True, False)
    assert (info.last_consume_timestamp, info.last_pull_timestamp) == (1_002_000, 1_000_000)
    popped = PopProcessQueue(1.0)
    popped.waiting = 4
    assert (popped.info(1.0).wait_ack_count, popped.info(1.0).last_pop_timestamp) == (4, 2000)
