"""What a broker knows of a consumer group.

Stands for ``SubscriptionGroupConfig``, ``SimpleSubscriptionData`` and the group retry policies.
"""

from __future__ import annotations

import enum

from txrocketmq.model.bean import Bean, default, fresh


class GroupRetryPolicyType(enum.StrEnum):
    """How the delay between retries grows."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(Bean, kw_only=True):
    """Delays that grow by a factor, in ms."""

    initial: int = default(5000)
    max: int = default(7_200_000)
    multiplier: int = default(2)


class CustomizedRetryPolicy(Bean, kw_only=True):
    """Delays from a list, in ms; the last one repeats."""

    next: list[int] = fresh(
        lambda: [
            *(1000, 5000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000),
            *(420_000, 480_000, 540_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000),
        ]
    )


class GroupRetryPolicy(Bean, kw_only=True):
    """Which retry policy a group has."""

    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: GroupRetryPolicyType = default(GroupRetryPolicyType.CUSTOMIZED)


class SimpleSubscriptionData(Bean, kw_only=True):
    """A subscription that is fixed in the group's config."""

    expression: str | None = None
    expression_type: str | None = None
    topic: str | None = None
    version: int = default(0)


class SubscriptionGroupConfig(Bean, kw_only=True):
    """A consumer group's settings, with the official defaults.

    :ivar retry_queue_nums: queues of the retry topic; 0 or less turns retries off.
    :ivar retry_max_times: deliveries again before a message goes to the dead letter topic.
    :ivar which_broker_when_consume_slowly: broker id to read from when the master is busy.
    """

    attributes: dict[str, str] = fresh(dict)
    broker_id: int = default(0)
    consume_broadcast_enable: bool = default(True)
    consume_enable: bool = default(True)
    consume_from_min_enable: bool = default(True)
    consume_message_orderly: bool = default(False)
    consume_timeout_minute: int = default(15)
    group_name: str | None = None
    group_retry_policy: GroupRetryPolicy = fresh(GroupRetryPolicy)
    group_sys_flag: int = default(0)
    notify_consumer_ids_changed_enable: bool = default(True)
    retry_max_times: int = default(16)
    retry_queue_nums: int = default(1)
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    which_broker_when_consume_slowly: int = default(1)
