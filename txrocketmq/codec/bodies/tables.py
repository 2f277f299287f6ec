"""Bodies that hold lists and tables of groups and topics.

Stands for the official classes of the same names.
"""

from __future__ import annotations

from txrocketmq.model.bean import Bean, default, fresh
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.heartbeat import MessageRequestMode, SubscriptionData
from txrocketmq.model.topic import DataVersion, TopicConfig


class SubscriptionGroupWrapper(Bean, kw_only=True):
    """All consumer groups of a broker; ``forbidden_table`` holds bits per group and topic."""

    data_version: DataVersion = fresh(DataVersion)
    forbidden_table: dict[str, dict[str, int]] = fresh(dict)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = fresh(dict)


class SubscriptionGroupList(Bean, kw_only=True):
    """Several groups to be made or changed at once."""

    group_config_list: list[SubscriptionGroupConfig] = fresh(list)


class CreateTopicListRequestBody(Bean, kw_only=True):
    """Several topics to be made or changed at once."""

    topic_config_list: list[TopicConfig] = fresh(list)


class TopicList(Bean, kw_only=True):
    """Names of topics."""

    broker_addr: str | None = None
    topic_list: set[str] = fresh(set)


class GroupList(Bean, kw_only=True):
    """Names of consumer groups."""

    group_list: set[str] = fresh(set)


class KVTable(Bean, kw_only=True):
    """Text by text: name server configuration, run-time figures of a broker."""

    table: dict[str, str] = fresh(dict)


class KVConfigSerializeWrapper(Bean, kw_only=True):
    """A name server's configuration by namespace; also the file ``kvConfig.json``."""

    config_table: dict[str, dict[str, str]] = fresh(dict)


class QuerySubscriptionResponseBody(Bean, kw_only=True):
    """What a group subscribes to of one topic."""

    group: str | None = None
    subscription_data: SubscriptionData | None = None
    topic: str | None = None


class GroupForbidden(Bean, kw_only=True):
    """Whether a group may read a topic."""

    group: str | None = None
    readable: bool | None = None
    topic: str | None = None


class SetMessageRequestModeRequestBody(Bean, kw_only=True):
    """Whether a group pulls or pops a topic, and how many members share a queue."""

    consumer_group: str | None = None
    mode: MessageRequestMode = default(MessageRequestMode.PULL)
    pop_share_queue_num: int = default(0)
    topic: str | None = None


class MessageRequestModeSerializeWrapper(Bean, kw_only=True):
    """The request modes by topic and group; also the file ``messageRequestMode.json``."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = fresh(dict)
