"""How is one configuration key declared, read from text and written back?

A configuration class is an attrs class whose attributes are made by `flag`, `int32`, `int64`, `number`, `text` and
`choice`: snake_case attribute, official name on the outside, Java type, official default, a help text. When
a change takes effect is told in `txrocketmq.config.effects`. Everything else (files, command line, reference page) reads these declarations.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import attrs

from txrocketmq.config.effects import Effect, effect_of
from txrocketmq.errors import ConfigError

_METADATA_KEY = "txrocketmq.key"
_JAVA_INT = (-(2**31), 2**31 - 1)
_JAVA_LONG = (-(2**63), 2**63 - 1)
# Worked out once for each class, at first use.
_specs: dict[type, tuple[KeySpec, ...]] = {}
_tables: dict[type, dict[str, KeySpec]] = {}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")


@attrs.frozen
class Computed:
    """A default that depends on the machine.

    :ivar words: how the official reference describes it.
    :ivar compute: works the value out.
    """

    words: str
    compute: Callable[[], Any]


@attrs.frozen
class Form:
    """What a text must look like.

    :ivar pattern: matches all of it.
    :ivar words: what is wanted, for who has it wrong.
    """

    pattern: str
    words: str


A_NAME = Form(".+", "a name")


@attrs.frozen
class KeySpec:
    """What is known about one key.

    :ivar attribute: the attribute's name on the configuration object.
    :ivar name: the official name, as in files.
    :ivar alias: a second spelling that files may use, or None.
    :ivar java_type: ``int``, ``long``, ``double``, ``boolean``, ``String`` or the enum's name.
    :ivar default: the official default, or a `Computed`.
    :ivar help: one or two sentences for the operator.
    :ivar important: whether ``-m`` prints it.
    :ivar low: smallest number allowed.
    :ivar high: largest number allowed.
    :ivar choices: the words allowed; empty when any text is.
    :ivar form: what a text must look like; None when any will do.
    """

    attribute: str
    name: str
    alias: str | None
    java_type: str
    default: object
    help: str
    important: bool
    low: int
    high: int
    choices: tuple[str, ...]
    form: Form | None

    @property
    def effect(self) -> Effect:
        """When a change of the key acts."""
        return effect_of(self.name)

    @property
    def acts(self) -> bool:
        """Whether txrocketmq does something with the value."""
        return self.effect is not Effect.NONE

    def parse(self, raw: str) -> object:
        """The value that a text stands for.

        :raises ConfigError: one line with key, value and what is allowed.
        """
        word = raw.strip()
        if self.choices:
            if word in self.choices:
                return word
            raise self._refuse(word, "one of " + ", ".join(self.choices))
        if self.java_type == "String":
            if self.form is not None and not re.fullmatch(self.form.pattern, word):
                raise self._refuse(word, self.form.words)
            return word
        if self.java_type == "boolean":
            if word.lower() in ("true", "false"):
                return word.lower() == "true"
            raise self._refuse(word, "true or false")
        if self.java_type == "double":
            try:
                return float(word)
            except ValueError:
                raise self._refuse(word, "a number") from None
        if _WHOLE_NUMBER.fullmatch(word) and self.low <= int(word) <= self.high:
            return int(word)
        raise self._refuse(word, f"a whole number from {self.low} to {self.high}")

    def _refuse(self, word: str, allowed: str) -> ConfigError:
        return ConfigError(f"bad configuration value {self.name}={word}: {allowed} is needed")


def format_value(value: object) -> str:
    """A value as files spell it; an unset one is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _key(default: object, java_type: str, help_text: str, **options: Any) -> Any:
    bounds = _JAVA_INT if java_type == "int" else _JAVA_LONG
    spec: dict[str, Any] = {
        "name": options.pop("name", None),
        "alias": options.pop("alias", None),
        "java_type": java_type,
        "default": default,
        "help": help_text,
        "important": options.pop("important", False),
        "low": options.pop("low", bounds[0]),
        "high": options.pop("high", bounds[1]),
        "choices": options.pop("choices", ()),
        "form": options.pop("form", None),
    }
    if options:
        raise TypeError(f"unknown options of a key: {sorted(options)}")
    metadata = {_METADATA_KEY: spec}
    if isinstance(default, Computed):
        return attrs.field(factory=default.compute, metadata=metadata)
    return attrs.field(default=default, metadata=metadata)


def flag(default: bool | Computed, help_text: str, **options: Any) -> bool:
    """A Java ``boolean``."""
    return _key(default, "boolean", help_text, **options)  # type: ignore[no-any-return]


def int32(default: int | Computed, help_text: str, **options: Any) -> int:
    """A Java ``int``; ``low`` and ``high`` narrow its range."""
    return _key(default, "int", help_text, **options)  # type: ignore[no-any-return]


def int64(default: int | Computed, help_text: str, **options: Any) -> int:
    """A Java ``long``; ``low`` and ``high`` narrow its range."""
    return _key(default, "long", help_text, **options)  # type: ignore[no-any-return]


def number(default: float | Computed, help_text: str, **options: Any) -> float:
    """A Java ``double``."""
    return _key(default, "double", help_text, **options)  # type: ignore[no-any-return]


def text(default: str | Computed | None, help_text: str, **options: Any) -> str:
    """A Java ``String``; ``form`` tells what it must look like."""
    return _key(default, "String", help_text, **options)  # type: ignore[no-any-return]


def choice(
    default: str, choices: tuple[str, ...], java_type: str, help_text: str, **options: Any
) -> str:
    """A Java enum, kept as its word."""
    return _key(default, java_type, help_text, choices=choices, **options)  # type: ignore[no-any-return]


def camel_case(attribute: str) -> str:
    """The usual official spelling of an attribute's name."""
    first, *rest = attribute.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def keys_of(cls: type) -> tuple[KeySpec, ...]:
    """All keys of a configuration class, in the order declared."""
    specs = _specs.get(cls)
    if specs is None:
        found = []
        for attribute in attrs.fields(cls):
            declared = attribute.metadata[_METADATA_KEY]
            name = declared["name"] or camel_case(attribute.name)
            found.append(KeySpec(attribute=attribute.name, **{**declared, "name": name}))
        specs = _specs[cls] = tuple(found)
    return specs


def key_table(cls: type) -> dict[str, KeySpec]:
    """The keys of a configuration class by each name that a file may use."""
    table = _tables.get(cls)
    if table is None:
        table = {spec.name: spec for spec in keys_of(cls)}
        table.update({spec.alias: spec for spec in keys_of(cls) if spec.alias})
        _tables[cls] = table
    return table


def cpu_count() -> int:
    """Processors that this machine has."""
    return os.cpu_count() or 1
