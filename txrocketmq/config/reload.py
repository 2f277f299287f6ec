"""How does the configuration of a running process change, and what does it show of itself?

Stands for the official ``Configuration`` of broker and name server: all keys of all sections as one table of text. A change is taken
as a whole or refused as a whole; what it does, and what has to wait for a restart, is told to whoever asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from txrocketmq.config.effects import Effect
from txrocketmq.config.keys import KeySpec, format_value, key_table, keys_of
from txrocketmq.config.properties import parse_properties_file
from txrocketmq.errors import ConfigError
from txrocketmq.model.topic import DataVersion

SEPARATOR = ";"


class ForbiddenKeyError(ConfigError):
    """A change names keys that must not be changed at run time."""


@attrs.frozen
class Change:
    """What came of a request to change keys.

    :ivar changed: official names and new values of keys that have another value now.
    :ivar need_restart: of those, the ones that act when the process starts.
    :ivar idle: of those, the ones that have no effect here.
    :ivar unknown: names that no section declares; nothing happened to them.
    """

    changed: dict[str, str]
    need_restart: tuple[str, ...]
    idle: tuple[str, ...]
    unknown: tuple[str, ...]

    def remark(self) -> str | None:
        """One line for the operator about all that did not take effect; None when everything did."""
        parts = [
            f"{words}: {', '.join(names)}"
            for words, names in (
                ("act after a restart", self.need_restart),
                ("have no effect here", self.idle),
                ("are unknown and ignored", self.unknown),
            )
            if names
        ]
        return "; ".join(parts) or None


class RunTimeConfiguration:
    """The configuration of one running role.

    :param sections: the configuration objects that the role's parts hold; they are changed in place.
    :param now_ms: wall-clock milliseconds.
    :param frozen: keys that must never be changed at run time.
    :param black_list: more of them, separated by ``;`` (`configBlackList`).
    :param unknown: entries of the configuration file that no section declares; shown, never changed.
    :ivar data_version: counts the changes; travels with the configuration.
    """

    def __init__(
        self,
        sections: Sequence[object],
        now_ms: Callable[[], int],
        *,
        frozen: Iterable[str] = (),
        black_list: Callable[[], str] = str,
        unknown: Mapping[str, str] | None = None,
    ) -> None:
        self._sections = tuple(sections)
        self._now_ms = now_ms
        self._frozen = frozenset(frozen)
        self._black_list = black_list
        self._unknown = dict(unknown or {})
        self.data_version = DataVersion(timestamp=now_ms())

    def entries(self) -> dict[str, str]:
        """All keys with their values, sorted by name; unset ones are left out."""
        found = dict(self._unknown)
        for section in self._sections:
            for spec in keys_of(type(section)):
                value = getattr(section, spec.attribute)
                if value is not None:
                    found.setdefault(spec.name, format_value(value))
        return dict(sorted(found.items()))

    def text(self) -> bytes:
        """The same as ``key=value`` lines, as tools expect them."""
        return "".join([f"{key}={value}\n" for key, value in self.entries().items()]).encode()

    @staticmethod
    def parse(body: bytes) -> dict[str, str]:
        """The keys and values of a request, which has the form of a configuration file.

        :raises ConfigError: it cannot be read.
        """
        return parse_properties_file(body)

    def update(self, wanted: Mapping[str, str]) -> Change:
        """Change keys.

        :raises ForbiddenKeyError: one of them is on the black list; nothing was changed.
        :raises ConfigError: a value is not allowed; nothing was changed. One line.
        """
        listed = {word.strip() for word in self._black_list().split(SEPARATOR)} | self._frozen
        if not listed.isdisjoint(wanted):
            raise ForbiddenKeyError("Can not update config in black list.")
        planned: list[tuple[object, KeySpec, object]] = []
        unknown = []
        for name, raw in wanted.items():
            found = [
                (section, spec, spec.parse(raw))
                for section in self._sections
                if (spec := key_table(type(section)).get(name)) is not None
            ]
            planned += found
            if not found:
                unknown.append(name)
        changed: dict[str, KeySpec] = {}
        for section, spec, value in planned:
            if getattr(section, spec.attribute) != value:
                setattr(section, spec.attribute, value)
                changed[spec.name] = spec
        self.data_version.next(self._now_ms())
        return Change(
            {spec.name: format_value(value) for _, spec, value in planned if spec.name in changed},
            tuple(name for name, spec in changed.items() if spec.effect is Effect.AT_START),
            tuple(name for name, spec in changed.items() if spec.effect is Effect.NONE),
            tuple(unknown),
        )
