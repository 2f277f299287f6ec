"""Where are a topic's queues? The route table: looked up once for all who ask, kept fresh, turned into queues to send to and to read.

Stands for the route half of the official ``MQClientInstance`` (``updateTopicRouteInfoFromNameServer``, ``topicRouteData2TopicPublishInfo``,
``findBrokerAddressInSubscribe``) and for ``TopicPublishInfo``. A route that was good stays until a better one is known: a name server
that is not ready, or has forgotten the topic for a moment, takes nothing away.
"""

from __future__ import annotations

import random as random_numbers
from collections.abc import Callable, Iterable

import attrs
import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.client.name_servers import NameServers, check_answer
from txrocketmq.client.results import FoundBroker
from txrocketmq.client.static_topics import is_logical, leaders
from txrocketmq.codec.bodies.routes import ClusterInfo
from txrocketmq.codec.bodies.wire import decode_body, encode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import GetRouteInfoRequestHeader
from txrocketmq.errors import BodyError, BrokerError, MQClientError, NoRouteError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import is_readable, is_writeable, perm_text
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import AUTO_CREATE_TOPIC_KEY_TOPIC, MASTER_ID
from txrocketmq.model.route import TopicRouteData
from txrocketmq.model.topic import MAX_QUEUES

log = Logger()

NEW_TOPIC_QUEUES = 4
"""Queues that a new topic gets when the sender asks for it (``defaultTopicQueueNums``)."""

MAX_ALL_QUEUES = 4 * MAX_QUEUES
"""Queues of one topic on all brokers together."""


class NoSuchTopicError(NoRouteError):
    """Name servers answer, brokers are there, none of them has the topic."""


@attrs.define(eq=False)
class PublishInfo:
    """The queues that a producer may use (official ``TopicPublishInfo``).

    :ivar queues: writable ones whose broker has a master; sorted by broker name.
    :ivar ordered: the operator fixed the queues (``ORDER_TOPIC_CONFIG``).
    :ivar brokers: names of their brokers.
    :ivar turn: which queue is next.
    """

    topic: str
    queues: list[MessageQueue]
    ordered: bool = False
    brokers: frozenset[str] = frozenset()
    turn: int = 0


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Queues to send to: those that the operator fixed, else the logical ones of a static topic, else the writable ones whose broker has
    a master."""
    if route.order_topic_conf:
        fixed = []
        for name, count in _fixed_queues(route.order_topic_conf):
            fixed += _queues(topic, name, count)
        return fixed
    if route.topic_queue_mapping_by_broker:
        return list(leaders(topic, route, MAX_QUEUES))
    masters = {broker.broker_name for broker in route.broker_datas if broker.master_address}
    return [
        queue
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name or "")
        if is_writeable(data.perm) and data.broker_name in masters
        for queue in _queues(topic, data.broker_name or "", data.write_queue_nums)
    ]


def _fixed_queues(text: str) -> list[tuple[str, int]]:
    """What the operator wrote: broker names with their numbers of queues."""
    items = [item.partition(":") for item in text.split(";")]
    # A number of more digits is none that a broker could have.
    return [
        (name, int(number)) for name, _, number in items if number.isdecimal() and len(number) < 10
    ]


def _counts(route: TopicRouteData) -> list[tuple[str | None, int]]:
    """Queues that a route names, by broker."""
    return [
        *((data.broker_name, data.read_queue_nums) for data in route.queue_datas),
        *((data.broker_name, data.write_queue_nums) for data in route.queue_datas),
        *_fixed_queues(route.order_topic_conf or ""),
    ]


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Queues to read, sorted; of a static topic the logical ones."""
    if route.topic_queue_mapping_by_broker:
        return sorted(leaders(topic, route, MAX_QUEUES))
    return sorted(
        queue
        for data in route.queue_datas
        if is_readable(data.perm)
        for queue in _queues(topic, data.broker_name or "", data.read_queue_nums)
    )


def _queues(topic: str, broker_name: str, count: int) -> list[MessageQueue]:
    return [
        MessageQueue(topic=topic, broker_name=broker_name, queue_id=number)
        for number in range(count)
    ]


