"""How full are the disks, and what follows from it?

Stands for the official ``CleanCommitLogService.isSpaceToDelete`` and the limits that it reads. Ratios are rounded up to full
hundredths, as officially. With several log directories the emptiest one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import attrs

from txrocketmq.interfaces import IDisk


class DiskLevel(IntEnum):
    """What the fullest disk asks for; each level includes those before it."""

    FREE = 0
    #: Expired files go at any hour.
    RECLAIM = 1
    #: The oldest files go whatever their age, if `cleanFileForciblyEnable` allows it.
    CLEAN = 2
    #: Messages are refused as well.
    FULL = 3


class LadderConfig(Protocol):
    """The keys that this module reads, at each use."""

    disk_max_used_space_ratio: int
    disk_space_clean_forcibly_ratio: int
    disk_space_warning_level_ratio: int


class SharedDiskConfig(LadderConfig, Protocol):
    """And those for stores that share a disk."""

    replicas_per_disk_partition: int
    logical_disk_space_clean_forcibly_threshold: float


@attrs.frozen
class DiskState:
    """What one look at the disks found.

    :ivar level: what is to be done.
    :ivar path: the directory that decides.
    :ivar ratio: used part of its disk; -1 when that is not known.
    :ivar full_paths: log directories that get no new files while others can.
    """

    level: DiskLevel
    path: str
    ratio: float
    full_paths: frozenset[str] = frozenset()

    def refusal(self, config: LadderConfig) -> str:
        """For people: why messages are refused at level `FULL`."""
        return (
            f"the disk of {self.path} is {self.ratio:.0%} used, messages are taken up to "
            f"{warning_ratio(config):.0%} (diskSpaceWarningLevelRatio)"
        )


def used_ratio(used: int, total: int) -> float:
    """Used part of a disk in full hundredths, rounded up; -1 when it cannot be told."""
    return -(-used * 100 // total) / 100 if total > 0 else -1.0


def warning_ratio(config: LadderConfig) -> float:
    """Above it messages are refused; between 0.35 and 0.90 whatever is configured."""
    return min(max(config.disk_space_warning_level_ratio / 100, 0.35), 0.90)


def clean_ratio(config: LadderConfig) -> float:
    """Above it files are deleted whatever their age; between 0.30 and 0.85 whatever is configured."""
    return min(max(config.disk_space_clean_forcibly_ratio / 100, 0.30), 0.85)


def measure(disk: IDisk, log_paths: Sequence[str], queue_path: str) -> list[float]:
    """Pool: the used ratio of each log directory, then that of the queues' one. One that cannot be asked has -1."""
    ratios = []
    for path in (*log_paths, queue_path):
        try:
            ratios.append(used_ratio(*disk.usage(path)))
        except OSError:
            ratios.append(-1.0)
    return ratios


def judge(
    config: LadderConfig, log_paths: Sequence[str], queue_path: str, ratios: Sequence[float]
) -> DiskState:
    """What follows from what `measure` found."""
    logs = list(zip(log_paths, ratios, strict=False))
    full = frozenset(path for path, ratio in logs if ratio > clean_ratio(config))
    path, ratio = min(logs, key=lambda pair: pair[1])
    queue_ratio = ratios[-1]
    level = _level(config, ratio)
    if _level(config, queue_ratio) > level:
        path, ratio, level = queue_path, queue_ratio, _level(config, queue_ratio)
    return DiskState(level, path, ratio, full)


def judge_share(
    config: SharedDiskConfig, state: DiskState, own_bytes: int, total_bytes: int
) -> DiskState:
    """What follows where several stores share a disk (`replicasPerDiskPartition`): below the level `CLEAN` each has its part of it.

    :param own_bytes: all files of this store.
    :param total_bytes: the disk that holds its log.
    """
    if state.level >= DiskLevel.CLEAN:
        return state
    share = own_bytes * config.replicas_per_disk_partition / max(total_bytes, 1)
    level = DiskLevel.FREE
    if share > config.logical_disk_space_clean_forcibly_threshold:
        level = DiskLevel.CLEAN
    elif share > config.disk_max_used_space_ratio / 100:
        level = DiskLevel.RECLAIM
    return attrs.evolve(state, level=level)


def _level(config: LadderConfig, ratio: float) -> DiskLevel:
    if ratio > warning_ratio(config):
        return DiskLevel.FULL
    if ratio > clean_ratio(config):
        return DiskLevel.CLEAN
    if ratio < 0 or ratio > config.disk_max_used_space_ratio / 100:
        return DiskLevel.RECLAIM
    return DiskLevel.FREE
