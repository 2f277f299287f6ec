"""What a client tells a broker about itself, and how a subscription expression is read.

Stands for ``HeartbeatData``, ``ConsumerData``, ``ProducerData``, ``SubscriptionData``, their enums, and ``FilterAPI``.
"""

from __future__ import annotations

import enum

from txrocketmq.errors import MQClientError
from txrocketmq.model.bean import Bean, absent, default, fresh
from txrocketmq.model.javahash import tags_code

SUB_ALL = "*"
EXPRESSION_TAG = "TAG"
EXPRESSION_SQL92 = "SQL92"


class ConsumeType(enum.StrEnum):
    """How a consumer gets its messages; short words and other cases of some clients are understood."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"

    @classmethod
    def _missing_(cls, value: object) -> ConsumeType | None:
        word = str(value).upper()
        short = {"PULL": "ACTIVELY", "PUSH": "PASSIVELY"}.get(word, word)
        return cls.__members__.get(word) or cls.__members__.get(f"CONSUME_{short}")


class MessageModel(enum.StrEnum):
    """Whether the members of a group share the messages or each gets all; any case is understood."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"

    @classmethod
    def _missing_(cls, value: object) -> MessageModel | None:
        return cls.__members__.get(str(value).upper())


class ConsumeFromWhere(enum.StrEnum):
    """Where a group without an offset begins; any case is understood."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"

    @classmethod
    def _missing_(cls, value: object) -> ConsumeFromWhere | None:
        return cls.__members__.get(str(value).upper())


class MessageRequestMode(enum.StrEnum):
    """Whether a group pulls or pops."""

    PULL = "PULL"
    POP = "POP"


class SubscriptionData(Bean, kw_only=True):
    """One topic a group consumes, and which of its messages.

    :ivar sub_string: tags (``a || b``, ``*``) or the SQL92 text.
    :ivar sub_version: wall-clock ms of the client's last change; newer wins.
    :ivar code_set: hashes of the tags, compared with consume queue units.
    """

    class_filter_mode: bool = default(False)
    code_set: set[int] = fresh(set)
    expression_type: str = default(EXPRESSION_TAG)
    sub_string: str | None = None
    sub_version: int = default(0)
    tags_set: set[str] = fresh(set)
    topic: str | None = None

    @property
    def is_tag_type(self) -> bool:
        """Whether messages are chosen by tag; an empty type counts as TAG."""
        return self.expression_type in (EXPRESSION_TAG, "")


class ProducerData(Bean, kw_only=True):
    """A producer group of a client."""

    group_name: str | None = None


class ConsumerData(Bean, kw_only=True):
    """A consumer group of a client, with all it subscribes to."""

    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    group_name: str | None = None
    message_model: MessageModel | None = None
    subscription_data_set: list[SubscriptionData] = fresh(list)
    unit_mode: bool = default(False)


class HeartbeatData(Bean, kw_only=True):
    """A client's heartbeat.

    :ivar heartbeat_fingerprint: hash of the subscriptions; 0 for a version 1 heartbeat.
    :ivar without_sub: the subscriptions are left out because the broker knows this fingerprint.
    """

    client_id: str | None = absent("clientID")
    consumer_data_set: list[ConsumerData] = fresh(list)
    heartbeat_fingerprint: int = default(0)
    producer_data_set: list[ProducerData] = fresh(list)
    without_sub: bool = default(False)


def build_subscription(
    topic: str,
    expression: str | None,
    expression_type: str | None = None,
    *,
    sub_version: int = 0,
) -> SubscriptionData:
    """A subscription of an expression: tags separated by ``||``, ``*`` (or nothing) for all, or another type's text.

    :param sub_version: wall-clock ms of the change.
    :raises MQClientError: the tag expression names no tag, or another type has no text.
    """
    if expression_type not in (None, EXPRESSION_TAG):
        if not expression:
            raise MQClientError(f"Expression can't be null! {expression_type}")
        return SubscriptionData(
            topic=topic,
            sub_string=expression,
            expression_type=expression_type,
            sub_version=sub_version,
        )
    if not expression or expression == SUB_ALL:
        return SubscriptionData(topic=topic, sub_string=SUB_ALL, sub_version=sub_version)
    parts = expression.split("||")
    if not any(parts):
        raise MQClientError("subString split error")
    tags = {tag for part in parts if (tag := part.strip())}
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        sub_version=sub_version,
        tags_set=tags,
        code_set={tags_code(tag) for tag in tags},
    )
