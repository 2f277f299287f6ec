"""Which consumer groups may consume here, and with which settings?

Stands for ``SubscriptionGroupManager``: one table with a version, kept in ``subscriptionGroup.json``; crash story as for topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable
from txrocketmq.codec.bodies import SubscriptionGroupWrapper, decode_body, encode_body
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model import names
from txrocketmq.model.bean import change_text, settings_text
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.topic import DataVersion

FILE_NAME = "subscriptionGroup.json"

BOOT_GROUPS = (
    names.TOOLS_CONSUMER_GROUP,
    names.FILTERSRV_CONSUMER_GROUP,
    names.SELF_TEST_CONSUMER_GROUP,
    names.ONS_HTTP_PROXY_GROUP,
    names.CID_ONSAPI_PULL_GROUP,
    names.CID_ONSAPI_PERMISSION_GROUP,
    names.CID_ONSAPI_OWNER_GROUP,
    names.CID_SYS_RMQ_TRANS,
)


class SubscriptionGroups:
    """The table of consumer groups.

    :param light: groups may be those of light queues (``enableLmq``): they are there without being made.
    :ivar data_version: the table's version.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        files: IConfigFiles,
        now_ms: Callable[[], int],
        *,
        light: bool = False,
    ) -> None:
        self._is_light = light
        self._config = config
        self._now_ms = now_ms
        self._table: dict[str, SubscriptionGroupConfig] = {}
        # Which topics a group must not read or write: group to topic to permission bits.
        self._forbidden: dict[str, dict[str, int]] = {}
        self.data_version = DataVersion(timestamp=now_ms())
        self.file = PersistedTable(files, FILE_NAME, self._encode)
        for name in BOOT_GROUPS:
            self._table[name] = SubscriptionGroupConfig(group_name=name)

    def load(self) -> None:
        """Add what ``subscriptionGroup.json`` says to the boot groups.

        :raises StoreError: neither the file nor its backup can be read.
        """
        wrapper = self.file.load(partial(decode_body, SubscriptionGroupWrapper))
        if wrapper is None:
            return
        for name, group in (wrapper.subscription_group_table or {}).items():
            group.group_name = group.group_name or name
            self._table[name] = group
        self._forbidden.update(wrapper.forbidden_table or {})
        if wrapper.data_version is not None:
            self.data_version.assign(wrapper.data_version)

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """A group's settings, None when it is unknown; never creates it."""
        return self._table.get(name) or self._light(name)

    def _light(self, name: str) -> SubscriptionGroupConfig | None:
        """The settings of a light queue's group, which nobody keeps."""
        if self._is_light and names.is_lmq(name):
            return SubscriptionGroupConfig(group_name=name)
        return None

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """A group's settings; an unknown group is created where the broker may and its name is legal."""
        group = self.get(name)
        if group is not None:
            return group
        config = self._config
        allowed = config.auto_create_subscription_group or (
            config.enable_create_sys_group and names.is_system_group(name)
        )
        if not allowed or names.group_fault(name) is not None:
            return None
        group = SubscriptionGroupConfig(group_name=name)
        self.update(group)
        return group

    def all(self) -> Iterable[SubscriptionGroupConfig]:
        """Every group."""
        return self._table.values()

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, name: str) -> bool:
        return name in self._table or (self._is_light and names.is_lmq(name))

    def update(self, group: SubscriptionGroupConfig) -> None:
        """Create a group or replace its settings; the file follows. Those of light queues are not kept."""
        name = group.group_name or ""
        if self._light(name) is not None:
            return
        before = self._table.get(name)
        self._table[name] = group
        self.data_version.next(self._now_ms())
        self._log.info(
            "consumer group {group} {change}",
            group=name,
            change=change_text(group, before, SubscriptionGroupConfig(group_name=name)),
        )
        self.file.changed()

    def delete(self, name: str) -> bool:
        """Forget a group's settings; whether there were any."""
        group = self._table.pop(name, None)
        self._forbidden.pop(name, None)
        if group is None:
            return False
        self.data_version.next(self._now_ms())
        self._log.info(
            "consumer group {group} deleted: {settings}",
            group=name,
            settings=settings_text(group, SubscriptionGroupConfig(group_name=name)),
        )
        self.file.changed()
        return True

    def forbid(self, group: str, topic: str, bit: int, forbidden: bool) -> None:
        """Forbid a group one kind of access to one topic, or allow it again.

        :param bit: the permission's bit number: 2 for reading, 1 for writing.
        """
        topics = self._forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        bits = bits | 1 << bit if forbidden else bits & ~(1 << bit)
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self._forbidden[group]
        self.data_version.next(self._now_ms())
        self._log.info(
            "access of group {group} to topic {topic}: forbidden bits {bits}",
            group=group,
            topic=topic,
            bits=bits,
        )
        self.file.changed()

    def is_forbidden(self, group: str, topic: str, bit: int) -> bool:
        """Whether an operator forbade a group one kind of access to one topic.

        :param bit: the permission's bit number: 2 for reading, 1 for writing.
        """
        topics = self._forbidden.get(group)
        return topics is not None and bool(topics.get(topic, 0) & 1 << bit)

    def take_over(self, wrapper: SubscriptionGroupWrapper) -> None:
        """A slave: have exactly the groups of the master; nothing when the version is known."""
        if wrapper.data_version == self.data_version or not wrapper.subscription_group_table:
            return
        self._table = wrapper.subscription_group_table
        for name, group in self._table.items():
            group.group_name = group.group_name or name
        self._forbidden = wrapper.forbidden_table or {}
        self.data_version.assign(wrapper.data_version)
        self._log.info("took over {count} consumer groups of the master", count=len(self._table))
        self.file.changed()

    def to_wrapper(self) -> SubscriptionGroupWrapper:
        """The table with its version, as it is listed and kept."""
        return SubscriptionGroupWrapper(
            subscription_group_table=self._table,
            forbidden_table=self._forbidden,
            data_version=self.data_version,
        )

    def _encode(self) -> bytes:
        return msgspec.json.format(encode_body(self.to_wrapper()), indent=2)
