"""What do all producers and consumers of one client id share? Connections, routes, heartbeats, timed work, and answers to brokers.

Stands for the official ``MQClientInstance`` and ``MQClientManager``. There is one instance for each reactor and client id; roles hold it
while they run, and the last one to leave stops it. Nothing in it waits for one broker before it goes on with the next.
"""

from __future__ import annotations

import random as random_numbers
from collections.abc import Callable, Container, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, gatherResults, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from txrocketmq.client.api import ClientApi
from txrocketmq.client.config import ClientConfig, check_name_servers
from txrocketmq.client.heartbeats import Heartbeats
from txrocketmq.client.hooks import ExtraFields
from txrocketmq.client.interfaces import IConsumerRole, IProducerRole
from txrocketmq.client.name_servers import NameServers
from txrocketmq.client.periodic import Periodic
from txrocketmq.client.replies import PendingReplies
from txrocketmq.client.requests import OPERATIONS, ClientRequests
from txrocketmq.client.results import FoundBroker
from txrocketmq.client.routes import RouteTable
from txrocketmq.client.tls import tls_endpoint
from txrocketmq.errors import BrokerError, MQClientError, NoRouteError, RocketMQError
from txrocketmq.interfaces import IConnection, IConnectionListener
from txrocketmq.model.heartbeat import ConsumerData, ProducerData
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import MASTER_ID
from txrocketmq.remoting.address_server import AddressServer
from txrocketmq.remoting.client import EndpointMaker, RemotingClient
from txrocketmq.remoting.dispatch import Dispatcher, RequestHook
from txrocketmq.remoting.host_names import Resolver, resolver_of
from txrocketmq.remoting.limits import RemotingLimits
from txrocketmq.remoting.transport import client_endpoint

log = Logger()

FIRST_HEARTBEAT_S = 1.0
FIRST_PERSIST_S = 10.0
ADDRESS_SERVER_S = 120.0
FIRST_ADDRESS_SERVER_S = 10.0

#: Marks of requests that a stream client makes (official ``ReqT``).
STREAM_FIELDS = {"ReqT": "0"}


