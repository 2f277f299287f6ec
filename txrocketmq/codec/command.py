"""What is one command of the remoting protocol, and how do its bytes look?

Stands for the official ``RemotingCommand`` and ``RocketMQSerializable``. A frame, without the length before it::

    serialize type 1 | header length 3 | header | body (the rest)

    JSON header:      {"code":..,"extFields":{..},"flag":..,"language":"..","opaque":..,"remark":"..",
                       "serializeTypeCurrentRPC":"JSON","version":..}    keys in this order, nulls left out
    ROCKETMQ header:  code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark length 4, remark
                      | map length 4, (key length 2, key, value length 4, value)*

The map of a JSON header stays unread until it is asked for, so the usual request is decoded in two steps: the outer object here, the
map straight into the typed header of its code. What a command was decoded from is kept for encoding it again byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct as Layout
from typing import TypeVar

import msgspec

from txrocketmq import native
from txrocketmq.codec import fastjson, layouts
from txrocketmq.codec.header_codec import header_codec, quote, text_map
from txrocketmq.codec.headers import Header, Int32
from txrocketmq.codec.lower import lower, lower_pairs
from txrocketmq.errors import BodyError, ProtocolError
from txrocketmq.model.codes import CURRENT_VERSION, UNKNOWN_LANGUAGE, LanguageCode

__all__ = ["RemotingCommand", "decode_command", "encode_reply"]

H = TypeVar("H", bound=Header)

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

_JSON = 0
_ROCKETMQ = 1
_WORD_BYTES = 4
_MAX_HEADER_BYTES = 0xFFFFFF
_OWN_LANGUAGE = int(LanguageCode.PYTHON)
_OWN_NAME = LanguageCode.PYTHON.name
_OWN_MIDDLE = f',"language":"{_OWN_NAME}","opaque":'
_OWN_END = f',"serializeTypeCurrentRPC":"JSON","version":{CURRENT_VERSION}}}'
_LANGUAGE_NAMES = {int(language): language.name for language in LanguageCode}
_LANGUAGE_CODES = {language.name: int(language) for language in LanguageCode}

_read_word = Layout(">I").unpack_from
_pack_start = Layout(">II").pack
_binary_layout = lower(layouts.BINARY_HEADER, ProtocolError)
_parse_binary_head = _binary_layout.parse
_build_binary_head = _binary_layout.build
_pairs = lower_pairs(layouts.MAP_ENTRIES, ProtocolError)
_parse_pairs = _pairs.parse
_build_pairs = _pairs.build


#: Compiled: a frame without its body; None where a text needs more than copying.
_json_reply = None if native.functions is None else native.functions.json_reply


class _JsonHead(msgspec.Struct, gc=False):
    """The outer object of a JSON header; what is absent is as in a fresh official ``RemotingCommand``."""

    code: Int32 = 0
    flag: Int32 = 0
    language: str | int | None = "JAVA"
    opaque: Int32 = 0
    remark: str | None = None
    version: Int32 = 0
    extFields: msgspec.Raw = msgspec.Raw()


_decode_json_head = msgspec.json.Decoder(_JsonHead).decode


class RemotingCommand(msgspec.Struct, gc=False, eq=False):
    """A request or an answer.

    :ivar code: request code or response code.
    :ivar language: `LanguageCode` of the sender as a plain int, `UNKNOWN_LANGUAGE` for a name not in it.
    :ivar version: the sender's release, see `txrocketmq.model.codes`.
    :ivar opaque: ties an answer to its request; unique among a connection's requests in flight.
    :ivar flag: bit 0 response, bit 1 oneway.
    :ivar remark: text for a person, mostly in answers that refuse.
    :ivar serialize_type: how the header is written, see `SerializeType`.
    :ivar body: empty when absent.
    """

    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    serialize_type: int
    body: bytes
    # The map as received: JSON text (Raw) or binary entries (bytes). None when absent or made here.
    _raw: bytes | msgspec.Raw | None = None
    # The map as texts, once it was asked for or given.
    _ext_fields: dict[str, str] | None = None
    # A typed header to be written before _ext_fields.
    _header: Header | None = None

    @classmethod
    def create_request(
        cls,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        ext_fields: Mapping[str, str] | None = None,
        opaque: int = 0,
        flag: int = 0,
        language: int = _OWN_LANGUAGE,
        version: int = CURRENT_VERSION,
        serialize_type: int = _JSON,
    ) -> RemotingCommand:
        """A request of ours; ``ext_fields`` follow the header's fields."""
        texts = None if ext_fields is None else dict(ext_fields)
        return cls(
            code, language, version, opaque, flag, None, serialize_type, body, None, texts, header
        )

    @classmethod
    def create_response(
        cls,
        request: RemotingCommand,
        code: int,
        header: Header | None = None,
        *,
        remark: str | None = None,
        body: bytes = b"",
        ext_fields: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """The answer to a request: its opaque, its serialize type."""
        return cls(
            code,
            _OWN_LANGUAGE,
            CURRENT_VERSION,
            request.opaque,
            FLAG_RESPONSE,
            remark,
            request.serialize_type,
            body,
            None,
            None if ext_fields is None else dict(ext_fields),
            header,
        )

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no answer, not even an error."""
        return self.flag & FLAG_ONEWAY != 0

    @property
    def ext_fields(self) -> dict[str, str] | None:
        """The string map in the order received or given, header fields included; None when absent. Changes to it are encoded."""
        if self._header is not None:
            texts = header_codec(type(self._header)).to_map(self._header)
            texts.update(self._ext_fields or {})
            self._header, self._ext_fields = None, texts
        elif self._ext_fields is None and self._raw is not None:
            self._ext_fields = _read_map(self._raw)
        return self._ext_fields

    @ext_fields.setter
    def ext_fields(self, ext_fields: dict[str, str] | None) -> None:
        self._header = self._raw = None
        self._ext_fields = ext_fields

    def decode_header(self, cls: type[H]) -> H:
        """The map as a typed header.

        :raises HeaderError: a field is missing, unreadable or out of its Java range; names the field on the wire.
        """
        texts = self._ext_fields
        if texts is None and self._raw is not None:
            return header_codec(cls).decode_json(self._raw)
        if texts is None or self._header is not None:
            texts = self.ext_fields or {}
        return header_codec(cls).decode_map(texts)

    def encode(self) -> bytes:
        """The whole frame with its length prefix.

        :raises ProtocolError: the header is too long for a frame.
        """
        if self.serialize_type == _JSON:
            head = _json_head(
                self.code,
                _LANGUAGE_NAMES.get(self.language),
                self.version,
                self.opaque,
                self.flag,
                self.remark,
                self._json_map(),
            )
        else:
            head = _binary_head(
                self.code,
                self.language,
                self.version,
                self.opaque,
                self.flag,
                self.remark,
                self._binary_map(),
            )
        return b"".join((_start(len(head), len(self.body), self.serialize_type), head, self.body))

    def _json_map(self) -> str | None:
        raw = self._raw
        if isinstance(raw, msgspec.Raw) and self._is_as_received():
            return bytes(raw).decode()
        return _json_map(self._header, self._ext_fields)

    def _binary_map(self) -> bytes:
        raw = self._raw
        if isinstance(raw, bytes) and self._is_as_received():
            return raw
        if self._ext_fields is None and raw is not None:
            return _binary_map(None, self.ext_fields)
        return _binary_map(self._header, self._ext_fields)

    def _is_as_received(self) -> bool:
        """Whether the map still says what its received form says."""
        return self._ext_fields is None or (
            self._raw is not None and self._ext_fields == _read_map(self._raw)
        )

    def __repr__(self) -> str:
        return (
            f"<RemotingCommand code={self.code} opaque={self.opaque} flag={self.flag} version={self.version}"
            f" remark={self.remark!r} ext_fields={self.ext_fields!r} body={len(self.body)} bytes>"
        )


def decode_command(frame: bytes) -> RemotingCommand:
    """Read a frame, without the length before it.

    :raises ProtocolError: it is not a command; the text says what is wrong.
    """
    if len(frame) < _WORD_BYTES:
        raise ProtocolError(f"a frame of {len(frame)} bytes is too short for a command")
    word = _read_word(frame)[0]
    end = _WORD_BYTES + (word & _MAX_HEADER_BYTES)
    if end > len(frame):
        raise ProtocolError(
            f"header length {end - _WORD_BYTES} exceeds the {len(frame) - _WORD_BYTES} bytes of the frame"
        )
    if word == end - _WORD_BYTES:
        return _decode_json(frame[_WORD_BYTES:end], frame[end:])
    if word >> 24 == _ROCKETMQ:
        return _decode_binary(frame, end)
    raise ProtocolError(f"serialize type {word >> 24} is neither 0 (JSON) nor 1 (ROCKETMQ)")


def _decode_json(head_bytes: bytes, body: bytes) -> RemotingCommand:
    try:
        head = _read_json_head(head_bytes)
    except msgspec.DecodeError as failure:
        raise ProtocolError(f"the header is not JSON: {failure}") from None
    except RecursionError:
        raise ProtocolError("the header is nested too deeply") from None
    except BodyError as failure:
        raise ProtocolError(f"the header is {failure}") from None
    language = head.language
    if language.__class__ is str:
        language = _LANGUAGE_CODES.get(language, UNKNOWN_LANGUAGE)
    elif language not in _LANGUAGE_NAMES:
        language = UNKNOWN_LANGUAGE
    raw: msgspec.Raw | None = head.extFields
    start = bytes(head.extFields)[:1]
    if start != b"{":
        if start and start != b"n":
            raise ProtocolError("extFields is not an object")
        raw = None
    return RemotingCommand(
        head.code, language, head.version, head.opaque, head.flag, head.remark, _JSON, body, raw
    )


def _read_json_head(head_bytes: bytes) -> _JsonHead:
    """The outer object; its map stays as it is, but is JSON in UTF-8 for certain."""
    try:
        if not head_bytes.isascii():
            head_bytes.decode()  # the map is read later; it must not fail then
        return _decode_json_head(head_bytes)
    except msgspec.ValidationError:
        return _tolerant_head(head_bytes)
    except (msgspec.DecodeError, UnicodeDecodeError):
        mended = fastjson.mend(head_bytes)
        if mended == head_bytes:
            raise
        return _read_json_head(mended)


def _tolerant_head(head_bytes: bytes) -> _JsonHead:
    """Read the outer object with numbers in quotes and nulls, as the official decoder does."""
    head = _JsonHead()
    members = msgspec.json.decode(head_bytes, type=dict[str, msgspec.Raw])
    for name, raw in members.items():
        try:
            if name in ("code", "flag", "opaque", "version"):
                number = msgspec.json.decode(raw, type=Int32 | None, strict=False)
                setattr(head, name, 0 if number is None else number)
            elif name == "language":
                head.language = msgspec.json.decode(raw, type=str | int | None)
            elif name == "remark":
                head.remark = msgspec.json.decode(raw, type=str | None)
            elif name == "extFields":
                head.extFields = raw
        except msgspec.ValidationError as failure:
            raise ProtocolError(f"the header's {name} is unreadable: {failure}") from None
    return head


def _decode_binary(frame: bytes, end: int) -> RemotingCommand:
    code, language, version, opaque, flag, remark, raw, stop = _parse_binary_head(
        frame, _WORD_BYTES, end
    )
    if stop != end:
        raise ProtocolError(f"the header holds {end - stop} bytes after its map")
    texts = None
    if raw:
        texts = _parse_pairs(raw)
        if not all(texts.values()):
            texts = _read_map(raw)
    return RemotingCommand(
        code,
        language,
        version,
        opaque,
        flag,
        remark or None,
        _ROCKETMQ,
        frame[end:],
        raw or None,
        texts,
    )


def _read_map(raw: bytes | msgspec.Raw) -> dict[str, str]:
    if isinstance(raw, bytes):
        # An empty value means none.
        return {key: value for key, value in _parse_pairs(raw).items() if value}
    try:
        return text_map(raw)
    except (msgspec.MsgspecError, RecursionError) as failure:
        raise ProtocolError(f"extFields are unreadable: {failure}") from None


def encode_reply(
    opaque: int,
    serialize_type: int,
    code: int,
    header: Header | None,
    remark: str | None,
    body: bytes | Sequence[bytes],
    ext_fields: Mapping[str, str] | None,
    flag: int = FLAG_RESPONSE,
) -> list[bytes]:
    """The frame of an answer, as parts to be joined or written one after the other; the quick way for servers.

    :param opaque: the request's.
    :param serialize_type: the request's.
    :param body: the body, or its parts.
    :param ext_fields: follow the header's fields.
    :raises ProtocolError: the header is too long for a frame.
    """
    if serialize_type == _JSON:
        if header is None or remark is not None:
            texts = _json_map(header, ext_fields)
            head = _json_head(code, _OWN_NAME, CURRENT_VERSION, opaque, flag, remark, texts)
        else:  # the usual success, spelled out: two thirds of the time of the general way
            members = header_codec(header.__class__).encode_json(header)
            if _json_reply is not None and body.__class__ is bytes:
                reply = _json_reply(
                    code, members, ext_fields, flag, _OWN_MIDDLE, opaque, _OWN_END, len(body)
                )
                if reply is not None:
                    return [reply, body] if body else [reply]
            if ext_fields:
                members = _more_members(members, ext_fields)
            head = (
                f'{{"code":{code},"extFields":{{{members}}},"flag":{flag}{_OWN_MIDDLE}{opaque}{_OWN_END}'
            ).encode("utf-8", "replace")
            if isinstance(body, bytes) and len(head) <= _MAX_HEADER_BYTES:
                start = _pack_start(_WORD_BYTES + len(head) + len(body), len(head)) + head
                return [start, body] if body else [start]
    else:
        entries = _binary_map(header, ext_fields)
        head = _binary_head(code, _OWN_LANGUAGE, CURRENT_VERSION, opaque, flag, remark, entries)
    if isinstance(body, bytes):
        start = _start(len(head), len(body), serialize_type) + head
        return [start, body] if body else [start]
    return [_start(len(head), sum(map(len, body)), serialize_type) + head, *body]


def _start(head_bytes: int, body_bytes: int, serialize_type: int) -> bytes:
    """The length prefix and the word before the header."""
    if head_bytes > _MAX_HEADER_BYTES:
        raise ProtocolError(
            f"a header of {head_bytes} bytes cannot be written, the most is {_MAX_HEADER_BYTES}"
        )
    return _pack_start(_WORD_BYTES + head_bytes + body_bytes, serialize_type << 24 | head_bytes)


def _json_head(
    code: int,
    language: str | None,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    map_text: str | None,
) -> bytes:
    """The outer object; lone surrogates become question marks, as in Java."""
    ext_fields = "" if map_text is None else f'"extFields":{map_text},'
    name = "" if language is None else f'"language":"{language}",'
    note = "" if remark is None else f'"remark":{quote(remark)},'
    return (
        f'{{"code":{code},{ext_fields}"flag":{flag},{name}"opaque":{opaque},{note}'
        f'"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    ).encode("utf-8", "replace")


def _json_map(header: Header | None, ext_fields: Mapping[str, str] | None) -> str | None:
    if header is None:
        if ext_fields is None:
            return None
        members = ""
    else:
        members = header_codec(type(header)).encode_json(header)
    if ext_fields:
        members = _more_members(members, ext_fields)
    return f"{{{members}}}"


def _more_members(members: str, ext_fields: Mapping[str, str]) -> str:
    for name, value in ext_fields.items():
        members = f"{members},{quote(name)}:{quote(value)}"
    return members if members[0] != "," else members[1:]


def _binary_head(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    map_bytes: bytes,
) -> bytes:
    # Java narrows code and version to 16 bits, silently; the receiver widens them with their sign.
    return _build_binary_head(
        ((code + 0x8000) & 0xFFFF) - 0x8000,
        ((language + 0x80) & 0xFF) - 0x80,
        ((version + 0x8000) & 0xFFFF) - 0x8000,
        opaque,
        flag,
        _encodable(remark) if remark else "",
        map_bytes,
    )


def _binary_map(header: Header | None, ext_fields: Mapping[str, str] | None) -> bytes:
    entries = b"" if header is None else header_codec(type(header)).encode_binary(header)
    if ext_fields:
        entries += _build_pairs(
            {_encodable(name): _encodable(value) for name, value in ext_fields.items()}
        )
    return entries


def _encodable(text: str) -> str:
    """Lone surrogates become question marks, as in Java."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
