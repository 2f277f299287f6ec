"""Commands of ``mqadmin`` that are more than one operation of the admin client, or words it another way."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

from txrocketmq.cli.plain import plain
from txrocketmq.client.admin.admin import Admin
from txrocketmq.client.admin.errors import NoSuchBrokerError
from txrocketmq.client.admin.messages import MessageIdParts, decode_message_id
from txrocketmq.codec.bodies.wire import decode_body
from txrocketmq.errors import MQClientError, RocketMQError
from txrocketmq.model.flags import topic_sys_flag
from txrocketmq.model.group import GroupRetryPolicy, SubscriptionGroupConfig
from txrocketmq.model.heartbeat import SUB_ALL
from txrocketmq.model.message import Message, MessageExt
from txrocketmq.model.names import is_dlq_topic, is_retry_topic

_THIRTY_DAYS_MS = 30 * 24 * 3600 * 1000
_MESSAGES = 128
"""So many does ``consumeMessage`` show by itself."""
_ROCKSDB_TYPES = "topics;subscriptionGroups;consumerOffsets"


class Steps:
    """Operations as the commands have them."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    # ----------------------------------------------------------------- topics and groups

    async def unit_topic(
        self, topic: str, *, unit: bool = False, has_unit_sub: bool = False, **settings: Any
    ) -> list[str]:
        """Create a topic of a unit; the brokers that have it now."""
        flag = topic_sys_flag(unit=unit, unit_sub=has_unit_sub)
        return await self._admin.topics.create(topic, topic_sys_flag=flag, **settings)

    async def topics_of_clusters(self, by_cluster: bool) -> list[dict[str, str]]:
        """A line for each topic and group that consumes it, with the topic's cluster; without retry and dead letter topics."""
        topics = self._admin.topics
        lines = []
        for name in sorted(await topics.names()):
            if is_retry_topic(name) or is_dlq_topic(name):
                continue
            try:
                clusters = sorted(await topics.clusters(name))
                groups = sorted(await topics.consumer_groups(name))
            except RocketMQError:
                clusters, groups = [], []
            lines += [
                {"cluster": clusters[0] if clusters else "", "topic": name, "group": group}
                for group in groups or [""]
            ]
        return lines

    async def group(
        self,
        group: str,
        *,
        broker: str | None = None,
        cluster: str | None = None,
        retry_policy: str | None = None,
        consume_enable: bool | None = None,
        consume_from_min_enable: bool = False,
        consume_broadcast_enable: bool = False,
        consume_message_orderly: bool | None = None,
        retry_queue_nums: int | None = None,
        retry_max_times: int | None = None,
        broker_id: int | None = None,
        which_broker_when_consume_slowly: int | None = None,
        notify_consumer_ids_changed_enable: bool | None = None,
        attributes: dict[str, str] | None = None,
    ) -> list[str]:
        """Create a group, or give it these settings; what is not said gets the tool's defaults. The brokers that did it."""
        said: dict[str, Any] = {
            "consume_enable": consume_enable,
            "consume_from_min_enable": consume_from_min_enable,
            "consume_broadcast_enable": consume_broadcast_enable,
            "consume_message_orderly": consume_message_orderly,
            "retry_queue_nums": retry_queue_nums,
            "retry_max_times": retry_max_times,
            "broker_id": broker_id,
            "which_broker_when_consume_slowly": which_broker_when_consume_slowly,
            "notify_consumer_ids_changed_enable": notify_consumer_ids_changed_enable,
            "attributes": attributes,
        }
        config = SubscriptionGroupConfig(
            group_name=group, **{name: value for name, value in said.items() if value is not None}
        )
        if retry_policy is not None:
            config.group_retry_policy = decode_body(GroupRetryPolicy, retry_policy.encode())
        return await self._admin.groups.create(config, broker=broker, cluster=cluster)

    async def order(self, topic: str, method: str, value: str = "") -> str | None:
        """Look at (``get``), set (``put``) or take away (``delete``) how a topic's queues are fixed."""
        topics = self._admin.topics
        if method == "get":
            return await topics.order(topic)
        if method == "delete":
            await topics.delete_order(topic)
        elif method == "put":
            if not value.strip():
                raise MQClientError("say with -v what the order is: BROKER:QUEUES;...")
            await topics.put_order(topic, value.strip())
        else:
            raise MQClientError(f"a method is get, put or delete, not {method}")
        return None

    async def _brokers(
        self, clusters: Iterable[str] | None, brokers: Iterable[str] | None
    ) -> list[str]:
        if (clusters is None) == (brokers is None):
            raise MQClientError("say either clusters (-c) or brokers (-b)")
        if brokers is not None:
            return list(brokers)
        wanted = set(clusters or ())
        found = {
            member.broker_name
            for member in await self._admin.brokers.members()
            if member.cluster in wanted
        }
        if not found:
            raise NoSuchBrokerError(f"no broker is in cluster {', '.join(sorted(wanted))}")
        return sorted(found)

    async def grow_static_topic(
        self,
        topic: str,
        total_queues: int,
        clusters: list[str] | None = None,
        brokers: list[str] | None = None,
    ) -> Any:
        """Create a static topic, or give it more queues; the mapping."""
        names = await self._brokers(clusters, brokers)
        return await self._admin.static_topics.grow(topic, total_queues, names)

    async def move_static_topic(
        self, topic: str, clusters: list[str] | None = None, brokers: list[str] | None = None
    ) -> Any:
        """Move a static topic's queues to these brokers; the mapping."""
        names = await self._brokers(clusters, brokers)
        return await self._admin.static_topics.move(topic, names)

    # ----------------------------------------------------------------- messages

    async def messages(
        self,
        topic: str,
        *,
        charset: str = "utf-8",
        expression: str = SUB_ALL,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        bodies: bool = True,
        parent_topic: str | None = None,
    ) -> AsyncIterator[Any]:
        """The messages of a topic."""
        found = self._admin.messages.scan(
            topic,
            expression=expression,
            begin_ms=begin_ms,
            end_ms=end_ms,
            parent_topic=parent_topic,
        )
        async for message in found:
            yield _shown(message, charset, bodies)

    async def messages_of_queue(
        self,
        topic: str,
        broker_name: str,
        queue_id: int,
        *,
        charset: str = "utf-8",
        expression: str = SUB_ALL,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        shown: bool = False,
        bodies: bool = False,
        counted: bool = False,
    ) -> AsyncIterator[Any]:
        """The messages of a queue where they are to be shown, then how many have each tag where that is to be counted."""
        tags: Counter[str] = Counter()
        found = self._admin.messages.scan(
            topic,
            broker_name=broker_name,
            queue_id=queue_id,
            expression=expression,
            begin_ms=begin_ms,
            end_ms=end_ms,
        )
        async for message in found:
            if message.tags and message.tags.strip():
                tags[message.tags] += 1
            if shown:
                yield _shown(message, charset, bodies)
        if counted:
            for tag, count in tags.most_common():
                yield {"tag": tag, "count": count}

    async def some_messages(
        self,
        topic: str,
        *,
        broker_name: str | None = None,
        queue_id: int | None = None,
        offset: int | None = None,
        group: str | None = None,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        max_num: int = _MESSAGES,
    ) -> AsyncIterator[MessageExt]:
        """The first messages of a topic, or of a queue from an offset on. No group moves, whichever is named."""
        if queue_id is not None and broker_name is None:
            raise MQClientError("a queue (-i) is a broker's: say -b, too")
        if offset is not None and queue_id is None:
            raise MQClientError("an offset (-o) is a queue's: say -i, too")
        if max_num <= 0:
            raise MQClientError("the number of messages (-c) is at least 1")
        found = self._admin.messages.scan(
            topic,
            broker_name=broker_name,
            queue_id=queue_id,
            offset=offset,
            begin_ms=begin_ms,
            end_ms=end_ms,
            max_num=max_num,
        )
        async for message in found:
            yield message

    async def send(
        self,
        topic: str,
        body: str,
        *,
        keys: str | None = None,
        tags: str | None = None,
        broker_name: str | None = None,
        queue_id: int | None = None,
    ) -> Any:
        """Send a message."""
        if queue_id is not None and broker_name is None:
            raise MQClientError("a queue (-i) is a broker's: say -b, too")
        message = Message(topic=topic, body=body.encode())
        if keys is not None:
            message.keys = keys
        if tags is not None:
            message.tags = tags
        if queue_id is None:
            broker_name = None  # as mqadmin: a broker without a queue chooses nothing
        return await self._admin.messages.send(message, broker_name=broker_name, queue_id=queue_id)

    async def by_id(
        self, topic: str, message_id: str, charset: str, cluster: str | None = None
    ) -> Any:
        """A message, its body in a character set; None when there is none."""
        message = await self._admin.messages.by_id(topic, message_id, cluster)
        return None if message is None else _shown(message, charset, bodies=True)

    async def by_offset(
        self, topic: str, broker_name: str, queue_id: int, offset: int, charset: str
    ) -> Any:
        """A message, its body in a character set; None when there is none."""
        message = await self._admin.messages.by_offset(topic, broker_name, queue_id, offset)
        return None if message is None else _shown(message, charset, bodies=True)

    async def resend(
        self, topic: str, message_id: str, again: bool, cluster: str | None = None
    ) -> Any:
        """Send a message that is stored once more, to the same topic."""
        message = await self._admin.messages.by_id(topic, message_id, cluster)
        if message is None:
            raise MQClientError(f"there is no message {message_id} in topic {topic}")
        if not again:
            return message
        copy = Message(message.topic, message.body, message.flag, dict(message.properties))
        return await self._admin.messages.send(copy)

    async def consume_unique(
        self, topic: str, unique_key: str, group: str, client_id: str, cluster: str | None = None
    ) -> Any:
        """Have a member try a message."""
        return await self._admin.messages.consume_directly(
            group, client_id, topic, unique_key, cluster
        )

    async def decode_id(self, message_id: str) -> MessageIdParts:
        """What an offset message id says."""
        return decode_message_id(message_id)

    # ----------------------------------------------------------------- brokers and members

    async def epochs(
        self, broker_name: str | None = None, cluster: str | None = None
    ) -> dict[str, Any]:
        """The terms that brokers know, by address: those of one name, or of a cluster; the last one ends where the log does."""
        if (broker_name is None) == (cluster is None):
            raise MQClientError("say either a cluster (-c) or a broker's name (-b)")
        found = {}
        for member in await self._admin.brokers.members(cluster):
            if broker_name in (None, member.broker_name):
                terms = await self._admin.brokers.epochs(member.address)
                if terms.epoch_list:
                    terms.epoch_list[-1].end_offset = terms.max_offset
                found[member.address] = terms
        if not found:
            raise NoSuchBrokerError(f"no broker is registered as {broker_name or cluster}")
        return found

    async def stats_in_broker(self, broker: str, level: int, **choice: Any) -> Any:
        """Where all groups of a broker stand, of queues where they are behind by so many messages or more."""
        found = await self._admin.groups.stats_in_broker(broker, **choice)
        for of_group in found.consume_stats_list:
            for stats in (one for many in of_group.values() for one in many):
                stats.offset_table = {
                    queue: place
                    for queue, place in stats.offset_table.items()
                    if place.broker_offset - place.consumer_offset >= level
                }
        return found

    async def remove_broker(self, container: str, identity: str) -> None:
        """Stop a broker of a container, which is ``cluster:name:id``."""
        cluster, _, rest = identity.partition(":")
        name, _, number = rest.partition(":")
        if not (cluster and name and number.isdecimal()):
            raise MQClientError(f"a broker is CLUSTER:NAME:ID, not {identity}")
        await self._admin.brokers.remove_from_container(container, cluster, name, int(number))

    async def rocksdb_config(
        self,
        types: str = _ROCKSDB_TYPES,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Have brokers write what they keep in RocksDB to their JSON files; who did it."""
        wanted = [word.strip() for word in types.replace(",", ";").split(";") if word.strip()]
        return await self._admin.brokers.export_rocksdb_config(
            wanted, broker=broker, cluster=cluster
        )

    async def rocksdb_queues(
        self, cluster: str, topic: str = "", check_from_ms: int | None = None
    ) -> dict[str, Any]:
        """Whether queues in RocksDB agree with those in files, by a master's name; of the last 30 days by itself."""
        if check_from_ms is None:
            check_from_ms = int(self._admin.instance.clock.seconds() * 1000) - _THIRTY_DAYS_MS
        return {
            member.broker_name: await self._admin.brokers.check_rocksdb_queues(
                member.address, topic, check_from_ms
            )
            for member in await self._admin.brokers.members(cluster)
            if member.broker_id == 0
        }

    async def members(self, group: str, jstack: bool = False) -> dict[str, Any]:
        """The members of a group, and what each tells of itself."""
        clients = self._admin.clients
        return {
            "connections": await clients.consumers(group),
            "members": await clients.all_running_infos(group, jstack=jstack),
        }


class EachBroker:
    """What is asked of one broker, asked of all of a cluster; by address."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def _ask(self, operation: Any, cluster: str, *words: Any) -> dict[str, Any]:
        members = await self._admin.brokers.members(cluster)
        if not members:
            raise NoSuchBrokerError(f"there is no cluster {cluster}")
        return {member.address: await operation(member.address, *words) for member in members}

    async def user(self, cluster: str, username: str) -> dict[str, Any]:
        """A user as each broker of a cluster has it."""
        return await self._ask(self._admin.access.user, cluster, username)

    async def users(self, cluster: str, name_filter: str | None = None) -> dict[str, Any]:
        """All users of each broker of a cluster whose name holds a text."""
        return await self._ask(self._admin.access.users, cluster, name_filter)

    async def acl(self, cluster: str, subject: str) -> dict[str, Any]:
        """A subject's rules as each broker of a cluster has them."""
        return await self._ask(self._admin.access.acl, cluster, subject)

    async def acls(
        self,
        cluster: str,
        subject_filter: str | None = None,
        resource_filter: str | None = None,
    ) -> dict[str, Any]:
        """All rules of each broker of a cluster whose subject and resource hold a text."""
        return await self._ask(self._admin.access.acls, cluster, subject_filter, resource_filter)

    async def cold_data_info(self, cluster: str) -> dict[str, Any]:
        """The same of each broker of a cluster."""
        return await self._ask(self._admin.brokers.cold_data_info, cluster)


def _shown(message: MessageExt, charset: str, bodies: bool) -> Any:
    """A message as JSON has it, its body in a character set, or left out.

    :raises MQClientError: there is no such character set.
    """
    try:
        text = message.body.decode(charset, "backslashreplace") if bodies else None
    except LookupError:
        raise MQClientError(f"there is no character set {charset}") from None
    return {**plain(message), "body": text}
