"""How long is each delay level, and which level does a message ask for?

Stands for ``ScheduleMessageService.parseDelayLevel`` and ``MessageExt.getDelayTimeLevel``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from twisted.logger import Logger

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.model import properties as props
from txrocketmq.store.reput import parse_delay_levels

UNKNOWN_LEVEL_MS = 1000
"""How long a message of a level waits that the configuration does not have any more."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,10}\Z", re.ASCII)
_MAX_INT = 2**31 - 1


class DelayLevels:
    """The levels of `messageDelayLevel`; a change acts at once."""

    _log = Logger()

    def __init__(self, config: MessageStoreConfig) -> None:
        self._config = config
        self._text: str | None = None
        self._delays: list[int] = []

    def delays_ms(self) -> list[int]:
        """The delays of level 1, 2, ...; the last readable ones where the present text has none."""
        text = self._config.message_delay_level
        if text != self._text:
            self._text = text
            delays = parse_delay_levels(text)
            if delays:
                self._delays = delays
            else:
                self._log.error("messageDelayLevel {text!r} has no level", text=text)
        return self._delays

    @property
    def highest(self) -> int:
        """The highest level; 0 when there is none."""
        return len(self.delays_ms())

    def delay_ms(self, level: int) -> int:
        """How long messages of a level wait."""
        delays = self.delays_ms()
        return delays[level - 1] if 0 < level <= len(delays) else UNKNOWN_LEVEL_MS


def delay_level(found: Mapping[str, str]) -> int | None:
    """The level that a message's properties ask for: 0 or less for none, None when it is no Java integer."""
    text = found.get(props.DELAY_TIME_LEVEL)
    if text is None:
        return 0
    if not _NUMBER.match(text):
        return None
    level = int(text)
    return level if -_MAX_INT - 1 <= level <= _MAX_INT else None
