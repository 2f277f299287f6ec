"""Which producers and consumers are connected, and who must hear when a group changes?

Stands for ``ProducerManager``, ``ConsumerManager``, ``ConsumerGroupInfo`` and ``DefaultConsumerIdsChangeListener``. Members are
known by their connection: a client that reconnects is a new member until its old link is found dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txrocketmq.broker.agreement import Wishes, difference, wishes_of
from txrocketmq.interfaces import IConnection
from txrocketmq.model.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData

CHANNEL_EXPIRED_MS = 120_000


class GroupChanged(Protocol):
    """Called with a group and the connections of its members, after they or their subscriptions changed."""

    def __call__(self, group: str, connections: list[IConnection]) -> None:
        """Tell them to divide the queues anew."""


class SubscriptionsSeen(Protocol):
    """Follows what consumer groups subscribe, and that they are gone."""

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """A member said what its group subscribes."""

    def unregister(self, group: str) -> None:
        """The group's last member is gone."""


class Member:
    """One client in one group.

    :ivar last_seen_ms: wall-clock time of its last heartbeat.
    :ivar wishes: what it subscribes to; None while it did not say, and for producers.
    """

    __slots__ = ("client_id", "connection", "language", "last_seen_ms", "version", "wishes")

    def __init__(
        self, connection: IConnection, client_id: str, language: int, version: int, now_ms: int
    ) -> None:
        self.connection = connection
        self.client_id = client_id
        self.language = language
        self.version = version
        self.last_seen_ms = now_ms
        self.wishes: Wishes | None = None


class ConsumerGroup:
    """The live members of one consumer group and what they subscribed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        self.members: dict[IConnection, Member] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        #: What a member last said of all that it subscribes to (0: heartbeats of the first version); None while none did.
        self.fingerprint: int | None = None
        #: What the members do not agree on, in words; None when they subscribe alike.
        self.difference: str | None = None
        #: Client ids that two clients have at a time, with where they are.
        self.doubled: dict[str, str] = {}

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets every message; such groups divide nothing."""
        return self.message_model == MessageModel.BROADCASTING

    def client_ids(self) -> list[str]:
        """Each client once, however many links it has: a doubled id would leave queues without a consumer."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find_member(self, client_id: str) -> Member | None:
        """The member with a client id; of several links, the one that was heard of last."""
        found = [member for member in self.members.values() if member.client_id == client_id]
        return max(found, key=lambda member: member.last_seen_ms, default=None)

    @property
    def may_be_doubled(self) -> bool:
        """Whether two links have one client id: those of a client that reconnected, or of two clients that were given the same id."""
        return len({member.client_id for member in self.members.values()}) < len(self.members)

    def newer_twin(self, member: Member) -> Member | None:
        """A later member with the same client id."""
        for other in reversed(self.members.values()):
            if other is member:
                return None
            if other.client_id == member.client_id and other.connection.is_open:
                return other
        return None

    def compare(self) -> bool:
        """Work out anew what the members do not agree on; whether that is something else than before."""
        wishes: dict[str, Wishes] = {}
        for member in sorted(self.members.values(), key=lambda member: member.last_seen_ms):
            # An old link of a client that reconnected says what it wanted then.
            if member.wishes is not None:
                wishes[member.client_id] = member.wishes
        known, self.difference = self.difference, difference(wishes)
        return known != self.difference

    def update_subscriptions(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Take over a member's subscriptions; whether a topic came or went.

        A later version of a known topic replaces it without being a change, so that a client that only alters its tags does
        not make everybody rebalance.
        """
        changed = False
        topics = set()
        for subscription in wanted:
            topic = subscription.topic
            if not topic:
                continue
            topics.add(topic)
            known = self.subscriptions.get(topic)
            if known is None:
                changed = True
                self.subscriptions[topic] = subscription
            elif subscription.sub_version > known.sub_version:
                self.subscriptions[topic] = subscription
        for topic in [topic for topic in self.subscriptions if topic not in topics]:
            del self.subscriptions[topic]
            changed = True
        return changed


