"""Which term of mastership wrote which part of the log? The terms a replica knows, in memory and in a file.

Stands for ``EpochFileCache``. An entry holds from its start offset to the start of the next one; the last one goes on. A term without any
bytes gives way to the next one. (Officially the next one is not noted then: what it writes counts as the older one's, and a replica that
wrote something else under that older term is not found out.)

A master that comes back in its own term goes on with it, as long as the machine ran all the time: its log has all that was written then. If the
machine was started meanwhile the term is noted anew, from the log's end on: what replicas have beyond is perhaps not what this one will write
there. A second file beside the first says in which run of the machine the term was led.

Crash story: each file is replaced as a whole, synced, before anybody is told (they have a few lines, and change with a master). What the disk
refuses did not happen: a `StoreError`.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from txrocketmq.codec.epochfile import EpochEntry, decode_epoch_file, encode_epoch_file
from txrocketmq.errors import RecordError, StoreError
from txrocketmq.interfaces import IDisk

NO_EPOCH = -1


class EpochCache:
    """The terms.

    :ivar entries: in ascending order.
    """

    _log = Logger()

    def __init__(self, disk: IDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.entries: list[EpochEntry] = []

    def load(self) -> None:
        """Read the file, or its backup where it is damaged; none means that this replica is new.

        :raises StoreError: both are damaged: what was written under which term must not be guessed.
        """
        fault: Exception | None = None
        for path in (self._path, self._path + ".bak"):
            if not self._disk.exists(path):
                continue
            try:
                self.entries = decode_epoch_file(self._disk.read_file(path))
                return
            except RecordError as error:
                self._log.error("{path}: {error}", path=path, error=error)
                fault = fault or error
        if fault is not None:
            raise StoreError(f"{self._path}: {fault}")

    def begin(self, epoch: int, end: int) -> None:
        """This broker leads a term from the end of its log on, or leads it again.

        :raises StoreError: the disk refuses; the term is noted perhaps, without any bytes.
        """
        boot = self._disk.boot_id
        if self.last_epoch == epoch and boot and self._led_in() == f"{epoch} {boot}":
            return
        self._keep([e for e in self.entries if e.epoch < epoch and e.start_offset < end])
        self.append(EpochEntry(epoch, end))
        self._replace(self._path + ".led", f"{epoch} {boot}".encode(), False)

    def _led_in(self) -> str:
        path = self._path + ".led"
        return self._disk.read_file(path).decode() if self._disk.exists(path) else ""

    @property
    def last_epoch(self) -> int:
        """The newest term, `NO_EPOCH` before the first."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    def append(self, entry: EpochEntry) -> bool:
        """Note a new term, in the place of those that have no bytes before it; False when it is not newer than the last one."""
        if self.last_epoch >= entry.epoch:
            self._log.info(
                "term {entry} is not noted behind {last}", entry=entry, last=self.last_epoch
            )
            return False
        self._keep([*(e for e in self.entries if e.start_offset < entry.start_offset), entry])
        return True

    def at(self, offset: int) -> EpochEntry | None:
        """The term that the byte at an offset belongs to."""
        found = [entry for entry in self.entries if entry.start_offset <= offset]
        return found[-1] if found else None

    def end_of(self, entry: EpochEntry) -> int | None:
        """Where the term behind this one begins; None for the last one."""
        later = [other for other in self.entries if other.epoch > entry.epoch]
        return later[0].start_offset if later else None

    def cut_beyond(self, offset: int) -> None:
        """Forget terms that begin at or behind the end of the log."""
        self._keep([entry for entry in self.entries if entry.start_offset < offset])

    def cut_before(self, offset: int) -> None:
        """Forget terms whose bytes were all deleted."""
        self._keep([e for e in self.entries if (end := self.end_of(e)) is None or end > offset])

    def _keep(self, entries: list[EpochEntry]) -> None:
        if entries != self.entries:
            self._replace(self._path, encode_epoch_file(entries), True)
            self.entries = entries

    def _replace(self, path: str, data: bytes, keep_backup: bool) -> None:
        try:
            self._disk.replace_file(path, data, keep_backup)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error}") from error


def consistent_point(
    ours: Sequence[EpochEntry], our_end: int, theirs: Sequence[EpochEntry], their_end: int
) -> int | None:
    """Up to where two logs are the same, None when their terms do not say: the newest term that both have, to its shorter end.

    A term that begins in two places was begun again by its master, who noted it anew where its log ended then. One broker wrote it all, so up to
    there both have the same. (Officially such a term counts as none in common.)

    :param our_end: end of the log here.
    :param their_end: end of the other one.
    """
    their_starts = {entry.epoch: entry.start_offset for entry in theirs}
    for entry in reversed(ours):
        start = their_starts.get(entry.epoch)
        if start is None:
            continue
        end = min(_end(ours, entry, our_end), _end(theirs, entry, their_end))
        return end if start == entry.start_offset else min(end, max(start, entry.start_offset))
    return None


def _end(entries: Sequence[EpochEntry], entry: EpochEntry, end: int) -> int:
    return min((e.start_offset for e in entries if e.epoch > entry.epoch), default=end)
