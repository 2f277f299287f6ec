"""Texts that official brokers put into their answers; people search for them, so they are kept."""

from __future__ import annotations

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def group_not_exist(group: str) -> str:
    """A consumer group that is unknown and may not be created."""
    return f"subscription group not exist, {group} {FAQ}"


def topic_not_exist(topic: str) -> str:
    """A topic that is unknown and may not be created by a send."""
    return f"topic[{topic}] not exist, apply first please!{FAQ}"


def topic_not_exist_for_pull(topic: str) -> str:
    """A topic that a consumer asks for in vain."""
    return f"topic[{topic}] not exist, apply first please! {FAQ}"


def filter_not_served(kind: str | None) -> str:
    """A filter of a kind that this broker does not evaluate, or not as it is configured."""
    return f"The broker does not support consumer to filter message by {kind}"
