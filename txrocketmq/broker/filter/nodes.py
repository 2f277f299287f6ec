"""What does a part of a SQL92 filter do? Each becomes a function of a message's properties, put together once.

Stands for the classes of the official package ``filter.expression``. Three values: true, false, and None where a property is missing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce

from txrocketmq.broker.filter.values import (
    Long,
    Value,
    compare,
    double_text,
    read_double,
    read_int,
    read_long,
    reader_for,
)
from txrocketmq.errors import FilterError

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]

MAX_DEPTH = 100
"""Levels of a filter; each costs a frame of Python's stack when a message is looked at."""

_ORDERS: dict[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Node:
    """A part of a filter.

    :ivar evaluate: its value for a message; raises `FilterError` where a property cannot be compared.
    :ivar text: makes the official text of the part, for complaints.
    :ivar is_boolean: whether its value is true, false or None.
    :ivar depth: how many levels there are.
    """

    __slots__ = ("depth", "evaluate", "is_boolean", "text")

    def __init__(
        self, evaluate: Evaluate, text: Callable[[], str], is_boolean: bool, *parts: Node
    ) -> None:
        self.evaluate = evaluate
        self.text = text
        self.is_boolean = is_boolean
        self.depth: int = 1 + max((part.depth for part in parts), default=0)
        if self.depth > MAX_DEPTH:
            raise FilterError(f"the expression has more than {MAX_DEPTH} levels")


class Constant(Node):
    """A literal."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        is_boolean = value is None or value.__class__ is bool
        super().__init__(lambda properties: value, self._text, is_boolean)
        self.value = value

    def _text(self) -> str:
        value = self.value
        if value is None or value.__class__ is bool:
            return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return double_text(value) if isinstance(value, float) else str(int(value))


class Property(Node):
    """A property of the message, by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(lambda properties: properties.get(name), lambda: name, False)
        self.name = name


def as_boolean(node: Node) -> Node:
    """A part where only true, false and None make sense; a property alone is never true: it is a string.

    :raises FilterError: it is a number, a string or a negation.
    """
    if node.is_boolean:
        return node
    if isinstance(node, Property):
        name = node.name
        return Node(
            lambda properties: None if properties.get(name) is None else False,
            node.text,
            True,
            node,
        )
    raise FilterError(f"Expression will not result in a boolean value: {node.text()}")


def any_of(parts: list[Node]) -> Node:
    """True when one is, None when none is but one is None."""
    evaluates = [part.evaluate for part in parts]

    def evaluate(properties: Properties) -> Value:
        found: Value = False
        for part in evaluates:
            value = part(properties)
            if value:
                return True
            if value is None:
                found = None
        return found

    return Node(evaluate, lambda: _joined(parts, "||"), True, *parts)


def all_of(parts: list[Node]) -> Node:
    """False when one is, None when none is but one is None."""
    evaluates = [part.evaluate for part in parts]

    def evaluate(properties: Properties) -> Value:
        found: Value = True
        for part in evaluates:
            value = part(properties)
            if value is None:
                found = None
            elif not value:
                return False
        return found

    return Node(evaluate, lambda: _joined(parts, "&&"), True, *parts)


def _joined(parts: list[Node], sign: str) -> str:
    return reduce(lambda left, right: f"({left} {sign} {right})", [part.text() for part in parts])


def negation_of(part: Node) -> Node:
    """NOT: None stays None."""
    inner = part.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return Node(evaluate, lambda: f"(NOT {part.text()})", True, part)


def minus(part: Node) -> Node:
    """The sign; of anything but a number (a property is a string) it makes None."""
    inner = part.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        if value is None or isinstance(value, (str, bool)):
            return None
        return -value if value.__class__ in (int, float) else value.__class__(-value)

    return Node(evaluate, lambda: f"(- {part.text()})", False, part)


def equal(left: Node, right: Node) -> Node:
    """``=``.

    :raises FilterError: a side is NULL, or a boolean literal is compared with another kind of literal.
    """
    for side in (left, right):
        if isinstance(side, Constant) and side.value is None:
            raise FilterError("'NULL' cannot be compared.")
    if (
        isinstance(left, Constant)
        and isinstance(right, Constant)
        and left.is_boolean
        and not right.is_boolean
    ):
        raise FilterError(f"'{left.text()}' cannot be compared with '{right.text()}'")
    if isinstance(left, Property) and isinstance(right, Constant):
        return Node(_property_equals(left.name, right.value), _sides(left, "==", right), True)
    return _equal(left, right)


def _sides(left: Node, sign: str, right: Node) -> Callable[[], str]:
    return lambda: f"({left.text()} {sign} {right.text()})"


def _property_equals(name: str, constant: Value) -> Evaluate:
    """The usual case, without calls between parts."""
    if isinstance(constant, str):

        def same_text(properties: Properties) -> Value:
            value = properties.get(name)
            return None if value is None else value == constant

        return same_text
    if constant.__class__ is bool:

        def same_boolean(properties: Properties) -> Value:
            value = properties.get(name)
            return None if value is None else (value.lower() == "true") is constant

        return same_boolean
    read = reader_for(constant)  # type: ignore[arg-type]

    def same_number(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else read(value) == constant

    return same_number


def _equal(left: Node, right: Node) -> Node:
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one, other = first(properties), second(properties)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        return compare(one, other) == 0

    return Node(evaluate, _sides(left, "==", right), True, left, right)


def is_null(part: Node) -> Node:
    """``IS NULL``: never None."""
    inner = part.evaluate
    return Node(
        lambda properties: inner(properties) is None,
        lambda: f"({part.text()} == NULL)",
        True,
        part,
    )


def ordered(left: Node, sign: str, right: Node) -> Node:
    """One of ``> >= < <=``; strings are compared as doubles.

    :raises FilterError: a side is a literal that is no number, or is itself a condition.
    """
    for side in (left, right):
        if isinstance(side, Constant):
            is_number = isinstance(side.value, (int, float)) and side.value.__class__ is not bool
            if not is_number:
                complaint = f"Value '{side.text()}' cannot be compared."
                raise FilterError(complaint)
        elif side.is_boolean:
            raise FilterError(f"Value '{side.text()}' cannot be compared.")
    holds = _ORDERS[sign]
    if isinstance(left, Property) and isinstance(right, Constant) and isinstance(right.value, int):
        return Node(_property_holds(left.name, holds, right.value), _sides(left, sign, right), True)
    first, second = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        if other is None:
            return None
        if one.__class__ is str and other.__class__ is str:
            one, other = _as_doubles(one, other)
        return holds(compare(one, other), 0)

    return Node(evaluate, _sides(left, sign, right), True, left, right)


def _property_holds(name: str, holds: Callable[[int, int], bool], constant: int) -> Evaluate:
    """The usual case, without calls between parts."""
    read = read_long if isinstance(constant, Long) else read_int

    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else holds(read(value), constant)

    return evaluate


def _as_doubles(left: object, right: object) -> tuple[float, float]:
    try:
        return read_double(str(left)), read_double(str(right))
    except FilterError as error:
        raise FilterError(
            f"It's illegal to compare string by '>=', '>', '<', '<='. lv={left}, rv={right}"
        ) from error


def between(value: Node, low: Node, high: Node, inside: bool) -> Node:
    """``BETWEEN`` with both ends, or ``NOT BETWEEN``.

    :raises FilterError: of two literals the first is larger (not checked for ``NOT BETWEEN``), or `ordered` refuses.
    """
    if not inside:
        return any_of([ordered(value, "<", low), ordered(value, ">", high)])
    if isinstance(low, Constant) and isinstance(high, Constant):
        if low.value is None or high.value is None:
            raise FilterError("Illegal values of between, values can not be null!")
        if compare(high.value, low.value) < 0:
            ends = [end.value if isinstance(end.value, str) else end.text() for end in (low, high)]
            raise FilterError(
                f"Illegal values of between, left value({ends[0]}) "
                f"must less than or equal to right value({ends[1]})"
            )
    return all_of([ordered(value, ">=", low), ordered(value, "<=", high)])


def member_of(left: Node, elements: list[str], wanted: bool) -> Node:
    """``IN`` or ``NOT IN``.

    :raises FilterError: the left side is no property.
    """
    sign = "IN" if wanted else "NOT IN"
    if not isinstance(left, Property):
        raise FilterError(f"Expected a property for In expression, got: {left.text()}")
    name, values = left.name, frozenset(elements)

    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else (value in values) is wanted

    return Node(evaluate, lambda: f"{name} {sign} ( {', '.join(elements)} )", True)


def text_test(left: Node, sign: str, search: str, wanted: bool) -> Node:
    """``CONTAINS``, ``STARTSWITH``, ``ENDSWITH``: false both ways for a missing property and for an empty text."""
    inner = left.evaluate
    tests: dict[str, Callable[[str], bool]] = {
        "CONTAINS": lambda value: search in value,
        "STARTSWITH": lambda value: value.startswith(search),
        "ENDSWITH": lambda value: value.endswith(search),
    }
    holds = tests[sign]

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return bool(search) and isinstance(value, str) and holds(value) is wanted

    symbol = sign if wanted else f"NOT {sign}"
    return Node(evaluate, lambda: f"({symbol} {left.text()})", True, left)
