"""How a JSON body is written and read: standard JSON where it suffices, the official dialect where it is needed.

Stands for ``RemotingSerializable``. Official servers write maps with integer keys bare (``{0:"host:1"}``) and maps with
`MessageQueue` keys as ``{{"brokerName":...}:value}``. Bodies without such maps are standard JSON, which msgspec writes and
reads in one pass; the others are written here. What is read as standard JSON and does not fit is read again leniently: the
dialect, null for any member, numbers as text.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as msgspec_inspect

from txrocketmq.codec import fastjson
from txrocketmq.errors import BodyError
from txrocketmq.model.message import MessageQueue

T = TypeVar("T", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()
# Sets have no order of their own; these classes are small and hold no maps with other than text keys.
_sorting_encoder = msgspec.json.Encoder(order="deterministic")
_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}
_writers: dict[type[Any], Callable[[Any], bytes]] = {}
_key_decoder = msgspec.json.Decoder(MessageQueue)


def encode_body(bean: msgspec.Struct) -> bytes:
    """A bean as official servers write it: members in alphabetical order, null ones left out, the dialect's keys."""
    return _writer_of(type(bean))(bean)


def decode_body(kind: type[T], data: bytes) -> T:
    """A bean from its JSON, standard or dialect; unknown members are ignored.

    :raises BodyError: naming the member that cannot be read, or the position where the text is not JSON.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        found: T = decoder.decode(data)
    except msgspec.ValidationError:
        # JSON it is; a null or a number as text may be in the way.
        return convert_body(kind, load_dialect(kind, data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        return _decode_dialect(kind, decoder, data, failure)
    else:
        return found


def _decode_dialect(
    kind: type[T], decoder: msgspec.json.Decoder[Any], data: bytes, failure: Exception
) -> T:
    try:
        fastjson.check_mendable(data, failure)
        # Bare numbers as keys are the usual reason.
        text = fastjson.standardize(fastjson.mend(data))
        try:
            found: T = decoder.decode(text)
        except msgspec.ValidationError:
            return convert_body(kind, load_dialect(kind, text))
        return found
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyError(f"{kind.__name__}: not JSON: {error}") from None
    except RecursionError:
        raise BodyError(f"{kind.__name__}: JSON is nested too deeply") from None
    except BodyError as error:
        named = str(error).startswith(kind.__name__)
        raise error if named else BodyError(f"{kind.__name__}: {error}") from None


def encode_bodies(beans: Sequence[msgspec.Struct]) -> bytes:
    """Beans as a JSON array."""
    return b"[" + b",".join(map(encode_body, beans)) + b"]"


def decode_bodies(kind: type[T], data: bytes) -> list[T]:
    """Beans from a JSON array, as `decode_body` reads each.

    :raises BodyError: naming the item and member that cannot be read.
    """
    values = load_dialect(kind, data)
    if not isinstance(values, list):
        raise BodyError(f"{kind.__name__}: not an array")
    return [convert_body(kind, value) for value in values]


def load_dialect(kind: type[Any], data: bytes) -> object:
    """The plain values of a body's text; nulls are gone, maps keyed by objects have `MessageQueue` keys.

    :raises BodyError: the text is neither JSON nor the dialect.
    """
    try:
        return _tidy(fastjson.loads(data))
    except (BodyError, ValueError, RecursionError) as error:
        raise BodyError(f"{kind.__name__}: {error}") from None


def convert_body(kind: type[T], value: object) -> T:
    """A bean from plain values, leniently: text for numbers is taken.

    :raises BodyError: naming the member that cannot be read.
    """
    try:
        return msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BodyError(f"{kind.__name__}: {error}") from None


def _tidy(value: object) -> object:
    """Drop null members, as if they were absent; read keys that are objects."""
    if isinstance(value, dict):
        return {
            _tidy_key(key): _tidy(member) for key, member in value.items() if member is not None
        }
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return value


def _tidy_key(key: object) -> object:
    if isinstance(key, str) and key.startswith("{"):
        try:
            return _key_decoder.decode(key)
        except msgspec.DecodeError:
            # A text key that only looks like an object.
            return key
    return key


# ------------------------------------------------------------------------ writing


def _writer_of(kind: type[Any]) -> Callable[[Any], bytes]:
    writer = _writers.get(kind)
    if writer is None:
        writer = _writers[kind] = _choose_writer(kind)
    return writer


def _choose_writer(kind: type[Any]) -> Callable[[Any], bytes]:
    found: set[str] = set()
    _look(msgspec_inspect.type_info(kind), found, set())
    if "dialect" in found:
        return write_dialect
    return _sorting_encoder.encode if "set" in found else _encoder.encode


def _look(info: msgspec_inspect.Type, found: set[str], seen: set[type[Any]]) -> None:
    """Collect what a type holds anywhere: maps with keys of the dialect, sets."""
    if isinstance(info, msgspec_inspect.StructType):
        if info.cls not in seen:
            seen.add(info.cls)
            for field in info.fields:
                _look(field.type, found, seen)
    elif isinstance(info, msgspec_inspect.DictType):
        if isinstance(info.key_type, msgspec_inspect.IntType | msgspec_inspect.StructType):
            found.add("dialect")
        _look(info.value_type, found, seen)
    elif isinstance(info, msgspec_inspect.SetType):
        found.add("set")
    elif isinstance(info, msgspec_inspect.ListType):
        _look(info.item_type, found, seen)
    elif isinstance(info, msgspec_inspect.UnionType):
        for member in info.types:
            _look(member, found, seen)


def write_dialect(value: object) -> bytes:
    """Any value in the official dialect; maps with number keys in ascending order, others in their own."""
    parts: list[str] = []
    _write(value, parts.append)
    return "".join(parts).encode("utf-8", "replace")


def _text(value: object) -> str:
    return _encoder.encode(value).decode()


def _write(value: object, put: Callable[[str], None]) -> None:
    if isinstance(value, enum.Enum):
        put(_text(value.value))
    elif isinstance(value, bool | str | float | bytes) or value is None:
        put(_text(value))
    elif isinstance(value, int):
        put(str(value))
    elif isinstance(value, dict):
        _write_map(value, put)
    elif isinstance(value, msgspec.Struct):
        writer = _writer_of(type(value))
        if writer is write_dialect:
            _write_struct(value, put)
        else:
            put(writer(value).decode())
    elif isinstance(value, set | frozenset):
        _write_list(sorted(value), put)
    elif isinstance(value, list | tuple):
        _write_list(value, put)
    else:
        raise TypeError(f"no JSON form for {type(value).__name__}")


def _write_struct(value: msgspec.Struct, put: Callable[[str], None]) -> None:
    separator = "{"
    for attribute, name in zip(
        value.__struct_fields__, value.__struct_encode_fields__, strict=True
    ):
        member = getattr(value, attribute)
        if member is not None:
            put(f'{separator}"{name}":')
            _write(member, put)
            separator = ","
    put("{}" if separator == "{" else "}")


def _write_map(value: dict[Any, Any], put: Callable[[str], None]) -> None:
    if not value:
        put("{}")
        return
    first = next(iter(value))
    separator = "{"
    if isinstance(first, int) and type(value[first]) is int:
        # Consumer offsets: thousands of these in one body.
        put("{" + ",".join([f"{number}:{value[number]}" for number in sorted(value)]))
    elif isinstance(first, int):
        for number in sorted(value):
            put(f"{separator}{number}:")
            _write(value[number], put)
            separator = ","
    else:
        for key, member in value.items():
            put(separator)
            _write(key, put)
            put(":")
            _write(member, put)
            separator = ","
    put("}")


def _write_list(value: list[Any] | tuple[Any, ...], put: Callable[[str], None]) -> None:
    separator = "["
    for item in value:
        put(separator)
        _write(item, put)
        separator = ","
    put("[]" if separator == "[" else "]")
