"""Where do the JSON tables under ``<storePathRootDir>/config`` live, and how do they survive a crash?

Stands for ``ConfigManager`` and the file half of ``MixAll``. Crash story: a file is written aside, synced, the old one is kept as
``.bak``, then renamed over; so at any moment the file or its backup is whole, and whichever is whole is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from txrocketmq.errors import BodyError, StoreError
from txrocketmq.interfaces import IBlockingPool, IConfigFiles, IDisk

T = TypeVar("T")


class _Write:
    """Saves of one file: the one that runs, and the newest content that waits behind it."""

    __slots__ = ("data", "waiters")

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.waiters: list[Deferred[None]] = []


@implementer(IConfigFiles)
class ConfigFiles:
    """JSON files in one directory, saved through a pool one at a time each."""

    _log = Logger()

    def __init__(self, disk: IDisk, pool: IBlockingPool, directory: str) -> None:
        self._disk = disk
        self._pool = pool
        self._directory = directory
        self._writes: dict[str, _Write] = {}

    def load(self, name: str, read: Callable[[bytes], T]) -> T | None:
        """See `IConfigFiles.load`."""
        path = self._path(name)
        faults = []
        for candidate in (path, path + ".bak"):
            try:
                data = self._disk.read_file(candidate)
                if not data.strip():
                    # A crash of the machine may leave it so; the backup, where there is one, is older and whole.
                    self._log.warn("{path} is empty", path=candidate)
                    continue
                found = read(data)
            except FileNotFoundError:
                continue
            except (OSError, BodyError) as error:
                self._log.warn("{path} cannot be used: {error}", path=candidate, error=error)
                faults.append(str(error))
                continue
            if candidate != path:
                self._log.warn("{path} is missing or damaged, its backup is used", path=path)
            return found
        if faults:
            raise StoreError(
                f"{path} cannot be read, nor its backup ({'; '.join(faults)}): repair it, or move both "
                "files away to start without what they held"
            )
        return None

    def save(self, name: str, data: bytes) -> Deferred[None]:
        """See `IConfigFiles.save`."""
        done: Deferred[None] = Deferred()
        write = self._writes.get(name)
        if write is None:
            self._writes[name] = _Write()
            self._start(name, data, [done])
        else:
            write.data = data
            write.waiters.append(done)
        return done

    def save_now(self, name: str, data: bytes) -> None:
        """See `IConfigFiles.save_now`."""
        self._disk.makedirs(self._directory)
        self._disk.replace_file(self._path(name), data, True)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _start(self, name: str, data: bytes, waiters: list[Deferred[None]]) -> None:
        running = cast("Deferred[None]", self._pool.submit(self.save_now, name, data))
        running.addBoth(self._finished, name, waiters)

    def _finished(self, result: object, name: str, waiters: list[Deferred[None]]) -> None:
        write = self._writes[name]
        if write.data is None:
            del self._writes[name]
        else:
            data, write.data = write.data, None
            waiting, write.waiters = write.waiters, []
            self._start(name, data, waiting)
        for waiter in waiters:
            if isinstance(result, Failure):
                waiter.errback(result)
            else:
                waiter.callback(None)


class PersistedTable:
    """One table of the broker and its file: saved whenever it changed, encoded once for changes that come together.

    :param encode: the table as the file's bytes.
    :ivar is_saving: the file does not have all that is in the table yet.
    """

    _log = Logger()

    def __init__(self, files: IConfigFiles, name: str, encode: Callable[[], bytes]) -> None:
        self._files = files
        self._name = name
        self._encode = encode
        self.is_saving = False
        self._changed_meanwhile = False
        self._is_behind = False
        # Who waits for the save that runs, and for the one behind it.
        self._waiting: list[Deferred[None]] = []
        self._waiting_next: list[Deferred[None]] = []

    def load(self, read: Callable[[bytes], T]) -> T | None:
        """What the file holds, None when there is none yet; see `IConfigFiles.load`."""
        return cast("T | None", self._files.load(self._name, read))

    def changed(self) -> None:
        """The table changed: see that the file follows."""
        if self.is_saving:
            self._changed_meanwhile = True
        else:
            self._save()

    def kept(self, answer: T | Deferred[T]) -> T | Deferred[T]:
        """An answer that confirms what is in the table: at once when the file has it, else as soon as it has.

        A save that fails is logged and tried again later; the answer does not wait for that.
        """
        if isinstance(answer, Deferred):
            return answer.addCallback(self.kept)
        if not self.is_saving:
            return answer
        waiting: Deferred[None] = Deferred()
        (self._waiting_next if self._changed_meanwhile else self._waiting).append(waiting)
        return waiting.addCallback(lambda ignored: answer)

    def retry(self) -> None:
        """Try again if the last save failed (a full disk may have room by now)."""
        if self._is_behind:
            self.changed()

    def save(self) -> Deferred[None]:
        """Save as things are now; fires when they, or newer ones, are on disk. A failure is logged, not raised."""
        return self._write()

    def _save(self) -> None:
        self.is_saving = True
        self._write().addCallback(self._saved)

    def _saved(self, ignored: None) -> None:
        self.is_saving = False
        waiting, self._waiting = self._waiting, self._waiting_next
        self._waiting_next = []
        if self._changed_meanwhile:
            self._changed_meanwhile = False
            self._save()
        for waiter in waiting:
            waiter.callback(None)

    def _write(self) -> Deferred[None]:
        try:
            saving = cast("Deferred[None]", self._files.save(self._name, self._encode()))
        except Exception:
            self._log.failure("{name} could not be encoded", name=self._name)
            return succeed(None)
        return saving.addCallbacks(self._succeeded, self._failed)

    def _succeeded(self, ignored: None) -> None:
        self._is_behind = False

    def _failed(self, failure: Failure) -> None:
        self._is_behind = True
        self._log.error(
            "{name} could not be saved: {reason}", name=self._name, reason=failure.value
        )


class SavedInTurns:
    """A table that many small changes move: its file follows when it is time, not with each of them.

    :ivar file: what it is saved to.
    """

    file: PersistedTable
    _is_changed = False

    def save_if_changed(self) -> None:
        """It is time: save when something changed since the last save."""
        if self._is_changed:
            self._is_changed = False
            self.file.changed()

    def save(self) -> Deferred[None]:
        """Save now; see `PersistedTable.save`."""
        self._is_changed = False
        return self.file.save()
