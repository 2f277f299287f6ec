"""How values that travel as JSON bodies are declared: the rules every official bean follows.

Members are declared in alphabetical order of their wire name (the order official servers write). ``None`` is Java's null: such
members are left out when written, and may be absent when read. Everything else is always written, so its default is given
through `default`, which keeps it from being mistaken for "not set".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Bean(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of all JSON values. Beans are trees: none refers back to its holder."""


B = TypeVar("B", bound=Bean)


def settings_text(bean: B, initial: B) -> str:
    """What is special about a bean, for a log line: ``readQueueNums=4, order=true``, or ``default settings``."""
    return _differences(bean, initial) or "default settings"


def change_text(bean: B, before: B | None, initial: B) -> str:
    """What became of an entry of a table, for a log line: ``created: readQueueNums=4``, ``changed: order=true``."""
    if before is None:
        return f"created: {settings_text(bean, initial)}"
    return f"changed: {_differences(bean, before) or 'nothing'}"


def _differences(bean: B, other: B) -> str:
    members = zip(bean.__struct_fields__, bean.__struct_encode_fields__, strict=True)
    return ", ".join(
        f"{wire}={msgspec.json.encode(getattr(bean, name)).decode()}"
        for name, wire in members
        if getattr(bean, name) != getattr(other, name)
    )


def default(value: T, name: str | None = None) -> T:
    """A member's official initial value: written also when unchanged. For immutable values.

    :param name: the wire name where it is not the attribute's name in camel case.
    """
    factory: Any = {int: int, bool: bool, float: float, str: str}.get(type(value))
    if factory is None or factory() != value:
        factory = _constant(value)
    made: T = msgspec.field(default_factory=factory, name=name)
    return made


def fresh(factory: Callable[[], T], name: str | None = None) -> T:
    """A member that starts with a new value made by the factory (an empty list, a bean), written also when empty."""
    made: T = msgspec.field(default_factory=lambda: factory(), name=name)
    return made


def absent(name: str) -> Any:
    """A member that starts as None and has a wire name of its own."""
    return msgspec.field(default=None, name=name)


def _constant(value: T) -> Callable[[], T]:
    return lambda: value
