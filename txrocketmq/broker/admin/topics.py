"""How are topics created, changed, listed and deleted?

Stands for the topic half of ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.admin.parts import part_of
from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.static_topics.table import StaticTopics
from txrocketmq.broker.topics import Topics
from txrocketmq.codec.bodies import (
    CreateTopicListRequestBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    decode_body,
    encode_body,
)
from txrocketmq.codec.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
)
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import ResponseError
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model import attributes as attrs
from txrocketmq.model.attributes import AttributeFault, apply_change, parse_change
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.names import pop_retry_topics, topic_fault
from txrocketmq.model.static_topic import TopicConfigAndQueueMapping
from txrocketmq.model.topic import TopicConfig, TopicFilterType, topic_settings_fault
from txrocketmq.remoting.dispatch import REMARK_NO_CODE, Reply, Request


class TopicAdmin:
    """Serves what operators do with topics.

    :param forget: told the name of each deleted topic, by whoever keeps figures of it.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        store: IMessageStore,
        topics: Topics,
        static_topics: StaticTopics,
        offsets: ConsumerOffsets,
        forget: Callable[[str], None],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._static = static_topics
        self._offsets = offsets
        self._forget = forget

    def update_topic(self, request: Request[CreateTopicRequestHeader]) -> Reply | Deferred[Reply]:
        """UPDATE_AND_CREATE_TOPIC: create a topic or change its settings; name servers hear at once.

        Official brokers answer success with a remark that no code was set; tools do not mind, and neither do we.
        """
        header = request.header
        wanted = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            topic_filter_type=TopicFilterType(header.topic_filter_type),
            perm=header.perm,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        try:
            change = parse_change(header.attributes)
        except AttributeFault as fault:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, str(fault)) from fault
        return self._update([self._planned(wanted, change)])

    def update_topics(self, request: Request[None]) -> Reply | Deferred[Reply]:
        """UPDATE_AND_CREATE_TOPIC_LIST: several at once; all of them, or none when one is refused."""
        body = decode_body(CreateTopicListRequestBody, request.body)
        planned = [self._planned(topic, topic.attributes) for topic in body.topic_config_list]
        return self._update(planned)

    def _update(self, planned: list[TopicConfig]) -> Reply | Deferred[Reply]:
        changed = [topic for topic in planned if topic != self._topics.get(topic.topic_name or "")]
        if changed:
            self._topics.update(changed)
        return self._topics.file.kept(Reply(remark=REMARK_NO_CODE))

    def _planned(self, wanted: TopicConfig, change: Mapping[str, str]) -> TopicConfig:
        """The topic as it will be.

        :raises ResponseError: it must not be like that.
        """
        name = wanted.topic_name or ""
        fault = topic_fault(name)
        if fault is not None:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, fault)
        self._refuse_system_topic(name)
        fault = topic_settings_fault(wanted.perm, wanted.read_queue_nums, wanted.write_queue_nums)
        if fault is not None:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, fault)
        if (
            not self._config.enable_mixed_message_type
            and change.get(f"+{attrs.MESSAGE_TYPE}") == attrs.MIXED
        ):
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported."
            )
        known = self._topics.get(name)
        current = None if known is None else known.attributes or {}
        try:
            wanted.attributes = apply_change(attrs.TOPIC_ATTRIBUTES, current, change)
        except AttributeFault as fault:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, str(fault)) from fault
        return wanted

    def _refuse_system_topic(self, name: str) -> None:
        if self._config.validate_system_topic_when_update_topic and self._topics.is_system(name):
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{name}] is conflict with system topic.",
            )

    def delete_topic(self, request: Request[DeleteTopicRequestHeader]) -> Reply | Deferred[Reply]:
        """DELETE_TOPIC_IN_BROKER: forget a topic, its queues with their files, all positions in it, and its POP retry topics.

        Its messages stay in the log until that is cleaned; name servers are told by the operator's tool.
        """
        name = request.header.topic
        if not name.strip():
            raise ResponseError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._refuse_system_topic(name)
        doomed = [name]
        if self._config.clear_retry_topic_when_delete_topic:
            for group in self._offsets.groups_of(name):
                doomed += [
                    topic for topic in pop_retry_topics(name, group) if topic in self._topics
                ]
        for topic in doomed:
            self._topics.delete(topic)
            self._offsets.remove_topic(topic)
            self._forget(topic)
        self._store.delete_topics(doomed)
        self._log.info(
            "{client} deleted the topics {topics}",
            client=request.connection.remote_text,
            topics=", ".join(doomed),
        )
        return self._topics.file.kept(Reply())

    def get_topic(self, request: Request[GetTopicConfigRequestHeader]) -> Reply:
        """GET_TOPIC_CONFIG: the settings of one topic, with its mapping when that is asked for (``lo``)."""
        topic = self._topics.get(request.header.topic)
        if topic is None:
            raise ResponseError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic in this broker. topic: {request.header.topic}",
            )
        if request.header.logical:
            detail = self._static.names.get(request.header.topic)
            return Reply(body=encode_body(TopicConfigAndQueueMapping.of(topic, detail)))
        return Reply(body=encode_body(topic))

    def get_all_topics(self, request: Request[None]) -> Reply:
        """GET_ALL_TOPIC_CONFIG: the topic table, or the part of it that the request names.

        Askers of the 4.x line send no header fields at all and get everything.
        """
        table = self._topics.to_wrapper().topic_config_table
        part = part_of(
            self._config,
            table,
            self._topics.data_version,
            request.ext_fields,
            ("dataVersion", "topicSeq", "maxTopicNum"),
        )
        told = table if part is None else {name: table[name] for name in part}
        mappings = self._static.names
        body = TopicConfigAndMappingSerializeWrapper(
            topic_config_table=told,
            data_version=self._topics.data_version,
            mapping_data_version=self._static.version,
            topic_queue_mapping_detail_map={
                name: detail for name, detail in mappings.items() if name in told
            },
        )
        return Reply(
            header=GetAllTopicConfigResponseHeader(total_topic_num=len(table)),
            body=encode_body(body),
        )

    def get_system_topics(self, request: Request[None]) -> Reply:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER: names that the system keeps for itself."""
        return Reply(body=encode_body(TopicList(topic_list=set(self._topics.system_topics))))

    def clean_unused_topics(self, request: Request[None]) -> Reply:
        """CLEAN_UNUSED_TOPIC: delete the queues of topics that the topic table does not hold any more."""
        unused = {
            topic
            for topic, _ in self._store.queues()
            if topic not in self._topics and not self._topics.is_system(topic)
        }
        count = self._store.delete_topics(unused)
        self._log.info(
            "{client} cleaned the queues of {count} unused topics",
            client=request.connection.remote_text,
            count=count,
        )
        return Reply()
