"""How does an operator move a group to another position, copy positions, or see where groups stand together?

Stands for the offset half of ``AdminBrokerProcessor``. A reset is either kept here until the group's next pull
(`useServerSideResetOffset`, the default), which works whether or not members are online, or told to the members that are online now.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.progress import Progress
from txrocketmq.broker.to_clients import ClientCalls
from txrocketmq.broker.topics import Topics
from txrocketmq.broker.whole_queues import require_whole
from txrocketmq.codec.bodies import QueryCorrectionOffsetBody, ResetOffsetBody, encode_body
from txrocketmq.codec.headers import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
)
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.codes import LanguageCode, ResponseCode
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import group_fault
from txrocketmq.remoting.dispatch import REMARK_NO_CODE, Reply, Request

MAX_LONG = 2**63 - 1
_SLAVE = "SLAVE"


class PositionAdmin:
    """Serves what operators do with the positions of groups.

    :param moved: told a group and a topic in which its offsets were set, so that waiting pulls go on there.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        store: IMessageStore,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        progress: Progress,
        clients: ClientCalls,
        moved: Callable[[str, str], None],
    ) -> None:
        self._moved = moved
        self._config = config
        self._store_config = store_config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._progress = progress
        self._clients = clients

    def get_all_offsets(self, request: Request[None]) -> Reply:
        """GET_ALL_CONSUMER_OFFSET: every group's committed offsets."""
        return Reply(body=encode_body(self._offsets.to_wrapper()))

    # ----------------------------------------------------------------- reset

    def reset_offset(self, request: Request[ResetOffsetRequestHeader]) -> Reply:
        """INVOKE_BROKER_TO_RESET_OFFSET: let a group go on at a time (-1: at the end), or one queue at an offset."""
        header = request.header
        self._log.info(
            "{client} resets group {group} in {topic}: time {time}, queue {queue_id}, offset {offset}",
            client=request.connection.remote_text,
            group=header.group,
            topic=header.topic,
            time=header.timestamp,
            queue_id=header.queue_id,
            offset=header.offset,
        )
        if self._config.use_server_side_reset_offset:
            return self._reset_here(request)
        return self._reset_at_clients(request)

    def _reset_here(self, request: Request[ResetOffsetRequestHeader]) -> Reply:
        header = request.header
        group, topic = header.group, header.topic
        if self._store_config.broker_role == _SLAVE:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        config = self._topics.get(topic)
        if config is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self._groups:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        if header.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            # Offsets of queues that cannot be would be kept for ever.
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )
        if header.queue_id >= 0:
            targets = {header.queue_id: self._target(request)}
        else:
            targets = {
                queue_id: self._offset_at(topic, queue_id, header.timestamp)
                for queue_id in range(config.read_queue_nums)
            }
        if not targets:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        client = request.connection.remote_text
        for queue_id, offset in targets.items():
            self._offsets.reset(group, topic, queue_id, offset, client)
        self._moved(group, topic)
        return Reply(body=encode_body(self._reset_body(topic, targets)))

    def _target(self, request: Request[ResetOffsetRequestHeader]) -> int:
        header = request.header
        topic, queue_id, offset = header.topic, header.queue_id, header.offset
        if offset is None or offset == -1:
            return self._offset_at(topic, queue_id, header.timestamp)
        require_whole(self._store, topic, queue_id)
        first, end = (
            self._store.min_offset(topic, queue_id),
            self._store.max_offset(topic, queue_id),
        )
        if not first <= offset <= end + 1:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{first}-{end}]",
            )
        return offset

    def _reset_at_clients(self, request: Request[ResetOffsetRequestHeader]) -> Reply:
        header = request.header
        group, topic = header.group, header.topic
        config = self._topics.get(topic)
        if config is None:
            raise ResponseError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        targets = {}
        for queue_id in range(config.write_queue_nums):
            committed = self._offsets.query(group, topic, queue_id)
            if committed == -1:
                raise ResponseError(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist"
                )
            target = max(0, self._offset_at(topic, queue_id, header.timestamp))
            targets[queue_id] = target if header.is_force else min(target, committed)
        body = self._reset_body(topic, targets)
        self._clients.reset_offsets(
            topic,
            group,
            header.timestamp,
            body.offset_table,
            request.language == LanguageCode.CPP,
        )
        return Reply(remark=REMARK_NO_CODE, body=encode_body(body))

    def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        require_whole(self._store, topic, queue_id)
        if timestamp_ms < 0:
            return self._store.max_offset(topic, queue_id)
        return self._store.offset_by_time(topic, queue_id, timestamp_ms, False)

    def _reset_body(self, topic: str, targets: dict[int, int]) -> ResetOffsetBody:
        name = self._config.broker_name
        return ResetOffsetBody(
            offset_table={
                MessageQueue(topic=topic, broker_name=name, queue_id=queue_id): offset
                for queue_id, offset in targets.items()
            }
        )

    # ----------------------------------------------------------------- clone, correction

    def clone_offsets(self, request: Request[CloneGroupOffsetRequestHeader]) -> Reply:
        """CLONE_GROUP_OFFSET: let one group stand where another one stands, in one topic or in all that it consumes."""
        header = request.header
        source = header.src_group
        fault = group_fault(header.dest_group)
        if fault is not None:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, fault)
        wanted = (header.topic or "").strip()
        topics = [wanted] if wanted else self._offsets.topics_of(source)
        if not header.offline:
            topics = self._progress.subscribed(source, topics)
        for topic in topics:
            if topic in self._topics:
                self._offsets.clone(source, header.dest_group, topic)
        return Reply()

    def query_correction(self, request: Request[QueryCorrectionOffsetHeader]) -> Reply:
        """QUERY_CORRECTION_OFFSET: for each queue the smallest offset at which any group stands.

        A queue in which the compared group stands before all others is given as the largest number there is.
        """
        header = request.header
        topic = header.topic
        left_out = {name for name in (header.filter_groups or "").split(",") if name.strip()}
        smallest: dict[int, int] = {}
        for group in self._offsets.groups_of(topic):
            if group in left_out:
                continue
            for queue_id, offset in self._offsets.queues_of(group, topic).items():
                require_whole(self._store, topic, queue_id)
                if offset >= self._store.min_offset(topic, queue_id):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        for queue_id, offset in self._offsets.queues_of(header.compare_group, topic).items():
            if queue_id in smallest and smallest[queue_id] > offset:
                smallest[queue_id] = MAX_LONG
        return Reply(body=encode_body(QueryCorrectionOffsetBody(correction_offsets=smallest)))
