"""How are topics and groups created, changed and listed, and what does a running broker say of itself?

Stands for the part of ``AdminBrokerProcessor`` that clients and the smallest set of tools need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.topics import Topics
from txrocketmq.codec.bodies import (
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    decode_body,
    encode_body,
)
from txrocketmq.codec.headers import (
    CreateTopicRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetAllTopicConfigResponseHeader,
)
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import HeaderError, ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import is_valid_perm
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.names import group_fault, is_system_topic, topic_fault
from txrocketmq.model.topic import DataVersion, TopicConfig, TopicFilterType
from txrocketmq.remoting.dispatch import Reply, Request

REMARK_NO_CODE = "not set any response code"


class AdminProcessor:
    """Serves requests of administrators.

    :param runtime_info: figures of the running broker by their official names.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        runtime_info: Callable[[], dict[str, str]],
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._runtime_info = runtime_info

    def update_topic(self, request: Request[CreateTopicRequestHeader]) -> Reply:
        """UPDATE_AND_CREATE_TOPIC: create a topic or change its settings; name servers hear at once.

        Official brokers answer success with a remark that no code was set; tools do not mind, and neither do we.
        """
        header = request.header
        name = header.topic
        fault = topic_fault(name)
        if fault is not None:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, fault)
        if self._config.validate_system_topic_when_update_topic and is_system_topic(name):
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{name}] is conflict with system topic.",
            )
        if not is_valid_perm(header.perm):
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER, f"perm {header.perm} is none of 0 to 7"
            )
        if header.attributes:
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER,
                f"topic attributes ({header.attributes}) are not served by this broker",
            )
        known = self._topics.get(name)
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            topic_filter_type=TopicFilterType(header.topic_filter_type),
            perm=header.perm,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=dict((known.attributes or {}) if known is not None else {}),
        )
        if topic != known:
            self._topics.update([topic])
        return Reply(remark=REMARK_NO_CODE)

    def get_all_topics(self, request: Request[None]) -> Reply:
        """GET_ALL_TOPIC_CONFIG: the topic table, or the part of it that the request names.

        Askers of the 4.x line send no header fields at all and get everything.
        """
        wrapper = self._topics.to_wrapper()
        table = wrapper.topic_config_table
        part = self._part(
            table,
            self._topics.data_version,
            request.ext_fields,
            ("dataVersion", "topicSeq", "maxTopicNum"),
        )
        if part is not None:
            wrapper = TopicConfigSerializeWrapper(
                topic_config_table={name: table[name] for name in part},
                data_version=self._topics.data_version,
            )
        return Reply(
            header=GetAllTopicConfigResponseHeader(total_topic_num=len(table)),
            body=encode_body(wrapper),
        )

    def update_group(self, request: Request[None]) -> Reply:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: create a group or change its settings."""
        group = decode_body(SubscriptionGroupConfig, request.body)
        fault = group_fault(group.group_name)
        if fault is not None:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, fault)
        self._groups.update(group)
        return Reply()

    def get_all_groups(self, request: Request[None]) -> Reply:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: the table of groups, or the part of it that the request names."""
        wrapper = self._groups.to_wrapper()
        table = wrapper.subscription_group_table
        part = self._part(
            table,
            self._groups.data_version,
            request.ext_fields,
            ("dataVersion", "groupSeq", "maxGroupNum"),
        )
        if part is not None:
            wrapper = SubscriptionGroupWrapper(
                subscription_group_table={name: table[name] for name in part},
                forbidden_table={
                    name: topics for name, topics in wrapper.forbidden_table.items() if name in part
                },
                data_version=self._groups.data_version,
            )
        return Reply(
            header=GetAllSubscriptionGroupResponseHeader(total_group_num=len(table)),
            body=encode_body(wrapper),
        )

    def get_all_offsets(self, request: Request[None]) -> Reply:
        """GET_ALL_CONSUMER_OFFSET: every group's committed offsets."""
        return Reply(body=encode_body(self._offsets.to_wrapper()))

    def get_runtime_info(self, request: Request[None]) -> Reply:
        """GET_BROKER_RUNTIME_INFO: figures of the running broker."""
        return Reply(body=encode_body(KVTable(table=self._runtime_info())))

    def _part(
        self,
        table: Mapping[str, object],
        version: DataVersion,
        asked: Mapping[str, str],
        fields: tuple[str, str, str],
    ) -> list[str] | None:
        """Names of the part of a table that is asked for; None for all of it.

        :param fields: the header fields for the version known to the asker, the position to go on at, the size wanted.
        """
        version_field, start_field, count_field = fields
        if not self._config.enable_split_metadata or asked.keys().isdisjoint(fields):
            return None
        start = _number(asked, start_field, 0)
        if not _is_version(asked.get(version_field), version):
            start = 0
        count = self._config.split_metadata_size
        count = max(0, min(count, _number(asked, count_field, count)))
        return sorted(table)[start : start + count]


def _number(fields: Mapping[str, str], name: str, otherwise: int) -> int:
    text = fields.get(name)
    if not text:
        return otherwise
    try:
        return int(text)
    except ValueError:
        raise HeaderError(name, f"{text!r} is no number") from None


def _is_version(text: str | None, version: DataVersion) -> bool:
    if not text:
        return False
    try:
        return msgspec.json.decode(text, type=DataVersion) == version
    except msgspec.DecodeError:
        return False
