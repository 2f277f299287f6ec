"""Who in a group gets which queues? The official allocation strategies; their results are equal to Java's.

Stands for ``AllocateMessageQueueAveragely`` and the five others. Each member computes the division alone from the same sorted lists, so a
strategy must be a pure function, and all members of a group need the same one.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from twisted.logger import Logger
from zope.interface import implementer

from txrocketmq.client.interfaces import IAllocateStrategy
from txrocketmq.errors import MQClientError
from txrocketmq.model.message import MessageQueue

log = Logger()

MACHINE_ROOM_SEPARATOR = "@"
VIRTUAL_NODES = 10


def sorted_client_ids(client_ids: Collection[str]) -> list[str]:
    """Client ids in Java's order: by UTF-16 units, not by characters."""
    return sorted(client_ids, key=lambda text: text.encode("utf-16-be", "surrogatepass"))


def _is_member(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> bool:
    """Official ``AbstractAllocateMessageQueueStrategy.check``: False for a client that the broker does not know (yet)."""
    if not client_id:
        raise MQClientError("currentCID is empty")
    if not queues:
        raise MQClientError("mqAll is null or mqAll empty")
    if not client_ids:
        raise MQClientError("cidAll is null or cidAll empty")
    if client_id in client_ids:
        return True
    log.info(
        "group {group}: the broker does not list {client_id} among the members {client_ids}",
        group=group,
        client_id=client_id,
        client_ids=client_ids,
    )
    return False


@implementer(IAllocateStrategy)
class AllocateAveragely:
    """Neighbouring queues in blocks of equal length, the first members one more (official default)."""

    name = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `IAllocateStrategy`."""
        if not _is_member(group, client_id, queues, client_ids):
            return []
        index = client_ids.index(client_id)
        average, more = divmod(len(queues), len(client_ids))
        size = max(1, average + (1 if index < more else 0))
        start = index * size + (0 if index < more else more)
        return list(queues[start : start + size])


@implementer(IAllocateStrategy)
class AllocateAveragelyByCircle:
    """One queue to each member in turn."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `IAllocateStrategy`."""
        if not _is_member(group, client_id, queues, client_ids):
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


def _md5_hash(key: str) -> int:
    """The first four bytes of the MD5, as an unsigned number."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


@implementer(IAllocateStrategy)
class AllocateByConsistentHash:
    """A ring of virtual nodes: few queues move when members come and go.

    :param virtual_nodes: points of each member on the ring.
    :param hash_function: place of a text on the ring; MD5 unless given.
    """

    name = "CONSISTENT_HASH"

    def __init__(
        self,
        virtual_nodes: int = VIRTUAL_NODES,
        hash_function: Callable[[str], int] = _md5_hash,
    ) -> None:
        if virtual_nodes < 0:
            raise MQClientError(f"illegal virtualNodeCnt :{virtual_nodes}")
        self._virtual_nodes = virtual_nodes
        self._hash = hash_function

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `IAllocateStrategy`."""
        if not _is_member(group, client_id, queues, client_ids):
            return []
        ring: dict[int, str] = {}
        for member in client_ids:
            for number in range(self._virtual_nodes):
                ring[self._hash(f"{member}-{number}")] = member
        places = sorted(ring)
        if not places:
            return []
        return [queue for queue in queues if self._owner(queue, ring, places) == client_id]

    def _owner(self, queue: MessageQueue, ring: dict[int, str], places: list[int]) -> str:
        # Java hashes the text of its object, so this text is part of the agreement.
        place = self._hash(
            f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
            f" queueId={queue.queue_id}]"
        )
        return ring[places[bisect_left(places, place) % len(places)]]


@implementer(IAllocateStrategy)
class AllocateByConfig:
    """The queues that were configured, whoever else is in the group."""

    name = "CONFIG"

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `IAllocateStrategy`. Queues of other topics are not given out for this one, and those that the route does not
        name are left out: official members would pull from them in vain."""
        known = set(queues)
        return [queue for queue in self._queues if queue in known]


@implementer(IAllocateStrategy)
class AllocateByMachineRoom:
    """Only brokers of some machine rooms (broker names ``room@name``), averagely.

    :param rooms: the rooms whose brokers are used (official ``consumeridcs``).
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `IAllocateStrategy`."""
        if not _is_member(group, client_id, queues, client_ids):
            return []
        index = client_ids.index(client_id)
        near = [queue for queue in queues if self._is_near(queue)]
        size, rest = divmod(len(near), len(client_ids))
        mine = near[size * index : size * (index + 1)]
        if rest > index:
            mine.append(near[index + size * len(client_ids)])
        return mine

    def _is_near(self, queue: MessageQueue) -> bool:
        # Java's split leaves empty parts at the end out.
        parts = queue.broker_name.rstrip(MACHINE_ROOM_SEPARATOR).split(MACHINE_ROOM_SEPARATOR)
        return len(parts) == 2 and parts[0] in self._rooms


@implementer(IAllocateStrategy)
class AllocateMachineRoomNearby:
    """Queues go to members in the same machine room; those of rooms without a member to all (official ``AllocateMachineRoomNearby``).

    :param inner: divides the queues of a room.
    :param broker_room: the room of a queue's broker.
    :param client_room: the room of a client id.
    """

    def __init__(
        self,
        inner: IAllocateStrategy,
        broker_room: Callable[[MessageQueue], str],
        client_room: Callable[[str], str],
    ) -> None:
        self.name = f"MACHINE_ROOM_NEARBY-{inner.name}"
        self._inner = inner
        self._broker_room = broker_room
        self._client_room = client_room

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See `IAllocateStrategy`.

        :raises MQClientError: a broker or a client has no room.
        """
        if not _is_member(group, client_id, queues, client_ids):
            return []
        by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = self._broker_room(queue)
            if not room:
                raise MQClientError(f"Machine room is null for mq {queue}")
            by_room.setdefault(room, []).append(queue)
        members: dict[str, list[str]] = {}
        for member in client_ids:
            room = self._client_room(member)
            if not room:
                raise MQClientError(f"Machine room is null for consumer id {member}")
            members.setdefault(room, []).append(member)
        here = self._client_room(client_id)
        mine: list[MessageQueue] = []
        if near := by_room.pop(here, None):
            mine += self._inner.allocate(group, client_id, near, members[here])
        for room in sorted(by_room):
            if room not in members:
                mine += self._inner.allocate(group, client_id, by_room[room], client_ids)
        return mine
