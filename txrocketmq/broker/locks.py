"""Which client of a group may consume a queue in order?

Stands for ``RebalanceLockManager``. A lock belongs to a client id and lives 60 seconds after its last renewal.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txrocketmq.model.message import MessageQueue

LOCK_LIFE_MS = 60_000
MAX_LOCKS = 262_144
"""Locks of all groups together; beyond it only those that are held are renewed."""


class QueueLocks:
    """The order locks of all groups."""

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._by_group: dict[str, dict[MessageQueue, tuple[str, int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def try_lock(
        self, group: str, queues: Iterable[MessageQueue], client_id: str
    ) -> list[MessageQueue]:
        """Lock, or renew, what is free or already this client's; the queues that it now owns."""
        now_ms = int(self._clock.seconds() * 1000)
        table = self._by_group.get(group, {})
        mine = []
        for queue in queues:
            held = table.get(queue)
            if held is not None:
                owner, renewed_ms = held
                if owner != client_id:
                    if now_ms - renewed_ms <= LOCK_LIFE_MS:
                        continue
                    self._log.info(
                        "queue {queue} of group {group}: lock of {old} ran out, {new} has it now",
                        queue=queue,
                        group=group,
                        old=owner,
                        new=client_id,
                    )
            elif self._count >= MAX_LOCKS:
                continue
            else:
                self._count += 1
            table[queue] = (client_id, now_ms)
            mine.append(queue)
        if table:
            self._by_group[group] = table
        return mine

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up locks; those of other clients stay."""
        table = self._by_group.get(group)
        if table is None:
            return
        for queue in queues:
            held = table.get(queue)
            if held is not None and held[0] == client_id:
                del table[queue]
                self._count -= 1
        if not table:
            del self._by_group[group]

    def expire(self) -> None:
        """Forget the locks that ran out: their clients are gone, or were never real."""
        limit_ms = int(self._clock.seconds() * 1000) - LOCK_LIFE_MS
        for group, table in tuple(self._by_group.items()):
            gone = [queue for queue, (_, renewed_ms) in table.items() if renewed_ms < limit_ms]
            for queue in gone:
                del table[queue]
            self._count -= len(gone)
            if not table:
                del self._by_group[group]

    def has_live_lock(self, group: str) -> bool:
        """Whether some client of the group holds a lock that has not run out: the group consumes in order."""
        now_ms = int(self._clock.seconds() * 1000)
        table = self._by_group.get(group, {})
        return any(now_ms - renewed_ms <= LOCK_LIFE_MS for _, renewed_ms in table.values())
