"""What does the admin client answer, where no body of the protocol says it already?"""

from __future__ import annotations

import enum

import attrs

from txrocketmq.model.codes import version_name
from txrocketmq.model.heartbeat import ConsumeType, MessageModel
from txrocketmq.model.message import MessageExt, MessageQueue


@attrs.frozen
class QueueProgress:
    """Where a group stands in one queue. Offsets are logical, times in ms.

    :ivar client_ip: the member that has the queue, None where that was not asked or nobody has it.
    :ivar last_timestamp: store time of the last consumed message, 0 when there is none.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int
    client_ip: str | None = None

    @property
    def diff(self) -> int:
        """Messages that are not consumed yet."""
        return self.broker_offset - self.consumer_offset

    @property
    def inflight(self) -> int:
        """Messages that were pulled and are not committed."""
        return self.pull_offset - self.consumer_offset


@attrs.frozen
class GroupProgress:
    """Where a group stands in all its queues, sorted."""

    group: str
    consume_tps: float
    queues: list[QueueProgress]

    @property
    def diff_total(self) -> int:
        """Messages that are not consumed yet."""
        return sum(queue.diff for queue in self.queues)

    @property
    def inflight_total(self) -> int:
        """Messages that were pulled and are not committed."""
        return sum(queue.inflight for queue in self.queues)


@attrs.frozen
class GroupOverview:
    """A line of the list of all groups.

    :ivar count: connected members; 0 when it is off line, then type, model and version say nothing.
    :ivar version: the oldest member's release.
    """

    group: str
    count: int = 0
    version: int = 0
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_tps: float = 0.0
    diff_total: int = 0

    @property
    def version_text(self) -> str:
        """The release's name, ``OFFLINE`` without members."""
        return version_name(self.version) if self.count else "OFFLINE"


@attrs.frozen
class RollbackStats:
    """What a reset did to one queue of a group that is off line. Offsets are logical.

    :ivar timestamp_offset: the offset of the time asked for.
    :ivar rollback_offset: where the group stands now.
    """

    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    timestamp_offset: int
    rollback_offset: int


class TrackType(enum.Enum):
    """What became of a message in a group."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@attrs.frozen
class MessageTrack:
    """What became of a message in one group (official ``MessageTrack``).

    :ivar reason: why that cannot be known, empty when it is.
    """

    group: str
    track_type: TrackType
    reason: str = ""


@attrs.frozen
class ClusterMember:
    """A broker of a cluster, with its run-time figures (empty when it did not answer)."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    runtime: dict[str, str] = attrs.field(factory=dict)

    @property
    def version(self) -> str:
        """The release's name."""
        return self.runtime.get("brokerVersionDesc", "")


@attrs.frozen
class TopicTraffic:
    """A topic's traffic, with one group's where it has any (a line of ``statsAll``)."""

    topic: str
    group: str | None
    accumulation: int
    in_tps: float
    out_tps: float
    in_messages_24h: int
    out_messages_24h: int


@attrs.frozen
class SendProbe:
    """What came of one message that was sent to measure.

    :ivar rt_ms: from the call to the answer.
    :ivar error: why it failed, None when it is stored.
    """

    broker_name: str
    queue_id: int
    rt_ms: float
    error: str | None = None


@attrs.frozen
class ProbeSummary:
    """What came of messages to one broker.

    :ivar rt_ms: the mean; the first message, which makes the connection, is left out of it.
    """

    cluster: str
    broker_name: str
    rt_ms: float
    success_count: int
    fail_count: int


@attrs.frozen
class QueriedMessages:
    """Messages found by key, oldest first, and how far the index reaches (wall-clock ms)."""

    messages: list[MessageExt]
    index_last_update_timestamp: int
