"""Do the members of a consumer group subscribe alike? If not, who wants what?

Nothing official stands behind this: brokers keep one subscription for a whole group, the last heartbeat wins, and messages that another
member asked for are silently never delivered. Here the difference is worked out and named; what travels stays official.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txrocketmq.model.heartbeat import EXPRESSION_TAG, SUB_ALL, MessageModel, SubscriptionData
from txrocketmq.model.names import is_retry_topic

Wishes = Mapping[str, str]
"""Topic to what is wanted of it, spelt alike whenever it means the same."""

MODEL = "message model"
NOTHING = "nothing"
NAMED_MEMBERS = 5
NAMED_TOPICS = 8


def wishes_of(subscriptions: Iterable[SubscriptionData], model: MessageModel) -> Wishes:
    """What one member wants: its topics, and whether it shares them with the others."""
    wishes = {MODEL: model.value}
    for subscription in subscriptions:
        topic = subscription.topic
        # Every member has the group's own retry topic, some say so later than others.
        if topic and not is_retry_topic(topic):
            wishes[topic] = _spelt(subscription)
    return wishes


def _spelt(subscription: SubscriptionData) -> str:
    expression = subscription.sub_string or SUB_ALL
    if not subscription.is_tag_type:
        return f"{subscription.expression_type} {expression}"
    if expression == SUB_ALL:
        return "all tags"
    tags = subscription.tags_set or {tag.strip() for tag in expression.split("||")}
    return f"{EXPRESSION_TAG} {' || '.join(sorted(tags))}"


def difference(members: Mapping[str, Wishes]) -> str | None:
    """What the members of a group do not agree on, in one line; None when they do.

    :param members: client id to what it wants.
    """
    if len({tuple(sorted(wishes.items())) for wishes in members.values()}) < 2:
        return None
    parts = []
    for topic in sorted({topic for wishes in members.values() for topic in wishes}):
        by_wish: dict[str, list[str]] = {}
        for client_id, wishes in sorted(members.items()):
            by_wish.setdefault(wishes.get(topic, NOTHING), []).append(client_id)
        if len(by_wish) > 1:
            wanted = "; ".join(f"{_named(who)} {wish}" for wish, who in by_wish.items())
            parts.append(f"{topic} ({wanted})")
    more = len(parts) - NAMED_TOPICS
    if more > 0:
        parts[NAMED_TOPICS:] = [f"{more} more topics"]
    return ", ".join(parts)


def _named(client_ids: list[str]) -> str:
    more = len(client_ids) - NAMED_MEMBERS
    shown = ", ".join(client_ids[:NAMED_MEMBERS])
    return f"{shown} and {more} more:" if more > 0 else f"{shown}:"
