"""Messages as a consumer gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txrocketmq.model.message import MessageExt, MessageQueue
from txrocketmq.model.properties import format_properties


def received(
    queue_offset: int,
    body: bytes = b"",
    *,
    topic: str = "TopicTest",
    properties: Mapping[str, str] | None = None,
    **changes: Any,
) -> MessageExt:
    """A message at a place in queue 0 of ``broker-a``."""
    fields: dict[str, Any] = {
        "topic": topic,
        "queue_id": 0,
        "queue_offset": queue_offset,
        "physical_offset": queue_offset * 100,
        "store_size": 100,
        "flag": 0,
        "sys_flag": 0,
        "body": body,
        "body_crc": 0,
        "born_timestamp": 1,
        "born_host": ("192.0.2.7", 1234),
        "store_timestamp": 2,
        "store_host": ("192.0.2.1", 10911),
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "properties_text": format_properties(properties or {}),
        "broker_name": "broker-a",
    }
    return MessageExt(**{**fields, **changes})


def queue(
    queue_id: int = 0, topic: str = "TopicTest", broker_name: str = "broker-a"
) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
