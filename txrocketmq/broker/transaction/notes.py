"""Which half messages have their outcome, as the log says?

Stands for ``fillOpRemoveMap`` and ``calculateOpOffset``. The records of RMQ_SYS_TRANS_OP_HALF_TOPIC are read only as far as they are
needed; a record is used up when every half message that it names is behind us.
"""

from __future__ import annotations

from txrocketmq.broker.stored import stored_messages, value_of
from txrocketmq.broker.transaction.records import DONE_TAG, done_offsets
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.names import TRANS_OP_HALF_TOPIC
from txrocketmq.store.results import GetMessageResult

NOTES_AT_ONCE = 32
NO_BYTE_LIMIT = 2**31 - 1


class Notes:
    """The outcomes of one half queue, during one round.

    :param start: offset of the first note that is not used up.
    :param half_start: offset of the first half message of the round.
    :ivar next_offset: the note to read next.
    """

    def __init__(self, store: IMessageStore, queue_id: int, start: int, half_start: int) -> None:
        self._store = store
        self._queue_id = queue_id
        self._half_start = half_start
        self._done_below = start
        self._done: set[int] = set()
        self.next_offset = start
        # Half offsets to the notes that name them; those before the round began can only be meant for copies of theirs.
        self._noted: dict[int, int] = {}
        self._old: dict[int, int] = {}
        # By note: half offsets that are still ahead, or old ones; and when it was stored.
        self._open: dict[int, int] = {}
        self._stored_ms: dict[int, int] = {}

    @property
    def has_more(self) -> bool:
        """Whether there are notes that were not read."""
        return self.next_offset < self._store.max_offset(TRANS_OP_HALF_TOPIC, self._queue_id)

    async def read(self) -> None:
        """Read some more notes."""
        asked = self.next_offset
        found: GetMessageResult = await value_of(
            self._store.get_message(
                TRANS_OP_HALF_TOPIC, self._queue_id, asked, NOTES_AT_ONCE, NO_BYTE_LIMIT, None
            )
        )
        for offset, note in zip(found.queue_offsets, stored_messages(found), strict=True):
            self._skip_to(offset)
            self.next_offset = offset + 1
            offsets: list[int] = []
            if note is not None and note.tags == DONE_TAG:
                offsets = list(dict.fromkeys(done_offsets(note.body)))
                self._stored_ms[offset] = note.store_timestamp
            self._enter(offset, offsets)
        if not found.queue_offsets:
            self._skip_to(max(found.next_begin_offset, asked + 1))

    def _skip_to(self, offset: int) -> None:
        """The log does not have the notes before this one any more."""
        for missing in range(self.next_offset, offset):
            self._done.add(missing)
        self.next_offset = max(self.next_offset, offset)

    def _enter(self, note: int, offsets: list[int]) -> None:
        count = 0
        for offset in offsets:
            table = self._noted if offset >= self._half_start else self._old
            if offset not in table:
                table[offset] = note
                count += 1
        if count:
            self._open[note] = count
        else:
            self._done.add(note)

    def take(self, half_offset: int) -> bool:
        """Whether this half message has its outcome; asked once for each."""
        note = self._noted.pop(half_offset, None)
        if note is None:
            note = self._old.pop(half_offset, None)
        if note is None:
            return False
        self._use(note)
        return True

    def _use(self, note: int) -> None:
        self._open[note] -= 1
        if not self._open[note]:
            del self._open[note]
            self._done.add(note)

    def used_up(self, seen_until_ms: int | None) -> int:
        """Offset of the first note that is needed again.

        :param seen_until_ms: store time of the half message at which the round ended, None when it came to the end. Copies
            of half messages are older than the notes about them; so an old note is of use only until the round has come past
            its time.
        """
        for half_offset, note in tuple(self._old.items()):
            if seen_until_ms is None or self._stored_ms[note] < seen_until_ms:
                del self._old[half_offset]
                self._use(note)
        while self._done_below in self._done:
            self._done.discard(self._done_below)
            self._done_below += 1
        return self._done_below
