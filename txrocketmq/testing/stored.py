"""What do tests ask of the brokers' messages and offsets? And what do they say when it is not so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from txrocketmq.client.messages import decompress_message
from txrocketmq.codec.record import decode_records
from txrocketmq.model.flags import COMPRESSED_FLAG
from txrocketmq.model.message import MessageExt
from txrocketmq.model.names import dlq_topic, is_system_topic, reply_topic
from txrocketmq.model.topic import TopicConfig

if TYPE_CHECKING:
    from txrocketmq.testing.servers import MemoryBroker

T = TypeVar("T")

MAX_LISTED = 20
MESSAGE_TYPE = "message.type"


class Server(Protocol):
    """A broker of the test, up or down; None before its first start."""

    broker: MemoryBroker | None


S = TypeVar("S", bound=Server)


class StoredMessages(Generic[S]):
    """Questions about messages, topics and groups, for all brokers together. Names are those on the wire, with name space."""

    _servers: dict[str, S]

    def _server(self, name: str) -> S:
        name = name or next(iter(self._servers))
        if name not in self._servers:
            raise KeyError(f"there is no broker {name!r}, only {', '.join(self._servers)}")
        return self._servers[name]

    def _brokers_of_test(self) -> Mapping[str, MemoryBroker]:
        """The brokers by name; of one that is down, what it last was."""
        return {
            name: server.broker
            for name, server in self._servers.items()
            if server.broker is not None
        }

    def _ask(self, question: Callable[[], T]) -> T:
        """Have a question answered where the brokers live."""
        return question()

    # ------------------------------------------------------------------ messages

    def messages(self, topic: str) -> list[MessageExt]:
        """All messages that are stored in a topic, decompressed; by broker, queue and offset. Empty when there is no such topic.

        Delayed and half messages are not in their topic yet; retries are in ``%RETRY%group``.
        """
        return self._ask(lambda: self._messages(topic))

    def _messages(self, topic: str) -> list[MessageExt]:
        found: list[MessageExt] = []
        for name, broker in sorted(self._brokers_of_test().items()):
            store = broker.store
            for queue_id in sorted(number for known, number in store.queues() if known == topic):
                low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
                for offset in range(low, high):
                    read: Any = store.get_message(topic, queue_id, offset, 1, 1 << 26, None)
                    for message in decode_records(b"".join(bytes(part) for part in read.records)):
                        message.broker_name = name
                        if message.sys_flag & COMPRESSED_FLAG:
                            decompress_message(message)
                        found.append(message)
        return found

    def bodies(self, topic: str) -> list[bytes]:
        """The bodies of `messages`."""
        return [message.body for message in self.messages(topic)]

    def dead_letters(self, group: str) -> list[MessageExt]:
        """What a consumer group gave up."""
        return self.messages(dlq_topic(group))

    def assert_stored(
        self,
        topic: str,
        *,
        body: bytes | str | None = None,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        count: int | None = None,
    ) -> list[MessageExt]:
        """See that a topic has messages like that; those that it has.

        :param body: bytes, or a text in UTF-8.
        :param keys: all of the message's keys, as it was sent with them.
        :param properties: that it has among others.
        :param count: exactly so many of them; else at least one.
        :raises AssertionError: saying what is there instead.
        """
        wanted_body = body.encode() if isinstance(body, str) else body
        stored = self.messages(topic)
        found = [
            message
            for message in stored
            if (wanted_body is None or message.body == wanted_body)
            and (tags is None or message.tags == tags)
            and (keys is None or message.keys == keys)
            and all(message.properties.get(key) == v for key, v in (properties or {}).items())
        ]
        if count is None and found:
            return found
        if count is not None and len(found) == count:
            return found
        asked = {"body": wanted_body, "tags": tags, "keys": keys, "properties": properties}
        like = ", ".join(f"{key}={value!r}" for key, value in asked.items() if value is not None)
        wanted = "a message" if count is None else f"{count} messages"
        raise AssertionError(
            f"expected {wanted} with {like or 'any content'} in topic {topic}, found {len(found)}; "
            + self._ask(lambda: self._instead(topic, stored))
        )

    def _instead(self, topic: str, stored: list[MessageExt]) -> str:
        if stored:
            return f"it has {len(stored)}:\n{listed(stored)}"
        brokers = self._brokers_of_test()
        if any(topic in broker.core.topics for broker in brokers.values()):
            return "it is empty" + self._elsewhere()
        topics = ", ".join(self._topics())
        return "there is no such topic, " + (f"only {topics}" if topics else "none was made yet")

    def _elsewhere(self) -> str:
        """Where messages of it may wait."""
        waiting = len(self._messages("SCHEDULE_TOPIC_XXXX")) + len(
            self._messages("rmq_sys_wheel_timer")
        )
        half = len(self._messages("RMQ_SYS_TRANS_HALF_TOPIC"))
        hints = []
        if waiting:
            hints.append(f"{waiting} delayed messages were stored, advance() brings them")
        if half:
            hints.append(f"{half} half messages were stored")
        return "".join(f"; {hint}" for hint in hints)

    # ------------------------------------------------------------------ topics and groups

    def topics(self) -> list[str]:
        """The topics that were made, by a test or by a first message, sorted; without those that are always there."""
        return self._ask(self._topics)

    def _topics(self) -> list[str]:
        names: set[str] = set()
        for broker in self._brokers_of_test().values():
            cluster = broker.config.broker_cluster_name
            always = {broker.config.broker_name, cluster, reply_topic(cluster)}
            for topic in broker.core.topics.all():
                name = topic.topic_name or ""
                if not is_system_topic(name) and name not in always:
                    names.add(name)
        return sorted(names)

    def _create(self, topic: str, queues: int, kind: str, only: Iterable[str] | None) -> None:
        for name, broker in self._brokers_of_test().items():
            if only is None or name in only:
                config = TopicConfig(
                    topic_name=topic,
                    read_queue_nums=queues,
                    write_queue_nums=queues,
                    attributes={MESSAGE_TYPE: kind} if kind else {},
                )
                broker.core.topics.update([config])

    def positions(self, group: str, topic: str) -> dict[tuple[str, int], tuple[int, int]]:
        """Where a group stands: by broker and queue its committed offset (the first one, when it has none) and the queue's end."""
        return self._ask(lambda: self._positions(group, topic))

    def _positions(self, group: str, topic: str) -> dict[tuple[str, int], tuple[int, int]]:
        found = {}
        for name, broker in sorted(self._brokers_of_test().items()):
            config = broker.core.topics.get(topic)
            for queue_id in range(0 if config is None else config.read_queue_nums):
                committed = broker.core.offsets.query(group, topic, queue_id)
                start = broker.store.min_offset(topic, queue_id)
                end = max(0, broker.store.max_offset(topic, queue_id))
                found[name, queue_id] = (max(committed, start, 0), end)
        return found

    def lag(self, group: str, topic: str) -> int:
        """Messages of a topic that a group has not committed yet, as brokers know it. Consumers commit every 5 s, and when they stop."""
        return sum(end - at for at, end in self.positions(group, topic).values())


def listed(messages: list[MessageExt]) -> str:
    """Messages for a reader, one a line."""
    lines = [
        f"  {message.broker_name} queue {message.queue_id} offset {message.queue_offset}: "
        f"body={_short(message.body)} tags={message.tags!r} keys={message.keys!r}"
        for message in messages[:MAX_LISTED]
    ]
    if len(messages) > MAX_LISTED:
        lines.append(f"  ... and {len(messages) - MAX_LISTED} more")
    return "\n".join(lines)


def _short(body: bytes) -> str:
    return repr(body) if len(body) <= 60 else f"{body[:57]!r}... ({len(body)} bytes)"
