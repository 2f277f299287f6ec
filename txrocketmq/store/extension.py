"""What more does a queue know of a message than fits into its unit? The consume queue's extension: store time and filter bits.

Stands for the official ``ConsumeQueueExt`` (``enableConsumeQueueExt``). The tags code of a unit in the queue is then a place in the
extension, whose unit holds the real one. Units have any size, never cross a file's end, and are written before those that name them.

Crash story: a unit that a power failure took away reads as nothing, and such a message is left to the filter on its record.
The row goes on behind the newest unit that the queue names, so no place is ever used twice.
"""

from __future__ import annotations

from txrocketmq.codec.storefiles import (
    EXTENSION_END,
    EXTENSION_END_BYTES,
    EXTENSION_HEAD,
    EXTENSION_HEAD_BYTES,
    EXTENSION_MAX_ADDRESS,
    EXTENSION_MAX_BYTES,
)
from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk
from txrocketmq.store.consumequeue import ConsumeQueue
from txrocketmq.store.filenames import is_file_name
from txrocketmq.store.unitlog import BlockCache, UnitLog

_MIN_LONG = -(1 << 63)

ExtensionUnit = tuple[int, int, bytes]
"""Tags code, store time in ms, bit map (empty when there is none)."""


def is_address(tags_code: int) -> bool:
    """Whether a unit's tags code is a place in the extension."""
    return tags_code <= EXTENSION_MAX_ADDRESS


class Extension:
    """The extension of one queue.

    :ivar units: its bytes, as a row of units of one byte.
    """

    __slots__ = ("_flushing", "units")

    def __init__(self, directory: str, file_bytes: int) -> None:
        self.units = UnitLog(directory, 1, file_bytes)
        self._flushing = 0

    def put(self, tags_code: int, store_timestamp_ms: int, bit_map: bytes) -> int:
        """Add a unit; its address, or the tags code itself where the unit would be too large."""
        units = self.units
        size = EXTENSION_HEAD_BYTES + len(bit_map)
        if size > EXTENSION_MAX_BYTES or size + EXTENSION_END_BYTES > units.file_bytes:
            return tags_code
        left = units.file_bytes - units.end_index % units.file_bytes
        if size > left - EXTENSION_END_BYTES:
            units.tail += EXTENSION_END.ljust(left, b"\0")
            units.end_index += left
        address = units.end_index + _MIN_LONG
        units.tail += EXTENSION_HEAD.pack(size, tags_code, store_timestamp_ms, len(bit_map))
        units.tail += bit_map
        units.end_index += size
        return address

    def get(
        self, cache: BlockCache, address: int, ready_only: bool = False
    ) -> ExtensionUnit | None:
        """The unit at an address; None where there is none. `ColdRead` with ``ready_only`` where it is not in memory."""
        offset = address - _MIN_LONG
        units = self.units
        if not units.first_index <= offset < units.end_index:
            return None
        head = units.read(cache, offset, EXTENSION_HEAD_BYTES, ready_only)
        if len(head) < EXTENSION_HEAD_BYTES:
            return None
        size, tags_code, store_timestamp_ms, bits = EXTENSION_HEAD.unpack(head)
        if size != EXTENSION_HEAD_BYTES + max(bits, 0):
            return None
        bit_map = b""
        if bits > 0:
            bit_map = units.read(cache, offset + EXTENSION_HEAD_BYTES, bits, ready_only)
            if len(bit_map) < bits:
                return None
        return tags_code, store_timestamp_ms, bit_map

    # ------------------------------------------------------------------ start and flush

    def load(self, disk: IDisk, last_address: int | None) -> None:
        """Find the files, and go on behind the newest unit that the queue names.

        :param last_address: None where the queue names none.
        :raises StoreError: a file's length is not the configured one.
        """
        units = self.units
        names = [name for name in disk.listdir(units.directory) if is_file_name(name)]
        for name in names:
            path = f"{units.directory}/{name}"
            size = disk.size(path)
            if size > units.file_bytes or (size < units.file_bytes and size and name != names[-1]):
                raise StoreError(
                    f"{path} has {size} bytes, the configured file size is {units.file_bytes}: "
                    "it must stay what it was when the store was made"
                )
            if size < units.file_bytes:
                disk.truncate(path, units.file_bytes)
        first = int(names[0]) if names else 0
        # Behind the files as long as nothing says better.
        end = int(names[-1]) + units.file_bytes if names else 0
        units.first_index = min(first, end)
        units.end_index = units.tail_index = units.written_index = end
        del units.tail[:]
        if last_address is not None:
            self._end_behind(disk, last_address - _MIN_LONG)

    def _end_behind(self, disk: IDisk, offset: int) -> None:
        units = self.units
        head = units.read_files(disk, offset, offset + EXTENSION_HEAD_BYTES)
        size = 0
        if len(head) == EXTENSION_HEAD_BYTES:
            size, _, _, bits = EXTENSION_HEAD.unpack(head)
            if size != EXTENSION_HEAD_BYTES + max(bits, 0):
                size = 0
        # A unit that was not written has an unknown length: its file is left as it is.
        end = offset + size if size else offset - offset % units.file_bytes + units.file_bytes
        units.end_index = units.tail_index = units.written_index = end
        units.first_index = min(units.first_index, end - end % units.file_bytes)

    def to_write(self) -> list[tuple[str, int, bytes, int]]:
        """What has to be written before the queue's units; see `flushed`."""
        self._flushing = self.units.end_index
        return self.units.unwritten()

    def flushed(self) -> None:
        """What `to_write` gave is on the device."""
        if self.units.end_index >= self._flushing > self.units.written_index:
            self.units.mark_written(self._flushing, 0)


class ExtendedQueue(ConsumeQueue):
    """A consume queue with an extension.

    :ivar extension: the extension.
    """

    __slots__ = ("extension",)

    def __init__(
        self, topic: str, queue_id: int, directory: str, file_bytes: int, extension: Extension
    ) -> None:
        super().__init__(topic, queue_id, directory, file_bytes)
        self.extension = extension

    def extend(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        bit_map: bytes,
    ) -> int:
        """Put what belongs to a message into the extension; the tags code for its unit."""
        if physical_offset + size <= self.max_physical_offset:
            return tags_code
        return self.extension.put(tags_code, store_timestamp_ms, bit_map)

    def real_code(self, cache: BlockCache, tags_code: int) -> int:
        """The tags code that a unit stands for; the address itself where the extension does not have it."""
        if not is_address(tags_code):
            return tags_code
        found = self.extension.get(cache, tags_code)
        return tags_code if found is None else found[0]

    def _last_address(self, disk: IDisk) -> int | None:
        unit = self._unit_on_disk(disk, self.units.end_index - 1)
        return unit[2] if unit is not None and is_address(unit[2]) else None

    def load(self, disk: IDisk, cache: BlockCache, log_start: int = 0) -> None:
        """See `ConsumeQueue.load`."""
        super().load(disk, cache, log_start)
        self.extension.load(disk, self._last_address(disk))

    def forget_extension(self, cache: BlockCache) -> list[str]:
        """Let the extension begin where the queue's first living message needs it; files that may go."""
        unit = self.unit(cache, self.min_index)
        if unit is None or not is_address(unit[2]):
            return []
        old = self.extension.units.forget_before(unit[2] - _MIN_LONG)
        if old:
            cache.forget(self.extension.units.directory)
        return old
