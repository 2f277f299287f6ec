"""What does a SQL92 filter mean? From its text to a function that says whether a message's properties match.

Stands for ``SelectorParser`` and ``SqlFilter``. As officially, what follows a whole expression is not looked at beyond the next
word: ``a = 3)`` and ``a = 3 a = 4`` are ``a = 3``.
"""

from __future__ import annotations

from txrocketmq.broker.filter import nodes
from txrocketmq.broker.filter.nodes import Evaluate, Node, Properties
from txrocketmq.broker.filter.tokens import FLOAT, IDENTIFIER, INTEGER, STRING, Token, Tokens
from txrocketmq.broker.filter.values import Long, Value, read_long
from txrocketmq.errors import FilterError

MAX_NESTING = 50
"""Brackets within brackets; each costs six frames of Python's stack while it is read."""
CACHE_ENTRIES = 100
MAX_LENGTH = 16_384
"""Longer expressions are refused: reading one takes the time of a hundred sends."""

_LITERALS = {"TRUE": True, "FALSE": False, "NULL": None}
_TEXT_TESTS = ("CONTAINS", "STARTSWITH", "ENDSWITH")


class CompiledFilter:
    """An expression that can be asked about messages.

    :ivar text: the expression as it was understood, in the official notation.
    :ivar evaluate: true, false or None for a message's properties; raises `FilterError` where they cannot be compared.
    """

    __slots__ = ("_node", "evaluate")

    def __init__(self, node: Node) -> None:
        self._node = node
        self.evaluate: Evaluate = node.evaluate

    @property
    def text(self) -> str:
        """The expression as it was understood, in the official notation."""
        return self._node.text()

    def matches(self, properties: Properties) -> bool:
        """Whether the message is wanted; one that cannot be compared is not."""
        try:
            return self.evaluate(properties) is True
        except FilterError:
            return False


_compiled: dict[str, CompiledFilter | str] = {}


def compile_filter(expression: str) -> CompiledFilter:
    """The filter of an expression; recent ones, refused ones too, are remembered.

    :raises FilterError: it is none; the words are the official ones without the names of Java's classes.
    """
    if len(expression) > MAX_LENGTH:
        raise FilterError(f"the expression has more than {MAX_LENGTH} characters")
    known = _compiled.get(expression)
    if known is None:
        try:
            known = CompiledFilter(_Parser(expression).parse())
        except FilterError as error:
            known = str(error)
        if len(_compiled) >= CACHE_ENTRIES:
            del _compiled[next(iter(_compiled))]
        _compiled[expression] = known
    if isinstance(known, str):
        raise FilterError(known)
    return known


class _Parser:
    """Reads one expression from left to right; a complaint comes at the first word or part that is wrong."""

    def __init__(self, expression: str) -> None:
        self._tokens = Tokens(expression)
        self._nesting = 0

    def parse(self) -> Node:
        return nodes.as_boolean(self._either())

    def _kind(self, distance: int = 0) -> str:
        return self._tokens.peek(distance).kind

    def _expect(self, kind: str) -> Token:
        token = self._tokens.peek()
        if token.kind != kind:
            raise self._tokens.unexpected(token)
        return self._tokens.take()

    def _either(self) -> Node:
        left = self._both()
        parts = [left]
        while self._kind() == "OR":
            self._tokens.take()
            right = self._both()
            parts[0] = nodes.as_boolean(parts[0])
            parts.append(nodes.as_boolean(right))
        return nodes.any_of(parts) if len(parts) > 1 else left

    def _both(self) -> Node:
        left = self._equality()
        parts = [left]
        while self._kind() == "AND":
            self._tokens.take()
            right = self._equality()
            parts[0] = nodes.as_boolean(parts[0])
            parts.append(nodes.as_boolean(right))
        return nodes.all_of(parts) if len(parts) > 1 else left

    def _equality(self) -> Node:
        left = self._comparison()
        while (kind := self._kind()) in ("=", "<>", "IS"):
            self._tokens.take()
            if kind == "IS":
                is_not = self._kind() == "NOT"
                if is_not:
                    self._tokens.take()
                self._expect("NULL")
                left = nodes.is_null(left)
            else:
                is_not = kind == "<>"
                left = nodes.equal(left, self._comparison())
            if is_not:
                left = nodes.negation_of(left)
        return left

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            kind = self._kind()
            if kind in (">", ">=", "<", "<="):
                self._tokens.take()
                left = nodes.ordered(left, kind, self._unary())
                continue
            wanted = kind != "NOT"
            if not wanted:
                kind = self._kind(1)
            if kind not in _TEXT_TESTS and kind not in ("BETWEEN", "IN"):
                if not wanted:
                    raise self._tokens.unexpected(self._tokens.peek())
                return left
            if not wanted:
                self._tokens.take()
            self._tokens.take()
            if kind == "BETWEEN":
                low = self._unary()
                self._expect("AND")
                left = nodes.between(left, low, self._unary(), wanted)
            elif kind == "IN":
                left = nodes.member_of(left, self._strings(), wanted)
            else:
                left = nodes.text_test(left, kind, self._string(), wanted)

    def _strings(self) -> list[str]:
        self._expect("(")
        found = [self._string()]
        while self._kind() == ",":
            self._tokens.take()
            found.append(self._string())
        self._expect(")")
        return found

    def _string(self) -> str:
        return self._expect(STRING).image[1:-1].replace("''", "'")

    def _unary(self) -> Node:
        signs = []
        while self._kind() in ("+", "-", "NOT"):
            signs.append(self._tokens.take().kind)
        node = self._primary()
        for sign in reversed(signs):
            if sign == "-":
                node = nodes.minus(node)
            elif sign == "NOT":
                node = nodes.negation_of(nodes.as_boolean(node))
        return node

    def _primary(self) -> Node:
        token = self._tokens.peek()
        kind = token.kind
        if kind == "(":
            return self._bracket()
        if kind == STRING:
            return nodes.Constant(self._string())
        if kind == INTEGER:
            return nodes.Constant(_integer(self._tokens.take().image))
        if kind == FLOAT:
            return nodes.Constant(_double(self._tokens.take().image))
        if kind == IDENTIFIER:
            return nodes.Property(self._tokens.take().image)
        if kind in _LITERALS:
            self._tokens.take()
            return nodes.Constant(_LITERALS[kind])
        raise self._tokens.unexpected(token)

    def _bracket(self) -> Node:
        self._tokens.take()
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise FilterError(f"more than {MAX_NESTING} brackets within one another")
        node = self._either()
        self._expect(")")
        self._nesting -= 1
        return node


def _integer(image: str) -> Value:
    value = read_long(image.rstrip("lL"))
    return value if value < 2**31 else Long(value)


def _double(image: str) -> Value:
    value = float(image)
    if value == float("inf"):
        raise FilterError(f"{image} is greater than 1.7976931348623157E308")
    if value == 0:
        # Java takes the smallest positive double for the smallest one, so there is no way to write zero so.
        raise FilterError(f"{image} is less than 4.9E-324")
    return value
