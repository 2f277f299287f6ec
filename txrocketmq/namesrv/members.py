"""What does the name server know of single brokers? What they say at registration, their signs of life, who is the first of a group.

Stands for ``BrokerLiveInfo``, ``RegisterBrokerResult`` and ``BrokerStatusChangeInfo``.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from txrocketmq.model.static_topic import TopicQueueMappingInfo
from txrocketmq.model.topic import DataVersion, TopicShare

#: Milliseconds without a sign of life after which a broker is dropped when it asked for nothing else.
DEFAULT_EXPIRY_MS = 120_000

#: A broker's place in the table of the living: ``(cluster, address)``.
BrokerKey = tuple[str, str]


@attrs.frozen
class Registration:
    """What one broker says about itself.

    :ivar cluster: cluster name.
    :ivar address: where clients reach it, ``host:port``.
    :ivar broker_name: its replica group.
    :ivar broker_id: its place in the group, 0 for the master.
    :ivar ha_address: where slaves reach it.
    :ivar version: version of the topic table.
    :ivar topics: the topic table by topic name; the name server's own from now on.
    :ivar filter_servers: addresses of filter servers; None when the broker does not say.
    :ivar mappings: the broker's share of static topics, by topic.
    :ivar zone: zone name or None.
    :ivar expiry_ms: milliseconds without a sign of life after which it wants to be dropped; None for the default.
    :ivar acting_master: whether a slave may stand in for a lost master; None from brokers that do not know of it.
    :ivar link: mark of the connection.
    :ivar body_mark: the same for the same body; None when nobody looks.
    """

    cluster: str
    address: str
    broker_name: str
    broker_id: int
    ha_address: str
    version: DataVersion
    topics: dict[str, TopicShare]
    filter_servers: Sequence[str] | None = None
    mappings: dict[str, TopicQueueMappingInfo] = attrs.field(factory=dict)
    zone: str | None = None
    expiry_ms: int | None = None
    acting_master: bool | None = None
    link: object = None
    body_mark: int | None = None


@attrs.frozen
class Welcome:
    """What a broker is told: a slave learns its master, others nothing."""

    ha_address: str | None = None
    master_address: str | None = None


@attrs.define
class LiveBroker:
    """A broker that gives signs of life.

    :ivar seen_ms: wall-clock milliseconds of the last one.
    :ivar expiry_ms: how long it may be silent.
    """

    seen_ms: int
    expiry_ms: int
    version: DataVersion
    link: object
    broker_name: str
    ha_address: str
    body_mark: int | None = None


@attrs.frozen
class FirstMember:
    """The member with the smallest id of a replica group is another one now.

    :ivar broker_id: its id.
    :ivar address: its address.
    :ivar gone: address of the one that was it before and left; None when a smaller id came.
    :ivar ha_address: replication address of the one that came; None when one left.
    :ivar to_tell: addresses of the members that should hear of it.
    """

    broker_id: int
    address: str
    gone: str | None
    ha_address: str | None
    to_tell: tuple[str, ...]

    @classmethod
    def after_leaving(cls, members: dict[int, str], gone: str) -> FirstMember:
        """The first member left: all others hear of it."""
        first = min(members)
        return cls(first, members[first], gone, None, tuple(members.values()))

    @classmethod
    def after_joining(cls, members: dict[int, str], ha_address: str) -> FirstMember:
        """A member with a smaller id came: those that were there hear of it."""
        first = min(members)
        others = tuple(address for broker_id, address in members.items() if broker_id != first)
        return cls(first, members[first], None, ha_address, others or (members[first],))
