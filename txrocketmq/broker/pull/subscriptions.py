"""Which messages does this pull want? From a subscription, sent along or known from heartbeats, to a filter for the store.

Stands for the subscription half of ``PullMessageProcessor`` and for the choice of an ``ExpressionMessageFilter``.
"""

from __future__ import annotations

import msgspec

from txrocketmq.broker.clients import Consumers
from txrocketmq.broker.filter.consumer_filters import ConsumerFilters
from txrocketmq.broker.filter.property_filter import PropertyFilter
from txrocketmq.broker.filter.sql92 import compile_filter
from txrocketmq.broker.groups import SubscriptionGroups
from txrocketmq.broker.remarks import FAQ, filter_not_served
from txrocketmq.codec.headers import PullMessageRequestHeader
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import FilterError, MQClientError, ResponseError
from txrocketmq.interfaces import IMessageFilter
from txrocketmq.model.codes import ResponseCode
from txrocketmq.model.flags import PULL_SUBSCRIPTION
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.heartbeat import (
    EXPRESSION_SQL92,
    EXPRESSION_TAG,
    SUB_ALL,
    SubscriptionData,
    build_subscription,
)
from txrocketmq.store.filter import TagsFilter

CACHE_ENTRIES = 4096
CACHED_EXPRESSION_LENGTH = 1024
"""Longer expressions are read anew for each pull: a flood of different ones must not use up memory."""
MAX_TAGS_LENGTH = 32_768
"""Characters of a tag expression, or hashes of tags, that are served; reading more takes tens of milliseconds, for each pull."""
CACHED_CODES = 128
"""As many hashes as such an expression may have."""
READ_BIT = 2

BROKER_FORBIDDEN = 1
GROUP_FORBIDDEN = 2
TOPIC_FORBIDDEN = 3
BROADCASTING_DISABLE_FORBIDDEN = 4
SUBSCRIPTION_FORBIDDEN = 5


class PullForbidden(ResponseError):
    """NO_PERMISSION with the kind of prohibition, which travels in the answer's header (official ``ForbiddenType``)."""

    def __init__(self, kind: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind


class Subscriptions:
    """Finds the filter of a pull."""

    def __init__(
        self,
        config: BrokerConfig,
        consumers: Consumers,
        groups: SubscriptionGroups,
        kept: ConsumerFilters,
    ) -> None:
        self._config = config
        self._kept = kept
        self._consumers = consumers
        self._groups = groups
        # By the words of a subscription, or by the hashes of its tags where a heartbeat brought them.
        self._filters: dict[str | frozenset[int], IMessageFilter] = {}

    def filter_for(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> IMessageFilter | None:
        """The filter, None where everything is wanted.

        :raises ResponseError: the subscription is unknown, outdated, unreadable or of a kind that is not served.
        """
        if header.sys_flag & PULL_SUBSCRIPTION:
            return self.sent_along(header.topic, header.subscription, header.expression_type)
        return self._from_heartbeat(header, group)

    def sent_along(
        self, topic: str, expression: str | None, kind: str | None
    ) -> IMessageFilter | None:
        """The filter of a subscription that a request brings along, None where everything is wanted.

        :param kind: the expression's type; nothing counts as TAG.
        :raises ResponseError: the subscription is unreadable or of a kind that is not served.
        """
        wanted = expression or SUB_ALL
        if kind in (None, "", EXPRESSION_TAG):
            if wanted == SUB_ALL:
                return None
            cached = self._filters.get(wanted)
            if cached is not None:
                return cached
            if len(wanted) > MAX_TAGS_LENGTH:
                raise _not_read()
        try:
            subscription = build_subscription(topic, expression, kind)
            if not subscription.is_tag_type:
                self._check_served(subscription)
                return PropertyFilter(compile_filter(subscription.sub_string or ""))
        except (FilterError, MQClientError) as error:
            raise _not_read() from error
        return self._tags_filter(msgspec.structs.replace(subscription, code_set=set()))

    def _check_served(self, subscription: SubscriptionData) -> None:
        kind = subscription.expression_type
        if kind != EXPRESSION_SQL92 or not self._config.enable_property_filter:
            raise ResponseError(ResponseCode.SYSTEM_ERROR, filter_not_served(kind))

    def _from_heartbeat(
        self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig
    ) -> IMessageFilter | None:
        name, topic = header.consumer_group, header.topic
        group = self._consumers.get(name)
        if group is None:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist{FAQ}",
            )
        if group.is_broadcasting and not config.consume_broadcast_enable:
            raise PullForbidden(
                BROADCASTING_DISABLE_FORBIDDEN,
                f"the consumer group[{name}] can not consume by broadcast way",
            )
        if self._groups.is_forbidden(name, topic, READ_BIT):
            raise PullForbidden(
                SUBSCRIPTION_FORBIDDEN,
                f"the consumer group[{name}] is forbidden for topic[{topic}]",
            )
        subscription = group.subscriptions.get(topic)
        if subscription is None:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist{FAQ}",
            )
        if subscription.sub_version < header.sub_version:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if subscription.is_tag_type:
            return self._tags_filter(subscription)
        return self._kept_filter(header, subscription)

    def _kept_filter(
        self, header: PullMessageRequestHeader, subscription: SubscriptionData
    ) -> IMessageFilter:
        kept = self._kept.get(header.topic, header.consumer_group)
        if kept is None:
            raise ResponseError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if kept.client_version < header.sub_version:
            raise ResponseError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        self._check_served(subscription)
        return kept.message_filter

    def _tags_filter(self, subscription: SubscriptionData) -> IMessageFilter | None:
        expression = subscription.sub_string or SUB_ALL
        if subscription.class_filter_mode or expression == SUB_ALL:
            return None
        # What a client says of its own tags is its own affair: others mean what they say by the same words.
        key = frozenset(subscription.code_set) or expression
        if len(key) > MAX_TAGS_LENGTH:
            raise _not_read()
        cached = self._filters.get(key)
        if cached is None:
            codes = subscription.code_set or build_subscription("", expression).code_set
            cached = TagsFilter(codes)
            if len(key) <= (CACHED_EXPRESSION_LENGTH if isinstance(key, str) else CACHED_CODES):
                if len(self._filters) >= CACHE_ENTRIES:
                    self._filters.clear()
                self._filters[key] = cached
        return cached


def _not_read() -> ResponseError:
    return ResponseError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
    )
