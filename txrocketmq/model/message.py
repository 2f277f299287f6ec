"""What a message is: as an application sends it, as the broker hands it to its store, as a reader gets it back.

Stands for ``Message``, ``MessageExtBrokerInner`` (`MessageRecord`), ``MessageExt`` and ``MessageQueue``. Property names are in
`txrocketmq.model.properties`, topic and group names in `txrocketmq.model.names`.
"""

from __future__ import annotations

import msgspec

from txrocketmq.errors import MQClientError
from txrocketmq.model import properties as props
from txrocketmq.model.javahash import tags_code
from txrocketmq.model.message_id import offset_message_id
from txrocketmq.model.properties import (
    check_separators,
    check_user_property,
    format_properties,
    parse_properties,
)

Host = tuple[str, int]
"""A numeric address without brackets, and a port."""


class MessageQueue(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One partition of a topic. Sorted by topic, broker name, queue id."""

    # In the order in which they are written as JSON.
    broker_name: str
    queue_id: int
    topic: str

    def __lt__(self, other: MessageQueue) -> bool:
        return (self.topic, self.broker_name, self.queue_id) < (
            other.topic,
            other.broker_name,
            other.queue_id,
        )


class Message(msgspec.Struct):
    """A message as an application sends it.

    :ivar flag: a number for the application's own use.
    :ivar properties: name to value; set yours with `put_user_property`, which checks them.
    """

    topic: str
    body: bytes
    flag: int = 0
    properties: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def tags(self) -> str | None:
        """The tag consumers select by; may be set."""
        return self.properties.get(props.TAGS)

    @tags.setter
    def tags(self, value: str | None) -> None:
        self._set(props.TAGS, value)

    @property
    def keys(self) -> str | None:
        """Search keys, separated by spaces; may be set."""
        return self.properties.get(props.KEYS)

    @keys.setter
    def keys(self, value: str | None) -> None:
        self._set(props.KEYS, value)

    @property
    def uniq_key(self) -> str | None:
        """The id that the client gave the message."""
        return self.properties.get(props.UNIQ_KEY)

    @property
    def wait_store_msg_ok(self) -> bool:
        """Whether the sender waits for the flush and the replica where the broker is set so; may be set."""
        return self.properties.get(props.WAIT_STORE_MSG_OK, "true") == "true"

    @wait_store_msg_ok.setter
    def wait_store_msg_ok(self, value: bool) -> None:
        self.properties[props.WAIT_STORE_MSG_OK] = "true" if value else "false"

    @property
    def delay_time_level(self) -> int:
        """The fixed delay level, 0 when there is none; may be set."""
        text = self.properties.get(props.DELAY_TIME_LEVEL)
        return int(text) if text else 0

    @delay_time_level.setter
    def delay_time_level(self, value: int) -> None:
        self._set_number("delay_time_level", props.DELAY_TIME_LEVEL, value)

    @property
    def deliver_time_ms(self) -> int:
        """Wall-clock ms at which the broker delivers the message (5.x brokers), 0 for at once; may be set."""
        text = self.properties.get(props.TIMER_DELIVER_MS)
        return int(text) if text else 0

    @deliver_time_ms.setter
    def deliver_time_ms(self, value: int) -> None:
        self._set_number("deliver_time_ms", props.TIMER_DELIVER_MS, value)

    @property
    def delay_time_ms(self) -> int:
        """How many ms the broker waits before it delivers (5.x brokers), 0 for none; may be set."""
        text = self.properties.get(props.TIMER_DELAY_MS)
        return int(text) if text else 0

    @delay_time_ms.setter
    def delay_time_ms(self, value: int) -> None:
        self._set_number("delay_time_ms", props.TIMER_DELAY_MS, value)

    def _set_number(self, attribute: str, name: str, value: int) -> None:
        # Brokers read no point, and a float comes easily from a clock in seconds.
        if not isinstance(value, int):
            raise MQClientError(f"{attribute} must be a whole number, not {value!r:.200}")
        self._set(name, str(value) if value else None)

    def _set(self, name: str, value: str | None) -> None:
        if value is None:
            self.properties.pop(name, None)
        else:
            check_separators(name, value)
            self.properties[name] = value

    def put_user_property(self, name: str, value: str) -> None:
        """Set a property of the application's own.

        :raises MQClientError: for a reserved name, a blank, or a separator character.
        """
        check_user_property(name, value)
        self.properties[name] = value


class MessageRecord(msgspec.Struct, gc=False, kw_only=True):
    """A message on its way into the store.

    :ivar sys_flag: bits of `txrocketmq.model.flags`; the host bits follow the hosts when the record is encoded.
    :ivar properties: property text as it is stored, UTF-8, kept byte for byte.
    :ivar tags_code: goes to the consume queue; a delivery time in ms for the delay topic.
    :ivar wait_store_msg_ok: False: answer without waiting for flush or replica.
    :ivar keys: search keys separated by spaces, for the index.
    :ivar uniq_key: the client's message id, for the index.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    tags_code: int = 0
    born_timestamp: int = 0
    born_host: Host = ("127.0.0.1", 0)
    store_host: Host = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_msg_ok: bool = True
    keys: str | None = None
    uniq_key: str | None = None


class MessageExt(msgspec.Struct, gc=False, kw_only=True):
    """A message read back: what the record holds, nothing interpreted.

    :ivar store_size: the record's length in bytes.
    :ivar body: as stored, perhaps compressed (see ``sys_flag``); empty when it was not asked for.
    :ivar properties_text: property text as stored.
    :ivar broker_name: the broker that it was read from, where a client read it.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    flag: int
    sys_flag: int
    body: bytes
    body_crc: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    properties_text: bytes
    broker_name: str = ""
    _properties: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """The properties as a map, parsed at first use. Changes stay in this object."""
        found = self._properties
        if found is None:
            found = self._properties = parse_properties(self.properties_text)
        return found

    @properties.setter
    def properties(self, value: dict[str, str]) -> None:
        self._properties = value
        self.properties_text = format_properties(value)

    @property
    def msg_id(self) -> str:
        """The offset message id: store host, port and physical offset as upper-case hex."""
        host, port = self.store_host
        return offset_message_id(host, port, self.physical_offset)

    @property
    def tags(self) -> str | None:
        """The tag consumers select by."""
        return self.properties.get(props.TAGS)

    @property
    def keys(self) -> str | None:
        """Search keys, separated by spaces."""
        return self.properties.get(props.KEYS)

    @property
    def uniq_key(self) -> str | None:
        """The id that the client gave the message."""
        return self.properties.get(props.UNIQ_KEY)


def record_of(message: MessageExt) -> MessageRecord:
    """The record that a message was read from, to be put into a store once more."""
    return MessageRecord(
        topic=message.topic,
        queue_id=message.queue_id,
        body=message.body,
        properties=message.properties_text,
        flag=message.flag,
        sys_flag=message.sys_flag,
        tags_code=tags_code(message.tags),
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        keys=message.keys,
        uniq_key=message.uniq_key,
    )
