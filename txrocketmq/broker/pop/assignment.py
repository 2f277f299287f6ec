"""Which queues shall a member of a group consume, and does it pull or pop them: QUERY_ASSIGNMENT and the request modes?

Stands for ``QueryAssignmentProcessor``, ``MessageRequestModeManager`` (``messageRequestMode.json``) and the subscription half of
``TopicRouteInfoManager``. Queues are those that the name servers tell, of all brokers; they are asked once and then every
`loadBalancePollNameServerInterval`. Without name servers they are this broker's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from txrocketmq.broker.config_files import PersistedTable
from txrocketmq.broker.registration import name_servers
from txrocketmq.codec.bodies import (
    MessageQueueAssignment,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    decode_body,
    encode_body,
)
from txrocketmq.codec.headers import GetRouteInfoRequestHeader
from txrocketmq.errors import BodyError, RemotingError, ResponseError
from txrocketmq.interfaces import IConfigFiles, IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode
from txrocketmq.model.flags import PERM_READ
from txrocketmq.model.heartbeat import MessageModel, MessageRequestMode
from txrocketmq.model.message import MessageQueue
from txrocketmq.model.names import is_lmq, is_retry_topic
from txrocketmq.model.route import TopicRouteData
from txrocketmq.model.topic import MAX_QUEUES
from txrocketmq.remoting.dispatch import Reply, Request

if TYPE_CHECKING:
    from txrocketmq.broker.clients import Consumers
    from txrocketmq.broker.groups import SubscriptionGroups
    from txrocketmq.broker.topics import Topics
    from txrocketmq.codec.command import RemotingCommand
    from txrocketmq.config.schema import BrokerConfig

FILE_NAME = "messageRequestMode.json"
ROUTE_TIMEOUT_MS = 3000
MAX_ROUTES = 10_000
"""Topics whose queues are remembered."""
ALL_QUEUES = -1

Allocation = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


class RequestModes:
    """Whether a group pulls or pops a topic."""

    def __init__(self, files: IConfigFiles) -> None:
        self._table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        self.file = PersistedTable(files, FILE_NAME, self.encode)

    def load(self) -> None:
        """Read ``messageRequestMode.json``.

        :raises StoreError: neither the file nor its backup can be read.
        """
        wrapper = self.file.load(partial(decode_body, MessageRequestModeSerializeWrapper))
        if wrapper is not None:
            self._table = wrapper.message_request_mode_map or {}

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """What an operator set; None when nobody did."""
        return self._table.get(topic, {}).get(group)

    def set(self, mode: SetMessageRequestModeRequestBody) -> Deferred[None]:
        """Set a mode; fires when it is on disk."""
        self._table.setdefault(mode.topic or "", {})[mode.consumer_group or ""] = mode
        return self.file.save()

    def topic_deleted(self, topic: str) -> None:
        """Forget a topic."""
        if self._table.pop(topic, None) is not None:
            self.file.changed()

    def group_deleted(self, group: str) -> None:
        """Forget a group."""
        for topic, groups in tuple(self._table.items()):
            if groups.pop(group, None) is not None:
                self.file.changed()
            if not groups:
                del self._table[topic]

    def take_over(self, body: bytes) -> None:
        """A slave: have exactly the master's table.

        :raises BodyError: it cannot be read.
        """
        wrapper = decode_body(MessageRequestModeSerializeWrapper, body)
        table = wrapper.message_request_mode_map or {}
        if table != self._table:
            self._table = table
            self.file.changed()

    def encode(self) -> bytes:
        """The table, as it is kept and copied by slaves."""
        return encode_body(MessageRequestModeSerializeWrapper(message_request_mode_map=self._table))


class TopicQueues:
    """The readable queues of topics, on all brokers."""

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        client: IRemotingClient,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._client = client
        self._now_ms = now_ms
        self._known: dict[str, tuple[int, list[MessageQueue]]] = {}

    async def of(self, topic: str) -> list[MessageQueue] | None:
        """The queues of a topic; None when nobody knows it."""
        servers = name_servers(self._config.namesrv_addr)
        if not servers:
            return self._own(topic)
        now_ms = self._now_ms()
        known = self._known.get(topic)
        if known is not None and (
            known[1] and now_ms - known[0] < self._config.load_balance_poll_name_server_interval
        ):
            return known[1]
        for server in servers:
            try:
                queues = await self._ask(server, topic)
            except (RemotingError, BodyError) as error:
                self._log.warn(
                    "name server {server} does not tell the route of {topic}: {error}",
                    server=server,
                    topic=topic,
                    error=error,
                )
                continue
            if queues is None:
                self._known.pop(topic, None)
                return None
            if len(self._known) >= MAX_ROUTES:
                self._known.pop(next(iter(self._known)))
            self._known[topic] = (now_ms, queues)
            return queues
        # Nobody answers: what was known is better than nothing.
        return known[1] if known is not None else None

    def _own(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        count = config.read_queue_nums if config.perm & PERM_READ else 0
        return [self._queue(topic, self._config.broker_name, number) for number in range(count)]

    async def _ask(self, server: str, topic: str) -> list[MessageQueue] | None:
        asked = self._client.request(
            server,
            RequestCode.GET_ROUTEINFO_BY_TOPIC.value,
            GetRouteInfoRequestHeader(topic=topic),
            b"",
            ROUTE_TIMEOUT_MS,
            None,
        )
        answer = await cast("Deferred[RemotingCommand]", asked)
        if answer.code != ResponseCode.SUCCESS:
            return None
        route = decode_body(TopicRouteData, answer.body)
        # What a name server tells anybody may have told it.
        queues = (
            self._queue(topic, data.broker_name or "", number)
            for data in route.queue_datas
            if data.perm & PERM_READ and data.read_queue_nums <= MAX_QUEUES
            for number in range(data.read_queue_nums)
        )
        return list(islice(queues, MAX_QUEUES))

    @staticmethod
    def _queue(topic: str, broker_name: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)


class AssignmentProcessor:
    """Answers questions for assignments and modes."""

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        groups: SubscriptionGroups,
        consumers: Consumers,
        modes: RequestModes,
        queues: TopicQueues,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._modes = modes
        self._queues = queues

    def query_assignment(self, request: Request[None]) -> Deferred[Reply]:
        """QUERY_ASSIGNMENT: the queues of one member, and how to consume them."""
        return Deferred.fromCoroutine(self._query(request))

    async def _query(self, request: Request[None]) -> Reply:
        asked = decode_body(QueryAssignmentRequestBody, request.body)
        topic, group = asked.topic or "", asked.consumer_group or ""
        mode, shared = self._mode(topic, group)
        queues = await self._assigned(asked, topic, group, mode, shared)
        assignments = None
        if queues is not None:
            assignments = [
                MessageQueueAssignment(message_queue=queue, mode=mode)
                for queue in dict.fromkeys(queues)
            ]
        body = QueryAssignmentResponseBody(message_queue_assignments=assignments)
        return Reply(body=encode_body(body))

    def _mode(self, topic: str, group: str) -> tuple[MessageRequestMode, int]:
        """How a group consumes a topic, and how many members share a queue when it pops."""
        found = self._modes.get(topic, group)
        if found is not None:
            return found.mode, found.pop_share_queue_num
        if is_retry_topic(topic):
            return MessageRequestMode.PULL, 0
        mode = MessageRequestMode(self._config.default_message_request_mode)
        if mode is MessageRequestMode.POP:
            return mode, self._config.default_pop_share_queue_num
        return mode, 0

    async def _assigned(
        self,
        asked: QueryAssignmentRequestBody,
        topic: str,
        group: str,
        mode: MessageRequestMode,
        shared: int,
    ) -> list[MessageQueue] | None:
        """The queues of a member; None tells it to leave everything as it is."""
        is_clustering = asked.message_model is not MessageModel.BROADCASTING
        if is_clustering and is_lmq(topic):
            name = self._config.broker_name
            queues: list[MessageQueue] | None = [
                MessageQueue(topic=topic, broker_name=name, queue_id=0)
            ]
        else:
            queues = await self._queues.of(topic)
        if queues is None or not is_clustering or not self._config.server_load_balancer_enable:
            return queues
        members = self._consumers.get(group)
        allocation = ALLOCATIONS.get(asked.strategy_name or "")
        if members is None or allocation is None:
            self._log.warn(
                "no queues of {topic} for {client} of group {group}, strategy {strategy}: no such member or strategy",
                topic=topic,
                client=asked.client_id,
                group=group,
                strategy=asked.strategy_name,
            )
            return None
        client_id = asked.client_id or ""
        client_ids = sorted(members.client_ids(), key=_java_order)
        if mode is MessageRequestMode.POP:
            return allocate_for_pop(allocation, client_id, sorted(queues), client_ids, shared)
        return allocation(client_id, sorted(queues), client_ids)

    def set_mode(self, request: Request[None]) -> Deferred[Reply]:
        """SET_MESSAGE_REQUEST_MODE: let a group pull or pop a topic."""
        mode = decode_body(SetMessageRequestModeRequestBody, request.body)
        topic, group = mode.topic or "", mode.consumer_group or ""
        if is_retry_topic(topic):
            raise ResponseError(
                ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"
            )
        if self._topics.get(topic) is None:
            raise ResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._groups.find(group) is None:
            raise ResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        return self._modes.set(mode).addCallback(lambda ignored: Reply())

    def get_all_modes(self, request: Request[None]) -> Reply:
        """GET_ALL_MESSAGE_REQUEST_MODE: the table of modes."""
        return Reply(body=self._modes.encode())


def _java_order(text: str) -> bytes:
    """Members sort the ids as Java does: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


# ----------------------------------------------------------------- how queues are divided


def averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Neighbouring queues to each member; the first ones get one more (official ``AVG``)."""
    if client_id not in client_ids or not queues:
        return []
    index, members = client_ids.index(client_id), len(client_ids)
    size, left = divmod(len(queues), members)
    start = index * size + min(index, left)
    return list(queues[start : start + size + (1 if index < left else 0)])


def by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Queues in turn (official ``AVG_BY_CIRCLE``)."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


ALLOCATIONS: dict[str, Allocation] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def allocate_for_pop(
    allocation: Allocation,
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    shared: int,
) -> list[MessageQueue]:
    """The queues that a member pops.

    :param shared: a member also pops the queues of so many others behind it; 0 or less, or all others: every broker as a whole.
    """
    if shared <= 0 or shared >= len(client_ids) - 1:
        return [
            MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=ALL_QUEUES)
            for queue in queues
        ]
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    if len(client_ids) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    found = []
    for step in range(shared + 1):
        member = client_ids[(index + step) % len(client_ids)]
        found += allocation(member, queues, client_ids)
    return found
