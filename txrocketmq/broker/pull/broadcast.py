"""Where does each client of a broadcasting group stand? For proxies, whose clients keep no offsets, and for clients that come from one.

Stands for ``BroadcastOffsetManager``. A pull says where its client is; a proxy that asks from a negative offset is told where its client was,
and so is a client that asked through a proxy before and asks directly now, or the other way round. Clients that never meet a proxy keep
their offsets themselves, and are only noted.

Crash story: the least offset of a group's clients is committed every five seconds for the group ``<group>@broadcast``; after a restart
clients that the broker does not know begin there.
"""

from __future__ import annotations

from collections.abc import Callable

from txrocketmq.broker.clients import Consumers
from txrocketmq.broker.consumer_offsets import ConsumerOffsets
from txrocketmq.codec.headers import PullMessageRequestHeader
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.interfaces import IMessageStore
from txrocketmq.model.heartbeat import ConsumeType
from txrocketmq.remoting.dispatch import Request

PERIOD_S = 5.0
FROM_PROXY = 1
"""``requestSource`` of a pull that a proxy makes for a broadcasting client (``PROXY_FOR_BROADCAST``)."""
SUFFIX = "@broadcast"
MOST_CLIENTS = 100_000
"""Of all groups; those beyond it are not noted."""

Pull = Request[PullMessageRequestHeader]


class _Client:
    """One client of a group and topic.

    :ivar offsets: by queue id.
    """

    __slots__ = ("from_proxy", "offsets", "seen_ms")

    def __init__(self, from_proxy: bool, now_ms: int) -> None:
        self.from_proxy = from_proxy
        self.seen_ms = now_ms
        self.offsets: dict[int, int] = {}


class BroadcastOffsets:
    """Notes where clients are (``enableBroadcastOffsetStore``)."""

    def __init__(
        self,
        config: BrokerConfig,
        store: IMessageStore,
        consumers: Consumers,
        offsets: ConsumerOffsets,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._store = store
        self._consumers = consumers
        self._offsets = offsets
        self._now_ms = now_ms
        self._groups: dict[tuple[str, str], dict[str, _Client]] = {}
        self._count = 0

    def _client_of(self, request: Pull) -> tuple[str, bool] | None:
        """The id of the client that pulls, and whether a proxy does it for it; None when it does not broadcast."""
        header = request.header
        if header.request_source == FROM_PROXY:
            name = header.proxy_froward_client_id
            return (name, True) if name else None
        group = self._consumers.get(header.consumer_group)
        if (
            group is None
            or not group.is_broadcasting
            or group.consume_type != ConsumeType.CONSUME_PASSIVELY
        ):
            return None
        member = group.members.get(request.connection)
        return None if member is None else (member.client_id, False)

    def begin(self, request: Pull) -> int:
        """Where a client has to go on instead of where it asks; -1: there."""
        if not self._config.enable_broadcast_offset_store:
            return -1
        found = self._client_of(request)
        if found is None:
            return -1
        client_id, from_proxy = found
        header = request.header
        clients = self._groups.get((header.topic, header.consumer_group))
        client = None if clients is None else clients.get(client_id)
        was_from_proxy = from_proxy if client is None else client.from_proxy
        if (was_from_proxy and header.queue_offset < 0) or was_from_proxy != from_proxy:
            return self._known(header, client)
        return -1

    def _known(self, header: PullMessageRequestHeader, client: _Client | None) -> int:
        topic, queue_id = header.topic, header.queue_id
        offset = -1 if client is None else client.offsets.get(queue_id, -1)
        if offset < 0:
            offset = self._offsets.query(header.consumer_group + SUFFIX, topic, queue_id)
        if offset < 0:
            if self._store.incomplete(topic, queue_id) is not None:
                # Derived from the log just now: the pull waits.
                return -1
            if self._store.is_in_memory(topic, queue_id, 0):
                return 0
            offset = self._store.max_offset(topic, queue_id)
        return offset

    def pulled(self, request: Pull, offset: int) -> None:
        """A client is at an offset: it asked for it, or was moved there."""
        if not self._config.enable_broadcast_offset_store:
            return
        found = self._client_of(request)
        if found is None:
            return
        client_id, from_proxy = found
        header = request.header
        clients = self._groups.setdefault((header.topic, header.consumer_group), {})
        client = clients.get(client_id)
        if client is None:
            if self._count >= MOST_CLIENTS:
                return
            self._count += 1
            client = clients[client_id] = _Client(from_proxy, self._now_ms())
        client.from_proxy = from_proxy
        client.seen_ms = self._now_ms()
        if offset > client.offsets.get(header.queue_id, -1):
            client.offsets[header.queue_id] = offset

    def topic_deleted(self, topic: str) -> None:
        """Forget who was where in a topic: another one may get its name."""
        for key in [key for key in self._groups if key[0] == topic]:
            self._count -= len(self._groups.pop(key))

    def group_deleted(self, group: str) -> None:
        """Forget where the clients of a group were, so that nothing of it is committed after this."""
        for key in [key for key in self._groups if key[1] == group]:
            self._count -= len(self._groups.pop(key))

    def scan(self) -> None:
        """Commit the least offsets of groups, and forget clients that did not ask for long."""
        config, now_ms = self._config, self._now_ms()
        gone_ms = config.broadcast_offset_expire_second * 1000
        longest_ms = config.broadcast_offset_expire_max_second * 1000
        for key, clients in tuple(self._groups.items()):
            topic, name = key
            group = self._consumers.get(name)
            online = set() if group is None else set(group.client_ids())
            least: dict[int, int] = {}
            for client_id, client in tuple(clients.items()):
                silent_ms = now_ms - client.seen_ms
                is_online = client_id in online
                if is_online or silent_ms < gone_ms:
                    for queue_id, offset in client.offsets.items():
                        least[queue_id] = min(least.get(queue_id, offset), offset)
                if silent_ms >= (longest_ms if is_online else gone_ms):
                    del clients[client_id]
                    self._count -= 1
            if not clients:
                del self._groups[key]
            for queue_id, offset in least.items():
                self._offsets.commit(name + SUFFIX, topic, queue_id, offset, "BroadcastOffset")
