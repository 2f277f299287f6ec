"""Which topics does this broker have, and with which settings?

Stands for ``TopicConfigManager``: one table with a version, kept in ``topics.json``. Crash story: a change is in the table at once and
in the file shortly after; whoever made it, or sends a message meanwhile, has no answer before (`PersistedTable.kept`), so what a crash loses
was confirmed to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec
from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable
from txrocketmq.codec.bodies import TopicConfigSerializeWrapper, decode_body, encode_body
from txrocketmq.config.schema import BrokerConfig, MessageStoreConfig
from txrocketmq.errors import shortened
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model import names
from txrocketmq.model.attributes import CLEANUP_POLICY, COMPACTION
from txrocketmq.model.bean import change_text, settings_text
from txrocketmq.model.flags import PERM_INHERIT, PERM_READ_WRITE, is_inherited
from txrocketmq.model.topic import DataVersion, TopicConfig, copy_topic_config

FILE_NAME = "topics.json"
SCHEDULE_QUEUES = 18
BENCHMARK_QUEUES = 1024

Changed = Callable[[list[TopicConfig]], None]


class Topics:
    """The topic table.

    :ivar sendable: topics that a send may write to without further checks: legal names, neither reserved nor retry topics, and
        of no kind that asks more of a message (compaction).
    :ivar data_version: the table's version; name servers compare it.
    :ivar on_change: told the topics that were created or changed (registration), after the table holds them.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        files: IConfigFiles,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._is_light = store_config.enable_lmq
        self._now_ms = now_ms
        self._table: dict[str, TopicConfig] = {}
        self.sendable: dict[str, TopicConfig] = {}
        self.data_version = DataVersion(timestamp=now_ms())
        self.on_change: Changed = _nobody
        self.file = PersistedTable(files, FILE_NAME, self._encode)
        # Made since the file was seen to have all.
        self._unsaved: set[str] = set()
        boot = list(boot_topics(config, store_config))
        #: Names that the system keeps for itself: the usual ones, and those of this broker and its cluster.
        self.system_topics = names.SYSTEM_TOPICS | {topic.topic_name or "" for topic in boot}
        for topic in boot:
            self._put(topic)

    def load(self) -> None:
        """Add what ``topics.json`` says to the boot topics.

        :raises StoreError: neither the file nor its backup can be read.
        """
        wrapper = self.file.load(partial(decode_body, TopicConfigSerializeWrapper))
        if wrapper is None:
            return
        for name, topic in (wrapper.topic_config_table or {}).items():
            topic.topic_name = topic.topic_name or name
            self._put(topic)
        if wrapper.data_version is not None:
            self.data_version.assign(wrapper.data_version)

    def get(self, name: str) -> TopicConfig | None:
        """A topic's settings, None when it is unknown. Light queues are there without being made (``enableLmq``)."""
        topic = self._table.get(name)
        if topic is None and self._is_light and names.is_lmq(name):
            return _topic(name, 1)
        return topic

    def attributes_of(self, name: str) -> Mapping[str, str] | None:
        """A topic's attributes, None when it is unknown."""
        topic = self._table.get(name)
        return None if topic is None else topic.attributes or {}

    def all(self) -> Iterable[TopicConfig]:
        """Every topic."""
        return self._table.values()

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, name: str) -> bool:
        return name in self._table or (self._is_light and names.is_lmq(name))

    def create_by_default(
        self, name: str, default_topic: str, client_queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """Create a topic after the model of another (``TBW102``) because a message for it came.

        :param client_queue_nums: how many queues the producer would like; the model's number bounds it.
        :return: the topic, None where the model is unknown or must not be copied.
        """
        known = self._table.get(name)
        if known is not None:
            return known
        model = self._table.get(default_topic)
        if model is None:
            self._log.warn(
                "topic {topic} not created: there is no topic {model}",
                topic=name,
                model=shortened(default_topic, names.TOPIC_MAX_LENGTH),
            )
            return None
        perm = model.perm
        if (
            default_topic == names.AUTO_CREATE_TOPIC_KEY_TOPIC
            and not self._config.auto_create_topic_enable
        ):
            # The table may still hold it from when automatic creation was on.
            perm = model.perm = PERM_READ_WRITE
        if not is_inherited(perm):
            self._log.warn(
                "topic {topic} not created: topic {model} must not be copied (perm {perm})",
                topic=name,
                model=shortened(default_topic, names.TOPIC_MAX_LENGTH),
                perm=perm,
            )
            return None
        queue_nums = max(0, min(client_queue_nums, model.write_queue_nums))
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm & ~PERM_INHERIT,
            topic_sys_flag=sys_flag,
            topic_filter_type=model.topic_filter_type,
        )
        self.update([topic])
        return topic

    def create_for_group(
        self, name: str, queue_nums: int, perm: int, order: bool, sys_flag: int
    ) -> TopicConfig:
        """The retry or dead letter topic of a group, created when it is not there."""
        known = self._table.get(name)
        if known is not None:
            if known.order != order:
                changed = copy_topic_config(known)
                changed.order = order
                self.update([changed])
                return changed
            return known
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            order=order,
            topic_sys_flag=sys_flag,
        )
        self.update([topic])
        return topic

    def update(self, topics: list[TopicConfig]) -> None:
        """Create topics or replace their settings; the file and the name servers follow. Light queues have none."""
        if self._is_light:
            topics = [topic for topic in topics if not names.is_lmq(topic.topic_name)]
        if not self.file.is_saving:
            self._unsaved.clear()
        for topic in topics:
            name = topic.topic_name or ""
            before = self._table.get(name)
            self._put(topic)
            self.data_version.next(self._now_ms())
            self._log.info(
                "topic {topic} {change}",
                topic=name,
                change=change_text(topic, before, TopicConfig(topic_name=name)),
            )
        self.file.changed()
        self.on_change(topics)

    def delete(self, name: str) -> bool:
        """Forget a topic; whether there was one. Name servers keep its route until they are told otherwise."""
        self.sendable.pop(name, None)
        topic = self._table.pop(name, None)
        if topic is None:
            return False
        self.data_version.next(self._now_ms())
        self._log.info(
            "topic {topic} deleted: {settings}",
            topic=name,
            settings=settings_text(topic, TopicConfig(topic_name=name)),
        )
        self.file.changed()
        return True

    def is_system(self, name: str) -> bool:
        """Whether a topic belongs to the system."""
        return name in self.system_topics or names.is_system_topic(name)

    def is_ordered(self, name: str) -> bool:
        """Whether a topic is registered as globally ordered."""
        topic = self._table.get(name)
        return topic is not None and topic.order

    def take_over_ordered(self, ordered: Iterable[str]) -> None:
        """Mark the topics that name servers hold an order configuration for."""
        changed = False
        for name in ordered:
            topic = self._table.get(name)
            if topic is not None and not topic.order:
                topic.order = changed = True
        if changed:
            self.data_version.next(self._now_ms())
            self.file.changed()

    def take_over(self, table: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """A slave: have exactly the topics of the master, whatever they were here; nothing when the version is known."""
        if version == self.data_version or not table:
            return
        before = self._table
        self._table, self.sendable = {}, {}
        for name, topic in table.items():
            topic.topic_name = topic.topic_name or name
            self._put(topic)
        self.data_version.assign(version)
        self._log.info(
            "took over {count} topics of the master; {gone} are gone",
            count=len(self._table),
            gone=len(before.keys() - self._table.keys()),
        )
        self.file.changed()
        self.on_change([t for name, t in self._table.items() if before.get(name) != t])

    def to_wrapper(self) -> TopicConfigSerializeWrapper:
        """The table with its version, as it is registered and kept."""
        return TopicConfigSerializeWrapper(
            topic_config_table=self._table, data_version=self.data_version
        )

    def is_unsaved(self, name: str) -> bool:
        """Whether a crash may forget a topic: it is new, and the file is still being saved."""
        return self.file.is_saving and name in self._unsaved

    def _put(self, topic: TopicConfig) -> None:
        name = topic.topic_name or ""
        if name not in self._table:
            self._unsaved.add(name)
        self._table[name] = topic
        if (
            name not in names.NOT_ALLOWED_SEND_TOPICS
            and not names.is_retry_topic(name)
            and names.topic_fault(name) is None
            and not is_of_a_kind(topic)
        ):
            self.sendable[name] = topic
        else:
            self.sendable.pop(name, None)

    def _encode(self) -> bytes:
        return msgspec.json.format(encode_body(self.to_wrapper()), indent=2)


def is_of_a_kind(topic: TopicConfig) -> bool:
    """Whether a topic takes only messages of a kind: such with a key."""
    return (topic.attributes or {}).get(CLEANUP_POLICY) == COMPACTION


def boot_topics(config: BrokerConfig, store_config: MessageStoreConfig) -> Iterable[TopicConfig]:
    """The topics that every broker has."""
    yield _topic(names.SELF_TEST_TOPIC, 1)
    if config.auto_create_topic_enable:
        yield _topic(
            names.AUTO_CREATE_TOPIC_KEY_TOPIC,
            config.default_topic_queue_nums,
            PERM_READ_WRITE | PERM_INHERIT,
        )
    yield _topic(names.BENCHMARK_TOPIC, BENCHMARK_QUEUES)
    yield _topic(
        config.broker_cluster_name,
        16,
        PERM_INHERIT | (PERM_READ_WRITE if config.cluster_topic_enable else 0),
    )
    yield _topic(
        config.broker_name,
        1,
        PERM_INHERIT | (PERM_READ_WRITE if config.broker_topic_enable else 0),
    )
    yield _topic(names.OFFSET_MOVED_EVENT, 1)
    yield _topic(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES)
    if config.trace_topic_enable:
        yield _topic(config.msg_trace_topic_name, 1)
    yield _topic(names.reply_topic(config.broker_cluster_name), 1)
    yield _topic(names.REVIVE_TOPIC_PREFIX + config.broker_cluster_name, config.revive_queue_num)
    yield _topic(names.SYNC_BROKER_MEMBER_GROUP_PREFIX + config.broker_name, 1, PERM_INHERIT)
    yield _topic(names.TRANS_HALF_TOPIC, 1)
    yield _topic(names.TRANS_OP_HALF_TOPIC, 1)
    yield _topic(names.ROCKSDB_TRANS_HALF_TOPIC, 1)
    yield _topic(names.ROCKSDB_TRANS_OP_HALF_TOPIC, 1)
    if store_config.timer_wheel_enable:
        yield _topic(names.TIMER_TOPIC, 1)


def _topic(name: str, queues: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


def _nobody(topics: list[TopicConfig]) -> None:
    """Nobody wants to know yet."""
