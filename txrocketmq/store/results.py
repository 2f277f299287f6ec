"""What did the store answer? The outcomes of append, read and key query as values.

Stand for the official ``PutMessageResult``, ``PutMessageStatus``, ``GetMessageResult``, ``GetMessageStatus`` and
``QueryMessageResult``. They are plain values: nothing has to be released.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec


class PutMessageStatus(IntEnum):
    """What became of a message that was to be appended (order of the official enum)."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15
    #: Not official: after a start the queue's next offset is not known yet.
    QUEUE_RECOVERING = 100


#: The message is in the log, though not all that was waited for came in time.
_STORED = (
    PutMessageStatus.PUT_OK,
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
)


class GetMessageStatus(IntEnum):
    """What a read from a queue found (order of the official enum)."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


class PutMessageResult(msgspec.Struct, gc=False):
    """Where a message landed, or why it did not.

    :ivar status: the outcome; a `PutMessageStatus`.
    :ivar physical_offset: first byte of the (first) record in the commit log; -1 when nothing was appended.
    :ivar queue_offset: logical offset of the (first) message in its queue.
    :ivar wrote_bytes: length of the record, of all records of a batch.
    :ivar store_timestamp_ms: wall-clock time that was written into the record.
    :ivar msg_num: how many messages were appended.
    :ivar batch_offsets: physical offset of each message of a batch; empty for a single one.
    :ivar is_remote: another broker has it (an acting slave hands what is due to others): none of the places above is known.
    """

    status: PutMessageStatus
    physical_offset: int = -1
    queue_offset: int = 0
    wrote_bytes: int = 0
    store_timestamp_ms: int = 0
    msg_num: int = 1
    batch_offsets: Sequence[int] = ()
    is_remote: bool = False

    @property
    def is_ok(self) -> bool:
        """Whether the message is in the log (it may still lack a flush or a replica)."""
        return self.physical_offset >= 0 or (self.is_remote and self.status in _STORED)

    def with_status(self, status: PutMessageStatus) -> PutMessageResult:
        """The same place with another outcome (a flush or replica that was waited for in vain)."""
        return PutMessageResult(
            status,
            self.physical_offset,
            self.queue_offset,
            self.wrote_bytes,
            self.store_timestamp_ms,
            self.msg_num,
            self.batch_offsets,
            self.is_remote,
        )

    def __repr__(self) -> str:
        return (
            f"PutMessageResult({self.status.name}, physical_offset={self.physical_offset}, "
            f"queue_offset={self.queue_offset}, wrote_bytes={self.wrote_bytes}, msg_num={self.msg_num})"
        )


class GetMessageResult:
    """What a read from a queue found.

    :ivar status: a `GetMessageStatus`.
    :ivar next_begin_offset: logical offset to ask for next.
    :ivar min_offset: smallest readable logical offset of the queue.
    :ivar max_offset: next logical offset that the queue will give.
    :ivar records: the records' bytes in queue order; their join is the body of a pull answer. Neighbours in the log may be
        one item, so ``len(records)`` may be smaller than ``message_count``.
    :ivar message_count: number of messages in ``records``.
    :ivar size_bytes: sum of the lengths.
    :ivar queue_offsets: logical offset of each message.
    :ivar suggest_pull_from_slave: the log's tail is so far ahead that a slave should serve this reader.
    :ivar filtered_count: messages that the full filter left out.
    """

    __slots__ = (
        "filtered_count",
        "max_offset",
        "message_count",
        "min_offset",
        "next_begin_offset",
        "queue_offsets",
        "records",
        "size_bytes",
        "status",
        "suggest_pull_from_slave",
    )

    def __init__(
        self,
        status: GetMessageStatus,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        records: Sequence[bytes] = (),
        message_count: int = 0,
        size_bytes: int = 0,
        queue_offsets: Sequence[int] = (),
        suggest_pull_from_slave: bool = False,
        filtered_count: int = 0,
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.records = records
        self.message_count = message_count
        self.size_bytes = size_bytes
        self.queue_offsets = queue_offsets
        self.suggest_pull_from_slave = suggest_pull_from_slave
        self.filtered_count = filtered_count

    def __repr__(self) -> str:
        return (
            f"GetMessageResult({self.status.name}, next_begin_offset={self.next_begin_offset}, "
            f"min_offset={self.min_offset}, max_offset={self.max_offset}, message_count={self.message_count})"
        )


class QueryMessageResult:
    """Records found by a key.

    :ivar records: the records' bytes in the official order.
    :ivar index_last_update_timestamp: store time of the newest indexed message in ms, 0 when there is no index.
    :ivar index_last_update_offset: physical offset of the newest indexed message.
    """

    __slots__ = ("index_last_update_offset", "index_last_update_timestamp", "records")

    def __init__(
        self,
        records: Sequence[bytes] = (),
        index_last_update_timestamp: int = 0,
        index_last_update_offset: int = 0,
    ) -> None:
        self.records = records
        self.index_last_update_timestamp = index_last_update_timestamp
        self.index_last_update_offset = index_last_update_offset

    @property
    def size_bytes(self) -> int:
        """Sum of the records' lengths."""
        return sum(map(len, self.records))
