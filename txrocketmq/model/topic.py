"""What a broker knows of a topic, and which of two tables is newer.

Stands for ``TopicConfig``, ``TopicAttributes`` and ``DataVersion``.
"""

from __future__ import annotations

import enum

import msgspec

from txrocketmq.model.bean import Bean, default, fresh
from txrocketmq.model.flags import PERM_READ_WRITE, is_valid_perm

DEFAULT_QUEUE_NUMS = 16
MAX_QUEUES = 65_536
"""Queues of one topic on one broker: more are neither made nor believed. Whatever goes through all queues would not come to an end."""


class TopicFilterType(enum.StrEnum):
    """How tags of a topic's messages are read; only `SINGLE_TAG` is in use."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


def topic_settings_fault(perm: int, read_queue_nums: int, write_queue_nums: int) -> str | None:
    """Why a topic must not be like that, for a person; None when it may."""
    if not is_valid_perm(perm):
        return f"perm {perm} is none of 0 to 7"
    for name, count in (("readQueueNums", read_queue_nums), ("writeQueueNums", write_queue_nums)):
        if not 0 <= count <= MAX_QUEUES:
            return f"{name} {count} is none of 0 to {MAX_QUEUES}"
    return None


class TopicConfig(Bean, kw_only=True):
    """A topic's settings.

    :ivar perm: permission bits of `txrocketmq.model.flags`.
    :ivar order: whether the topic is registered as globally ordered.
    :ivar attributes: 5.x attributes (``message.type``, ``queue.type``, ``cleanup.policy``).
    """

    attributes: dict[str, str] = fresh(dict)
    order: bool = default(False)
    perm: int = default(PERM_READ_WRITE)
    read_queue_nums: int = default(DEFAULT_QUEUE_NUMS)
    topic_filter_type: TopicFilterType = default(TopicFilterType.SINGLE_TAG)
    topic_name: str | None = None
    topic_sys_flag: int = default(0)
    write_queue_nums: int = default(DEFAULT_QUEUE_NUMS)


class TopicShare(Bean, kw_only=True):
    """What one broker has of a topic, as far as routes tell: the part of a `TopicConfig` that a name server keeps."""

    perm: int = default(PERM_READ_WRITE)
    read_queue_nums: int = default(DEFAULT_QUEUE_NUMS)
    topic_sys_flag: int = default(0)
    write_queue_nums: int = default(DEFAULT_QUEUE_NUMS)


class DataVersion(Bean, kw_only=True):
    """The version of a table: says whether two parties hold the same one, and whose is newer.

    :ivar counter: changes since the table was made.
    :ivar state_version: the term of the controller that ruled at the change, 0 without one.
    :ivar timestamp: wall-clock ms of the last change.
    """

    counter: int = default(0)
    state_version: int = default(0)
    timestamp: int = default(0)

    def next(self, now_ms: int, state_version: int | None = None) -> None:
        """Count one change of the table, made now; under the same term as the last one, unless another is named."""
        self.timestamp = now_ms
        if state_version is not None:
            self.state_version = state_version
        self.counter += 1

    def assign(self, other: DataVersion) -> None:
        """Take over another version's values."""
        self.counter = other.counter
        self.state_version = other.state_version
        self.timestamp = other.timestamp

    def copy(self) -> DataVersion:
        """An equal version that does not change with this one."""
        return DataVersion(
            counter=self.counter, state_version=self.state_version, timestamp=self.timestamp
        )

    def is_newer_than(self, other: DataVersion) -> bool:
        """Whether this version was made after the other: by state version, then counter, then time."""
        return self._rank() > other._rank()

    def _rank(self) -> tuple[int, int, int]:
        return (self.state_version, self.counter, self.timestamp)


def copy_topic_config(config: TopicConfig) -> TopicConfig:
    """An equal config whose attributes may be changed apart."""
    return msgspec.structs.replace(config, attributes=dict(config.attributes))
