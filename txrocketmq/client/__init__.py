"""The client: producers, consumers and what they share, in Twisted's own manner. docs/client.md is the tutorial.

What applications need day by day can be imported from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txrocketmq.client.admin.admin import Admin
    from txrocketmq.client.config import ClientConfig
    from txrocketmq.client.consumer.config import MessageSelector, PullConfig, PushConfig
    from txrocketmq.client.consumer.handlers import (
        ConsumeConcurrentlyStatus,
        ConsumeOrderlyStatus,
        one_by_one,
    )
    from txrocketmq.client.consumer.lite_pull import LitePullConsumer
    from txrocketmq.client.consumer.pull import PullConsumer
    from txrocketmq.client.consumer.push import PushConsumer
    from txrocketmq.client.futures import as_future
    from txrocketmq.client.producer.config import ProducerConfig
    from txrocketmq.client.producer.producer import Producer
    from txrocketmq.client.replies import RequestTimeoutError, create_reply
    from txrocketmq.client.results import LocalTransactionState, SendResult, SendStatus
    from txrocketmq.errors import BrokerError, MQClientError, NoRouteError, RemotingError
    from txrocketmq.model.heartbeat import ConsumeFromWhere, MessageModel
    from txrocketmq.model.message import Message, MessageExt, MessageQueue

__all__ = [
    "Admin",
    "BrokerError",
    "ClientConfig",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeOrderlyStatus",
    "LitePullConsumer",
    "LocalTransactionState",
    "MQClientError",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageSelector",
    "NoRouteError",
    "Producer",
    "ProducerConfig",
    "PullConfig",
    "PullConsumer",
    "PushConfig",
    "PushConsumer",
    "RemotingError",
    "RequestTimeoutError",
    "SendResult",
    "SendStatus",
    "as_future",
    "create_reply",
    "one_by_one",
]

_NAMES = {
    "txrocketmq.client.admin.admin": ("Admin",),
    "txrocketmq.client.config": ("ClientConfig",),
    "txrocketmq.client.consumer.config": (
        "MessageSelector",
        "PullConfig",
        "PushConfig",
    ),
    "txrocketmq.client.consumer.handlers": (
        "ConsumeConcurrentlyStatus",
        "ConsumeOrderlyStatus",
        "one_by_one",
    ),
    "txrocketmq.client.consumer.lite_pull": ("LitePullConsumer",),
    "txrocketmq.client.consumer.pull": ("PullConsumer",),
    "txrocketmq.client.consumer.push": ("PushConsumer",),
    "txrocketmq.client.futures": ("as_future",),
    "txrocketmq.client.producer.config": ("ProducerConfig",),
    "txrocketmq.client.producer.producer": ("Producer",),
    "txrocketmq.client.replies": (
        "RequestTimeoutError",
        "create_reply",
    ),
    "txrocketmq.client.results": (
        "LocalTransactionState",
        "SendResult",
        "SendStatus",
    ),
    "txrocketmq.errors": (
        "BrokerError",
        "MQClientError",
        "NoRouteError",
        "RemotingError",
    ),
    "txrocketmq.model.heartbeat": (
        "ConsumeFromWhere",
        "MessageModel",
    ),
    "txrocketmq.model.message": (
        "Message",
        "MessageExt",
        "MessageQueue",
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a producer need not load consumers, and modules here import one another."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
