"""Where are a topic's queues, and if nowhere, why? The client's route look-up, for commands that ask once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from txrocketmq.client.name_servers import NameServers
from txrocketmq.client.routes import NEW_TOPIC_QUEUES, NoSuchTopicError, RouteTable
from txrocketmq.errors import NoRouteError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.message import MessageQueue

__all__ = ["NEW_TOPIC_QUEUES", "Directory", "NoSuchTopicError", "Queue"]


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


class Directory:
    """Asks name servers, one after the other until one answers.

    :param servers: ``host:port`` each.
    """

    def __init__(self, client: IRemotingClient, servers: Sequence[str]) -> None:
        self._client = client
        self._servers = list(servers)

    async def queues_to_send(self, topic: str) -> list[Queue]:
        """Queues that a producer may use: the topic's, or those of the topic that a broker would make.

        :raises NoRouteError: there is none; says which of the causes it is.
        """
        routes = self._routes()
        try:
            info = await routes.find_publish(topic)
        except NoRouteError as error:
            raise _with_hint(error, topic) from error
        return _with_addresses(info.queues, routes.master_address)

    async def queues_to_read(self, topic: str) -> list[Queue]:
        """Queues that a consumer may read.

        :raises NoSuchTopicError: the topic is not there yet.
        :raises NoRouteError: no broker is there, or the topic must not be read.
        """
        routes = self._routes()
        try:
            queues = await routes.find_subscribe(topic)
        except NoRouteError as error:
            raise _with_hint(error, topic) from error

        def address_of(broker_name: str) -> str | None:
            found = routes.find_broker(broker_name)
            return None if found is None else found.address

        return _with_addresses(queues, address_of)

    def _routes(self) -> RouteTable:
        """A table without memory: what was true at the last look is not taken for true now."""
        return RouteTable(NameServers(self._client, self._servers, random=lambda: 0.0))


def _with_hint(error: NoRouteError, topic: str) -> NoRouteError:
    text = str(error)
    start = "no name server answers"
    if not text.startswith(start):
        return error
    return NoRouteError(
        f"{start}, so topic {topic} cannot be found{text.removeprefix(start)} "
        "(-n or NAMESRV_ADDR says whom to ask)"
    )


def _with_addresses(
    queues: Iterable[MessageQueue], address_of: Callable[[str], str | None]
) -> list[Queue]:
    """Queues with the address of a broker that has them; those without one are left out."""
    found = []
    for queue in queues:
        address = address_of(queue.broker_name)
        if address is not None:
            found.append(Queue(queue.broker_name, queue.queue_id, address))
    return found
