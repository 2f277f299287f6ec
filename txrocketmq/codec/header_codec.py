"""How do typed headers become the string map of a command, in either serialization, and back?

Stands for the reflection in the official ``RemotingCommand`` (``makeCustomHeaderToNet``, ``decodeCommandCustomHeader``) and for the
``FastCodesHeader`` classes. For each header class functions are generated once, when it is first used:

* reading: msgspec in lax mode reads the JSON object, or the string map, straight into the struct. Where that fails, each field is
  looked at by itself; this either succeeds (a plus sign, a number where text is wanted) or names the field that is wrong.
* writing: one f-string makes the members of ``extFields``, or one join makes the entries of the binary map. Fields that are None
  are left out. No reader minds the order: the official one is that of a Java hash map, or of declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import get_annotations
from json.encoder import encode_basestring as quote
from struct import Struct as Layout
from typing import Any, Generic, TypeVar

import msgspec

from txrocketmq.codec.headers import Header
from txrocketmq.errors import HeaderError

__all__ = ["HeaderCodec", "header_codec", "quote", "text_map"]

H = TypeVar("H", bound=Header)

_LIMITS = {"Int32": (-(2**31), 2**31 - 1), "Int64": (-(2**63), 2**63 - 1)}
_RAW_MAP: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
)
_TEXT_MAP: msgspec.json.Decoder[dict[str, str]] = msgspec.json.Decoder(dict[str, str])
_TEXT: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)
_pack_key_length = Layout(">H").pack
_pack_value_length = Layout(">I").pack


class _Field:
    """What a header class says about one field."""

    __slots__ = ("_type", "attribute", "kind", "optional", "required", "wire")

    def __init__(self, attribute: str, annotation: str, info: msgspec.structs.FieldInfo) -> None:
        self.attribute = attribute
        self.wire = info.encode_name
        self.kind = annotation.removesuffix(" | None")  # str, bool, Int32 or Int64
        self.optional = annotation.endswith(" | None")
        self.required = info.required
        self._type = info.type
        if self.kind not in ("str", "bool", "Int32", "Int64"):
            raise TypeError(f"{attribute}: {annotation} is not a header field's type")

    def read(self, text: str) -> object:
        """The value of a text: what the quick way takes, and besides it what Java takes.

        :raises HeaderError: it is no value of this field.
        """
        if self.kind == "str":
            return text
        try:
            return msgspec.convert(text, self._type, strict=False)
        except msgspec.ValidationError:
            pass
        if self.kind == "bool":
            raise HeaderError(self.wire, f"{_shorten(text)} is neither true nor false")
        low, high = _LIMITS[self.kind]
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdigit()):
            raise HeaderError(self.wire, f"{_shorten(text)} is not a whole number")
        # 20 digits are past any Java number; longer ones are not worth converting. Nor are zeros, of which Python takes 4,300.
        digits = digits.lstrip("0") or "0"
        value = int(digits[:21])
        if text[0] == "-":
            value = -value
        if not low <= value <= high:
            raise HeaderError(self.wire, f"{_shorten(text)} is not between {low} and {high}")
        return value


def _shorten(text: str) -> str:
    return repr(text) if len(text) <= 40 else repr(text[:40]) + "..."


def text_map(raw: bytes | msgspec.Raw) -> dict[str, str]:
    """A JSON object as a map of texts, as the official decoder makes it: nulls are left out, numbers and the like become text.

    :raises msgspec.MsgspecError: not an object. It must have been checked to be JSON in UTF-8.
    """
    try:
        return _TEXT_MAP.decode(raw)
    except msgspec.ValidationError:
        texts: dict[str, str] = {}
        for name, value in _RAW_MAP.decode(raw).items():
            content = bytes(value)
            if content[:1] == b'"':
                texts[name] = _TEXT.decode(content)
            elif content != b"null":
                texts[name] = content.decode()
        return texts


class HeaderCodec(Generic[H]):
    """Reads and writes one header class.

    :ivar encode_json: the header as members of a JSON object, without its braces: ``"topic":"T","queueId":"0"``.
    :ivar encode_binary: the header as entries of a binary map.
    """

    __slots__ = ("_convert", "_decoder", "_fields", "cls", "encode_binary", "encode_json")

    def __init__(self, cls: type[H]) -> None:
        self.cls = cls
        self._fields = _fields_of(cls)
        self._decoder: msgspec.json.Decoder[H] = msgspec.json.Decoder(cls, strict=False)
        self.encode_json: Callable[[H], str] = _json_writer(self._fields)
        self.encode_binary: Callable[[H], bytes] = _binary_writer(self._fields)

    def decode_json(self, raw: bytes | msgspec.Raw) -> H:
        """Read a JSON object that is known to be well-formed.

        :raises HeaderError: a field is missing, unreadable or out of its Java range.
        """
        try:
            return self._decoder.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            try:
                texts = text_map(raw)
            except (msgspec.MsgspecError, RecursionError) as failure:
                raise HeaderError("extFields", f"unreadable: {failure}") from None
            return self._decode_fields(texts)

    def decode_map(self, texts: Mapping[str, str]) -> H:
        """Read a map of texts.

        :raises HeaderError: a field is missing, unreadable or out of its Java range.
        """
        try:
            return msgspec.convert(texts, self.cls, strict=False)
        except msgspec.ValidationError:
            return self._decode_fields(texts)

    def _decode_fields(self, texts: Mapping[str, str]) -> H:
        values: dict[str, Any] = {}
        for field in self._fields:
            text = texts.get(field.wire)
            if text is not None:
                values[field.attribute] = field.read(text)
            elif field.required:
                raise HeaderError(field.wire, "is missing")
        return self.cls(**values)

    def to_map(self, header: H) -> dict[str, str]:
        """The header as a map of texts, in wire order."""
        texts: dict[str, str] = {}
        for field in self._fields:
            value = getattr(header, field.attribute)
            if value is None:
                continue
            if field.kind == "bool":
                value = "true" if value else "false"
            texts[field.wire] = value if field.kind == "str" else f"{value}"
        return texts


def _fields_of(cls: type[Header]) -> tuple[_Field, ...]:
    """The fields of a class: those that are always there, then optional ones; each part as declared, inherited ones last."""
    declared = {info.name: info for info in msgspec.structs.fields(cls)}
    order: dict[str, str] = {}
    for ancestor in cls.__mro__:
        for name, annotation in get_annotations(ancestor).items():
            order.setdefault(name, annotation)
    fields = [
        _Field(name, annotation, declared[name])
        for name, annotation in order.items()
        if name in declared
    ]
    return tuple(sorted(fields, key=lambda field: field.optional))


def _json_writer(fields: tuple[_Field, ...]) -> Callable[[Any], str]:
    """Generate the writer of JSON members: one f-string for what is always there, one for each optional field."""
    always, optional = "", []
    for field in fields:
        value = f"h.{field.attribute}"
        if field.kind == "str":
            shown = f"{{quote({value})}}"
        elif field.kind == "bool":
            shown = f'"{{"true" if {value} else "false"}}"'
        else:
            shown = f'"{{{value}}}"'
        member = f',"{field.wire}":{shown}'
        if field.optional:
            optional += [f"  if {value} is not None:", f"    text += f'''{member}'''"]
        else:
            always += member
    # Every member brings a comma before it; the first one must not.
    result = "text" if always else "text[1:]"
    source = ["def generated(h):", f"  text = f'''{always[1:]}'''", *optional, f"  return {result}"]
    return _generate(source, {"quote": quote})  # type: ignore[no-any-return]


def _binary_writer(fields: tuple[_Field, ...]) -> Callable[[Any], bytes]:
    """Generate the writer of binary map entries."""
    constants: dict[str, Any] = {"size": _pack_value_length, "TRUE": b"true", "FALSE": b"false"}
    always: list[str] = []
    source: list[str] = []
    for index, field in enumerate(fields):
        value = f"h.{field.attribute}"
        if field.kind == "str":
            content = f"{value}.encode('utf-8', 'replace')"
        elif field.kind == "bool":
            content = f"TRUE if {value} else FALSE"
        else:
            content = f"b'%d' % {value}"
        key = field.wire.encode()
        constants[f"k{index}"] = _pack_key_length(len(key)) + key
        if field.optional:
            source += [
                f"  if {value} is not None:",
                f"    v = {content}",
                f"    parts += (k{index}, size(len(v)), v)",
            ]
        else:
            always.append(f"k{index}, size(len(v{index})), v{index}")
            source.append(f"  v{index} = {content}")
    # Fields that are always there come first.
    source.insert(len(always), f"  parts = [{', '.join(always)}]")
    source = ["def generated(h):", *source, "  return b''.join(parts)"]
    return _generate(source, constants)  # type: ignore[no-any-return]


def _generate(source: list[str], names: dict[str, Any]) -> Any:
    exec("\n".join(source), names)
    return names["generated"]


_codecs: dict[type[Header], HeaderCodec[Any]] = {}


def header_codec(cls: type[H]) -> HeaderCodec[H]:
    """The codec of a header class; made when first asked for."""
    codec = _codecs.get(cls)
    if codec is None:
        codec = _codecs[cls] = HeaderCodec(cls)
    return codec