class Consumers:
    """All consumer groups with live members.

    :param group_changed: is told when a clustering group's members or topics change.
    :param seen: is told what each heartbeat subscribes.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        group_changed: GroupChanged,
        seen: SubscriptionsSeen | None = None,
    ) -> None:
        self._clock = clock
        self._seen = seen
        self._group_changed = group_changed
        self._groups: dict[str, ConsumerGroup] = {}
        self._by_connection: dict[IConnection, set[str]] = {}

    def get(self, group: str) -> ConsumerGroup | None:
        """A group with at least one live member, or None."""
        return self._groups.get(group)

    def groups(self) -> Iterable[ConsumerGroup]:
        """Every group with live members."""
        return self._groups.values()

    def register(
        self,
        group_name: str,
        member: Member,
        consume_type: ConsumeType,
        message_model: MessageModel,
        consume_from_where: ConsumeFromWhere,
        subscriptions: Iterable[SubscriptionData] | None,
        notify: bool,
    ) -> bool:
        """A heartbeat of one member; whether the group changed.

        :param subscriptions: what the member subscribed, None when the heartbeat does not say (version 2, unchanged).
        :param notify: whether the group wants its members told of changes.
        """
        group = self._groups.get(group_name)
        if group is None:
            group = self._groups[group_name] = ConsumerGroup(group_name)
        group.consume_type = consume_type
        group.message_model = message_model
        group.consume_from_where = consume_from_where
        known = group.members.get(member.connection)
        joined = known is None
        if known is not None and known.client_id == member.client_id:
            known.last_seen_ms = member.last_seen_ms
            member = known
            self._look_for_twin(group, known)
        else:
            group.members[member.connection] = member
            self._by_connection.setdefault(member.connection, set()).add(group_name)
        if joined:
            self._log.info(
                "consumer {client} at {address} joined group {group}",
                client=member.client_id,
                address=member.connection.remote_text,
                group=group_name,
            )
        changed = joined
        if subscriptions is not None:
            subscriptions = list(subscriptions)
            changed = group.update_subscriptions(subscriptions) or joined
            if self._seen is not None:
                self._seen.register(group_name, subscriptions)
            wishes = wishes_of(subscriptions, message_model)
            if wishes != member.wishes:
                member.wishes = wishes
                self._compare(group)
        if changed and notify:
            self._tell(group)
        return changed

    def unregister(self, group_name: str, connection: IConnection, notify: bool) -> None:
        """A member says good-bye."""
        group = self._groups.get(group_name)
        if group is None or connection not in group.members:
            return
        self._remove(group, connection)
        if notify:
            self._tell(group)

    def drop_connection(self, connection: IConnection) -> None:
        """A link is gone: its memberships end at once, the others divide its queues."""
        for name in sorted(self._by_connection.get(connection, ())):
            group = self._groups[name]
            self._remove(group, connection)
            self._tell(group)

    def expire(self, expired_ms: int = CHANNEL_EXPIRED_MS) -> None:
        """Drop members that sent no heartbeat for ``expired_ms`` and close their links."""
        limit_ms = int(self._clock.seconds() * 1000) - expired_ms
        for group in tuple(self._groups.values()):
            silent = [m for m in group.members.values() if m.last_seen_ms < limit_ms]
            for member in silent:
                self._remove(group, member.connection)
                member.connection.close("no heartbeat for two minutes")
            if silent:
                self._tell(group)

    def _remove(self, group: ConsumerGroup, connection: IConnection) -> None:
        member = group.members.pop(connection)
        names = self._by_connection[connection]
        names.discard(group.name)
        if not names:
            del self._by_connection[connection]
        if group.doubled.pop(member.client_id, None) is not None:
            self._log.info(
                "one of the clients of consumer group {group} with the id {client} is gone",
                group=group.name,
                client=member.client_id,
            )
        if not group.members:
            del self._groups[group.name]
            if self._seen is not None:
                self._seen.unregister(group.name)
        self._compare(group)
        self._log.info(
            "consumer {client} at {address} left group {group}",
            client=member.client_id,
            address=connection.remote_text,
            group=group.name,
        )

    def _look_for_twin(self, group: ConsumerGroup, member: Member) -> None:
        """A client that reconnected says nothing over its older link any more; so this one's id has two clients. It is said once."""
        twin = group.newer_twin(member)
        if twin is None or member.client_id in group.doubled:
            return
        where = f"{member.connection.remote_text} and {twin.connection.remote_text}"
        group.doubled[member.client_id] = where
        self._log.warn(
            "two clients of consumer group {group}, at {where}, have the same id {client}: both consume the same queues; give "
            "them different instance names",
            group=group.name,
            where=where,
            client=member.client_id,
        )

    def _compare(self, group: ConsumerGroup) -> None:
        """Say it once whenever the members begin to subscribe differently, differ in another way, or agree again."""
        if not group.compare():
            return
        if group.difference is None:
            self._log.info(
                "members of consumer group {group} subscribe alike again", group=group.name
            )
        else:
            self._log.warn(
                "members of consumer group {group} subscribe differently, some of their messages will not be delivered: "
                "{difference}",
                group=group.name,
                difference=group.difference,
            )

    def differing(self) -> dict[str, str]:
        """The groups whose members subscribe differently, or have the same id, each with what it is."""
        found: dict[str, str] = {}
        for group in self._groups.values():
            words = [] if group.difference is None else [group.difference]
            words += [
                f"clients at {where} have the same id {client}"
                for client, where in group.doubled.items()
            ]
            if words:
                found[group.name] = "; ".join(words)
        return found

    def may_be_doubled(self, name: str) -> bool:
        """Whether two clients of a group may have the same id, and so consume the same messages."""
        group = self._groups.get(name)
        return group is not None and group.may_be_doubled

    def groups_of(self, topic: str) -> list[str]:
        """The groups with live members that subscribe to a topic."""
        return [group.name for group in self._groups.values() if topic in group.subscriptions]

    def _tell(self, group: ConsumerGroup) -> None:
        if group.members and not group.is_broadcasting:
            self._group_changed(group.name, list(group.members))


