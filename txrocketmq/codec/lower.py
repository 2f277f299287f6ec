"""How do Construct declarations become code that is quick enough to run per message?

`lower` reads a declaration of `txrocketmq.codec.layouts` and generates functions for it: neighbouring numbers and lengths fuse into
one `struct.Struct`, length-prefixed strings and the trailing rest become checked slices, a list of key and value becomes a loop
that fills a dict. What it does not know it refuses when the module is imported, so a declaration can never be half lowered. Every
length is checked before use; whatever does not fit raises the error that the caller names. Tests hold each lowered layout
equal to its declaration, on good bytes and on damaged ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any

import construct

from txrocketmq.codec.layouts import JavaText

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Lowered:
    """Quick code for one declaration.

    :ivar names: the members, in order.
    :ivar struct: the whole layout where all members have a fixed size, else None.
    :ivar parse: ``parse(data, pos, end)`` reads from ``pos`` and never past ``end``; gives the members' values and, last, the
        position after them.
    :ivar build: ``build(*values)`` gives the bytes.
    """

    names: tuple[str, ...]
    struct: Struct | None
    parse: Callable[[Buffer, int, int], tuple[Any, ...]]
    build: Callable[..., bytes]


@dataclass(frozen=True, slots=True)
class LoweredPairs:
    """Quick code for a list of key and value that fills the buffer.

    :ivar parse: ``parse(data)`` gives a dict in the order of the bytes; of equal keys the last one counts.
    :ivar build: ``build(mapping)`` gives the bytes.
    """

    parse: Callable[[bytes], dict[str, str]]
    build: Callable[[Mapping[str, str]], bytes]


@dataclass(frozen=True, slots=True)
class _Member:
    """One member of a declaration: a fixed one, or a slice with or without a length before it."""

    name: str
    format: str
    size: int
    kind: str  # number, bytes (fixed size), slice, text, java_text, rest


#: How each text class treats bytes that are not UTF-8: refused, or read as U+FFFD.
_TEXTS = {construct.StringEncoded: "text", JavaText: "java_text"}
_CONTENTS = {
    "slice": "data[start:pos]",
    "text": "str(data[start:pos], 'utf-8')",
    "java_text": "str(data[start:pos], 'utf-8', 'replace')",
}


def _member(declared: Any) -> _Member:
    """Classify a member, looking through its name."""
    if not isinstance(declared, construct.Renamed) or not declared.name:
        raise TypeError(f"cannot lower a member without a name: {declared!r}")
    name, inner = declared.name, declared.subcon
    if type(inner) is construct.FormatField and inner.fmtstr[0] == ">":
        return _Member(name, inner.fmtstr[1:], inner.length, "number")
    if type(inner) is construct.Bytes and isinstance(inner.length, int):
        return _Member(name, f"{inner.length}s", inner.length, "bytes")
    if inner is construct.GreedyBytes:
        return _Member(name, "", 0, "rest")
    kind = "slice"
    if type(inner) in _TEXTS and inner.encoding == "utf-8":
        kind, inner = _TEXTS[type(inner)], inner.subcon
    if (
        type(inner) is construct.Prefixed
        and inner.subcon is construct.GreedyBytes
        and not inner.includelength
    ):
        length = inner.lengthfield
        if type(length) is construct.FormatField and length.fmtstr[0] == ">":
            return _Member(name, length.fmtstr[1:], length.length, kind)
    raise TypeError(f"cannot lower {name}: {declared!r}")


def _members(declared: Any) -> list[_Member]:
    if type(declared) is not construct.Struct:
        raise TypeError(f"cannot lower {declared!r}: not a Struct")
    members = [_member(subcon) for subcon in declared.subcons]
    for member in members[:-1]:
        if member.kind == "rest":
            raise TypeError(f"cannot lower {member.name}: the rest must be the last member")
    return members


def _define(source: list[str], names: dict[str, Any]) -> Any:
    """Compile a generated function and give it back."""
    exec("\n".join(source), names)
    return names["generated"]


class _Runs:
    """Fuses neighbouring fixed parts into one `Struct` each and hands out names for them."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}

    def add(self, run_format: str, method: str) -> tuple[str, int]:
        """A name for a method of the run's struct, and the run's size."""
        struct = Struct(">" + run_format)
        name = f"run{len(self.names)}"
        self.names[name] = getattr(struct, method)
        return name, struct.size


def _parser(members: list[_Member], error: type[Exception]) -> Callable[..., tuple[Any, ...]]:
    runs = _Runs()
    body: list[str] = []
    run: list[_Member] = []
    targets: list[str] = []

    def close_run() -> None:
        if not run:
            return
        name, size = runs.add("".join(member.format for member in run), "unpack_from")
        body.extend(
            (
                f"    start, pos = pos, pos + {size}",
                "    if pos > end:",
                f"      raise error(f'{run[0].name}: {{pos - end}} bytes missing')",
                f"    {', '.join(targets)}, = {name}(data, start)",
            )
        )
        run.clear()
        targets.clear()

    for index, member in enumerate(members):
        if member.kind == "rest":
            close_run()
            body.append(f"    v{index}, pos = data[pos:end], end")
            continue
        run.append(member)
        if member.kind in ("number", "bytes"):
            targets.append(f"v{index}")
            continue
        targets.append("length")
        close_run()
        body += [
            "    start, pos = pos, pos + length",
            "    if length < 0 or pos > end:",
            f"      raise error(f'{member.name}: length {{length}}, but {{end - start}} bytes left')",
            f"    v{index} = {_CONTENTS[member.kind]}",
        ]
    close_run()
    source = [
        "def generated(data, pos, end):",
        "  if not 0 <= pos <= end <= len(data):",
        "    raise error(f'no bytes {pos} to {end} in a buffer of {len(data)}')",
        "  try:",
        *body,
        f"    return {', '.join(f'v{index}' for index in range(len(members)))}, pos",
        "  except UnicodeDecodeError as failure:",
        "    raise error(f'text is not UTF-8: {failure}') from None",
    ]
    return _define(source, {"error": error, **runs.names})  # type: ignore[no-any-return]


