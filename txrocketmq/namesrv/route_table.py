"""Which broker serves which topic? The name server's tables and their rules.

Stands for ``RouteInfoManager``. Pure: callers pass the time and an opaque mark (``link``) of the connection a registration
came on; the table owns no connection and never writes to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from twisted.logger import Logger
from zope.interface import implementer

from txrocketmq.interfaces import IBrokerDirectory
from txrocketmq.model.flags import PERM_READ_WRITE, PERM_WRITE
from txrocketmq.model.names import MASTER_ID
from txrocketmq.model.route import BrokerData, QueueData, TopicRouteData
from txrocketmq.model.static_topic import TopicQueueMappingInfo
from txrocketmq.model.topic import DataVersion, TopicShare
from txrocketmq.namesrv.members import (
    DEFAULT_EXPIRY_MS,
    BrokerKey,
    FirstMember,
    LiveBroker,
    Registration,
    Welcome,
)
from txrocketmq.namesrv.topic_queues import TopicQueues


@implementer(IBrokerDirectory)
class RouteTable:
    """Clusters, broker names, topics and the brokers alive.

    :param report: takes one line about each broker that came or went.
    :param first_member_changed: told when another member of a replica group has the smallest id.
    """

    _log = Logger()

    def __init__(
        self,
        report: Callable[[str], object],
        first_member_changed: Callable[[FirstMember], object] = lambda change: None,
    ) -> None:
        self._report = report
        self.drop_topics_not_named = False
        """Whether topics that a registration no longer names are taken out (``deleteTopicWithBrokerRegistration``)."""
        self._first_member_changed = first_member_changed
        self._queues = TopicQueues()
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[BrokerKey, LiveBroker] = {}
        #: Who registered on which connection last: most connections that close are clients'.
        self._on_link: dict[object, dict[BrokerKey, None]] = {}
        self._filter_servers: dict[BrokerKey, list[str]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}

    # ----------------------------------------------------------------- brokers come

    def register(self, registration: Registration, now_ms: int) -> Welcome | None:
        """Take in what a broker says. None when it is refused: one topic alone, from a broker not known yet."""
        r = registration
        known = self._brokers.get(r.broker_name)
        members = {} if known is None else dict(known.broker_addrs)
        is_before_all = bool(members) and r.broker_id < min(members)
        # One address has one id: a slave that became master leaves its old place.
        for broker_id in [i for i, a in members.items() if a == r.address and i != r.broker_id]:
            del members[broker_id]
        previous = members.get(r.broker_id)
        if previous not in (None, r.address) and self._is_newer(r.cluster, previous, r.version):
            self._log.warn(
                "registration of {address} as {name} id {id} ignored: {previous} holds that id with a newer term",
                address=r.address,
                name=r.broker_name,
                id=r.broker_id,
                previous=previous,
            )
            self._forget_life((r.cluster, r.address))
            return Welcome()
        if previous is None and len(r.topics) == 1:
            self._log.warn(
                "registration of {address} as {name} id {id} refused: one topic alone, and the broker is not known",
                address=r.address,
                name=r.broker_name,
                id=r.broker_id,
            )
            return None
        if previous not in (None, r.address) and (r.cluster, previous) in self._live:
            self._log.warn(
                "{address} takes the place of {previous} as {name} id {id}, which is alive: brokers need names of their own",
                address=r.address,
                previous=previous,
                name=r.broker_name,
                id=r.broker_id,
            )
        members[r.broker_id] = r.address
        broker = self._take_broker(r, members)
        self._take_topics(r, broker, is_first=not previous)
        self._take_sign_of_life(r, now_ms)
        if is_before_all:
            self._first_member_changed(FirstMember.after_joining(broker.broker_addrs, r.ha_address))
        return self._welcome(r, broker)

    def _is_newer(self, cluster: str, address: str | None, version: DataVersion) -> bool:
        holder = self._live.get((cluster, address or ""))
        return holder is not None and holder.version.state_version > version.state_version

    def _take_broker(self, r: Registration, members: dict[int, str]) -> BrokerData:
        self._clusters.setdefault(r.cluster, {})[r.broker_name] = None
        broker = self._brokers.get(r.broker_name)
        if broker is None:
            broker = BrokerData(cluster=r.cluster, broker_name=r.broker_name)
            self._brokers[r.broker_name] = broker
        if broker.broker_addrs != members:
            broker.broker_addrs = dict(sorted(members.items()))
        broker.enable_acting_master = bool(r.acting_master)
        broker.zone_name = r.zone
        return broker

    def _take_topics(self, r: Registration, broker: BrokerData, *, is_first: bool) -> None:
        stands_in = (
            r.acting_master is not None
            and r.broker_id != MASTER_ID
            and r.broker_id == min(broker.broker_addrs)
        )
        if r.broker_id != MASTER_ID and not stands_in:
            return
        if self.drop_topics_not_named and not r.mappings:
            for topic in self._queues.topics_of(r.broker_name):
                if topic not in r.topics:
                    self._forget_topic(topic, (r.broker_name,))
        self._queues.curtailed.discard(r.broker_name)
        is_changed = is_first or self.is_changed(r.cluster, r.address, r.version)
        # What a command took out of the table comes back with the next registration, changed or not.
        wanted = r.topics if is_changed else self._queues.missing(r.broker_name, r.topics)
        if stands_in and r.acting_master:
            # A slave in the master's place serves readers only.
            for share in wanted.values():
                share.perm &= ~PERM_WRITE
        self._queues.put_all(r.broker_name, wanted)
        for topic, mapping in r.mappings.items():
            name, known = mapping.bname or r.broker_name, self._mappings.setdefault(topic, {})
            if is_changed or name not in known:
                known[name] = mapping

    def _take_sign_of_life(self, r: Registration, now_ms: int) -> None:
        key = (r.cluster, r.address)
        if key not in self._live:
            self._report(
                f"broker {r.broker_name} id {r.broker_id} at {r.address} of {r.cluster} registered"
            )
        self._forget_life(key)
        self._on_link.setdefault(r.link, {})[key] = None
        expiry_ms = DEFAULT_EXPIRY_MS if r.expiry_ms is None else r.expiry_ms
        self._live[key] = LiveBroker(
            now_ms, expiry_ms, r.version, r.link, r.broker_name, r.ha_address, r.body_mark
        )
        if r.filter_servers:
            self._filter_servers[key] = list(r.filter_servers)
        elif r.filter_servers is not None:
            self._filter_servers.pop(key, None)

    def _welcome(self, r: Registration, broker: BrokerData) -> Welcome:
        master_address = broker.broker_addrs.get(MASTER_ID)
        if r.broker_id == MASTER_ID or master_address is None:
            return Welcome()
        master = self._live.get((r.cluster, master_address))
        return Welcome() if master is None else Welcome(master.ha_address, master_address)

    def _forget_life(self, key: BrokerKey) -> bool:
        """Whether the broker was alive."""
        live = self._live.pop(key, None)
        if live is None:
            return False
        keys = self._on_link[live.link]
        del keys[key]
        if not keys:
            del self._on_link[live.link]
        return True

    # ----------------------------------------------------------------- signs of life

    def repeated_version(
        self, cluster: str, address: str, broker_name: str, body_mark: int
    ) -> DataVersion | None:
        """The known version when a master sends the very body that is taken in already, so that nobody needs to read it."""
        live = self._live.get((cluster, address))
        if live is None or live.body_mark != body_mark or live.broker_name != broker_name:
            return None
        if self.drop_topics_not_named or broker_name in self._queues.curtailed:
            return None
        broker = self._brokers.get(broker_name)
        is_master = broker is not None and broker.broker_addrs.get(MASTER_ID) == address
        return live.version if is_master else None

    def is_changed(self, cluster: str, address: str, version: DataVersion) -> bool:
        """Whether a broker's topic table differs from the one known, or none is known."""
        return self.known_version(cluster, address) != version

    def known_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of a live broker's topic table; None when it is not alive."""
        live = self._live.get((cluster, address))
        return None if live is None else live.version

    def refresh(self, cluster: str, address: str, now_ms: int) -> None:
        """A sign of life that brings no news."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.seen_ms = now_ms

    # ----------------------------------------------------------------- brokers go

    def unregister(self, cluster: str, address: str, broker_name: str) -> None:
        """Take a broker out with all that hangs on it."""
        key = (cluster, address)
        was_live = self._forget_life(key)
        self._filter_servers.pop(key, None)
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        members = broker.broker_addrs
        was_first = bool(members) and members[min(members)] == address
        broker.broker_addrs = {i: a for i, a in members.items() if a != address}
        if broker.broker_addrs:
            self._close_writes_without_master(broker)
            if was_first and broker.enable_acting_master:
                self._first_member_changed(FirstMember.after_leaving(broker.broker_addrs, address))
        else:
            self._forget_broker_name(broker_name)
        if was_live:
            self._report(f"broker {broker_name} at {address} of {cluster} is gone")

    def remove_link(self, link: object) -> None:
        """Take the brokers out that registered on a connection which is no more."""
        for key in list(self._on_link.get(link, ())):
            self._remove_key(key)

    def remove_expired(self, now_ms: int) -> list[object]:
        """Take the brokers out that were silent too long; the links that should be closed."""
        expired = [
            (key, live)
            for key, live in self._live.items()
            if live.seen_ms + live.expiry_ms < now_ms
        ]
        for (cluster, address), live in expired:
            self._log.warn(
                "broker at {address} of {cluster} gave no sign of life for {expiry_ms} ms",
                address=address,
                cluster=cluster,
                expiry_ms=live.expiry_ms,
            )
            self._remove_key((cluster, address))
        return [live.link for _, live in expired if live.link is not None]

    def _remove_key(self, key: BrokerKey) -> None:
        cluster, address = key
        self.unregister(cluster, address, self._live[key].broker_name)

    def _forget_broker_name(self, broker_name: str) -> None:
        del self._brokers[broker_name]
        # Of all clusters: whoever takes it out need not name the one that it registered with, nor need that have been one alone.
        for cluster in [c for c, names in self._clusters.items() if broker_name in names]:
            del self._clusters[cluster][broker_name]
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        self._queues.forget_broker(broker_name)
        self._forget_mappings()

    def _forget_mappings(self) -> None:
        """What is said of logical queues goes with the last broker name that has the topic."""
        for topic in [topic for topic in self._mappings if topic not in self._queues]:
            del self._mappings[topic]

    def _close_writes_without_master(self, broker: BrokerData) -> None:
        if broker.enable_acting_master and MASTER_ID not in broker.broker_addrs:
            for queue in self._queues.of_broker(broker.broker_name or ""):
                queue.perm &= ~PERM_WRITE

    # ----------------------------------------------------------------- questions

    def pick_route(self, topic: str) -> TopicRouteData | None:
        """Where a topic lives; None when no broker that is there has it. The answer is the caller's own."""
        queues = self._queues.of_topic(topic)
        brokers = [
            msgspec.structs.replace(broker, broker_addrs=dict(broker.broker_addrs))
            for broker in map(self._brokers.get, queues)
            if broker is not None
        ]
        if not brokers:
            return None
        return TopicRouteData(
            broker_datas=brokers,
            filter_server_table=self._filter_servers_of(brokers),
            queue_datas=[
                QueueData(
                    broker_name=name,
                    perm=share.perm,
                    read_queue_nums=share.read_queue_nums,
                    topic_sys_flag=share.topic_sys_flag,
                    write_queue_nums=share.write_queue_nums,
                )
                for name, share in queues.items()
            ],
            topic_queue_mapping_by_broker=self._mappings.get(topic),
        )

    def _filter_servers_of(self, brokers: Iterable[BrokerData]) -> dict[str, list[str]]:
        if not self._filter_servers:
            return {}
        return {
            address: self._filter_servers[broker.cluster or "", address]
            for broker in brokers
            for address in broker.broker_addrs.values()
            if (broker.cluster or "", address) in self._filter_servers
        }

    def brokers(self) -> dict[str, BrokerData]:
        """All broker names with their members."""
        return self._brokers

    def clusters(self) -> dict[str, list[str]]:
        """All clusters with the names of their brokers."""
        return {cluster: list(names) for cluster, names in self._clusters.items()}

    def topics(self) -> list[str]:
        """All topics."""
        return self._queues.topics()

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics that some broker of a cluster has."""
        names = self._clusters.get(cluster, {})
        return list(dict.fromkeys(t for name in names for t in self._queues.topics_of(name)))

    def topics_with_flags(self, wanted: int, unwanted: int = 0) -> list[str]:
        """Topics whose system flag has all wanted bits and none of the unwanted ones; the first broker's word counts."""
        return [
            topic
            for topic, queue in self._queues.first_of_each()
            if queue.topic_sys_flag & wanted == wanted and not queue.topic_sys_flag & unwanted
        ]

    # ----------------------------------------------------------------- commands

    def set_topic_queues(self, topic: str, queues: Sequence[QueueData]) -> None:
        """Add queues of one topic; nothing when one of them belongs to a broker name that is not there."""
        if not queues or any(queue.broker_name not in self._brokers for queue in queues):
            return
        for queue in queues:
            share = TopicShare(
                perm=queue.perm,
                read_queue_nums=queue.read_queue_nums,
                topic_sys_flag=queue.topic_sys_flag,
                write_queue_nums=queue.write_queue_nums,
            )
            self._queues.put_all(queue.broker_name or "", {topic: share})

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Take a topic out, for the brokers of one cluster or for all."""
        if not cluster:
            self._queues.forget_topic(topic)
            self._mappings.pop(topic, None)
        else:
            self._forget_topic(topic, self._clusters.get(cluster, {}))

    def _forget_topic(self, topic: str, broker_names: Iterable[str]) -> None:
        self._queues.forget(topic, broker_names)
        if topic not in self._queues:
            self._mappings.pop(topic, None)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Close a broker name's topics for writing until its next changed registration; how many there are."""
        queues = self._queues.of_broker(broker_name)
        for queue in queues:
            queue.perm &= ~PERM_WRITE
        return len(queues)

    def add_write_permission(self, broker_name: str) -> int:
        """Open a broker name's topics for reading and writing, whatever they were; how many there are."""
        queues = self._queues.of_broker(broker_name)
        for queue in queues:
            queue.perm = PERM_READ_WRITE
        return len(queues)