class Producers:
    """All producer groups with live members; transaction checks ask one of them."""

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._groups: dict[str, dict[IConnection, Member]] = {}
        self._by_connection: dict[IConnection, set[str]] = {}
        self._by_client: dict[str, IConnection] = {}
        self._turn = 0

    def pick(self, group: str) -> Member | None:
        """One live member of a group, each in turn; one whose link is full only when all are."""
        members = [member for member in self.members(group) if member.connection.is_open]
        if not members:
            return None
        self._turn += 1
        start = self._turn % len(members)
        in_turn = members[start:] + members[:start]
        for member in in_turn:
            if member.connection.is_writable:
                return member
        return in_turn[0]

    def members(self, group: str) -> list[Member]:
        """The live members of a group."""
        return list(self._groups.get(group, {}).values())

    def groups(self) -> list[str]:
        """Every group with live members."""
        return list(self._groups)

    def connection_of(self, client_id: str) -> IConnection | None:
        """The link that a client's last heartbeat as a producer came over; None for a client that is not here."""
        connection = self._by_client.get(client_id)
        return connection if connection is not None and connection.is_open else None

    def register(self, group: str, member: Member) -> None:
        """A heartbeat of one member."""
        self._by_client[member.client_id] = member.connection
        members = self._groups.setdefault(group, {})
        known = members.get(member.connection)
        if known is not None and known.client_id == member.client_id:
            known.last_seen_ms = member.last_seen_ms
            return
        members[member.connection] = member
        self._by_connection.setdefault(member.connection, set()).add(group)
        self._log.info(
            "producer {client} at {address} joined group {group}",
            client=member.client_id,
            address=member.connection.remote_text,
            group=group,
        )

    def unregister(self, group: str, connection: IConnection) -> None:
        """A member says good-bye."""
        members = self._groups.get(group)
        if members is None or connection not in members:
            return
        client_id = members.pop(connection).client_id
        if not members:
            del self._groups[group]
        names = self._by_connection[connection]
        names.discard(group)
        if not names:
            del self._by_connection[connection]
            if self._by_client.get(client_id) is connection:
                del self._by_client[client_id]

    def drop_connection(self, connection: IConnection) -> None:
        """A link is gone: its memberships end."""
        for group in sorted(self._by_connection.get(connection, ())):
            self.unregister(group, connection)

    def expire(self, expired_ms: int = CHANNEL_EXPIRED_MS) -> None:
        """Drop members that sent no heartbeat for ``expired_ms`` and close their links."""
        limit_ms = int(self._clock.seconds() * 1000) - expired_ms
        for group, members in tuple(self._groups.items()):
            for member in [m for m in members.values() if m.last_seen_ms < limit_ms]:
                self.unregister(group, member.connection)
                member.connection.close("no heartbeat for two minutes")


class ChangeNotices:
    """Tells consumers that their group changed (NOTIFY_CONSUMER_IDS_CHANGED), at once or gathered.

    :param send: writes the notice for one group to one connection.
    :param at_once: whether to tell at once (`realTimeNotifyConsumerChange`), or only on `flush`.
    :param enabled: whether to tell at all (`notifyConsumerIdsChangedEnable`).
    """

    def __init__(
        self,
        send: Callable[[IConnection, str], object],
        at_once: Callable[[], bool],
        enabled: Callable[[], bool],
    ) -> None:
        self._send = send
        self._at_once = at_once
        self._enabled = enabled
        self._gathered: dict[str, list[IConnection]] = {}

    def __call__(self, group: str, connections: list[IConnection]) -> None:
        """Tell the members of a group, or note that they are to be told."""
        if not self._enabled():
            return
        if not self._at_once():
            self._gathered[group] = connections
            return
        for connection in connections:
            if connection.is_open:
                self._send(connection, group)

    def flush(self) -> None:
        """Tell everybody who was noted."""
        gathered, self._gathered = self._gathered, {}
        for group, connections in gathered.items():
            for connection in connections:
                if connection.is_open:
                    self._send(connection, group)
