"""An operator of ours in a process of its own, for tests with real servers: does one phase and prints one JSON object.

    python real_admin.py NAMESRV CLUSTER BROKER TOPIC GROUP PHASE

What it prints is made so that servers that hold the same give the same: no times, addresses or ids. A step that is refused says the code.
PHASE: ``setup`` makes topic and group and sends, ``online`` looks while a consumer runs, ``offline`` after it has left.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from txrocketmq.client.admin.admin import Admin
from txrocketmq.errors import BrokerError
from txrocketmq.model.group import SubscriptionGroupConfig
from txrocketmq.model.message import Message
from txrocketmq.model.topic import TopicConfig

COUNT, QUEUES = 12, 2
PATIENCE_S = 30.0


@attrs.define
class Operator:
    """One run.

    :ivar told: step to what came of it.
    """

    reactor: Any
    admin: Admin
    cluster: str
    broker: str
    topic: str
    group: str
    told: dict[str, Any] = attrs.field(factory=dict)

    async def step(self, name: str, awaited: Awaitable[Any], plain: Callable[[Any], Any]) -> Any:
        try:
            found = await awaited
        except BrokerError as error:
            self.told[name] = ["refused", error.code]
            return None
        self.told[name] = plain(found)
        return found

    async def until(self, wanted: Callable[[], Awaitable[bool]]) -> None:
        """Ask again until it is so; AssertionError when it is not in time."""
        end = self.reactor.seconds() + PATIENCE_S
        while not await wanted():
            assert self.reactor.seconds() < end, "not in time"
            await deferLater(self.reactor, 0.1)

    # ----------------------------------------------------------------- phases

    async def setup(self) -> None:
        a, topic, group = self.admin, self.topic, self.group
        await self.step(
            "topics.create",
            a.topics.create(
                topic, cluster=self.cluster, write_queue_nums=QUEUES, read_queue_nums=QUEUES
            ),
            len,
        )
        config = SubscriptionGroupConfig(group_name=group, retry_max_times=4)
        await self.step("groups.create", a.groups.create(config, cluster=self.cluster), len)
        for name in (f"{group}-2", f"{group}-3"):
            await self.step("groups.create", a.groups.create(name, cluster=self.cluster), len)
        await self.step(
            "topics.create_list",
            a.topics.create_list(
                [TopicConfig(topic_name=f"{topic}-l")], broker=await self.address()
            ),
            len,
        )

        async def is_routed() -> bool:
            return topic in await a.topics.names()

        await self.until(is_routed)
        for number in range(COUNT):
            message = Message(topic, b"body %d" % number)
            message.keys, message.tags = f"key-{number} all", f"Tag{number % 3}"
            await a.messages.send(message, broker_name=self.broker, queue_id=number % QUEUES)

    async def address(self) -> str:
        members = await self.admin.brokers.members(self.cluster)
        return members[0].address

    async def online(self) -> None:
        a, topic, group = self.admin, self.topic, self.group

        async def is_done() -> bool:
            found = await a.groups.progress(group, topic)
            return len(found.queues) == QUEUES and found.diff_total == 0

        await self.until(is_done)
        found = await self.step(
            "clients.consumers",
            a.clients.consumers(group),
            lambda c: [
                len(c.connection_set),
                [member.language for member in c.connection_set],
                c.consume_type,
                c.message_model,
                c.consume_from_where,
                sorted(
                    (k, v.sub_string, v.expression_type) for k, v in c.subscription_table.items()
                ),
            ],
        )
        client_id = found.connection_set[0].client_id
        await self.step(
            "clients.all_running_infos",
            a.clients.all_running_infos(group),
            lambda infos: [
                [q.queue_id, place.commit_offset, place.cached_msg_count, place.droped]
                for info in infos.values()
                for q, place in sorted(info.mq_table.items(), key=lambda item: item[0])
                if q.topic == topic
            ],
        )
        await self.step(
            "groups.progress",
            a.groups.progress(group, topic, client_ips=True),
            lambda p: [
                [r.queue.queue_id, r.broker_offset, r.consumer_offset, bool(r.client_ip)]
                for r in p.queues
            ],
        )
        message = await a.messages.by_offset(topic, self.broker, 1, 2)
        assert message is not None
        await self.step(
            "message_track",
            a.message_track(message),
            lambda tracks: [[t.group, t.track_type.value] for t in tracks],
        )
        await self.step(
            "messages.consume_directly",
            a.messages.consume_directly(group, client_id, topic, message.uniq_key or ""),
            lambda r: [r.consume_result, r.order, r.auto_commit],
        )
        await self.step(
            "topics.consumer_groups",
            a.topics.consumer_groups(topic),
            sorted,
        )
        for copy, cloned in (
            (f"{group}-2", a.offsets.clone(group, f"{group}-2", topic)),
            (f"{group}-3", a.offsets.clone_at_brokers(group, f"{group}-3", topic, offline=True)),
        ):
            await self.step(f"offsets.clone {copy[-1]}", cloned, lambda found: bool(found))
            await self.places(copy)
        await self.step(
            "offsets.reset",
            a.offsets.reset(group, topic, 0),
            lambda r: sorted(r.offsets.values()) or [x.rollback_offset for x in r.rollbacks],
        )

    async def offline(self) -> None:
        await self._groups_offline()
        await self._messages()
        await self._servers()

    async def _groups_offline(self) -> None:
        a, topic, group = self.admin, self.topic, self.group
        overview = [line for line in await a.groups.overview() if line.group == group]
        self.told["groups.overview"] = [[line.count, line.version_text] for line in overview]
        # A group without members: what a reset leaves to the members of the other one takes its time.
        alone, address = f"{group}-3", await self.address()
        for queue in await a.instance.subscribe_queues(topic):
            await a.offsets.update(address, alone, queue, queue.queue_id + 1)
        await self.step(
            "offsets.reset_offline",
            a.offsets.reset_offline(alone, topic, 0, force=False),
            lambda rows: [attrs.astuple(row)[1:] for row in rows],
        )
        await self.step("offsets.skip", a.offsets.skip(alone, topic), lambda r: None)
        await self.places(alone)

    async def places(self, group: str) -> None:
        """Where a group stands in the topic."""
        await self.step(
            f"consume_stats {group[-1]} {len(self.told)}",
            self.admin.groups.consume_stats_at(await self.address(), group, self.topic),
            lambda s: sorted(
                (q.queue_id, w.broker_offset, w.consumer_offset) for q, w in s.offset_table.items()
            ),
        )

    async def _messages(self) -> None:
        a, topic = self.admin, self.topic

        async def is_indexed() -> bool:
            return len((await a.messages.by_key(topic, "all")).messages) == COUNT

        await self.until(is_indexed)
        found = await a.messages.by_key(topic, "key-5")
        [message] = found.messages
        self.told["messages.by_key"] = [m.body.decode() for m in found.messages]
        for name, message_id in (("unique", message.uniq_key), ("offset", message.msg_id)):
            await self.step(
                f"messages.by_id {name}",
                a.messages.by_id(topic, message_id or ""),
                lambda m: [m.body.decode(), m.queue_id, m.queue_offset, m.tags],
            )
        self.told["messages.scan"] = [
            [m.queue_id, m.queue_offset, m.body.decode()]
            async for m in a.messages.scan(topic, expression="Tag1")
        ]
        await self.step(
            "messages.consume_queue",
            a.messages.consume_queue(await self.address(), topic, 0, 1, 2, self.group),
            lambda c: [
                c.min_queue_index,
                c.max_queue_index,
                [[u.tags_code, u.eval] for u in c.queue_data],
            ],
        )

    async def _servers(self) -> None:
        a, topic, group, address = self.admin, self.topic, self.group, await self.address()
        await self.step(
            "topics.route",
            a.topics.route(topic),
            lambda r: [
                [q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm, q.topic_sys_flag]
                for q in r.queue_datas
            ],
        )
        await self.step(
            "topics.status",
            a.topics.status(topic),
            lambda t: sorted(
                (q.queue_id, o.min_offset, o.max_offset, o.last_update_timestamp > 0)
                for q, o in t.offset_table.items()
            ),
        )
        await self.step("topics.clusters", a.topics.clusters(topic), sorted)
        await self.step(
            "topics.config",
            a.topics.config(address, topic),
            lambda c: [c.read_queue_nums, c.perm, c.topic_filter_type, c.order, c.attributes],
        )
        await self.step(
            "groups.configs_of",
            a.groups.configs_of(group),
            lambda c: [[name, g.retry_max_times, g.retry_queue_nums] for name, g in c.items()],
        )
        await self.step(
            "brokers.config", a.brokers.config(address), lambda c: c["brokerClusterName"]
        )
        for key, value in (("waitTimeMillsInSendQueue", 200), ("noSuchKeyAnywhere", 1)):
            await self.step(
                f"brokers.update_config {key}",
                a.brokers.update_config({key: value}, broker=address),
                len,
            )
        await self.step("wipe", a.name_servers.wipe_write_perm(self.broker), len)
        await self.step("topics.route perm", a.topics.route(topic), lambda r: r.queue_datas[0].perm)
        await self.step("add", a.name_servers.add_write_perm(self.broker), len)
        await a.name_servers.put_kv("NS", "k", "v")
        await self.step("list_kv", a.name_servers.list_kv("NS"), dict)
        await a.name_servers.delete_kv("NS", "k")
        await self.step("get_kv", a.name_servers.get_kv("NS", "k"), str)
        await self.step("ha", a.brokers.ha_status(address), lambda h: [h.master])
        await self.step("perm", a.topics.update_perm(topic, 4, cluster=self.cluster), len)
        await self.step("groups.delete", a.groups.delete(group, cluster=self.cluster), len)
        await self.step("gone", a.groups.configs_of(group), len)
        await self.step("topics.delete", a.topics.delete(topic, self.cluster), len)
        self.told["topics.names"] = topic in await a.topics.names()


async def run(reactor: Any, words: list[str]) -> None:
    """Do a phase and print what came of it."""
    namesrv, cluster, broker, topic, group, phase = words
    async with Admin(reactor, namesrv_addr=namesrv) as admin:
        operator = Operator(reactor, admin, cluster, broker, topic, group)
        await getattr(operator, phase)()
    print(json.dumps(operator.told))


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(run(reactor, sys.argv[1:])))