class RouteTable:
    """Routes of all topics that this process uses.

    :param on_change: told the topic after its route has changed.
    :ivar routes: by topic.
    :ivar publish: by topic, what `publish_queues` made of it.
    :ivar subscribe: by topic, what `subscribe_queues` made of it.
    :ivar brokers: broker name to member id to address, of all routes.
    :ivar leaders: by topic, the brokers that lead the logical queues of static topics.
    :ivar versions: releases of brokers by address.
    """

    def __init__(
        self, name_servers: NameServers, on_change: Callable[[str], None] = lambda topic: None
    ) -> None:
        self._name_servers = name_servers
        self._on_change = on_change
        self._updating: dict[tuple[str, str], list[Deferred[bool]]] = {}
        self.routes: dict[str, TopicRouteData] = {}
        self.publish: dict[str, PublishInfo] = {}
        self.subscribe: dict[str, list[MessageQueue]] = {}
        self.brokers: dict[str, dict[int, str]] = {}
        self.leaders: dict[str, dict[MessageQueue, str]] = {}
        self.versions: dict[str, int] = {}

    # ----------------------------------------------------------------- look-ups

    def update(
        self, topic: str, default_topic: str = "", default_queues: int = NEW_TOPIC_QUEUES
    ) -> Deferred[bool]:
        """Ask for a topic's route; whoever asks meanwhile waits for the same answer.

        :param default_topic: ask for this topic's route instead (``TBW102``): where a broker would make the topic.
        :param default_queues: how many queues at most it would get.
        :return: fires with whether there is such a topic. Fails with `NoRouteError` when no name server answers, `BrokerError`
            when one refuses.
        """
        key = (topic, default_topic)
        waiting = self._updating.get(key)
        done: Deferred[bool] = Deferred(lambda deferred: self._forget(key, deferred))
        if waiting is not None:
            waiting.append(done)
            return done
        self._updating[key] = [done]
        looking = Deferred.fromCoroutine(self._look_up(topic, default_topic, default_queues))
        looking.addBoth(self._looked_up, key)
        return done

    def _forget(self, key: tuple[str, str], deferred: Deferred[bool]) -> None:
        waiting = self._updating.get(key, [])
        if deferred in waiting:
            waiting.remove(deferred)

    def _looked_up(self, outcome: bool | Failure, key: tuple[str, str]) -> None:
        for deferred in self._updating.pop(key):
            # What one of them does may have cancelled the next.
            if not deferred.called:
                deferred.callback(outcome)

    async def _look_up(self, topic: str, default_topic: str, default_queues: int) -> bool:
        route = await self.fetch(default_topic or topic)
        if route is None:
            return False
        if default_topic:
            for data in route.queue_datas:
                count = min(default_queues, data.read_queue_nums)
                data.read_queue_nums = data.write_queue_nums = count
        self.put(topic, route)
        return True

    async def fetch(self, topic: str) -> TopicRouteData | None:
        """What the name server says now; None when it knows no such topic. The table stays as it is.

        :raises NoRouteError: no name server answers.
        :raises BrokerError: it refuses, or is not ready.
        """
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await self._name_servers.request(
            int(RequestCode.GET_ROUTEINFO_BY_TOPIC), header, is_enough=_is_success
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        check_answer(answer, self._name_servers.text)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, self._name_servers.text)
        try:
            route = decode_body(TopicRouteData, answer.body)
        except BodyError as error:
            raise MQClientError(
                f"route of topic {topic} from name server {self._name_servers.text}: {error}"
            ) from None
        counts = _counts(route)
        all_queues = sum(max(0, count) for _, count in counts)
        for name, count in counts:
            if count > MAX_QUEUES:
                raise MQClientError(
                    f"name server {self._name_servers.text} says that topic {topic} has {count} "
                    f"queues at broker {name}; at most {MAX_QUEUES} are believed"
                )
        if all_queues > 2 * MAX_ALL_QUEUES:
            raise MQClientError(
                f"name server {self._name_servers.text} says that topic {topic} has {all_queues} "
                f"queues to write and to read; at most {2 * MAX_ALL_QUEUES} are believed"
            )
        return route

    def put(self, topic: str, route: TopicRouteData) -> bool:
        """Take a route over; whether it says anything new."""
        old = self.routes.get(topic)
        if old is not None and _content(old) == _content(route):
            return False
        self.routes[topic] = route
        for broker in route.broker_datas:
            self.brokers[broker.broker_name or ""] = dict(broker.broker_addrs)
        self.leaders.pop(topic, None)
        if route.topic_queue_mapping_by_broker:
            self.leaders[topic] = leaders(topic, route, MAX_QUEUES)
        queues = publish_queues(topic, route)
        before = self.publish.get(topic)
        turn = random_numbers.randrange(1 << 16) if before is None else before.turn
        self.publish[topic] = PublishInfo(
            topic,
            queues,
            bool(route.order_topic_conf),
            frozenset(self.broker_of(queue) for queue in queues),
            turn,
        )
        self.subscribe[topic] = subscribe_queues(topic, route)
        if old is not None:
            log.info("route of topic {topic} has changed", topic=topic)
        self._on_change(topic)
        return True

    # ----------------------------------------------------------------- answers

    async def find_publish(
        self,
        topic: str,
        default_topic: str = AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_queues: int = NEW_TOPIC_QUEUES,
    ) -> PublishInfo:
        """The queues to send to: of the topic, else those that it would get where brokers make topics by themselves.

        :raises NoRouteError: there is none; says which of the causes it is.
        """
        info = self.publish.get(topic)
        if info is not None and info.queues:
            return info
        known = await self.update(topic)
        if not known and topic not in self.routes:
            known = await self.update(topic, default_topic, default_queues)
        info = self.publish.get(topic)
        if info is not None and info.queues:
            return info
        if topic in self.routes:
            raise self._unusable(topic, self.routes[topic], "written")
        raise await self.explain(
            topic, "and no broker makes new topics by itself (autoCreateTopicEnable)"
        )

    async def find_subscribe(self, topic: str) -> list[MessageQueue]:
        """The queues to read, from the table or the name server.

        :raises NoSuchTopicError: there is no such topic yet.
        :raises NoRouteError: no broker is there, or the topic must not be read.
        """
        queues = self.subscribe.get(topic)
        if not queues:
            if not await self.update(topic) and topic not in self.routes:
                raise await self.explain(topic, "")
            queues = self.subscribe.get(topic)
        if not queues:
            raise self._unusable(topic, self.routes[topic], "read")
        return list(queues)

    def find_broker(
        self, broker_name: str, broker_id: int = MASTER_ID, only_this: bool = False
    ) -> FoundBroker | None:
        """A member of a broker group: the one asked for; else, unless ``only_this``, the slave after it or anyone."""
        members = self.brokers.get(broker_name)
        if not members:
            return None
        address = members.get(broker_id)
        if address is None and broker_id != MASTER_ID:
            broker_id += 1
            address = members.get(broker_id)
        if address is None and not only_this:
            broker_id, address = next(iter(members.items()))
        if address is None:
            return None
        return FoundBroker(address, broker_id != MASTER_ID, self.versions.get(address, 0))

    def broker_of(self, queue: MessageQueue) -> str:
        """The name of the broker that has a queue: its own, and of a logical queue that of the broker which leads it now."""
        if not is_logical(queue.broker_name):
            return queue.broker_name
        return self.leaders.get(queue.topic, {}).get(queue, queue.broker_name)

    def master_address(self, broker_name: str) -> str | None:
        """Where a broker's master is; None when there is none."""
        members = self.brokers.get(broker_name)
        return None if members is None else members.get(MASTER_ID)

    def any_broker_of(self, topic: str) -> str | None:
        """The address of one broker that has a topic, a master where there is one; by chance."""
        route = self.routes.get(topic)
        if route is None or not route.broker_datas:
            return None
        return random_numbers.choice(route.broker_datas).any_address()

    def addresses(self) -> list[tuple[str, int, str]]:
        """All brokers known: name, member id, address."""
        return [
            (name, number, address)
            for name, members in self.brokers.items()
            for number, address in members.items()
        ]

    def drop_offline(self) -> list[str]:
        """Forget brokers that no route names any more; their addresses."""
        alive = {
            address
            for route in self.routes.values()
            for broker in route.broker_datas
            for address in broker.broker_addrs.values()
        }
        gone = []
        for name, members in list(self.brokers.items()):
            for number, address in list(members.items()):
                if address not in alive:
                    gone.append(address)
                    del members[number]
                    self.versions.pop(address, None)
            if not members:
                del self.brokers[name]
        return gone

    def topics(self) -> Iterable[str]:
        """Topics in the table."""
        return list(self.routes)

    # ----------------------------------------------------------------- reasons

    async def explain(self, topic: str, addition: str) -> NoRouteError:
        """Why nobody has a topic."""
        asked = f"name server {self._name_servers.text}"
        answer = await self._name_servers.request(
            int(RequestCode.GET_BROKER_CLUSTER_INFO), None, is_enough=_has_brokers
        )
        if answer.code == ResponseCode.SUCCESS and not _has_brokers(answer):
            return NoRouteError(
                f"no broker is registered at {asked}, so topic {topic} cannot be found"
            )
        return NoSuchTopicError(f"{asked} knows no topic {topic} {addition}".rstrip())

    def _unusable(self, topic: str, route: TopicRouteData, verb: str) -> NoRouteError:
        masters = {broker.broker_name for broker in route.broker_datas if broker.master_address}
        parts = [
            f"{queue.broker_name} allows {perm_text(queue.perm)}"
            + ("" if queue.broker_name in masters else " and has no master")
            for queue in route.queue_datas
        ]
        return NoRouteError(
            f"topic {topic} must not be {verb}, there is no permission: {'; '.join(parts)} "
            f"(name server {self._name_servers.text})"
        )


def _is_success(answer: RemotingCommand) -> bool:
    return answer.code == ResponseCode.SUCCESS


def _has_brokers(answer: RemotingCommand) -> bool:
    return _is_success(answer) and bool(decode_body(ClusterInfo, answer.body).broker_addr_table)


def _content(route: TopicRouteData) -> bytes:
    """What a route says, in an order that does not depend on the server."""
    sorted_route = msgspec.structs.replace(
        route,
        queue_datas=sorted(route.queue_datas, key=lambda data: data.broker_name or ""),
        broker_datas=sorted(route.broker_datas, key=lambda data: data.broker_name or ""),
    )
    return encode_body(sorted_route)
