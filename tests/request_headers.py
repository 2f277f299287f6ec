"""Short headers of requests with everything that is required, to be changed field by field."""

from __future__ import annotations

from typing import Any

from txrocketmq.codec.headers import (
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)

BORN_MS = 1_699_999_999_995


def send_header(topic: str = "TopicA", **fields: Any) -> SendMessageRequestHeaderV2:
    """A message for a topic's first queue."""
    return SendMessageRequestHeaderV2(**_send_fields(topic, **fields))


def long_send_header(topic: str = "TopicA", **fields: Any) -> SendMessageRequestHeader:
    """The same with long names."""
    return SendMessageRequestHeader(**_send_fields(topic, **fields))


def _send_fields(topic: str, **fields: Any) -> dict[str, Any]:
    return {
        "producer_group": "P",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": BORN_MS,
        "flag": 0,
        **fields,
    }


def pull_header(
    topic: str = "TopicA", queue_id: int = 0, offset: int = 0, **fields: Any
) -> PullMessageRequestHeader:
    """A pull with its subscription, not waiting."""
    values: dict[str, Any] = {
        "consumer_group": "G",
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "subscription": "*",
        "sub_version": 0,
        "expression_type": "TAG",
        **fields,
    }
    return PullMessageRequestHeader(**values)
