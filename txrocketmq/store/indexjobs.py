"""What does the pool do for the index? The work with the disk that would hold the reactor."""

from __future__ import annotations

from txrocketmq.interfaces import IDisk, IMapping


def room_in(disk: IDisk, path: str, size: int, end: int, mapping: IMapping | None) -> IMapping:
    """Allocate a file's blocks up to ``end``; map it first, and make it, where that was not done."""
    if mapping is not None:
        mapping.allocate(end)
        return mapping
    mapping = disk.map(path, size, True)
    try:
        mapping.allocate(end)
    except OSError:
        mapping.close()
        raise
    return mapping


def sync_and_close(mappings: list[IMapping]) -> None:
    """Files that are full, or not needed any more: all that was written is on the device after this."""
    for mapping in mappings:
        try:
            mapping.sync(0, mapping.size)
        finally:
            mapping.close()


def remove_all(disk: IDisk, paths: list[str]) -> None:
    """Files that point only at what the log does not have any more."""
    for path in paths:
        disk.remove(path)
