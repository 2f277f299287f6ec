"""What does this frame say? Text for a person who looks at captured bytes.

Stands for no official class. Not for running code: it decodes everything and never raises because of what the bytes hold.
"""

from __future__ import annotations

from txrocketmq.codec import fastjson
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.frame import FrameSplitter
from txrocketmq.codec.record import MAGIC_V1, MAGIC_V2, decode_records
from txrocketmq.errors import BodyError, ProtocolError, RecordError
from txrocketmq.model.codes import (
    LanguageCode,
    RequestCode,
    ResponseCode,
    SerializeType,
    version_name,
)

__all__ = ["explain_command", "explain_stream"]

_SHOWN_BYTES = 64


def explain_stream(data: bytes) -> str:
    """All frames of a piece of a stream, one paragraph each; ends with what is wrong or missing, if anything."""
    splitter = FrameSplitter()
    try:
        frames = splitter.feed(data)
    except ProtocolError as failure:
        return "\n\n".join([*map(_explain_frame, failure.frames), f"not a frame: {failure}"])
    paragraphs = [_explain_frame(frame) for frame in frames]
    if splitter.pending_bytes:
        paragraphs.append(f"{splitter.pending_bytes} bytes of an unfinished frame")
    return "\n\n".join(paragraphs)


def _explain_frame(frame: bytes) -> str:
    try:
        return explain_command(decode_command(frame))
    except ProtocolError as failure:
        return f"not a command: {failure}\n  {_hex(frame)}"


def explain_command(command: RemotingCommand) -> str:
    """A command as lines of text: what it is, its map, its body."""
    kind = "oneway request" if command.is_oneway else "request"
    codes: type[RequestCode] | type[ResponseCode] = RequestCode
    if command.is_response:
        kind, codes = "response", ResponseCode
    lines = [
        f"{kind} {command.opaque}: code {command.code} {_name(codes, command.code)}",
        f"  from {_name(LanguageCode, command.language)} {version_name(command.version)} ({command.version}),"
        f" header {_name(SerializeType, command.serialize_type)}",
    ]
    if command.remark is not None:
        lines.append(f"  remark: {command.remark}")
    try:
        ext_fields = command.ext_fields or {}
    except ProtocolError as failure:
        lines.append(f"  {failure}")
        ext_fields = {}
    lines += [f"  {name} = {value!r}" for name, value in ext_fields.items()]
    if command.body:
        lines.append(f"  body of {len(command.body)} bytes: {_explain_body(command.body)}")
    return "\n".join(lines)


def _name(
    codes: type[RequestCode] | type[ResponseCode] | type[LanguageCode] | type[SerializeType],
    number: int,
) -> str:
    try:
        return codes(number).name
    except ValueError:
        return "(unknown)"


def _explain_body(body: bytes) -> str:
    if int.from_bytes(body[4:8], "big", signed=True) in (MAGIC_V1, MAGIC_V2):
        try:
            records = decode_records(body)
        except RecordError as failure:
            return f"message records, but {failure}"
        return "message records" + "".join(f"\n    {record}" for record in records)
    if body[:1] in (b"{", b"["):
        try:
            fastjson.loads(body)
            return body.decode()
        except BodyError:
            pass
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _hex(body)
    return repr(text) if text.isprintable() else _hex(body)


def _hex(data: bytes) -> str:
    shown = data[:_SHOWN_BYTES].hex(" ", 4)
    return shown if len(data) <= _SHOWN_BYTES else f"{shown} ..."
