"""Which attributes may a topic or group have, and how does an operator change them?

Stands for ``TopicAttributes``, ``SubscriptionGroupAttributes``, ``AttributeParser`` and ``AttributeUtil``. A change names each attribute
with a sign: ``+key=value`` adds or alters, ``-key`` removes. The remarks are the official ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from txrocketmq.errors import MQClientError

QUEUE_TYPE = "queue.type"
CLEANUP_POLICY = "cleanup.policy"
MESSAGE_TYPE = "message.type"
RESERVE_TIME = "reserve.time"

SIMPLE_CQ, BATCH_CQ = "SimpleCQ", "BatchCQ"
DELETE, COMPACTION = "DELETE", "COMPACTION"
MIXED = "MIXED"
MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", MIXED)

_MAX_LONG = 2**63 - 1


class AttributeFault(MQClientError):
    """A change of attributes that cannot be made; the text is the official one."""


class Attribute(NamedTuple):
    """One attribute.

    :ivar changeable: whether it may be altered or removed once its owner exists.
    :ivar check: raises `AttributeFault` for a value that is not allowed.
    """

    changeable: bool
    check: Callable[[str], None]


def _one_of(*allowed: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value not in allowed:
            raise AttributeFault(f"value is not in set: [{', '.join(allowed)}]")

    return check


def _whole_number(low: int, high: int) -> Callable[[str], None]:
    def check(value: str) -> None:
        try:
            number = int(value)
        except ValueError:
            raise AttributeFault(f'For input string: "{value}"') from None
        if not low <= number <= high:
            raise AttributeFault(f"value is not in range({low}, {high})")

    return check


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    QUEUE_TYPE: Attribute(False, _one_of(BATCH_CQ, SIMPLE_CQ)),
    CLEANUP_POLICY: Attribute(False, _one_of(DELETE, COMPACTION)),
    MESSAGE_TYPE: Attribute(True, _one_of(*MESSAGE_TYPES)),
    RESERVE_TIME: Attribute(True, _whole_number(-1, _MAX_LONG)),
}

GROUP_ATTRIBUTES: Mapping[str, Attribute] = {}


def parse_change(text: str | None) -> dict[str, str]:
    """A change as it travels in a header: ``+key1=value1,+key2=value2,-key3``; keys keep their sign.

    :raises AttributeFault: a part has no sign, no value, or comes twice.
    """
    change: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, separator, value = part.partition("=")
        if separator:
            if "+" not in key:
                raise AttributeFault(f"add/alter attribute format is wrong: {key}")
            if not value:
                raise AttributeFault(f"add/alter attribute has no value: {key}")
            value = value.partition("=")[0]
        elif "-" not in key:
            raise AttributeFault(f"delete attribute format is wrong: {key}")
        if key in change:
            raise AttributeFault(f"key duplication: {key}")
        change[key] = value
    return change


def apply_change(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, change: Mapping[str, str]
) -> dict[str, str]:
    """The attributes after a change.

    :param current: the attributes before it; None when their owner is being created.
    :raises AttributeFault: an attribute is unknown, must not change, or gets a value that is not allowed.
    """
    result = dict(current or {})
    seen: set[str] = set()
    for signed, value in change.items():
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise AttributeFault("kv string format wrong.")
        if key in seen:
            raise AttributeFault(f"alter duplication key. key: {key}")
        seen.add(key)
        if current is None and sign != "+":
            raise AttributeFault(
                f"only add attribute is supported while creating topic. key: {key}"
            )
        if sign not in ("+", "-"):
            raise AttributeFault(f"wrong format key: {key}")
        if sign == "-" and key not in result:
            raise AttributeFault(f"attempt to delete a nonexistent key: {key}")
        attribute = known.get(key)
        if attribute is None:
            raise AttributeFault(f"unsupported key: {key}")
        if current is not None and not attribute.changeable:
            raise AttributeFault(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            del result[key]
        else:
            attribute.check(value)
            result[key] = value
    return result
