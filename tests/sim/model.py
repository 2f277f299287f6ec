"""What must the store hold? The simplest description of it: a list of messages in the order of the log."""

from __future__ import annotations

import attrs

QueueKey = tuple[str, int]


@attrs.frozen
class Sent:
    """A message whose record was appended.

    :ivar in_queue: it has a place in its queue (a prepared transaction has none).
    :ivar keys: everything it can be found by.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    body: bytes
    properties: bytes
    keys: tuple[str, ...]
    in_queue: bool

    @property
    def end(self) -> int:
        """Where its record ends."""
        return self.physical_offset + self.size


class Model:
    """The log as it should be.

    :ivar log: all messages in the order of the log.
    :ivar begin: where the log begins; what lies before was deleted because its time had come.
    :ivar safe_offset: what lies below may not get lost, whatever happens.
    :ivar shown: how many messages of each queue readers could see while only safe ones are shown.
    """

    def __init__(self) -> None:
        self.log: list[Sent] = []
        self.begin = 0
        self.safe_offset = 0
        self.shown: dict[QueueKey, int] = {}
        self._queues: dict[QueueKey, list[Sent]] = {}

    @property
    def end_offset(self) -> int:
        """Where the last record ends."""
        return self.log[-1].end if self.log else 0

    def queue(self, key: QueueKey) -> list[Sent]:
        """The messages of a queue in order."""
        return self._queues.get(key, [])

    def queue_keys(self) -> list[QueueKey]:
        """All queues that have messages."""
        return [key for key, messages in self._queues.items() if messages]

    def living(self) -> list[Sent]:
        """The messages that were not deleted."""
        return [sent for sent in self.log if sent.physical_offset >= self.begin]

    def first(self, key: QueueKey) -> int:
        """The logical offset of a queue's first message that was not deleted; its end when all were."""
        messages = self.queue(key)
        living = (n for n, sent in enumerate(messages) if sent.physical_offset >= self.begin)
        return next(living, len(messages))

    def append(self, sent: Sent) -> None:
        """A record was appended."""
        assert sent.physical_offset >= self.end_offset, f"{sent} lies over an older record"
        self.log.append(sent)
        if sent.in_queue:
            self._queues.setdefault((sent.topic, sent.queue_id), []).append(sent)

    def safe(self, offset: int) -> None:
        """The store said so, in one way or another, that everything below is on the device."""
        self.safe_offset = max(self.safe_offset, offset)

    def cut(self, end: int) -> list[Sent]:
        """The log ends here after a crash; what is lost."""
        lost = []
        while self.log and self.log[-1].end > end:
            sent = self.log.pop()
            lost.append(sent)
            if sent.in_queue:
                self._queues[sent.topic, sent.queue_id].pop()
        return lost[::-1]
