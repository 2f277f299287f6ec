"""Bodies about connected clients: who they are, what they do.

Stands for the official classes of the same names.
"""

from __future__ import annotations

from txrocketmq.model.bean import Bean, absent, default, fresh
from txrocketmq.model.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from txrocketmq.model.message import MessageQueue


class Connection(Bean, kw_only=True):
    """One client connection; ``language`` is the language code's name."""

    client_addr: str | None = None
    client_id: str | None = None
    language: str | None = None
    version: int = default(0)


class ConsumerConnection(Bean, kw_only=True):
    """The members of a consumer group and what it subscribes to."""

    connection_set: list[Connection] = fresh(list)
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData] = fresh(dict)


class ProducerConnection(Bean, kw_only=True):
    """The members of a producer group."""

    connection_set: list[Connection] = fresh(list)


class ProducerInfo(Bean, kw_only=True):
    """One producer of the table below."""

    client_id: str | None = None
    language: str | None = None
    last_update_timestamp: int = default(0)
    remote_ip: str | None = absent("remoteIP")
    version: int = default(0)


class ProducerTableInfo(Bean, kw_only=True):
    """All producers by group."""

    data: dict[str, list[ProducerInfo]] = fresh(dict)


class GetConsumerListByGroupResponseBody(Bean, kw_only=True):
    """The client ids of a group's members."""

    consumer_id_list: list[str] = fresh(list)


class ConsumeStatus(Bean, kw_only=True):
    """How fast a consumer pulls and consumes a topic, in ms and per second."""

    consume_failed_msgs: int = default(0)
    consume_failed_tps: float = default(0.0, name="consumeFailedTPS")
    consume_oktps: float = default(0.0, name="consumeOKTPS")
    consume_rt: float = default(0.0, name="consumeRT")
    pull_rt: float = default(0.0, name="pullRT")
    pull_tps: float = default(0.0, name="pullTPS")


class ProcessQueueInfo(Bean, kw_only=True):
    """A consumer's local state of one queue."""

    cached_msg_count: int = default(0)
    cached_msg_max_offset: int = default(0)
    cached_msg_min_offset: int = default(0)
    cached_msg_size_in_mi_b: int = default(0)
    commit_offset: int = default(0)
    droped: bool = default(False)
    last_consume_timestamp: int = default(0)
    last_lock_timestamp: int = default(0)
    last_pull_timestamp: int = default(0)
    locked: bool = default(False)
    transaction_msg_count: int = default(0)
    transaction_msg_max_offset: int = default(0)
    transaction_msg_min_offset: int = default(0)
    try_unlock_times: int = default(0)


class PopProcessQueueInfo(Bean, kw_only=True):
    """A POP consumer's local state of one queue."""

    droped: bool = default(False)
    last_pop_timestamp: int = default(0)
    wait_ack_count: int = default(0)


class ConsumerRunningInfo(Bean, kw_only=True):
    """All that a consumer tells about itself."""

    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = fresh(dict)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = fresh(dict)
    properties: dict[str, str] = fresh(dict)
    status_table: dict[str, ConsumeStatus] = fresh(dict)
    subscription_set: list[SubscriptionData] = fresh(list)
    user_consumer_info: dict[str, str] = fresh(dict)


class CheckClientRequestBody(Bean, kw_only=True):
    """A subscription that a client asks the broker to check."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None
