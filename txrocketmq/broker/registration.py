"""How do name servers hear of this broker and its topics?

Stands for the registration half of ``BrokerController`` and for ``BrokerOuterAPI``. Every name server is served by itself::

    idle --period, change, retry--> asking --answer--> idle
                                      |--no answer---> idle, retry soon, then ever later, five seconds at most
      a change while asking is announced when the answer came; a dead name server delays nobody else

A large table is not sent whole for each new topic, nor at each period: a name server that still holds the version last announced to it
gets the changed topics alone, or nothing, one that does not (it was restarted) gets everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import msgspec
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from txrocketmq.broker.static_topics.table import StaticTopics
from txrocketmq.broker.topics import Topics
from txrocketmq.codec.bodies import decode_body, encode_body
from txrocketmq.codec.bodies.registration import (
    RegisterBrokerBody,
    TopicConfigAndMappingSerializeWrapper,
    encode_register_broker,
    register_body_crc32,
)
from txrocketmq.codec.bodies.tables import KVTable
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import BodyError, BrokerError, HeaderError, RemotingError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import PERM_READ_WRITE
from txrocketmq.model.names import MASTER_ID
from txrocketmq.model.route import QueueData, TopicRouteData
from txrocketmq.model.topic import DataVersion, TopicConfig

FIRST_PERIOD_MS = 10_000
FIRST_RETRY_MS, RETRY_MS = 100, 5_000
"""Broker and name server are often started together: the broker must not wait long for one that is a moment late."""
SHORTEST_PERIOD_MS, LONGEST_PERIOD_MS = 10_000, 60_000
REQUEST_TIMEOUT_MS = 3_000
MAX_BODY_BYTES = 15 * 1024 * 1024
"""A frame may have 16 MiB; a larger table is sent in parts."""

_SUCCESS = ResponseCode.SUCCESS.value


class NameServer:
    """What is known of one name server.

    :ivar announced: the version of the topic table that it confirmed last; None when it confirmed none.
    :ivar changed: topics that changed since.
    :ivar is_asking: a request to it is on its way.
    :ivar is_reachable: False after a failure; None before the first answer.
    """

    __slots__ = ("address", "announced", "changed", "is_asking", "is_reachable", "wants_more")

    def __init__(self, address: str) -> None:
        self.address = address
        self.announced: DataVersion | None = None
        self.changed: set[str] = set()
        self.is_asking = False
        self.is_reachable: bool | None = None
        self.wants_more = False


class Registration:
    """Keeps all name servers informed.

    :param broker_address: the ``host:port`` that clients are told.
    :ivar ha_address: the ``host:port`` that slaves are told.
    :ivar on_answer: told what a name server says of the group's master.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        client: IRemotingClient,
        clock: IReactorTime,
        broker_address: str,
        ha_address: str,
        static_topics: StaticTopics,
    ) -> None:
        self._config = config
        self._topics = topics
        self._static = static_topics
        self._client = client
        self._clock = clock
        self._broker_address = broker_address
        self.ha_address = ha_address
        self.on_answer: Callable[[RegisterBrokerResponseHeader], object] = _nobody
        self._servers: dict[str, NameServer] = {}
        self._is_running = False
        self._retry_ms = FIRST_RETRY_MS
        self._period_call: IDelayedCall | None = None
        self._retry_call: IDelayedCall | None = None
        self._change_call: IDelayedCall | None = None

    # ----------------------------------------------------------------- life

    def start(self) -> None:
        """Register everywhere now, then at every period."""
        self._is_running = True
        self.register_all(True)
        self._period_call = self._clock.callLater(FIRST_PERIOD_MS / 1000, self._period)

    def stop(self) -> Deferred[None]:
        """Unregister from every name server that is reachable; fires when they answered, or after three seconds."""
        self._is_running = False
        for call in (self._period_call, self._retry_call, self._change_call):
            if call is not None and call.active():
                call.cancel()
        leaving = [
            Deferred.fromCoroutine(self._unregister(server.address))
            for server in self._servers.values()
            if server.is_reachable or server.is_asking
        ]
        return DeferredList(leaving).addCallback(lambda ignored: None)

    def register_all(self, force: bool) -> None:
        """Register with every name server of the configuration.

        :param force: False asks each one first whether it knows the table's version (`forceRegister` off).
        """
        self._follow_configuration()
        for server in self._servers.values():
            self._ask(server, force)

    def topics_changed(self, topics: list[TopicConfig]) -> None:
        """Announce topics that were created or changed; changes of one turn go together."""
        for server in self._servers.values():
            server.changed.update(topic.topic_name or "" for topic in topics)
        if self._is_running and self._change_call is None:
            self._change_call = self._clock.callLater(0, self._announce_changes)

    def reachable(self) -> list[str]:
        """The name servers that answered last time."""
        return [server.address for server in self._servers.values() if server.is_reachable]

    # ----------------------------------------------------------------- when

    def _period(self) -> None:
        period_ms = max(
            SHORTEST_PERIOD_MS, min(self._config.register_name_server_period, LONGEST_PERIOD_MS)
        )
        self._period_call = self._clock.callLater(period_ms / 1000, self._period)
        # A slave hears of its master in the answers.
        is_slave = self._config.broker_id != MASTER_ID
        self.register_all(is_slave or (self._config.force_register and not self._is_large()))

    def _announce_changes(self) -> None:
        self._change_call = None
        for server in self._servers.values():
            if server.changed:
                self._ask(server, True)

    def _retry(self) -> None:
        self._retry_call = None
        for server in self._servers.values():
            if server.is_reachable is False:
                self._ask(server, True)

    def _ask(self, server: NameServer, force: bool) -> None:
        if server.is_asking:
            server.wants_more = server.wants_more or bool(server.changed)
            return
        server.is_asking = True
        asking = Deferred.fromCoroutine(self._inform(server, force))
        asking.addErrback(
            lambda failure: self._log.failure(
                "registration at {address} failed", failure, address=server.address
            )
        )
        asking.addCallback(lambda ignored: self._asked(server))

    def _asked(self, server: NameServer) -> None:
        server.is_asking = False
        if not self._is_running:
            return
        if server.is_reachable is False and self._retry_call is None:
            self._retry_call = self._clock.callLater(self._retry_ms / 1000, self._retry)
            self._retry_ms = min(2 * self._retry_ms, RETRY_MS)
        if server.wants_more:
            server.wants_more = False
            if server.is_reachable:
                self._ask(server, True)

    def _follow_configuration(self) -> None:
        wanted = name_servers(self._config.namesrv_addr)
        for address in wanted:
            if address not in self._servers:
                self._servers[address] = NameServer(address)
        for address in [address for address in self._servers if address not in wanted]:
            server = self._servers.pop(address)
            Deferred.fromCoroutine(self._leave(server.address))

    # ----------------------------------------------------------------- what

    async def _inform(self, server: NameServer, force: bool) -> None:
        try:
            await self._inform_or_fail(server, force)
        except (RemotingError, BrokerError, HeaderError, BodyError) as error:
            server.announced = None
            if server.is_reachable is not False:
                self._log.warn(
                    "name server {address} is not informed: {error}",
                    address=server.address,
                    error=error,
                )
            server.is_reachable = False
        else:
            if not server.is_reachable:
                self._log.info("registered at name server {address}", address=server.address)
                self._retry_ms = FIRST_RETRY_MS
            server.is_reachable = True

    async def _inform_or_fail(self, server: NameServer, force: bool) -> None:
        config = self._config
        changed, server.changed = server.changed, set()
        if (
            changed
            and config.enable_single_topic_register
            and server.announced is not None
            # Such an announcement has no room for mappings.
            and self._static.names.keys().isdisjoint(changed)
        ):
            for name in changed:
                await self._register_topic(server, name)
            return
        if changed and self._is_large() and server.announced is not None:
            if await self._query_version(server) == server.announced:
                await self._register(server, self._some(changed))
                return
        elif not force:
            known = await self._query_version(server)
            # Parts of a split table count the version up, for each name server by itself.
            is_whole = known is not None and known == server.announced and not changed
            if is_whole or known == self._topics.data_version:
                return
        await self._register_table(server)

    def _is_large(self) -> bool:
        return len(self._topics) > self._config.split_registration_size

    async def _register_table(self, server: NameServer) -> None:
        config = self._config
        table = {topic.topic_name or "": self._permitted(topic) for topic in self._topics.all()}
        size = config.split_registration_size if config.enable_split_registration else len(table)
        body = b""
        if size >= len(table):
            body = self._encode(table)
            if len(body) <= MAX_BODY_BYTES:
                await self._send(server, body)
                return
            size = max(1, config.split_registration_size)
        found = sorted(table)
        for start in range(0, len(found), size):
            # A name server skips what has the version that it knows: each part needs its own.
            self._topics.data_version.next(int(self._clock.seconds() * 1000))
            part = {name: table[name] for name in found[start : start + size]}
            await self._send(server, self._encode(part))

    async def _register(self, server: NameServer, table: dict[str, TopicConfig]) -> None:
        await self._send(server, self._encode(table))

    async def _send(self, server: NameServer, body: bytes) -> None:
        config = self._config
        version = self._topics.data_version.copy()
        acting = config.enable_slave_acting_master
        answer = await self._request(
            server.address,
            RequestCode.REGISTER_BROKER,
            RegisterBrokerRequestHeader(
                broker_name=config.broker_name,
                broker_addr=self._broker_address,
                cluster_name=config.broker_cluster_name,
                ha_server_addr=self.ha_address,
                broker_id=config.broker_id,
                heartbeat_timeout_millis=config.broker_not_active_timeout_millis
                if acting
                else None,
                enable_acting_master=acting,
                compressed=config.compressed_register,
                body_crc32=register_body_crc32(body),
            ),
            body,
            config.register_broker_timeout_mills,
        )
        server.announced = version
        self.on_answer(answer.decode_header(RegisterBrokerResponseHeader))
        if answer.body:
            self._topics.take_over_ordered(decode_body(KVTable, answer.body).table)

    async def _query_version(self, server: NameServer) -> DataVersion | None:
        """The version of our table that the name server holds; None when it knows none, or another."""
        config = self._config
        answer = await self._request(
            server.address,
            RequestCode.QUERY_DATA_VERSION,
            QueryDataVersionRequestHeader(
                broker_name=config.broker_name,
                broker_addr=self._broker_address,
                cluster_name=config.broker_cluster_name,
                broker_id=config.broker_id,
            ),
            encode_body(self._topics.data_version),
            config.register_broker_timeout_mills,
        )
        if answer.body:
            return decode_body(DataVersion, answer.body)
        if answer.decode_header(QueryDataVersionResponseHeader).changed:
            return None
        return self._topics.data_version

    async def _register_topic(self, server: NameServer, name: str) -> None:
        topic = self._topics.get(name)
        if topic is None:
            return
        topic = self._permitted(topic)
        route = TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=self._config.broker_name,
                    perm=topic.perm,
                    read_queue_nums=topic.read_queue_nums,
                    write_queue_nums=topic.write_queue_nums,
                    topic_sys_flag=topic.topic_sys_flag,
                )
            ]
        )
        await self._request(
            server.address,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RegisterTopicRequestHeader(topic=name),
            encode_body(route),
            REQUEST_TIMEOUT_MS,
        )

    async def _leave(self, address: str) -> None:
        await self._unregister(address)
        self._client.close_address(address)

    async def _unregister(self, address: str) -> None:
        config = self._config
        try:
            await self._request(
                address,
                RequestCode.UNREGISTER_BROKER,
                UnRegisterBrokerRequestHeader(
                    broker_name=config.broker_name,
                    broker_addr=self._broker_address,
                    cluster_name=config.broker_cluster_name,
                    broker_id=config.broker_id,
                ),
                b"",
                REQUEST_TIMEOUT_MS,
            )
        except (RemotingError, BrokerError) as error:
            self._log.warn(
                "not unregistered at name server {address}: {error}", address=address, error=error
            )

    async def _request(
        self, address: str, code: RequestCode, header: object, body: bytes, timeout_ms: int
    ) -> RemotingCommand:
        asked = self._client.request(address, code.value, header, body, timeout_ms, None)
        answer = await cast("Deferred[RemotingCommand]", asked)
        if answer.code != _SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer

    def _some(self, names: Iterable[str]) -> dict[str, TopicConfig]:
        found = ((name, self._topics.get(name)) for name in sorted(names))
        return {name: self._permitted(topic) for name, topic in found if topic is not None}

    def _permitted(self, topic: TopicConfig) -> TopicConfig:
        """The topic as clients may use it here: the broker's own permission limits it."""
        permission = self._config.broker_permission
        if permission & PERM_READ_WRITE == PERM_READ_WRITE:
            return topic
        return msgspec.structs.replace(topic, perm=topic.perm & permission)

    def _encode(self, table: dict[str, TopicConfig]) -> bytes:
        wrapper = TopicConfigAndMappingSerializeWrapper(
            data_version=self._topics.data_version,
            topic_config_table=table,
            topic_queue_mapping_info_map=dict(self._static.infos(table)),
        )
        return encode_register_broker(
            RegisterBrokerBody(topic_config_serialize_wrapper=wrapper),
            compressed=self._config.compressed_register,
        )


def _nobody(answer: RegisterBrokerResponseHeader) -> None:
    """Nobody wants to know of the master."""


def name_servers(text: str | None) -> list[str]:
    """The addresses of a ``host:port;host:port`` list; blanks and doubles do no harm."""
    parts = (part.strip() for part in (text or "").split(";"))
    return list(dict.fromkeys(part for part in parts if part))
