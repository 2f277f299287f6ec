"""Which messages of which queues has a group popped in order, and when may it pop on?

Stands for ``ConsumerOrderInfoManager``, kept in ``consumerOrderInfo.json``. A queue that was popped in order is blocked until all
messages of that pop are acknowledged, or those that are not are visible again; then they are popped again, from the first one on. The
same attempt (``attemptId``) may pop again at once: its answer was lost. Crash story: the file is saved every
`flushConsumerOffsetInterval`; what a crash forgets is popped again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from txrocketmq.broker.config_files import PersistedTable, SavedInTurns
from txrocketmq.broker.consumer_offsets import SEPARATOR
from txrocketmq.codec.bodies import ConsumerOrderInfoTable, OrderInfo, decode_body, encode_body
from txrocketmq.interfaces import IConfigFiles

FILE_NAME = "consumerOrderInfo.json"
FORGOTTEN_MS = 24 * 3_600_000

ILLEGAL = -1
NOTHING_TO_COMMIT = -2
_BITS = (1 << 64) - 1


class OrderedPops(SavedInTurns):
    """What is held of each queue, by ``topic@group`` and queue id."""

    def __init__(self, files: IConfigFiles, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self.file = PersistedTable(files, FILE_NAME, self._encode)

    def load(self) -> None:
        """Read ``consumerOrderInfo.json``.

        :raises StoreError: neither the file nor its backup can be read.
        """
        table = self.file.load(partial(decode_body, ConsumerOrderInfoTable))
        if table is not None:
            self._table = table.table

    def find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        """What is held of a queue."""
        return self._table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)

    def popped(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        pop_time_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
    ) -> tuple[list[tuple[int, int]], int]:
        """Messages were handed out in order.

        :return: offsets that were handed out before, with how often; and the smallest of these numbers over all messages.
        """
        queues = self._table.setdefault(f"{topic}{SEPARATOR}{group}", {})
        before = queues.get(queue_id)
        info = OrderInfo(
            attempt_id=attempt_id,
            pop_time=pop_time_ms,
            invisible_time=invisible_ms,
            offset_list=[offsets[0], *(offset - offsets[0] for offset in offsets[1:])],
            last_consume_timestamp=self._now_ms(),
        )
        if before is not None:
            info.offset_consumed_count = _counts(before, attempt_id, offsets)
        queues[queue_id] = info
        self._is_changed = True
        counts = sorted((info.offset_consumed_count or {}).items())
        least = min((count for _, count in counts), default=0)
        return counts, least if len(counts) == len(offsets) else 0

    def is_blocked(
        self, attempt_id: str | None, topic: str, group: str, queue_id: int, invisible_ms: int
    ) -> bool:
        """Whether a group has to wait with a queue.

        :param invisible_ms: what the asker would like, for entries of older brokers that do not say it.
        """
        info = self.find(topic, group, queue_id)
        if info is None or not info.offset_list:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        if not info.invisible_time or info.invisible_time <= 0:
            info.invisible_time = invisible_ms
        now_ms = self._now_ms()
        return any(now_ms < visible_ms for visible_ms in _visible_times(info))

    def free_at(self, topic: str, group: str, queue_id: int) -> int | None:
        """When the queue's first block ends (ms); None when it has none."""
        info = self.find(topic, group, queue_id)
        if info is None or not info.invisible_time:
            return None
        now_ms = self._now_ms()
        return next((time for time in _visible_times(info) if now_ms < time), None)

    def acknowledge(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time_ms: int
    ) -> int:
        """A message is done with: the offset that the group stands at then, or `ILLEGAL`, or `NOTHING_TO_COMMIT`."""
        info = self.find(topic, group, queue_id)
        if info is None:
            return offset + 1
        offsets = held_offsets(info)
        if not offsets:
            return ILLEGAL
        if pop_time_ms != info.pop_time:
            return NOTHING_TO_COMMIT
        if offset not in offsets:
            return ILLEGAL
        bits = (info.commit_offset_bit & _BITS) | 1 << offsets.index(offset)
        info.commit_offset_bit = bits - (bits >> 63 << 64)
        self._is_changed = True
        left = [held for index, held in enumerate(offsets) if not bits >> index & 1]
        return left[0] if left else offsets[-1] + 1

    def change_visible_time(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        pop_time_ms: int,
        visible_ms: int,
    ) -> None:
        """A message is to be visible again at another time; nothing when it is of an older pop."""
        info = self.find(topic, group, queue_id)
        if info is None or info.pop_time != pop_time_ms:
            return
        times = info.offset_next_visible_time or {}
        times[offset] = visible_ms
        info.offset_next_visible_time = times
        self._is_changed = True

    def forget_queue(self, topic: str, group: str, queue_id: int) -> None:
        """An operator moved the group: nothing is held any more."""
        if self._table.get(f"{topic}{SEPARATOR}{group}", {}).pop(queue_id, None) is not None:
            self._is_changed = True

    def topic_deleted(self, topic: str) -> None:
        """Forget a topic."""
        self._drop(lambda key: key.startswith(topic + SEPARATOR))

    def group_deleted(self, group: str) -> None:
        """Forget a group."""
        self._drop(lambda key: key.endswith(SEPARATOR + group))

    def _drop(self, is_doomed: Callable[[str], bool]) -> None:
        for key in [key for key in self._table if is_doomed(key)]:
            del self._table[key]
            self._is_changed = True

    def items(self) -> Iterator[tuple[str, str, int]]:
        """Topic, group and queue of everything that is held."""
        for key, queues in self._table.items():
            topic, _, group = key.partition(SEPARATOR)
            for queue_id in queues:
                yield topic, group, queue_id

    def save_if_changed(self) -> None:
        """Forget what is a day old, and see that the file follows."""
        limit_ms = self._now_ms() - FORGOTTEN_MS
        for key, queues in tuple(self._table.items()):
            for queue_id, info in tuple(queues.items()):
                if info.last_consume_timestamp < limit_ms:
                    del queues[queue_id]
                    self._is_changed = True
            if not queues:
                del self._table[key]
        super().save_if_changed()

    def _encode(self) -> bytes:
        return encode_body(ConsumerOrderInfoTable(table=self._table))


def held_offsets(info: OrderInfo) -> list[int]:
    """The logical offsets of a pop: the list has the first one, then distances from it."""
    if not info.offset_list:
        return []
    first = info.offset_list[0]
    return [first, *(first + distance for distance in info.offset_list[1:])]


def _visible_times(info: OrderInfo) -> Iterator[int]:
    """When each message that is not acknowledged is visible again."""
    own = info.offset_next_visible_time or {}
    usual = info.pop_time + (info.invisible_time or 0)
    for index, offset in enumerate(held_offsets(info)):
        if not info.commit_offset_bit >> index & 1:
            yield own.get(offset, usual)


def _counts(before: OrderInfo, attempt_id: str | None, offsets: Sequence[int]) -> dict[int, int]:
    """How often each offset was handed out before; new ones are left out."""
    known = before.offset_consumed_count or {}
    if before.attempt_id is not None and before.attempt_id == attempt_id:
        return known
    held = set(held_offsets(before))
    return {offset: known.get(offset, 0) + 1 for offset in offsets if offset in held}
