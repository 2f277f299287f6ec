"""Up to where were the messages of each queue compared? The file ``compaction/position-checkpoint``.

Stands for ``CompactionPositionMgr``: JSON, ``{"queueOffsetMap": {"<topic>_<queueId>": queue offset}}``.

Crash story: a position is saved after the files that it speaks of; one that is lost means that more is compared again.
"""

from __future__ import annotations

import contextlib

import msgspec

from txrocketmq.interfaces import IDisk

FILE_NAME = "position-checkpoint"


class _Positions(msgspec.Struct):
    queue_offset_map: dict[str, int] = msgspec.field(default_factory=dict, name="queueOffsetMap")


def read_positions(disk: IDisk, path: str) -> dict[str, int]:
    """What the file says, or its backup where it is damaged; nothing when neither is there (blocking)."""
    for name in (path, path + ".bak"):
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode(disk.read_file(name), type=_Positions).queue_offset_map
    return {}


def save_position(disk: IDisk, path: str, key: str, position: int) -> None:
    """Let the file say another offset of one queue; a negative one takes it out (blocking, one after another)."""
    positions = read_positions(disk, path)
    positions.pop(key, None)
    if position >= 0:
        positions[key] = position
    # The official class shows a second property.
    content = {"empty": not positions, "queueOffsetMap": positions}
    disk.replace_file(path, msgspec.json.format(msgspec.json.encode(content), indent=1), True)
