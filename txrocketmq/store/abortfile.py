"""Did the last run end in order, and if not, which part of the log may the device not have?

Officially the ``abort`` file holds the process id, and its presence is all that counts. Ours has a second line after a sync of the log failed:
the kernel may then hold pages for clean that the device never got. The line lives as long as those pages do, in the same page cache, and
makes the next start write them again.
"""

from __future__ import annotations

import os

from txrocketmq.interfaces import IDisk
from txrocketmq.store.mapped import FULL_DISK

_UNSAFE = "log not on the device from offset "
_NOWHERE = 1 << 62


class AbortFile:
    """``<storePathRootDir>/abort``: there from the start of a store to its orderly end."""

    def __init__(self, disk: IDisk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._path = f"{root}/abort"

    def exists(self) -> bool:
        """Whether the last run did not end in order."""
        return self._disk.exists(self._path)

    def make(self) -> None:
        """Bring the file to the device; what it says stays when it is there."""
        self._disk.create(self._path, 0)
        self._disk.sync_directory(self._root)

    def remove(self) -> None:
        """The run ended in order."""
        self._disk.remove(self._path)

    def note_process(self) -> None:
        """Let the file hold the process id, as officially, and nothing else."""
        self._write(str(os.getpid()))

    def mark_unsafe(self, offset: int) -> None:
        """Note that the log may not be on the device from here on (start, or a pool)."""
        self._write(f"{os.getpid()}\n{_UNSAFE}{offset}\n")

    def unsafe_offset(self) -> int:
        """From where on a failed sync left the log in doubt; beyond its end when none did."""
        try:
            text = self._disk.read_at(self._path, 0, 100).decode("ascii", "replace")
        except FileNotFoundError:
            return _NOWHERE
        line = text.partition("\n")[2].strip()
        offset = line.removeprefix(_UNSAFE)
        return int(offset) if line.startswith(_UNSAFE) and offset.isdecimal() else _NOWHERE

    def _write(self, text: str) -> None:
        try:
            self._disk.truncate(self._path, 0)
            self._disk.write_at(self._path, 0, text.encode())
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
