"""Static topics as one feature of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from txrocketmq.broker.feature import Feature
from txrocketmq.broker.other_brokers import OtherBrokers
from txrocketmq.broker.static_topics.cleaning import MappingCleaner
from txrocketmq.broker.static_topics.pulls import StaticPulls
from txrocketmq.broker.static_topics.rewriting import StaticOffsets, StaticSends
from txrocketmq.broker.sweep import Sweep
from txrocketmq.codec.bodies import decode_body
from txrocketmq.codec.headers import CreateTopicRequestHeader
from txrocketmq.errors import ResponseError
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.names import topic_fault
from txrocketmq.model.static_topic import TopicQueueMappingDetail
from txrocketmq.model.topic import TopicConfig, TopicFilterType, topic_settings_fault
from txrocketmq.remoting.dispatch import REMARK_NO_CODE, Reply, Request
from txrocketmq.store.retention import is_hour

if TYPE_CHECKING:
    from txrocketmq.broker.core import BrokerCore

CLEAN_S = 300.0
"""How often old stretches are looked at, as officially."""


class StaticTopicService(Feature):
    """Serves UPDATE_AND_CREATE_STATIC_TOPIC, and stands before the handlers of sends, pulls and offsets."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._sweep: Sweep | None = None
        self.table = table = core.static_topics
        core.escape.now_at = table.now_at
        broker = core.config.broker_name
        others = OtherBrokers(core.config, core.remoting_client, core.now_ms)
        committed = core.offsets.query
        offsets = StaticOffsets(core.offset, table, others, broker, committed)
        self._handlers: dict[str, object] = {
            "send": StaticSends(core.send, table, broker),
            "pull": StaticPulls(core.pull, table, others, offsets, broker),
            "offset": offsets,
            "static_topics": self,
        }
        self.cleaner = MappingCleaner(
            core.store,
            table,
            others,
            broker,
            lambda: is_hour(core.store_config.delete_when, core.clock.seconds()),
        )

    def handlers(self) -> Mapping[str, object]:
        """See `IBrokerFeature`."""
        return self._handlers

    def load(self) -> None:
        """See `IBrokerFeature`."""
        self.table.load()

    def start(self) -> None:
        """See `IBrokerFeature`."""
        self._sweep = Sweep(self._core.clock, CLEAN_S, self.cleaner.sweep)

    def stop(self) -> None:
        """See `IBrokerFeature`."""
        if self._sweep is not None:
            self._sweep.stop()
        self.cleaner.stop()

    def save_changes(self) -> None:
        """See `IBrokerFeature`."""
        self.table.file.retry()

    def save(self) -> Deferred[None]:
        """See `IBrokerFeature`."""
        return self.table.file.save()

    def topic_deleted(self, topic: str) -> None:
        """See `IBrokerFeature`."""
        self.table.topic_deleted(topic)

    def update_static_topic(self, request: Request[CreateTopicRequestHeader]) -> Deferred[Reply]:
        """UPDATE_AND_CREATE_STATIC_TOPIC: a topic's settings, and which logical queues are led here; answered once it is on disk.

        Refused as a whole when the mapping is: official brokers keep the settings then.
        """
        header = request.header
        topics, name = self._core.topics, header.topic
        fault = topic_fault(name)
        if fault is not None:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, fault)
        if self._core.config.validate_system_topic_when_update_topic and topics.is_system(name):
            raise ResponseError(
                ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )
        fault = topic_settings_fault(header.perm, header.read_queue_nums, header.write_queue_nums)
        if fault is not None:
            raise ResponseError(ResponseCode.INVALID_PARAMETER, fault)
        detail = decode_body(TopicQueueMappingDetail, request.body)
        if detail.topic != name:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR, f"the mapping is of topic {detail.topic}, not {name}"
            )
        saved = self.table.update(detail, force=header.force)
        known = topics.get(name)
        topics.update(
            [
                TopicConfig(
                    topic_name=name,
                    read_queue_nums=header.read_queue_nums,
                    write_queue_nums=header.write_queue_nums,
                    topic_filter_type=TopicFilterType(header.topic_filter_type),
                    perm=header.perm,
                    topic_sys_flag=header.topic_sys_flag or 0,
                    attributes={} if known is None else known.attributes or {},
                )
            ]
        )
        answer = saved.addCallback(lambda ignored: Reply(remark=REMARK_NO_CODE))
        return answer.addCallback(topics.file.kept)
