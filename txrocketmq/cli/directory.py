"""Where are a topic's queues, and if nowhere, why? Route look-up with reasons a person can act on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from txrocketmq.codec.bodies.routes import ClusterInfo
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import GetRouteInfoRequestHeader
from txrocketmq.errors import BrokerError, MQClientError, NoRouteError, RemotingError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import is_readable, is_writeable, perm_text
from txrocketmq.model.names import AUTO_CREATE_TOPIC_KEY_TOPIC
from txrocketmq.model.route import QueueData, TopicRouteData

#: Queues that a new topic gets when the sender asks for it (official client default).
NEW_TOPIC_QUEUES = 4
TIMEOUT_MS = 3000
MAX_QUEUES = 65_536
"""Queues of one topic on one broker; a route that names more is not believed."""


@attrs.frozen(order=True)
class Queue:
    """One queue of a topic.

    :ivar broker_name: its broker's name.
    :ivar queue_id: its number there.
    :ivar address: where to ask for it.
    """

    broker_name: str
    queue_id: int
    address: str

    @property
    def text(self) -> str:
        """``broker/number``."""
        return f"{self.broker_name}/{self.queue_id}"


class NoSuchTopicError(NoRouteError):
    """Name servers answer, brokers are there, none of them has the topic."""


class Directory:
    """Asks name servers, one after the other until one knows: a restarted one may wait for its brokers still.

    :param servers: ``host:port`` each.
    """

    def __init__(self, client: IRemotingClient, servers: Sequence[str]) -> None:
        self._client = client
        self._servers = list(servers)

    async def queues_to_send(self, topic: str) -> list[Queue]:
        """Queues that a producer may use: the topic's, or those of the topic that a broker would make.

        :raises NoRouteError: there is none; says which of the causes it is.
        """
        route = await self._route(topic)
        is_new = route is None
        if route is None:
            route = await self._route(AUTO_CREATE_TOPIC_KEY_TOPIC)
        if route is None:
            raise await self._explain(
                topic, "and no broker makes new topics by itself (autoCreateTopicEnable)"
            )
        queues = []
        for queue, master in _with_brokers(route, master_only=True):
            if is_writeable(queue.perm):
                count = queue.write_queue_nums
                number = min(count, NEW_TOPIC_QUEUES) if is_new else count
                queues += [Queue(queue.broker_name or "", i, master) for i in range(number)]
        if not queues:
            raise self._unusable(topic, route, "written")
        return queues

    async def queues_to_read(self, topic: str) -> list[Queue]:
        """Queues that a consumer may read.

        :raises NoSuchTopicError: the topic is not there yet.
        :raises NoRouteError: no broker is there, or the topic must not be read.
        """
        route = await self._route(topic)
        if route is None:
            raise await self._explain(topic, "")
        queues = [
            Queue(queue.broker_name or "", number, address)
            for queue, address in _with_brokers(route, master_only=False)
            if is_readable(queue.perm)
            for number in range(queue.read_queue_nums)
        ]
        if not queues:
            raise self._unusable(topic, route, "read")
        return queues

    async def _route(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await self._ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, header, topic, lambda found: found.code == 0
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        servers = "; ".join(self._servers)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise MQClientError(
                f"{servers} answers, but is no name server: {answer.remark} (name servers mostly "
                "listen on 9876, brokers on 10911)"
            )
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, servers)
        route = decode_body(TopicRouteData, answer.body)
        for queue in route.queue_datas:
            count = max(queue.read_queue_nums, queue.write_queue_nums)
            if count > MAX_QUEUES:
                raise MQClientError(
                    f"name server {servers} says that topic {topic} has {count} queues at broker "
                    f"{queue.broker_name}; at most {MAX_QUEUES} are believed"
                )
        return route

    async def _ask(
        self,
        code: int,
        header: object | None,
        topic: str,
        is_enough: Callable[[RemotingCommand], bool],
    ) -> RemotingCommand:
        """The first answer that is enough; where none is, the first that any server gives.

        :param topic: what it is about, for the error.

        :raises NoRouteError: no server answers; names each with its reason.
        """
        reasons = []
        first: RemotingCommand | None = None
        for server in self._servers:
            try:
                answer: RemotingCommand = await self._client.request(
                    server, int(code), header, b"", TIMEOUT_MS, None
                )
            except RemotingError as error:
                reasons.append(str(error))
            else:
                if is_enough(answer):
                    return answer
                first = first or answer
        if first is not None:
            return first
        raise NoRouteError(
            f"no name server answers, so topic {topic} cannot be found: {'; '.join(reasons)} "
            "(-n or NAMESRV_ADDR says whom to ask)"
        )

    async def _explain(self, topic: str, addition: str) -> NoRouteError:
        """Why nobody has a topic."""
        asked = f"name server {'; '.join(self._servers)}"
        answer = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO, None, topic, _names_brokers)
        if answer.code == ResponseCode.SUCCESS and not _names_brokers(answer):
            return NoRouteError(
                f"no broker is registered at {asked}, so topic {topic} cannot be found"
            )
        return NoSuchTopicError(f"{asked} knows no topic {topic} {addition}".rstrip())

    def _unusable(self, topic: str, route: TopicRouteData, verb: str) -> MQClientError:
        masters = {broker.broker_name for broker in route.broker_datas if broker.master_address}
        parts = [
            f"{queue.broker_name} allows {perm_text(queue.perm)}"
            + ("" if queue.broker_name in masters else " and has no master")
            for queue in route.queue_datas
        ]
        return NoRouteError(
            f"topic {topic} must not be {verb}, there is no permission: {'; '.join(parts)} "
            f"(name server {'; '.join(self._servers)})"
        )


def _names_brokers(answer: RemotingCommand) -> bool:
    if answer.code != ResponseCode.SUCCESS:
        return False
    return bool(decode_body(ClusterInfo, answer.body).broker_addr_table)


def _with_brokers(route: TopicRouteData, *, master_only: bool) -> list[tuple[QueueData, str]]:
    """The route's queues with the address of a broker that has them; those without one are left out."""
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    found = []
    for queue in route.queue_datas:
        broker = brokers.get(queue.broker_name)
        if broker is not None:
            address = broker.master_address if master_only else broker.any_address()
            if address is not None:
                found.append((queue, address))
    return found
