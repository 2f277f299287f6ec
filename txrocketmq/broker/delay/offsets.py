"""How far has each delay level been delivered?

Stands for the table of ``ScheduleMessageService``, kept in ``delayOffset.json``. Crash story: a crash forgets at most the last period
(`flushDelayOffsetInterval`), so its messages are delivered again; an orderly stop forgets nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from txrocketmq.broker.config_files import PersistedTable, SavedInTurns
from txrocketmq.codec.bodies import DelayOffsetSerializeWrapper, decode_body, encode_body
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.interfaces import IConfigFiles
from txrocketmq.model.topic import DataVersion

FILE_NAME = "delayOffset.json"


class DelayOffsets(SavedInTurns):
    """The next logical offset to deliver, by level.

    :ivar data_version: the table's version; goes up every so many deliveries (`delayOffsetUpdateVersionStep`), and with the first one
        after the start or after the master's table was taken over: an official master that comes back takes the table of a slave that
        acted for it only when its own version is not newer, and one that was killed before it saved any is as new as its start.
    """

    def __init__(
        self, config: BrokerConfig, files: IConfigFiles, now_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self._table: dict[int, int] = {}
        self._changes = 0
        self._has_moved_on = False
        self.data_version = DataVersion(timestamp=now_ms())
        self.file = PersistedTable(files, FILE_NAME, self.encode)

    def load(self) -> None:
        """Read ``delayOffset.json``.

        :raises StoreError: neither the file nor its backup can be read.
        """
        wrapper = self.file.load(partial(decode_body, DelayOffsetSerializeWrapper))
        if wrapper is None:
            return
        self._table = wrapper.offset_table or {}
        if wrapper.data_version is not None:
            self.data_version.assign(wrapper.data_version)

    def get(self, level: int) -> int:
        """The next offset of a level; 0 for one that had no message yet."""
        return self._table.get(level, 0)

    def put(self, level: int, offset: int) -> None:
        """Everything below an offset was delivered."""
        known = self._table.get(level)
        if known == offset:
            return
        self._table[level] = offset
        self._is_changed = True
        self._changes += 1
        is_first = offset > (known or 0) and not self._has_moved_on
        self._has_moved_on |= is_first
        if is_first or self._changes % max(1, self._config.delay_offset_update_version_step) == 0:
            self.data_version.next(self._now_ms())

    def take_over(self, wrapper: DelayOffsetSerializeWrapper) -> None:
        """A slave: stand where the master does."""
        self._has_moved_on = False
        table = wrapper.offset_table or {}
        if table != self._table:
            self._table = table
            self._is_changed = True
        if wrapper.data_version is not None:
            self.data_version.assign(wrapper.data_version)

    def take_back(self, wrapper: DelayOffsetSerializeWrapper) -> None:
        """A master that comes back: what a slave delivered in its place is delivered.

        Levels only go forward, so the farther offset is right, whatever the versions say. Officially the slave's table is taken or left as
        a whole by its version, which counts every 200 deliveries only.
        """
        for level, offset in (wrapper.offset_table or {}).items():
            if offset > self.get(level):
                self._table[level] = offset
                self._is_changed = True
        version = wrapper.data_version
        if version is not None and version.is_newer_than(self.data_version):
            self.data_version.assign(version)

    def items(self) -> list[tuple[int, int]]:
        """Levels with their offsets."""
        return sorted(self._table.items())

    def encode(self) -> bytes:
        """The table with its version, as it is kept and copied by slaves."""
        return encode_body(
            DelayOffsetSerializeWrapper(offset_table=self._table, data_version=self.data_version)
        )
