"""What of the master's tables does a slave take over, and how? See `txrocketmq.broker.replication.sync`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txrocketmq.broker.replication.sync import SlaveSync
from txrocketmq.codec.bodies import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigAndMappingSerializeWrapper,
    decode_body,
)
from txrocketmq.model.codes import RequestCode

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore


def follow_tables(sync: SlaveSync, core: BrokerCore) -> None:
    """Let a slave's usual tables follow its master's; in the official order."""

    def topics(body: bytes) -> None:
        wrapper = decode_body(TopicConfigAndMappingSerializeWrapper, body)
        core.static_topics.take_over(
            wrapper.topic_queue_mapping_detail_map, wrapper.mapping_data_version
        )
        core.topics.take_over(wrapper.topic_config_table, wrapper.data_version)

    def offsets(body: bytes) -> None:
        core.offsets.take_over(decode_body(ConsumerOffsetSerializeWrapper, body))

    def delays(body: bytes) -> None:
        core.delays.offsets.take_over(decode_body(DelayOffsetSerializeWrapper, body))

    def groups(body: bytes) -> None:
        core.groups.take_over(decode_body(SubscriptionGroupWrapper, body))

    sync.add("topics", RequestCode.GET_ALL_TOPIC_CONFIG, topics)
    sync.add("consumer offsets", RequestCode.GET_ALL_CONSUMER_OFFSET, offsets)
    sync.add("delay offsets", RequestCode.GET_ALL_DELAY_OFFSET, delays, is_often=True)
    sync.add("consumer groups", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups)
