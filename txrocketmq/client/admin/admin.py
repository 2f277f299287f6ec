"""The way in: one client for operators, its operations by subject.

Stands for ``DefaultMQAdminExt``. ::

    async with Admin(reactor, namesrv_addr="127.0.0.1:9876") as admin:
        await admin.topics.create("Orders", cluster="DefaultCluster", write_queue_nums=4)
        print(await admin.groups.progress("billing"))

Names of topics and groups are those on the wire, addresses ``host:port``. Operations for several servers ask them at once; when some fail,
`admin.errors.PartialFailureError` tells what the others did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txrocketmq.client.admin.access import AccessAdmin
from txrocketmq.client.admin.brokers import BrokerAdmin
from txrocketmq.client.admin.clients import ClientAdmin
from txrocketmq.client.admin.controllers import ControllerAdmin
from txrocketmq.client.admin.core import AdminCore
from txrocketmq.client.admin.export import ExportAdmin
from txrocketmq.client.admin.groups import GroupAdmin
from txrocketmq.client.admin.messages import MessageAdmin
from txrocketmq.client.admin.namesrv import NameServerAdmin
from txrocketmq.client.admin.offsets import OffsetAdmin
from txrocketmq.client.admin.results import MessageTrack
from txrocketmq.client.admin.sending import ProbeAdmin, ToolProducer
from txrocketmq.client.admin.static_topics import StaticTopicAdmin
from txrocketmq.client.admin.topics import TopicAdmin
from txrocketmq.client.admin.track import Tracker
from txrocketmq.client.admin.traffic import TrafficAdmin
from txrocketmq.client.config import ClientConfig, chosen_client
from txrocketmq.client.instance import ClientInstance, shared_instance
from txrocketmq.client.life import RoleService
from txrocketmq.model.message import MessageExt
from txrocketmq.remoting.dispatch import RequestHook

TIMEOUT_MS = 5000


class Admin(RoleService):
    """What operators do; see `RoleService` for its life.

    :param reactor: connects, and is the clock.
    :param client: settings of the client; by itself a client of its own.
    :param namesrv_addr: short for ``client=ClientConfig(namesrv_addr=...)``.
    :param timeout_ms: for each request; some that take longer have a multiple of it.
    :param instance: share this one instead of the reactor's for the client id.
    :param hooks: see every request, for signatures (official ``RPCHook``); only where the client instance is made here.
    :ivar topics: making, changing, looking, order.
    :ivar groups: making, changing, progress.
    :ivar offsets: resets, skipping, cloning.
    :ivar clients: connections and what members tell of themselves.
    :ivar messages: by id, key, offset, time; reading on; trying; sending.
    :ivar brokers: figures, settings, cleaning, replication, cold reads, containers.
    :ivar name_servers: key-value table, settings, write permission.
    :ivar controllers: leader, elections, in-sync sets.
    :ivar access: users and rules.
    :ivar static_topics: mappings of logical queues.
    :ivar traffic: figures of topics and groups.
    :ivar probes: how long brokers take.
    :ivar exports: what a cluster holds, in one piece.
    """

    def __init__(
        self,
        reactor: Any,
        client: ClientConfig | None = None,
        *,
        namesrv_addr: str = "",
        timeout_ms: int = TIMEOUT_MS,
        instance: ClientInstance | None = None,
        hooks: Sequence[RequestHook] = (),
    ) -> None:
        client = chosen_client(client, namesrv_addr)
        super().__init__("the admin client")
        self.instance = instance or shared_instance(reactor, client, hooks)
        core = AdminCore(self.instance, timeout_ms)
        self._producer = ToolProducer(reactor, core)
        self.topics = TopicAdmin(core)
        self.clients = ClientAdmin(core)
        self.groups = GroupAdmin(core, self.topics, self.clients)
        self.offsets = OffsetAdmin(core, self.topics, self.groups)
        self.messages = MessageAdmin(core, self._producer)
        self.brokers = BrokerAdmin(core)
        self.name_servers = NameServerAdmin(core)
        self.controllers = ControllerAdmin(core)
        self.access = AccessAdmin(core)
        self.static_topics = StaticTopicAdmin(core, self.topics)
        self.traffic = TrafficAdmin(core, self.topics, self.groups, self.brokers)
        self.probes = ProbeAdmin(core, self._producer)
        self.exports = ExportAdmin(core, self.topics, self.groups, self.brokers)
        self._tracker = Tracker(core, self.topics, self.groups, self.clients)

    # ----------------------------------------------------------------- life

    async def _enter(self) -> None:
        await self.instance.acquire()

    async def _leave(self) -> None:
        try:
            await self._producer.stop()
        finally:
            await self.instance.release()

    # ----------------------------------------------------------------- messages and groups

    async def message_track(self, message: MessageExt) -> list[MessageTrack]:
        """What became of a message in each group that consumes its topic (official ``messageTrackDetail``).

        :raises NoSuchTopicError: the topic is gone.
        """
        return await self._tracker.track(message)
