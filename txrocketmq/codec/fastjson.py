"""How is the JSON of official Java software read when it is not JSON?

Stands for the readers of fastjson 1 and 2. Maps whose keys are not texts come with those keys bare::

    {0:"192.0.2.1:10911",-1:"x"}                                  numbers
    {{"brokerName":"b","queueId":1,"topic":"t"}:{...}}            objects

`standardize` puts such keys in quotes, an object key as the JSON text of that object (4.9.7 also sends it so), and leaves all else as
it is; the result is for any JSON reader, typed or not. Texts that look like the dialect are not touched. Most bodies are standard
JSON, so readers try that first. Writing the dialect is part of `txrocketmq.codec.bodies`.

Java's readers also take what UTF-8 and JSON forbid in texts: bytes that are no text, half of a surrogate pair, control characters
as they are. `mend` makes of them what any reader takes: U+FFFD, a question mark, escapes.
"""

from __future__ import annotations

import re

import msgspec

from txrocketmq.errors import BodyError

__all__ = [
    "MAX_CONTROLS",
    "MAX_DEPTH",
    "MAX_TEXTS",
    "check_mendable",
    "loads",
    "mend",
    "standardize",
]

MAX_DEPTH = 200
"""How deep objects and lists may be nested in the dialect."""

MAX_TEXTS = 500_000
"""How many texts a body in the dialect may have: a hundred thousand groups or topics, with names of members."""

MAX_CONTROLS = 200_000
"""How many control characters the texts of a body may have as they are: standard JSON has none."""

# A text that does not end reaches to the end of the data: so each byte is looked at once, whatever is sent.
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_STRING = re.compile(b"(" + _TEXT + b")", re.DOTALL)
# Outside of texts, only a key stands before a colon.
_NUMBER_KEY = re.compile(rb"(?<!\d)(-?\d++)\s*+(?=:)")
_OBJECT_KEY_END = re.compile(rb"\}\s*:")
_TOKEN = re.compile(_TEXT + rb'|[{}\[\],:]|[^"{}\[\],:]+', re.DOTALL)
# A whole pair, half of one (the group), or any other escape.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_CONTROLS = bytes(range(0x20))
_CONTROL = re.compile(rb"[\0-\x1f]")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def loads(data: bytes) -> object:
    """Plain values of a JSON text, standard or dialect. Keys that are numbers or objects come as their JSON text.

    :raises BodyError: it is neither, or nested too deeply.
    """
    try:
        try:
            return _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as failure:
            check_mendable(data, failure)
            return _decode(standardize(mend(data)))
    except msgspec.DecodeError as failure:
        raise BodyError(f"not JSON: {failure}") from None
    except RecursionError:
        raise BodyError("JSON is nested too deeply") from None


def check_mendable(data: bytes, failure: Exception) -> None:
    """Whether another reading may make sense of a text that is no standard JSON, and does not hold everybody else up.

    :raises BodyError: it ends too early, or it has more than `MAX_TEXTS` texts.
    """
    if "truncated" in str(failure):
        raise BodyError(f"not JSON: {failure}")
    if data.count(b'"') > 2 * MAX_TEXTS:
        raise BodyError(
            f"not JSON, and with more than {MAX_TEXTS} texts too much for the dialect: {failure}"
        )


def mend(data: bytes) -> bytes:
    """The text with U+FFFD for bytes that are not UTF-8, a question mark for half of a surrogate pair, as Java has it, and control
    characters in texts escaped.

    :raises BodyError: there are more than `MAX_CONTROLS` of these.
    """
    if not data.isascii():
        data = data.decode("utf-8", "replace").encode()
    if b"\\u" in data:
        data = _ESCAPE.sub(lambda found: b"?" if found[1] else found[0], data)
    if _CONTROL.search(data):
        data = _escape_controls(data)
    return data


def _escape_controls(data: bytes) -> bytes:
    left = MAX_CONTROLS

    def escape(text: re.Match[bytes]) -> bytes:
        nonlocal left
        found = text[0]
        left -= len(found) - len(found.translate(None, _CONTROLS))
        if left < 0:
            raise BodyError(f"not JSON: more than {MAX_CONTROLS} control characters in texts")
        return _CONTROL.sub(_escaped, found)

    return _STRING.sub(escape, data)


def _escaped(control: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % control[0][0]


def standardize(data: bytes) -> bytes:
    """Quote the bare keys of a text in the dialect; standard JSON comes back unchanged.

    :raises BodyError: keys that are objects cannot be told apart from the rest: brackets do not match or are nested too
        deeply. Other faults are left for the JSON reader to find.
    """
    # Texts are taken out, so that what is left is structure alone and can be searched at full speed.
    pieces = _STRING.split(data)
    structure = b'"'.join(pieces[::2])
    if _OBJECT_KEY_END.search(structure):
        return _quote_keys(data)
    if b"\\" in structure:
        raise BodyError("not JSON: a backslash outside a text")
    quoted = _NUMBER_KEY.sub(rb"\\\1\\", structure).split(b'"')
    pieces[::2] = [part.replace(b"\\", b'"') for part in quoted]
    return b"".join(pieces)


def _quote_keys(data: bytes) -> bytes:
    """The long way, for texts that have objects as keys: walk over all tokens.

    An object is a key when it begins where a key is due. Its text is cut out of the output again when it ends.
    """
    out: list[bytes] = []
    # One entry for each open bracket: the bracket and, for an object that is a key, where its text starts in `out`.
    opened: list[tuple[bytes, int | None]] = []
    key_due = False
    keys_open = 0  # never more than one: quoting grows what is quoted already by half or more
    for token in _TOKEN.findall(data):
        if token == b"{":
            if len(opened) == MAX_DEPTH:
                raise BodyError(f"JSON is nested more than {MAX_DEPTH} deep")
            if key_due and keys_open:
                raise BodyError("not JSON: a key that is an object holds another one")
            keys_open += key_due
            opened.append((token, len(out) if key_due else None))
            out.append(token)
            key_due = True
        elif token == b"[":
            if len(opened) == MAX_DEPTH:
                raise BodyError(f"JSON is nested more than {MAX_DEPTH} deep")
            opened.append((token, None))
            out.append(token)
            key_due = False
        elif token in (b"}", b"]"):
            bracket, key_start = opened.pop() if opened else (b"", None)
            if bracket + token not in (b"{}", b"[]"):
                raise BodyError(f"not JSON: {token.decode()} closes nothing")
            out.append(token)
            key_due = False
            if key_start is not None:
                keys_open -= 1
                out[key_start:] = [_as_text(b"".join(out[key_start:]))]
        elif token == b",":
            out.append(token)
            key_due = bool(opened) and opened[-1][0] == b"{"
        elif key_due and not token.isspace():
            bare = token.strip()
            out.append(b'"%b"' % bare if bare.lstrip(b"-").isdigit() else token)
            key_due = False
        else:
            out.append(token)
    if opened:
        raise BodyError("not JSON: a bracket is not closed")
    return b"".join(out)


def _as_text(key: bytes) -> bytes:
    return _encode(key.decode("utf-8", "replace"))
