"""Which topic and group names are legal, which belong to the system, and how derived names are made.

Stands for ``TopicValidator``, the name half of ``MixAll`` and ``KeyBuilder``. The remarks are the official ones: tools and
people search for them.
"""

from __future__ import annotations

import re

AUTO_CREATE_TOPIC_KEY_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANS_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
ROCKSDB_TRANS_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANS_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
ROCKSDB_OFFSET_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYNC_BROKER_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC_KEY_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        ROCKSDB_OFFSET_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
    }
)
NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""Topics to which no client may send."""

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
SCHEDULE_CONSUMER_GROUP = "SCHEDULE_CONSUMER"
FILTERSRV_CONSUMER_GROUP = "FILTERSRV_CONSUMER"
MONITOR_CONSUMER_GROUP = "__MONITOR_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
SELF_TEST_PRODUCER_GROUP = "SELF_TEST_P_GROUP"
SELF_TEST_CONSUMER_GROUP = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP = "CID_ONS-HTTP-PROXY"
CID_ONSAPI_PERMISSION_GROUP = "CID_ONSAPI_PERMISSION"
CID_ONSAPI_OWNER_GROUP = "CID_ONSAPI_OWNER"
CID_ONSAPI_PULL_GROUP = "CID_ONSAPI_PULL"
CID_SYS_RMQ_TRANS = "CID_RMQ_SYS_TRANS"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

PREDEFINED_GROUPS = frozenset(
    {
        DEFAULT_CONSUMER_GROUP,
        DEFAULT_PRODUCER_GROUP,
        TOOLS_CONSUMER_GROUP,
        SCHEDULE_CONSUMER_GROUP,
        FILTERSRV_CONSUMER_GROUP,
        MONITOR_CONSUMER_GROUP,
        CLIENT_INNER_PRODUCER_GROUP,
        SELF_TEST_PRODUCER_GROUP,
        SELF_TEST_CONSUMER_GROUP,
        ONS_HTTP_PROXY_GROUP,
        CID_ONSAPI_PERMISSION_GROUP,
        CID_ONSAPI_OWNER_GROUP,
        CID_ONSAPI_PULL_GROUP,
        CID_SYS_RMQ_TRANS,
    }
)

RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
LMQ_QUEUE_ID = 0
LMQ_DISPATCH_SEPARATOR = ","
REPLY_TOPIC_POSTFIX = "REPLY_TOPIC"
NAMESPACE_SEPARATOR = "%"
MASTER_ID = 0

TOPIC_MAX_LENGTH = 127
GROUP_MAX_LENGTH = 120
RETRY_OR_DLQ_TOPIC_MAX_LENGTH = 255

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]*\Z")


def topic_fault(topic: str | None) -> str | None:
    """What is wrong with a topic name, as the official remark; None when it is legal."""
    if topic is not None and not isinstance(topic, str):
        return f"The specified topic: {topic!r:.200}, is no text."
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL.match(topic):
        return (
            f"The specified topic: {topic}, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
        if len(topic) > RETRY_OR_DLQ_TOPIC_MAX_LENGTH:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than"
                f" topic max length: {RETRY_OR_DLQ_TOPIC_MAX_LENGTH}"
            )
    elif len(topic) > TOPIC_MAX_LENGTH:
        return f"The specified topic: {topic}, is longer than topic max length: {TOPIC_MAX_LENGTH}"
    return None


def group_fault(group: str | None) -> str | None:
    """What is wrong with a group name, as the official remark; None when it is legal."""
    if group is not None and not isinstance(group, str):
        return f"The specified group: {group!r:.200}, is no text."
    if group is None or not group.strip():
        return "The specified group is blank."
    if not _LEGAL.match(group):
        return (
            f"The specified group: {group}, contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(group) > GROUP_MAX_LENGTH:
        return f"The specified group: {group}, is longer than group max length: {GROUP_MAX_LENGTH}"
    return None


def has_illegal_characters(name: str) -> bool:
    """Whether a topic or group name holds anything but ``% | letters digits _ -`` of ASCII."""
    return not _LEGAL.match(name)


def is_system_topic(topic: str) -> bool:
    """Whether the topic belongs to the system (fixed names, and the prefix ``rmq_sys_``)."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether the consumer group belongs to the system (prefix ``CID_RMQ_SYS_``)."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_predefined_group(group: str) -> bool:
    """Whether the group is one of those that every cluster knows without configuration."""
    return group in PREDEFINED_GROUPS


def retry_topic(group: str) -> str:
    """The topic that holds a group's messages to be consumed again."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def group_of_retry_topic(topic: str) -> str:
    """The group whose retry topic this is; of a POP retry topic that names its topic behind a ``+``, what is before that."""
    return topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX).partition("+")[0]


def dlq_topic(group: str) -> str:
    """The topic that holds a group's messages that were given up (dead letters)."""
    return DLQ_GROUP_TOPIC_PREFIX + group


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """The topics that hold what a group popped of a topic and has to pop again: newer and older name."""
    prefix = RETRY_GROUP_TOPIC_PREFIX + group
    return f"{prefix}+{topic}", f"{prefix}_{topic}"


def is_retry_topic(topic: str) -> bool:
    """Whether the topic is some group's retry topic."""
    return topic.startswith(RETRY_GROUP_TOPIC_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether the topic is some group's dead letter topic."""
    return topic.startswith(DLQ_GROUP_TOPIC_PREFIX)


def reply_topic(cluster: str) -> str:
    """The topic through which a cluster's request-reply answers travel."""
    return f"{cluster}_{REPLY_TOPIC_POSTFIX}"


def is_lmq(name: str | None) -> bool:
    """Whether a topic or group is a light message queue's."""
    return name is not None and name.startswith(LMQ_PREFIX)


def lmq_queue_key(name: str) -> str:
    """The key under which a light message queue's offset is counted."""
    return f"{name}-{LMQ_QUEUE_ID}"


def topic_allows_lmq(topic: str) -> bool:
    """Whether messages of the topic may be dispatched to light message queues."""
    return not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX)) and (
        topic != SCHEDULE_TOPIC
    )


def vip_address(address: str) -> str:
    """The second listener's address of a broker: the port minus 2."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def _split_derived(name: str) -> tuple[str, str]:
    """The prefix of a retry or dead letter topic, and what is behind it; an empty prefix for any other name."""
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def with_namespace(namespace: str, name: str) -> str:
    """A topic or group in a name space: ``ns%name``, for a retry topic ``%RETRY%ns%name``. Names of the system stay as they are."""
    if is_system_topic(name) or is_system_group(name):
        return name
    prefix, rest = _split_derived(name)
    start = namespace + NAMESPACE_SEPARATOR
    return name if rest.startswith(start) else f"{prefix}{start}{rest}"


def without_namespace(namespace: str, name: str) -> str:
    """The opposite of `with_namespace`; names of other name spaces stay as they are."""
    prefix, rest = _split_derived(name)
    start = namespace + NAMESPACE_SEPARATOR
    return prefix + rest[len(start) :] if rest.startswith(start) else name