@implementer(IConnectionListener)
class _Links:
    """Notices brokers that come back."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._lost: set[str] = set()

    def connected(self, connection: IConnection) -> None:
        address = connection.remote_text
        if address in self._lost:
            self._lost.discard(address)
            self._instance.broker_is_back(address)

    def disconnected(self, connection: IConnection, reason: str) -> None:
        address = connection.remote_text
        self._instance.heartbeats.forget(address)
        if self._instance.knows_broker(address):
            self._lost.add(address)

    def idle(self, connection: IConnection) -> None:
        """It is closed, and made again when it is wanted."""


class _Consumer:
    """A registered consumer with its timed work."""

    def __init__(self, clock: IReactorTime, config: ClientConfig, role: IConsumerRole) -> None:
        self.role = role
        self.rebalance = Periodic(
            clock,
            f"rebalance of group {role.group}",
            config.rebalance_interval / 1000,
            role.rebalance,
        )
        self.persist = Periodic(
            clock,
            f"saving offsets of group {role.group}",
            config.persist_consumer_offset_interval / 1000,
            role.persist_offsets,
            FIRST_PERSIST_S,
        )

    def start(self) -> None:
        self.rebalance.start()
        self.persist.start()

    def stop(self) -> None:
        self.rebalance.stop()
        self.persist.stop()


class ClientInstance(Service):
    """What the roles of one client id share.

    :param reactor: connects, and is the clock.
    :param hooks: see every request before it is encoded and every answer (official ``RPCHook``), for signatures and the like.
    :param endpoint: ``(reactor, host, port, timeout_s)`` to an endpoint; another one in tests, or for TLS.
    :param resolve: a host name to its addresses; the reactor's own look-up when not given.
    :param random: a number in [0, 1), for choices and jitter.
    :ivar client_id: as brokers see this client.
    :ivar remoting: the connections.
    :ivar api: typed requests to brokers.
    :ivar routes: where topics are.
    :ivar producers: by group.
    :ivar replies: request-reply calls that wait.
    """

    def __init__(
        self,
        reactor: Any,
        config: ClientConfig,
        *,
        hooks: Sequence[RequestHook] = (),
        endpoint: EndpointMaker = client_endpoint,
        resolve: Resolver | None = None,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        if config.use_tls:
            endpoint = tls_endpoint(config, endpoint)
        self.clock: IReactorTime = reactor
        self.config = config
        self.client_id = config.client_id
        self.remoting = RemotingClient(
            reactor,
            dispatcher=Dispatcher(OPERATIONS, {"client": ClientRequests(self)}, reactor),
            listener=_Links(self),
            limits=RemotingLimits(
                close_when_silent=True, max_requests=config.client_async_semaphore_value
            ),
            hooks=[*_own_hooks(config), *hooks],
            endpoint=endpoint,
            random=random,
        )
        self.api = ClientApi(self.remoting, config)
        self.name_servers = NameServers(
            self.remoting,
            config.name_servers(),
            now=reactor.seconds,
            timeout_ms=config.mq_client_api_timeout,
            resolve=resolve or resolver_of(reactor),
            random=random,
        )
        self.routes = RouteTable(self.name_servers, self._route_changed)
        self.heartbeats = Heartbeats(self.api, self.routes, config, self._groups)
        self.replies = PendingReplies(reactor)
        self.producers: dict[str, IProducerRole] = {}
        self._consumers: dict[str, _Consumer] = {}
        self._told: set[str] = set()
        self._users = 0
        self._closing: list[Deferred[None]] | None = None
        self._shelf: Shelf | None = None
        self._address_server = (
            AddressServer(reactor, config.ws_addr, config.unit_name, endpoint)
            if config.ws_addr and not config.namesrv_addr
            else None
        )
        self._work = self._timed_work()

    def _timed_work(self) -> list[Periodic]:
        clock, config = self.clock, self.config
        work = [
            Periodic(
                clock, "route look-up", config.poll_name_server_interval / 1000, self.poll_routes
            ),
            Periodic(
                clock,
                "heartbeat",
                config.heartbeat_broker_interval / 1000,
                self._beat,
                FIRST_HEARTBEAT_S,
            ),
        ]
        if self._address_server is not None:
            work.append(
                Periodic(
                    clock,
                    "look-up at the address server",
                    ADDRESS_SERVER_S,
                    self.ask_address_server,
                    FIRST_ADDRESS_SERVER_S,
                )
            )
        return work

    # ----------------------------------------------------------------- life

    def startService(self) -> None:
        """Begin timed work, also after a stop; nothing when it runs already.

        :raises MQClientError: another instance has taken its client id.
        """
        if self.running:
            return
        if self._shelf is not None and self._shelf.setdefault(self.client_id, self) is not self:
            raise MQClientError(
                f"client {self.client_id} was stopped, and another one of that id runs here by now: make the role anew"
            )
        super().startService()  # type: ignore[no-untyped-call]
        self.remoting.reopen()
        for work in self._work:
            work.start()

    def stopService(self) -> Deferred[None]:
        """End timed work, close the connections; fires when they are gone. Roles have said good-bye by themselves before."""
        if not self.running:
            return succeed(None)
        super().stopService()  # type: ignore[no-untyped-call]
        for work in self._work:
            work.stop()
        for consumer in self._consumers.values():
            consumer.stop()
        self.replies.stop()
        if self._shelf is not None:
            self._shelf.pop(self.client_id, None)
        self._closing = []
        return self.remoting.stop().addBoth(self._have_closed)

    def _have_closed(self, outcome: Any) -> Any:
        waiting, self._closing = self._closing or [], None
        for waiter in waiting:
            waiter.callback(None)
        return outcome

    async def _closed(self) -> None:
        """A stop before has closed its connections: what is opened now is none of them."""
        if self._closing is not None:
            done: Deferred[None] = Deferred()
            self._closing.append(done)
            await done

    async def start(self) -> None:
        """Begin, and know a name server.

        :raises MQClientError: there is neither a name server nor an address server that tells one.
        """
        self.startService()
        if self._address_server is not None and not self.name_servers.configured:
            await self.ask_address_server()
        if not self.name_servers.configured:
            raise MQClientError(
                "no name server is known: set namesrv_addr, or NAMESRV_ADDR in the environment"
            )

    async def stop(self) -> None:
        """See `stopService`."""
        await self.stopService()

    async def acquire(self) -> None:
        """A role begins to use this instance; the first one starts it, anew if others have used it before."""
        self._users += 1
        try:
            await self._closed()
            await self.start()
        except BaseException:
            await self.release()
            raise

    async def release(self) -> None:
        """A role is done with it; the last one stops it."""
        self._users -= 1
        if self._users == 0:
            await self.stop()

    # ----------------------------------------------------------------- roles

    def register_producer(self, group: str, role: IProducerRole) -> None:
        """A producer group comes.

        :raises MQClientError: this client has the group already.
        """
        self._check_free(self.producers, "producer", group)
        self.producers[group] = role

    def _check_free(self, known: Container[str], role: str, group: str) -> None:
        if group in known:
            raise MQClientError(
                f"the {role} group {group} is there already in client {self.client_id}; give "
                f"the second {role} another group, or an instance_name of its own"
            )

    def register_consumer(self, group: str, role: IConsumerRole) -> None:
        """A consumer group comes; its timed work begins.

        :raises MQClientError: this client has the group already.
        """
        self._check_free(self._consumers, "consumer", group)
        consumer = self._consumers[group] = _Consumer(self.clock, self.config, role)
        consumer.start()

    def unregister_producer(self, group: str) -> Deferred[None]:
        """A producer group goes; fires when the brokers were told (or could not be)."""
        if self.producers.pop(group, None) is None:
            return succeed(None)
        return self._say_good_bye(group, None)

    def unregister_consumer(self, group: str) -> Deferred[None]:
        """A consumer group goes; fires when the brokers were told (or could not be)."""
        consumer = self._consumers.pop(group, None)
        if consumer is None:
            return succeed(None)
        consumer.stop()
        return self._say_good_bye(None, group)

    def _say_good_bye(
        self, producer_group: str | None, consumer_group: str | None
    ) -> Deferred[None]:
        told = [
            self.api.unregister_client(address, self.client_id, producer_group, consumer_group)
            for _, number, address in self.routes.addresses()
            if (consumer_group or number == MASTER_ID) and self.remoting.connection(address)
        ]
        return DeferredList(told, consumeErrors=True).addCallback(lambda _: None)

    def consumer(self, group: str) -> IConsumerRole | None:
        """The consumer of a group, None when it is not here."""
        found = self._consumers.get(group)
        return None if found is None else found.role

    @property
    def consumers(self) -> dict[str, IConsumerRole]:
        """All consumers by group."""
        return {group: found.role for group, found in self._consumers.items()}

    def _groups(self) -> tuple[list[ProducerData], list[ConsumerData]]:
        return (
            [ProducerData(group_name=group) for group in self.producers],
            [found.role.consumer_data() for found in self._consumers.values()],
        )

    # ----------------------------------------------------------------- brokers

    def broker_address(
        self, broker_name: str, broker_id: int = MASTER_ID, only_this: bool = False
    ) -> FoundBroker | None:
        """A member of a broker group from the routes known; None when there is none. See `RouteTable.find_broker`."""
        return self.routes.find_broker(broker_name, broker_id, only_this)

    def knows_broker(self, address: str) -> bool:
        """Whether a route names this address."""
        return any(known == address for _, _, known in self.routes.addresses())

    def broker_is_back(self, address: str) -> None:
        """The connection to a broker was made anew: it may have forgotten us, so it is told at once."""
        if self.running and self.config.enable_heartbeat_channel_event_listener:
            self.clock.callLater(0, self._told_again, address)

    def _told_again(self, address: str) -> None:
        if self.running:
            self.heartbeats.send_all([address]).addCallback(lambda _: self.rebalance_now())

    async def find_broker_address(self, topic: str) -> str:
        """The address of one broker that has a topic; looks the route up when it is not known.

        :raises NoRouteError: there is none.
        """
        address = self.routes.any_broker_of(topic)
        if address is None:
            await self.routes.update(topic)
            address = self.routes.any_broker_of(topic)
        if address is None:
            raise NoRouteError(f"no broker is known that has topic {topic}")
        return address

    def consumer_ids(self, topic: str, group: str) -> Deferred[list[str]]:
        """Client ids of a group's members, as one broker of the topic knows them, sorted; empty when it knows none.

        Fails with `NoRouteError`, or `RemotingError` when the broker does not answer.
        """
        return Deferred.fromCoroutine(self._consumer_ids(topic, group))

    async def _consumer_ids(self, topic: str, group: str) -> list[str]:
        address = await self.find_broker_address(topic)
        try:
            return sorted(await self.api.consumer_ids(address, group))
        except BrokerError as error:
            # A group without members is an error to brokers.
            log.debug("{error}", error=error)
            return []

    def subscribe_queues(self, topic: str) -> Deferred[list[MessageQueue]]:
        """The readable queues of a topic, sorted. Fails with `NoRouteError` that says why there are none."""
        return Deferred.fromCoroutine(self.routes.find_subscribe(topic))

    # ----------------------------------------------------------------- timed work

    def heartbeat_now(self) -> Deferred[None]:
        """Tell all brokers of all groups; fires when each has answered or failed, never fails."""
        self._told.update(address for _, _, address in self.routes.addresses())
        return self.heartbeats.send_all()

    def rebalance_now(self, group: str | None = None) -> None:
        """Have one consumer group, or all, divide their queues now."""
        for name, consumer in list(self._consumers.items()):
            if group is None or group == name:
                consumer.rebalance.run_now()

    def rebalanced(self, group: str) -> Deferred[None]:
        """Have a consumer group divide its queues now; fires when it has, as far as it could."""
        consumer = self._consumers.get(group)
        return succeed(None) if consumer is None else consumer.rebalance.when_run()

    def poll_routes(self) -> Deferred[None]:
        """Look up the routes of all topics in use; fires when all are done. Never fails."""
        topics: dict[str, None] = {}
        for producer in self.producers.values():
            topics.update(dict.fromkeys(producer.publish_topics()))
        for consumer in self._consumers.values():
            topics.update(dict.fromkeys(consumer.role.subscribed_topics()))
        looked = [
            self.routes.update(topic).addErrback(_note_route_failure, topic) for topic in topics
        ]
        return gatherResults(looked).addCallback(lambda _: None)

    def _beat(self) -> Deferred[None]:
        for address in self.heartbeats.drop_offline():
            self._told.discard(address)
            self.remoting.close_address(address)
        return self.heartbeat_now()

    def ask_address_server(self) -> Deferred[None]:
        """Ask the address server for the name servers. Never fails."""
        assert self._address_server is not None
        return self._address_server.fetch().addCallbacks(
            lambda text: self._name_servers_told(text),
            lambda failure: log.warn(
                "address server {url}: {error}", url=self.config.ws_addr, error=failure.value
            ),
        )

    def _name_servers_told(self, text: str) -> None:
        try:
            self.name_servers.update(check_name_servers(text))
        except MQClientError as error:
            log.warn("address server {url}: {error}", url=self.config.ws_addr, error=error)

    def update_name_servers(self, addresses: str) -> None:
        """Use other name servers from now on; those that are not in the list are dropped at once.

        :raises MQClientError: the list is empty, or an address is none.
        """
        servers = check_name_servers(addresses)
        if not servers:
            raise MQClientError("the list of name servers is empty")
        self.name_servers.update(servers)

    def _route_changed(self, topic: str) -> None:
        queues = self.routes.subscribe.get(topic, [])
        for consumer in self._consumers.values():
            if topic in consumer.role.subscribed_topics():
                consumer.role.queues_changed(topic, queues)
        fresh = {address for _, _, address in self.routes.addresses()} - self._told
        if fresh and self.running and self._told:
            # Brokers that were not there at the last heartbeat need not wait for the next one.
            self._told |= fresh
            self.heartbeats.send_all(sorted(fresh))

    # ----------------------------------------------------------------- sharing

    def shared_on(self, shelf: Shelf) -> None:
        """Be found there by client id from its start to its stop, and until it is started for the first time."""
        self._shelf = shelf
        shelf[self.client_id] = self


def _own_hooks(config: ClientConfig) -> list[RequestHook]:
    hooks: list[RequestHook] = []
    if config.namespace_v2:
        hooks.append(ExtraFields({"nsd": "true", "ns": config.namespace_v2}))
    if config.enable_stream_request_type:
        hooks.append(ExtraFields(STREAM_FIELDS))
    return hooks


def _note_route_failure(failure: Any, topic: str) -> None:
    if not isinstance(failure.value, RocketMQError):
        log.failure("look-up of topic {topic} failed", failure, topic=topic)
    else:
        log.warn("look-up of topic {topic}: {error}", topic=topic, error=failure.value)


Shelf = WeakValueDictionary[str, ClientInstance]
"""Instances by client id. Those who use one keep it alive; one that nobody ever started holds nothing."""

_shelves: WeakKeyDictionary[Any, Shelf] = WeakKeyDictionary()


def shared_instance(
    reactor: Any, config: ClientConfig, hooks: Sequence[RequestHook] = ()
) -> ClientInstance:
    """The instance of a client id on a reactor, made when there is none; roles `ClientInstance.acquire` it.

    :param hooks: used when it is made; those of later callers are not.
    """
    shelf = _shelves.setdefault(reactor, WeakValueDictionary())
    instance = shelf.get(config.client_id)
    if instance is None:
        instance = ClientInstance(reactor, config, hooks=hooks)
        instance.shared_on(shelf)
    return instance
