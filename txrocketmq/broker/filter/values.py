"""How do the values of a SQL92 filter compare? Java's integers, doubles, booleans and strings, converted as the official filter does.

Stands for ``ComparisonExpression.__compare`` and the ``valueOf`` of Java's number classes. A property is a string; what it is
compared with decides as what it is read: an integer literal wants an integer of its own range, so ``1.0`` is an error there.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from txrocketmq.errors import FilterError


class Long(int):
    """An integer that Java keeps in 64 bits, because its literal does not fit into 32."""


Value = str | int | float | bool | None

_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    # One way only to read each digit: a property of 30,000 of them and a letter would take seconds else.
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX_DOUBLE = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_JAVA_SPACE = "".join(map(chr, range(33)))
_MAX_DIGITS = 4000


def _not_a_number(text: str) -> FilterError:
    return FilterError(f'For input string: "{text}"')


def _integer(text: str, limit: int) -> int:
    if len(text) > _MAX_DIGITS or (text > "" and max(text) > "\uffff"):
        raise _not_a_number(text)
    if _INTEGER.fullmatch(text) is None:
        raise _not_a_number(text)
    value = int(text)
    if not -limit <= value < limit:
        raise _not_a_number(text)
    return value


def read_int(text: str) -> int:
    """As ``Integer.valueOf``: 32 bits.

    :raises FilterError: it is none.
    """
    if len(text) < 10 and text.isdecimal() and text.isascii():
        return int(text)
    return _integer(text, 2**31)


def read_long(text: str) -> int:
    """As ``Long.valueOf``: 64 bits.

    :raises FilterError: it is none.
    """
    return _integer(text, 2**63)


def read_double(text: str) -> float:
    """As ``Double.valueOf``: white space around, a type suffix and hexadecimal digits are allowed.

    :raises FilterError: it is none.
    """
    stripped = text.strip(_JAVA_SPACE)
    if _DOUBLE.fullmatch(stripped) is not None:
        if not stripped.endswith("y"):
            stripped = stripped.rstrip("fFdD")
        return float(stripped)
    found = _HEX_DOUBLE.fullmatch(stripped)
    if found is None:
        raise _not_a_number(text)
    try:
        return float.fromhex(found.group(1))
    except OverflowError:
        return float("-inf" if stripped.startswith("-") else "inf")


def reader_for(number: int | float) -> Callable[[str], int | float]:
    """How a string is read that is compared with a number."""
    if number.__class__ is float:
        return read_double
    return read_long if number.__class__ is Long else read_int


def compare(left: Value, right: Value) -> int:
    """Negative, zero or positive, as Java's ``compareTo`` after conversion; kinds that do not go together give -1.

    :raises FilterError: a string is not the number that it is compared with, or a boolean stands before a string.
    """
    kind, other = left.__class__, right.__class__
    if kind is not other:
        if kind is bool:
            if other is str:
                raise FilterError("a boolean cannot be compared with a string")
            return -1
        if other is bool:
            if kind is not str:
                return -1
            left = str(left).lower() == "true"
        elif kind is str:
            left = reader_for(right)(left)  # type: ignore[arg-type]
        elif other is str:
            right = reader_for(left)(right)  # type: ignore[arg-type]
        if left.__class__ is float or right.__class__ is float:
            left, right = float(left), float(right)  # type: ignore[arg-type]
    if left.__class__ is float and (left == right == 0 or left != left or right != right):
        return _compare_odd(left, right)  # type: ignore[arg-type]
    return (left > right) - (left < right)  # type: ignore[operator]


def _compare_odd(left: float, right: float) -> int:
    """As ``Double.compareTo``: minus zero comes before zero, and not-a-number comes last and equals itself."""
    if left != left or right != right:
        return (left != left) - (right != right)
    return ("-" not in f"{left}") - ("-" not in f"{right}")


def double_text(value: float) -> str:
    """As ``Double.toString``, for the words of complaints."""
    magnitude = abs(value)
    if 1e-3 <= magnitude < 1e7:
        return format(value, "f") if repr(value).find("e") >= 0 else repr(value)
    digits, _, exponent = f"{value:.17e}".partition("e")
    for precision in range(1, 18):
        shorter = f"{value:.{precision}e}"
        if float(shorter) == value:
            digits, _, exponent = shorter.partition("e")
            break
    return f"{digits}E{int(exponent)}"
