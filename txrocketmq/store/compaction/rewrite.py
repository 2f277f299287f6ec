"""How does a queue's log get smaller, and how do the new files take the place of the old ones?

Stands for ``CompactionLog.doCompaction``, ``compactAndReplace`` and ``replaceFiles``. The log is written anew, without what has a newer
message of its key and without messages that have no body, into a directory ``compacting`` within the log's and the queue's. Then, first
for the log and after it for the queue: the old files get the ending ``.delete``, the new ones move up, the old ones go.

All functions block and run in a pool. Nobody may read a queue while `replace` runs.

Crash story: each step is on the device before the next begins. What a crash, or a crash of the official broker, leaves is put in
order by `load`: where new files have not all moved up, the old ones get their names back; else they go. Queue files can be made from the
log's, and are wherever anything was left over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from twisted.logger import Logger

from txrocketmq.errors import StoreError
from txrocketmq.interfaces import IDisk
from txrocketmq.store.compaction.files import (
    Appender,
    Kept,
    Layout,
    Segment,
    derive_units,
    load_segment,
    messages_of,
)
from txrocketmq.store.compaction.offsetmap import OffsetMap
from txrocketmq.store.filenames import is_file_name
from txrocketmq.store.mapped import file_name

COMPACTING = "compacting"
REPLICATING = "replicating"
DELETE = ".delete"

log = Logger()


class Stopped(Exception):
    """The store closes: a run is given up."""


@attrs.frozen
class Compacted:
    """What a run made.

    :ivar segments: the new files, in the directory `COMPACTING`; all of them full.
    :ivar last_offset: the queue offset up to which messages were compared.
    :ivar messages: how many there were.
    :ivar kept: how many are left.
    """

    segments: tuple[Segment, ...]
    last_offset: int
    messages: int
    kept: int


def compact(
    disk: IDisk,
    layout: Layout,
    sealed: Sequence[Segment],
    position: int,
    map_bytes: int,
    is_stopped: Callable[[], bool],
) -> Compacted | None:
    """Write all files but the last anew, without what is out of date; None when nothing came since the last run.

    :param sealed: the files, without the one that is written.
    :param position: the queue offset up to which earlier runs compared messages.
    :raises StoreError: a record is damaged.
    :raises Stopped: ``is_stopped`` said so.
    """
    newer = [segment for segment in sealed if segment.last > position]
    if not newer:
        return None
    newest = _newest_offsets(disk, layout, newer, position, map_bytes, is_stopped)
    clean_leftovers(disk, layout)
    appender = Appender(disk, layout.below(COMPACTING), None)
    messages = kept_count = 0
    for segment in sealed:
        for kept in messages_of(disk, layout, segment):
            if is_stopped():
                raise Stopped
            messages += 1
            if stays(kept, newest):
                kept_count += 1
                appender.put(kept)
    appender.flush()
    segments = tuple(attrs.evolve(segment, is_full=True) for segment in appender.changed)
    return Compacted(segments, newest.last_offset, messages, kept_count)


def _newest_offsets(
    disk: IDisk,
    layout: Layout,
    newer: Sequence[Segment],
    position: int,
    map_bytes: int,
    is_stopped: Callable[[], bool],
) -> OffsetMap:
    newest = OffsetMap(map_bytes)
    for segment in newer:
        for kept in messages_of(disk, layout, segment):
            if is_stopped():
                raise Stopped
            if kept.queue_offset <= position or not kept.key:
                continue
            if not newest.put(kept.key, kept.queue_offset):
                log.info(
                    "{directory}: more keys than maxOffsetMapSize has room for; the next run goes on behind {offset}",
                    directory=layout.log_directory,
                    offset=newest.last_offset,
                )
                return newest
    return newest


def stays(kept: Kept, newest: OffsetMap) -> bool:
    """Whether a message is kept: it is the latest of its key, and it has a body. What was not compared stays."""
    if kept.queue_offset > newest.last_offset:
        return True
    return bool(kept.key) and kept.queue_offset >= newest.get(kept.key) and kept.body_size > 0


# --------------------------------------------------------------------- taking the place


def replace(disk: IDisk, layout: Layout, old: Sequence[Segment], new: Sequence[Segment]) -> None:
    """Let the files of `COMPACTING` be the log, in the place of the old ones."""
    below = layout.below(COMPACTING)
    old_bases = [segment.base for segment in old]
    new_bases = [segment.base for segment in new]
    _swap(disk, layout.log_directory, below.log_directory, old_bases, new_bases)
    _swap(disk, layout.queue_directory, below.queue_directory, old_bases, new_bases)
    clean_leftovers(disk, layout)


def _swap(disk: IDisk, directory: str, below: str, old: list[int], new: list[int]) -> None:
    for base in old:
        path = f"{directory}/{file_name(base)}"
        disk.rename(path, path + DELETE)
    disk.sync_directory(directory)
    for base in new:
        disk.rename(f"{below}/{file_name(base)}", f"{directory}/{file_name(base)}")
    disk.sync_directory(directory)
    for base in old:
        disk.remove(f"{directory}/{file_name(base)}{DELETE}")
    disk.sync_directory(directory)


def clean_leftovers(disk: IDisk, layout: Layout) -> None:
    """Delete the directories of runs that were not finished. Their entries go for good before new ones of the same name come."""
    for directory in (layout.log_directory, layout.queue_directory):
        gone = False
        for name in (COMPACTING, REPLICATING):
            if disk.exists(f"{directory}/{name}"):
                disk.rmtree(f"{directory}/{name}")
                gone = True
        if gone:
            disk.sync_directory(directory)


# --------------------------------------------------------------------- start


def load(disk: IDisk, layout: Layout) -> list[Segment]:
    """The files of a queue, after what a crash left was put in order.

    :raises StoreError: a file is not of the configured size.
    """
    names = disk.listdir(layout.log_directory)
    doubtful = _settle(disk, layout, names)
    bases = _bases(disk, layout.log_directory)
    present = set(_bases(disk, layout.queue_directory))
    for base in present - set(bases):
        log.warn("{path} has no log file: deleted", path=layout.queue_path(base))
        disk.remove(layout.queue_path(base))
    segments: list[Segment] = []
    for base in bases:
        is_last = base == bases[-1]
        _check_size(
            disk, layout.log_path(base), layout.log_bytes, is_last, "compactionMappedFileSize"
        )
        if base in present:
            path = layout.queue_path(base)
            _check_size(disk, path, layout.unit_bytes, is_last, "compactionCqMappedFileSize")
            found = load_segment(disk, layout, base, is_last=is_last)
        else:
            log.warn("{path} is made anew from its log", path=layout.queue_path(base))
            found = derive_units(disk, layout, base)
            found = attrs.evolve(found, is_full=not is_last)
        if found.units and segments and found.first <= segments[-1].last:
            # It moved up before the old files got their names back, which hold all of it.
            log.warn("{path} is from a run that was cut short: deleted", path=layout.log_path(base))
            disk.remove(layout.log_path(base))
            disk.remove(layout.queue_path(base))
            doubtful = True
            continue
        segments.append(found)
    if doubtful or present - set(bases):
        for directory in (layout.log_directory, layout.queue_directory):
            if disk.exists(directory):
                disk.sync_directory(directory)
    return segments


def _settle(disk: IDisk, layout: Layout, names: list[str]) -> bool:
    """Undo or finish a replacement that was cut short; whether queue files may belong to other log files now."""
    below = layout.below(COMPACTING)
    old = [name for name in names if name.endswith(DELETE)]
    waiting = _bases(disk, below.log_directory)
    queue_names = disk.listdir(layout.queue_directory)
    old_queues = [name for name in queue_names if name.endswith(DELETE)]
    waiting_queues = disk.listdir(below.queue_directory)
    if not (old or waiting or old_queues or waiting_queues):
        clean_leftovers(disk, layout)
        return False
    log.warn(
        "{directory}: a compaction was cut short; {what}",
        directory=layout.log_directory,
        what="the old files stay" if waiting else "the new files stay",
    )
    for name in old:
        path = f"{layout.log_directory}/{name}"
        if waiting:
            disk.rename(path, path.removesuffix(DELETE))
        else:
            disk.remove(path)
    if old:
        disk.sync_directory(layout.log_directory)
    # From here on a crash finds fewer leftovers: queue files have to be right before the last of them is gone.
    for base in _bases(disk, layout.log_directory):
        _check_size(disk, layout.log_path(base), layout.log_bytes, True, "compactionMappedFileSize")
        derive_units(disk, layout, base)
    for name in old_queues:
        disk.remove(f"{layout.queue_directory}/{name}")
    clean_leftovers(disk, layout)
    return True


def _bases(disk: IDisk, directory: str) -> list[int]:
    """Where the files of a directory begin, ascending."""
    return [int(name) for name in disk.listdir(directory) if is_file_name(name)]


def _check_size(disk: IDisk, path: str, size: int, is_last: bool, key: str) -> None:
    found = disk.size(path)
    if found == size:
        return
    if found > size or (found and not is_last):
        raise StoreError(
            f"{path} has {found} bytes, {key} makes it {size}: it must stay what it was when the store was made"
        )
    # A crash between the creation of the file and its extension.
    disk.truncate(path, size)
