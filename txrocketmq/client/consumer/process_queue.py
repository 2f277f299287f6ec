"""What does a consumer hold of one queue? Messages that were pulled and are not processed yet, and how far it may commit.

Stands for ``ProcessQueue`` (and, for the counting, ``PopProcessQueue``). Sans-IO: offsets, messages and times in seconds of the owner's clock.

::

    put() --> waiting --remove()------------------------------> gone     concurrent: in any order
                 `-----take()--> taken --commit_taken()-------> gone     orderly: from the front, batch by batch
                 ^--------------put_back()---'

The offset to commit is the lowest one that is still held, or one past the highest ever held: everything below it is processed.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence

from txrocketmq.codec.bodies.clients import PopProcessQueueInfo, ProcessQueueInfo
from txrocketmq.model.message import MessageExt

LOCK_LIVES_S = 30.0
"""How long a granted lock counts at the client (``rocketmq.client.rebalance.lockMaxLiveTime``); brokers keep it for 60 s."""
PULL_EXPIRES_S = 120.0
"""A queue that was not pulled for so long is dropped and assigned anew (``rocketmq.client.pull.pullMaxIdleTime``)."""

_MIB = 1024 * 1024


class ProcessQueue:
    """The messages of one queue that wait for or are in the hands of a handler.

    :ivar count: messages held, taken ones among them.
    :ivar size_bytes: length of their bodies.
    :ivar dropped: the queue belongs to somebody else; its messages must not be handed out any more.
    :ivar discarded: dropped because an operator or a repair moved the offset: results that still come are of no use.
    :ivar locked: the broker granted the queue to this member (orderly consumption).
    :ivar consuming: handlers that run on messages of this queue.
    """

    def __init__(self, now_s: float) -> None:
        self._messages: dict[int, MessageExt] = {}
        # As they came: handlers may change bodies.
        self._sizes: dict[int, int] = {}
        self._order: deque[int] = deque()
        self._taken: dict[int, MessageExt] = {}
        self._past_highest = 0
        self.count = 0
        self.size_bytes = 0
        self.dropped = False
        self.discarded = False
        self.locked = False
        self.consuming = 0
        self.last_lock_s = now_s
        self.last_pull_s = now_s
        self.last_consume_s = now_s
        self.unlock_tries = 0

    def put(self, messages: Sequence[MessageExt]) -> None:
        """Hold messages of a pull, in the order of their offsets. One that is held already is not held twice."""
        held, order, sizes = self._messages, self._order, self._sizes
        size = 0
        for message in messages:
            offset = message.queue_offset
            if offset in held or offset in self._taken:
                continue
            held[offset] = message
            if order and offset < order[-1]:
                insort(order, offset)
            else:
                order.append(offset)
            sizes[offset] = length = len(message.body)
            size += length
            self.count += 1
            if offset >= self._past_highest:
                self._past_highest = offset + 1
        self.size_bytes += size

    def holds(self, message: MessageExt) -> bool:
        """Whether a message waits here and was not removed meanwhile."""
        return self._messages.get(message.queue_offset) is message

    def remove(self, messages: Iterable[MessageExt], now_s: float) -> int:
        """Messages are processed; the offset to commit, -1 when nothing was held."""
        self.last_consume_s = now_s
        if not self._messages:
            return -1
        pop, size_of = self._messages.pop, self._sizes.pop
        for message in messages:
            found = pop(message.queue_offset, None)
            if found is not None:
                self.count -= 1
                self.size_bytes -= size_of(message.queue_offset)
        first = self.first_offset()
        return self._past_highest if first is None else first

    def first_offset(self) -> int | None:
        """The lowest offset that waits; None when none does."""
        held, order = self._messages, self._order
        while order:
            offset = order[0]
            if offset in held:
                return offset
            order.popleft()
        return None

    @property
    def span(self) -> int:
        """From the lowest to the highest offset that waits."""
        first = self.first_offset()
        if first is None:
            return 0
        held, order = self._messages, self._order
        while order[-1] not in held:
            order.pop()
        return order[-1] - first

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait."""
        return bool(self._messages)

    # ------------------------------------------------------------------ orderly

    def take(self, limit: int, now_s: float) -> list[MessageExt]:
        """The next messages in order, to be committed or put back."""
        self.last_consume_s = now_s
        held, order, taken = self._messages, self._order, self._taken
        batch: list[MessageExt] = []
        while order and len(batch) < limit:
            offset = order.popleft()
            message = held.pop(offset, None)
            if message is not None:
                taken[offset] = message
                batch.append(message)
        return batch

    def commit_taken(self) -> int:
        """All that was taken is processed; the offset to commit, -1 when nothing was taken."""
        if not self._taken:
            return -1
        offset = max(self._taken) + 1
        self.count -= len(self._taken)
        self.size_bytes -= sum(map(self._sizes.pop, self._taken))
        self._taken.clear()
        return offset

    def put_back(self, messages: Iterable[MessageExt] | None = None) -> None:
        """Taken messages (all of them unless named) shall be taken again, in their old places."""
        taken = self._taken
        named = None if messages is None else {id(message) for message in messages}
        for offset in sorted(taken, reverse=True):
            if named is None or id(taken[offset]) in named:
                self._messages[offset] = taken.pop(offset)
                self._order.appendleft(offset)

    def clear(self) -> None:
        """Forget all messages (a seek)."""
        self._messages.clear()
        self._order.clear()
        self._taken.clear()
        self._sizes.clear()
        self.count = self.size_bytes = self._past_highest = 0

    # ------------------------------------------------------------------ times

    def lock_expired(self, now_s: float) -> bool:
        """Whether the lock was not renewed in time, so that another member may have got it."""
        return now_s - self.last_lock_s > LOCK_LIVES_S

    def pull_expired(self, now_s: float) -> bool:
        """Whether pulling has stopped, against all intention."""
        return now_s - self.last_pull_s > PULL_EXPIRES_S

    def info(self, commit_offset: int, wall_offset_s: float) -> ProcessQueueInfo:
        """For the running info.

        :param wall_offset_s: what to add to times of the clock to get seconds since 1970.
        """
        first = self.first_offset()
        taken = self._taken
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=first or 0,
            cached_msg_max_offset=(first or 0) + self.span,
            cached_msg_count=len(self._messages),
            cached_msg_size_in_mi_b=self.size_bytes // _MIB,
            transaction_msg_min_offset=min(taken, default=0),
            transaction_msg_max_offset=max(taken, default=0),
            transaction_msg_count=len(taken),
            locked=self.locked,
            try_unlock_times=self.unlock_tries,
            last_lock_timestamp=int((self.last_lock_s + wall_offset_s) * 1000),
            droped=self.dropped,
            last_pull_timestamp=int((self.last_pull_s + wall_offset_s) * 1000),
            last_consume_timestamp=int((self.last_consume_s + wall_offset_s) * 1000),
        )


class PopProcessQueue:
    """How many popped messages of one queue wait for their acknowledgement.

    :ivar waiting: popped, neither acknowledged nor given up.
    :ivar consuming: handlers that run on messages of this queue.
    """

    def __init__(self, now_s: float) -> None:
        self.waiting = 0
        self.consuming = 0
        self.dropped = False
        self.last_pop_s = now_s

    def pull_expired(self, now_s: float) -> bool:
        """Whether popping has stopped, against all intention."""
        return now_s - self.last_pop_s > PULL_EXPIRES_S

    def info(self, wall_offset_s: float) -> PopProcessQueueInfo:
        """For the running info."""
        return PopProcessQueueInfo(
            wait_ack_count=self.waiting,
            droped=self.dropped,
            last_pop_timestamp=int((self.last_pop_s + wall_offset_s) * 1000),
        )
