"""What are the words of a SQL92 filter? Tokens one at a time, since what follows a whole expression is never looked at.

Stands for the token part of ``SelectorParser.jj``: longest match, key words in any case, comments and white space between.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from txrocketmq.errors import FilterError

KEYWORDS = frozenset(
    [
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    ]
)
END = "<EOF>"
IDENTIFIER = "<ID>"
INTEGER = "<DECIMAL_LITERAL>"
FLOAT = "<FLOATING_POINT_LITERAL>"
STRING = "<STRING_LITERAL>"

_BETWEEN = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*")
# A line comment without an end of line is none: it reads as a minus sign, as officially. On the last line none is looked for: of sixteen
# thousand minus signs each would look for the end of a line.
_BETWEEN_ON_LAST_LINE = re.compile(r"(?:[ \t\f]|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*")
_TOKEN = re.compile(
    r"(?P<ID>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<INTEGER>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<SIGN><>|>=|<=|[=<>(),+-])"
)


class Token(NamedTuple):
    """One word.

    :ivar kind: one of the constants here, a key word in capitals, or the sign itself.
    :ivar image: the word as it was written.
    :ivar start: position of its first character.
    """

    kind: str
    image: str
    start: int


class Tokens:
    """The words of a text, made when they are asked for.

    :raises FilterError: from `peek`, where the text has no word.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._last_line = 1 + max(text.rfind("\n"), text.rfind("\r"))
        self._ahead: list[Token] = []

    def peek(self, distance: int = 0) -> Token:
        """A coming word; only as many are read as are needed."""
        while len(self._ahead) <= distance:
            self._ahead.append(self._read())
        return self._ahead[distance]

    def take(self) -> Token:
        """The next word, which is used up."""
        token = self.peek()
        del self._ahead[0]
        return token

    def unexpected(self, token: Token) -> FilterError:
        """The complaint that a word does not belong where it is."""
        line, column = self._place(token.start if token.kind != END else len(self._text) - 1)
        if token.kind == END:
            return FilterError(f'Encountered "{END}" at line {line}, column {column}.')
        kind = (
            token.kind if token.kind.startswith("<") and len(token.kind) > 2 else f'"{token.kind}"'
        )
        image = _escaped(token.image)
        return FilterError(f'Encountered " {kind} "{image} "" at line {line}, column {column}.')

    def _place(self, position: int) -> tuple[int, int]:
        if position < 0:
            return 0, 0
        before = self._text[:position]
        return before.count("\n") + 1, position - before.rfind("\n")

    def _read(self) -> Token:
        text = self._text
        skipped = _BETWEEN if self._end < self._last_line else _BETWEEN_ON_LAST_LINE
        between = skipped.match(text, self._end)
        start = between.end() if between is not None else self._end
        if start >= len(text):
            return Token(END, "", start)
        found = _TOKEN.match(text, start)
        if found is None:
            raise self._no_word(start)
        self._end = found.end()
        image = found.group()
        match found.lastgroup:
            case "ID":
                word = image.upper()
                return Token(word if word in KEYWORDS else IDENTIFIER, image, start)
            case "INTEGER":
                return Token(INTEGER, image, start)
            case "FLOAT":
                return Token(FLOAT, image, start)
            case "STRING":
                return Token(STRING, image, start)
        return Token(image, image, start)

    def _no_word(self, start: int) -> FilterError:
        """The complaint at the character where no word can go on."""
        text = self._text
        if text[start] == "'" or text.startswith("/*", start):
            at = len(text)
        elif text[start] in "./":
            at = start + 1
        else:
            at = start
        line, column = self._place(at)
        if at >= len(text) - 1:
            line, column = self._place(len(text))
            after = text[start:at] if at - start > 1 else ""
            return FilterError(
                f"Lexical error at line {line}, column {column}.  "
                f'Encountered: {END} after : "{_escaped(after)}"'
            )
        return FilterError(
            f"Lexical error at line {line}, column {column}.  "
            f'Encountered: "{_escaped(text[at])}" ({ord(text[at])}), after : "{_escaped(text[start:at])}"'
        )


def _escaped(text: str) -> str:
    """As Java writes it between quotes."""
    return "".join(
        f"\\{c}" if c in "\"'\\" else c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in text
    )
