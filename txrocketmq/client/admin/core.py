"""How does an operator ask? One server, the name servers, or several brokers at once, each with its own outcome.

Stands for what ``DefaultMQAdminExtImpl`` and ``CommandUtil`` share. Names are those on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from twisted.internet.defer import Deferred, DeferredList, DeferredSemaphore

from txrocketmq.client.admin.errors import NoSuchBrokerError, PartialFailureError
from txrocketmq.client.api import checked
from txrocketmq.client.name_servers import check_answer
from txrocketmq.client.routes import NoSuchTopicError
from txrocketmq.codec.bodies.routes import ClusterInfo
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import GetRouteInfoRequestHeader, Header
from txrocketmq.config.properties import format_properties_file, parse_properties_file
from txrocketmq.errors import MQClientError, RocketMQError
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.names import TIMER_TOPIC, is_lmq, retry_topic
from txrocketmq.model.route import BrokerData, TopicRouteData

if TYPE_CHECKING:
    from txrocketmq.client.instance import ClientInstance

T = TypeVar("T")
B = TypeVar("B", bound=msgspec.Struct)

AT_ONCE = 16
"""How many servers are asked at the same time; the others wait for their turn."""


class AdminCore:
    """What all subjects of the admin client share.

    :param timeout_ms: for each request (official default of mqadmin: 5,000).
    """

    def __init__(self, instance: ClientInstance, timeout_ms: int) -> None:
        self.instance = instance
        self.api = instance.api
        self.timeout_ms = timeout_ms

    @property
    def now_ms(self) -> int:
        """Wall-clock ms."""
        return int(self.instance.clock.seconds() * 1000)

    # ----------------------------------------------------------------- one server

    def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Deferred[RemotingCommand]:
        """One broker; its answer of success, else it fails with `BrokerError` or `RemotingError`."""
        return self.api.ask(
            self.api.via_vip(address), code, header, body, timeout_ms or self.timeout_ms, ext_fields
        )

    async def read(
        self,
        kind: type[B],
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> B:
        """One broker; its answer's body. An empty body is the bean's empty value."""
        answer = await self.ask(address, code, header, body, timeout_ms=timeout_ms)
        return decode_body(kind, answer.body or b"{}")

    # ----------------------------------------------------------------- several servers

    async def spread(
        self, what: str, addresses: Iterable[str], call: Callable[[str], Coroutine[Any, Any, T]]
    ) -> dict[str, T]:
        """Ask several servers at once; address to answer.

        :param what: the operation, for the error's text.
        :raises PartialFailureError: some of several failed; tells what the others did.
        :raises RocketMQError: the only one failed.
        """
        results, failures = await self.try_each(addresses, call)
        if failures:
            if len(failures) == 1 and not results:
                raise next(iter(failures.values()))
            raise PartialFailureError(what, results, failures)
        return results

    async def try_each(
        self, addresses: Iterable[str], call: Callable[[str], Coroutine[Any, Any, T]]
    ) -> tuple[dict[str, T], dict[str, RocketMQError]]:
        """Ask several servers at once; who answered what, and who failed. Errors of the program's own are raised."""
        asked = list(dict.fromkeys(addresses))
        gate = DeferredSemaphore(AT_ONCE)

        def start(address: str) -> Deferred[T]:
            return Deferred.fromCoroutine(call(address))

        waiting = [gate.run(start, address) for address in asked]
        results: dict[str, T] = {}
        failures: dict[str, RocketMQError] = {}
        outcomes: list[Any] = await DeferredList(waiting, consumeErrors=True)
        for address, (is_good, outcome) in zip(asked, outcomes, strict=True):
            if is_good:
                results[address] = outcome
            elif isinstance(outcome.value, RocketMQError):
                failures[address] = outcome.value
            else:
                raise outcome.value
        return results, failures

    # ----------------------------------------------------------------- name servers

    async def name_server(self, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        """One of the name servers, whoever answers; its answer of success.

        :raises BrokerError: it refuses.
        :raises NoRouteError: none answers.
        """
        servers = self.instance.name_servers
        answer = await servers.request(
            int(code),
            header,
            b"",
            self.timeout_ms,
            lambda found: found.code == ResponseCode.SUCCESS,
        )
        check_answer(answer, servers.text)
        return checked(answer, servers.chosen or servers.text)

    async def name_server_addresses(self) -> list[str]:
        """All name servers, host names looked up.

        :raises MQClientError: none is known.
        """
        servers = self.instance.name_servers
        await servers.look_up()
        if not servers.addresses:
            raise MQClientError("no name server is known: set namesrv_addr")
        return servers.addresses

    async def each_name_server(
        self,
        what: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        addresses: Iterable[str] | None = None,
    ) -> dict[str, RemotingCommand]:
        """All name servers (or those named): what changes must be said to each.

        :raises PartialFailureError: see `spread`.
        """
        asked = list(addresses) if addresses is not None else await self.name_server_addresses()

        async def call(address: str) -> RemotingCommand:
            return await self.api.ask(address, code, header, body, self.timeout_ms)

        return await self.spread(what, asked, call)

    # ----------------------------------------------------------------- who is there

    async def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters that the name servers know."""
        answer = await self.name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_body(ClusterInfo, answer.body)

    async def route(self, topic: str) -> TopicRouteData:
        """Where a topic is.

        :raises NoSuchTopicError: no name server knows it.
        """
        servers = self.instance.name_servers
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await servers.request(
            int(RequestCode.GET_ROUTEINFO_BY_TOPIC),
            header,
            b"",
            self.timeout_ms,
            lambda found: found.code == ResponseCode.SUCCESS,
        )
        check_answer(answer, servers.text)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoSuchTopicError(f"name server {servers.text} knows no topic {topic}")
        return decode_body(TopicRouteData, checked(answer, servers.text).body)

    async def routed(self, topic: str, cluster: str | None = None) -> TopicRouteData:
        """Where a topic's queues are; light queues and the timer topic are in no route, so their cluster's (or parent's) is taken."""
        if cluster and (is_lmq(topic) or topic == TIMER_TOPIC):
            return await self.route(cluster)
        return await self.route(topic)

    async def brokers_of(self, topic: str, cluster: str | None = None) -> list[str]:
        """One address of each broker name that has a topic: the master's, else a slave's."""
        return addresses_of((await self.routed(topic, cluster)).broker_datas)

    async def brokers_of_group(self, group: str) -> list[str]:
        """The same for a group: those that have its retry topic, which it gets when it first runs.

        :raises NoSuchTopicError: it never ran.
        """
        try:
            return await self.brokers_of(retry_topic(group))
        except NoSuchTopicError as error:
            raise NoSuchTopicError(f"group {group} never ran: {error}") from None

    async def masters(self, cluster: str) -> list[str]:
        """Addresses of a cluster's masters, sorted by broker name.

        :raises NoSuchBrokerError: the cluster is not known, or has no master.
        """
        found = [
            broker.master_address
            for broker in await self.members(cluster)
            if broker.master_address is not None
        ]
        if not found:
            raise NoSuchBrokerError(f"cluster {cluster} has no master now")
        return found

    async def members(self, cluster: str) -> list[BrokerData]:
        """The brokers of a cluster, sorted by name.

        :raises NoSuchBrokerError: the cluster is not known.
        """
        info = await self.cluster_info()
        names = info.cluster_addr_table.get(cluster)
        if not names:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise NoSuchBrokerError(f"there is no cluster {cluster}; known: {known}")
        table = info.broker_addr_table
        return [table[name] for name in sorted(names) if name in table]

    async def targets(
        self, broker: str | None, cluster: str | None, *, slaves: bool = False
    ) -> list[str]:
        """Whom an operation is for: one address, or the masters of a cluster, with ``slaves`` all its members.

        :raises MQClientError: neither is given, or both are.
        """
        if (broker is None) == (cluster is None):
            raise MQClientError(
                "say for whom: either a broker's host:port (broker, -b) or a cluster's name (cluster, -c)"
            )
        if broker is not None:
            return [broker]
        assert cluster is not None
        if not slaves:
            return await self.masters(cluster)
        return [
            address
            for member in await self.members(cluster)
            for _, address in sorted(member.broker_addrs.items())
        ]

    async def broker_name_at(self, address: str) -> str:
        """The name of the broker at an address.

        :raises NoSuchBrokerError: no broker is registered there.
        """
        for name, broker in (await self.cluster_info()).broker_addr_table.items():
            if address in broker.broker_addrs.values():
                return name
        raise NoSuchBrokerError(f"no broker is registered with address {address}")

    async def address_of(self, broker_name: str) -> str:
        """The address of a broker's master, else of a slave.

        :raises NoSuchBrokerError: there is no such broker.
        """
        broker = (await self.cluster_info()).broker_addr_table.get(broker_name)
        address = None if broker is None else broker.any_address()
        if address is None:
            raise NoSuchBrokerError(f"no broker is registered with name {broker_name}")
        return address


def addresses_of(brokers: Iterable[BrokerData]) -> list[str]:
    """One address of each broker: the master's, else a slave's."""
    return [address for broker in brokers if (address := broker.any_address()) is not None]


def properties_body(entries: Mapping[str, object]) -> bytes:
    """Settings as servers take them; True and False in Java's spelling.

    :raises MQClientError: there is none.
    """
    if not entries:
        raise MQClientError("no setting is given")
    return format_properties_file({key: setting_text(value) for key, value in entries.items()})


def setting_text(value: object) -> str:
    """A setting's value as Java writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_of(answer: RemotingCommand) -> dict[str, str]:
    """Settings from an answer."""
    return parse_properties_file(answer.body)