def _builder(members: list[_Member], error: type[Exception]) -> Callable[..., bytes]:
    runs = _Runs()
    body: list[str] = []
    parts: list[str] = []
    run: list[_Member] = []
    values: list[str] = []

    def close_run() -> None:
        if run:
            name, _ = runs.add("".join(member.format for member in run), "pack")
            parts.append(f"{name}({', '.join(values)})")
            run.clear()
            values.clear()

    for index, member in enumerate(members):
        value = f"v{index}"
        if member.kind in ("text", "java_text"):
            body.append(f"    {value} = {value}.encode()")
        elif member.kind == "bytes":
            body += [
                f"    if len({value}) != {member.size}:",
                f"      raise error(f'{member.name}: {{len({value})}} bytes, not {member.size}')",
            ]
        if member.kind != "rest":
            run.append(member)
            values.append(value if member.kind in ("number", "bytes") else f"len({value})")
        if member.kind in ("slice", "text", "java_text", "rest"):
            close_run()
            parts.append(value)
    close_run()
    source = [
        f"def generated({', '.join(f'v{index}' for index in range(len(members)))}):",
        "  try:",
        *body,
        f"    return b''.join(({', '.join(parts)},))",
        "  except (StructError, UnicodeEncodeError) as failure:",
        "    raise error(f'cannot be written: {failure}') from None",
    ]
    return _define(source, {"error": error, "StructError": StructError, **runs.names})  # type: ignore[no-any-return]


def lower(declared: construct.Construct, error: type[Exception]) -> Lowered:
    """Quick code for a ``Struct`` of numbers, fixed bytes, length-prefixed bytes or UTF-8 text, and a trailing rest.

    :param error: raised with one text argument when bytes or values do not fit the declaration.
    :raises TypeError: the declaration holds something else.
    """
    members = _members(declared)
    fixed = all(member.kind in ("number", "bytes") for member in members)
    return Lowered(
        names=tuple(member.name for member in members),
        struct=Struct(">" + "".join(member.format for member in members)) if fixed else None,
        parse=_parser(members, error),
        build=_builder(members, error),
    )


def _from_utf8(piece: str) -> str:
    """A piece of bytes that were read as Latin-1, read as UTF-8; bytes that are none become U+FFFD."""
    return piece.encode("latin-1").decode("utf-8", "replace")


def lower_pairs(declared: construct.Construct, error: type[Exception]) -> LoweredPairs:
    """Quick code for a terminated ``GreedyRange`` of a key and a value, both `JavaText`.

    :param error: raised with one text argument when bytes or values do not fit the declaration.
    :raises TypeError: the declaration is something else.
    """
    if (
        type(declared) is not construct.FocusedSeq
        or len(declared.subcons) != 2
        or type(declared.subcons[0].subcon) is not construct.GreedyRange
        or declared.subcons[1] is not construct.Terminated
    ):
        raise TypeError(f"cannot lower {declared!r}: not a terminated range")
    members = _members(declared.subcons[0].subcon.subcon)
    if [member.kind for member in members] != ["java_text", "java_text"]:
        raise TypeError(f"cannot lower {declared!r}: not a key and a value in Java's text")
    key, value = (Struct(">" + member.format) for member in members)
    key_size, value_size = key.size, value.size
    read_key, read_value, write_key, write_value = (
        key.unpack_from,
        value.unpack_from,
        key.pack,
        value.pack,
    )

    def parse(data: bytes) -> dict[str, str]:
        pairs: dict[str, str] = {}
        pos, end = 0, len(data)
        # Cutting one text is quicker than decoding each piece; pieces that are not ASCII are rare and put right below.
        text = data.decode("latin-1")
        try:
            while pos < end:
                start = pos + key_size
                stop = start + read_key(data, pos)[0]
                name = text[start:stop]
                start = stop + value_size
                pos = start + read_value(data, stop)[0]
                pairs[name] = text[start:pos]
            if pos > end:
                raise error(f"the value of {name!r} is {pos - end} bytes short")
            if not text.isascii() and not "".join((*pairs, *pairs.values())).isascii():
                pairs = {_from_utf8(key): _from_utf8(value) for key, value in pairs.items()}
        except StructError:
            raise error(f"an entry is cut off at byte {end}") from None
        return pairs

    def build(pairs: Mapping[str, str]) -> bytes:
        parts: list[bytes] = []
        try:
            for name, content in pairs.items():
                name_bytes, content_bytes = name.encode(), content.encode()
                parts += (
                    write_key(len(name_bytes)),
                    name_bytes,
                    write_value(len(content_bytes)),
                    content_bytes,
                )
        except (StructError, UnicodeEncodeError) as failure:
            raise error(f"cannot be written: {failure}") from None
        return b"".join(parts)

    return LoweredPairs(parse, build)
