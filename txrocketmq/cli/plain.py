"""How is a result of the admin client written as JSON?"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from txrocketmq.model.message import MessageExt, MessageQueue


def plain(value: Any) -> Any:
    """A result as JSON has it: names of fields as they are in Python, queues as ``broker/topic/number`` where they are keys."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, MessageExt):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        del fields["properties_text"]
        shown = {name: item for name, item in fields.items() if not name.startswith("_")}
        return plain({**shown, "msg_id": value.msg_id, "properties": value.properties})
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if attrs.has(type(value)):
        fields = attrs.asdict(value, recurse=False)
        return {name: plain(item) for name, item in fields.items()}
    return str(value)


def _key(key: Any) -> str:
    if isinstance(key, MessageQueue):
        return f"{key.broker_name}/{key.topic}/{key.queue_id}"
    return str(plain(key))
