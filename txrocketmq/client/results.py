"""What comes back from brokers? The outcomes of sends, pulls and pops as values.

Stands for ``SendResult``, ``TransactionSendResult``, ``PullResult``, ``PopResult``, ``AckResult``, ``FindBrokerResult``, ``QueryResult``.
"""

from __future__ import annotations

import enum

import attrs
import msgspec

from txrocketmq.model.message import MessageExt, MessageQueue


class SendStatus(enum.Enum):
    """How safe a stored message is."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult(msgspec.Struct, gc=False):
    """Where a message is.

    :ivar msg_id: the client's unique id; of a batch all of them, with commas between.
    :ivar offset_msg_id: the broker's id.
    :ivar queue_offset: logical offset in the queue; of a batch the first one.
    :ivar transaction_id: of a half message.
    :ivar recall_handle: with which a timed message can be recalled.
    """

    status: SendStatus
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str | None = None
    recall_handle: str | None = None
    region_id: str = ""
    trace_on: bool = True


class LocalTransactionState(enum.Enum):
    """What became of the local half of a transaction; UNKNOW (the official spelling) has the broker ask later."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"


@attrs.frozen
class TransactionSendResult:
    """Where a half message is, and what was said of it.

    :ivar state: the verdict that was sent to the broker.
    """

    send_result: SendResult
    state: LocalTransactionState


class PullStatus(enum.Enum):
    """What a pull found."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


class PullResult(msgspec.Struct, gc=False):
    """What a pull brought.

    :ivar next_begin_offset: where to pull next.
    :ivar suggest_which_broker_id: which member of the broker group to ask next.
    :ivar messages: decoded and decompressed, tags not compared yet, batch records not unwrapped.
    :ivar body_bytes: length of the answer's body.
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int
    messages: list[MessageExt]
    body_bytes: int = 0
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None


class PopStatus(enum.Enum):
    """What a pop found."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    POLLING_FULL = "POLLING_FULL"
    POLLING_NOT_FOUND = "POLLING_NOT_FOUND"


class PopResult(msgspec.Struct, gc=False):
    """What a pop brought; each message has its receipt in the property ``POP_CK``.

    :ivar pop_time: wall-clock ms at the broker.
    :ivar invisible_time: ms for which nobody else gets these messages.
    :ivar rest_num: messages left in the queues.
    """

    status: PopStatus
    messages: list[MessageExt]
    pop_time: int = 0
    invisible_time: int = 0
    rest_num: int = 0


class ChangedInvisibleTime(msgspec.Struct, frozen=True, gc=False):
    """The new deadline of a popped message.

    :ivar extra_info: the receipt to use from now on.
    """

    pop_time: int
    extra_info: str


class HeartbeatAnswer(msgspec.Struct, frozen=True, gc=False):
    """What a broker says to a heartbeat.

    :ivar version: the broker's release.
    :ivar supports_v2: fingerprints are understood there.
    :ivar subscription_changed: the group's subscriptions are not those that the broker knew; say them in full next time.
    """

    version: int
    supports_v2: bool
    subscription_changed: bool


class QueryResult(msgspec.Struct, gc=False):
    """Messages found by key, and how far the index reaches."""

    index_last_update_timestamp: int
    messages: list[MessageExt]


@attrs.frozen
class FoundBroker:
    """A member of a broker group.

    :ivar version: its release as its heartbeat answer said, 0 when there was none yet.
    """

    address: str
    is_slave: bool
    version: int


@attrs.frozen
class RequestMode:
    """Which queues a consumer has, when the broker divides them (QUERY_ASSIGNMENT)."""

    queues: list[MessageQueue]
    pop: bool
