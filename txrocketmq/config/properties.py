"""How is a Java ``.properties`` file read and written? Same rules as the official ``java.util.Properties``.

One entry a logical line: key, then ``=``, ``:`` or blanks, then the value. ``#`` and ``!`` begin a comment, a line ending
in an odd number of backslashes goes on in the next one, ``\\uXXXX`` is one UTF-16 unit, and a later entry wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from txrocketmq.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def parse_properties_file(data: bytes) -> dict[str, str]:
    """Entries of a file in order of first appearance. UTF-8 is expected, Latin-1 (Java's default) is understood.

    :raises ConfigError: a ``\\u`` escape has no four hex digits; names the entry.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    entries: dict[str, str] = {}
    for line in _logical_lines(text.removeprefix("\ufeff")):
        key, value = _split(line)
        entries[_unescape(key, line)] = _unescape(value, line)
    return entries


def format_properties_file(entries: Mapping[str, str]) -> bytes:
    """A file that reads back as exactly these entries, one a line, in the order given; plain ASCII."""
    lines = [
        f"{_escape(key, in_key=True)}={_escape(value, in_key=False)}\n"
        for key, value in entries.items()
    ]
    return "".join(lines).encode("ascii")


def merge_properties_file(data: bytes, changes: Mapping[str, str]) -> bytes:
    """A file with some entries changed or added; comments and all other lines stay as they are.

    A changed entry stands where the old one stood; others with the same key are dropped, since the last would win.
    """
    left = dict(changes)
    kept: list[bytes] = []
    pending: list[bytes] = []
    for raw in data.splitlines(keepends=True):
        pending.append(raw)
        line = raw.rstrip(b"\r\n")
        begins = line.lstrip(_BLANKS.encode())
        is_comment = len(pending) == 1 and (not begins or begins[:1] in (b"#", b"!"))
        if not is_comment and (len(line) - len(line.rstrip(b"\\"))) % 2 == 1:
            continue
        block, pending = pending, []
        key = None if is_comment else next(iter(parse_properties_file(b"".join(block))), None)
        if key in changes:
            if key in left:
                kept.append(format_properties_file({key: left.pop(key)}))
            continue
        kept += block
    kept += pending
    if kept and left and not kept[-1].endswith(b"\n"):
        kept.append(b"\n")
    return b"".join(kept) + format_properties_file(left)


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    going_on = False
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANKS)
        if not going_on and (not line or line[0] in "#!"):
            continue
        pending += line
        going_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if going_on:
            pending = pending[:-1]
            continue
        if pending:
            yield pending
        pending = ""
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    index = 0
    while index < len(line) and line[index] not in "=:" + _BLANKS:
        index += 2 if line[index] == "\\" else 1
    key, rest = line[:index], line[index:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(word: str, line: str) -> str:
    if "\\" not in word:
        return word
    units: list[str] = []
    index = 0
    while index < len(word):
        char = word[index]
        index += 1
        if char != "\\":
            units.append(char)
            continue
        char = word[index : index + 1]
        index += 1
        if char != "u":
            units.append(_ESCAPES.get(char, char))
            continue
        digits = word[index : index + 4]
        if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise ConfigError(f"bad \\u escape in configuration line {line!r}: 4 hex digits needed")
        units.append(chr(int(digits, 16)))
        index += 4
    # Two escapes may spell one character beyond the basic plane.
    return "".join(units).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _escape(word: str, *, in_key: bool) -> str:
    escaped: list[str] = []
    for position, char in enumerate(word):
        if char in _WRITTEN_ESCAPES:
            escaped.append(_WRITTEN_ESCAPES[char])
        elif char == " ":
            escaped.append("\\ " if in_key or position == 0 else " ")
        elif char in "=:#!":
            escaped.append("\\" + char)
        elif " " < char <= "~":
            escaped.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            escaped += [f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2)]
    return "".join(escaped)
