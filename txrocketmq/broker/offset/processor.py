"""Where do queues begin and end, and where does a group stand in them?

Stands for ``ConsumerManageProcessor`` (offsets of groups) and the offset half of ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.topics import Topics
from txrocketmq.broker.whole_queues import require_end, require_whole
from txrocketmq.codec.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
    UpdateConsumerOffsetResponseHeader,
)
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.names import MASTER_ID
from txrocketmq.remoting.dispatch import Reply, Request

_UPPER = "upper"


class OffsetProcessor:
    """Answers questions about positions and takes commits."""

    def __init__(
        self,
        config: BrokerConfig,
        store: IMessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets

    def query_consumer_offset(self, request: Request[QueryConsumerOffsetRequestHeader]) -> Reply:
        """QUERY_CONSUMER_OFFSET: the committed offset.

        A group without one starts at 0 only where the queue still begins at 0 and that message is in memory: then nothing is
        skipped and little is read. Anywhere else QUERY_NOT_FOUND leaves the choice to the consumer.
        """
        header = request.header
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.query(header.consumer_group, topic, queue_id)
        if offset < 0:
            require_whole(self._store, topic, queue_id)
            if self._config.broker_id != MASTER_ID:
                # The master may know it, or have told it a moment ago: a 0 from here would be taken for the truth.
                raise ResponseError(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, this slave may not know it yet"
                )
            if header.set_zero_if_not_found is False:
                raise ResponseError(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, do not set to zero, maybe this group boot first",
                )
            store = self._store
            if store.min_offset(topic, queue_id) > 0 or not store.is_in_memory(topic, queue_id, 0):
                raise ResponseError(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )
            offset = 0
        return Reply(header=QueryConsumerOffsetResponseHeader(offset=offset))

    def update_consumer_offset(self, request: Request[UpdateConsumerOffsetRequestHeader]) -> Reply:
        """UPDATE_CONSUMER_OFFSET: note where a group stands."""
        header = request.header
        if header.consumer_group not in self._groups:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {header.consumer_group} not exist!",
            )
        topic = self._topics.get(header.topic)
        if topic is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if not 0 <= header.queue_id < max(topic.read_queue_nums, topic.write_queue_nums):
            # Offsets of queues that cannot be would be kept for ever.
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        if self._config.use_server_side_reset_offset and self._offsets.has_reset(
            header.consumer_group, header.topic, header.queue_id
        ):
            # The consumer does not know yet that an operator moved it: what it says is of the time before.
            return Reply(
                header=UpdateConsumerOffsetResponseHeader(),
                remark="Offset has been previously reset",
            )
        self._offsets.commit(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
            request.connection.remote_text,
        )
        return Reply(header=UpdateConsumerOffsetResponseHeader())

    def get_max_offset(self, request: Request[GetMaxOffsetRequestHeader]) -> Reply:
        """GET_MAX_OFFSET: the next logical offset to be given."""
        header = request.header
        require_end(self._store, header.topic, header.queue_id)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return Reply(header=GetMaxOffsetResponseHeader(offset=offset))

    def get_min_offset(self, request: Request[GetMinOffsetRequestHeader]) -> Reply:
        """GET_MIN_OFFSET: the smallest logical offset that can be read."""
        header = request.header
        require_whole(self._store, header.topic, header.queue_id)
        offset = self._store.min_offset(header.topic, header.queue_id)
        return Reply(header=GetMinOffsetResponseHeader(offset=offset))

    def search_offset(self, request: Request[SearchOffsetRequestHeader]) -> Reply:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first message at or after a time (lower), or the last one at or before it."""
        header = request.header
        require_whole(self._store, header.topic, header.queue_id)
        upper = str(header.boundary_type or "").lower() == _UPPER
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper)
        return Reply(header=SearchOffsetResponseHeader(offset=offset))

    def get_earliest_store_time(
        self, request: Request[GetEarliestMsgStoretimeRequestHeader]
    ) -> Reply:
        """GET_EARLIEST_MSG_STORETIME: when the queue's first message was stored, -1 when it has none."""
        header = request.header
        require_whole(self._store, header.topic, header.queue_id)
        timestamp = self._store.earliest_store_time(header.topic, header.queue_id)
        return Reply(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))
