"""The soak's books: what was acknowledged, what came, which events were about; and what of it must not be.

Times are seconds since 1970 of one machine's clock, and are handed in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import attrs

WINDOW_S = 5.0
"""How long after an event a message may come twice."""


@attrs.define
class Sent:
    """A message as its producer knows it.

    :ivar groups: those that must get it.
    :ivar began_s: before the first try of its send.
    :ivar due_s: nobody may see it before.
    :ivar ended_s: when its producer was answered; None while it was not.
    :ivar is_acknowledged: the answer was a success (and a commit, for a transaction).
    :ivar is_secret: rolled back; nobody may ever see it.
    """

    key: str
    groups: tuple[str, ...]
    began_s: float
    due_s: float
    ended_s: float | None = None
    is_acknowledged: bool = False
    is_secret: bool = False


@attrs.frozen
class Seen:
    """One call of a handler with a message.

    :ivar place: topic, queue id and logical offset.
    :ivar is_done: the handler said that it was processed.
    """

    at_s: float
    group: str
    key: str
    place: tuple[str, int, int]
    tries: int
    is_done: bool


@attrs.define
class Event:
    """Something after which messages may come again, until `WINDOW_S` after its end.

    :ivar group: whose messages may; None: everybody's.
    """

    kind: str
    began_s: float
    ended_s: float | None = None
    group: str | None = None


@attrs.define
class Row:
    """A kind's line in the table.

    :ivar twice: came again from the same place of the same queue.
    :ivar stored_twice: came again as another copy.
    """

    sent: int = 0
    acknowledged: int = 0
    consumed: int = 0
    dead: int = 0
    twice: int = 0
    stored_twice: int = 0
    latest_s: float = 0.0


@attrs.define
class Verdict:
    """The outcome: rows by kind, messages that came twice by kind of event, and faults in words."""

    rows: dict[str, Row]
    twice: Counter[str]
    faults: list[str]


class Ledger:
    """Collects, then judges.

    :param ordered: groups to which each queue's messages must come in order.
    :param dead: group of dead letters, by the group that gave them up.
    :param again_s: after which time a member handles a message again that it could not give back to the broker.
    """

    def __init__(
        self,
        ordered: Iterable[str] = (),
        dead: dict[str, str] | None = None,
        again_s: float = WINDOW_S,
    ) -> None:
        self._ordered = frozenset(ordered)
        self._dead = dead or {}
        self._again_s = again_s
        self.sent: dict[str, Sent] = {}
        self.seen: list[Seen] = []
        self.events: list[Event] = []

    def event(
        self, kind: str, now_s: float, *, lasts: bool = False, group: str | None = None
    ) -> Event:
        """Note an event; one that lasts is ended by whoever began it."""
        event = Event(kind, now_s, None if lasts else now_s, group)
        self.events.append(event)
        return event

    def missing(self) -> list[tuple[str, str]]:
        """Group and key of each acknowledged message that has not come yet."""
        done = {(seen.group, seen.key) for seen in self.seen if seen.is_done}
        return [
            (group, sent.key)
            for sent in self.sent.values()
            if sent.is_acknowledged and not sent.is_secret
            for group in sent.groups
            if (group, sent.key) not in done and (self._dead.get(group, ""), sent.key) not in done
        ]

    def event_at(self, began_s: float, ended_s: float, group: str | None = None) -> str | None:
        """The kind of the latest event, for a group, whose time and window overlap a time; None for none."""
        found: Event | None = None
        for event in self.events:
            end_s = float("inf") if event.ended_s is None else event.ended_s
            near = event.began_s <= ended_s and began_s <= end_s + WINDOW_S
            near = near and event.group in (None, group)
            # What somebody did says more than that queues moved because of it.
            if near and (found is None or found.kind == MOVED or event.kind != MOVED):
                found = event
        return None if found is None else found.kind

    def verdict(self) -> Verdict:
        """Judge all that came."""
        rows: dict[str, Row] = defaultdict(Row)
        twice: Counter[str] = Counter()
        faults: list[str] = []
        for sent in self.sent.values():
            row = rows[kind_of(sent.key)]
            row.sent += 1
            row.acknowledged += sent.is_acknowledged
        first: dict[tuple[str, str, int], Seen] = {}
        copied: set[tuple[str, str]] = set()
        highest: dict[tuple[str, str, int], int] = {}
        dead_groups = frozenset(self._dead.values())
        for seen in sorted(self.seen, key=lambda seen: seen.at_s):
            row = rows[kind_of(seen.key)]
            faults += self._illegal(seen)
            again = first.setdefault((seen.group, seen.key, seen.tries), seen)
            if again is not seen:
                row.twice += seen.place == again.place
                row.stored_twice += seen.place != again.place
                kind = self._excuse(first, copied, seen)
                twice[kind or "nothing"] += 1
                if kind is None:
                    faults.append(
                        f"{seen.key} came to {seen.group} at {again.at_s:.3f} from {again.place} and at "
                        f"{seen.at_s:.3f} from {seen.place}, and no event was about"
                    )
                continue
            self._note_first(seen, row, dead_groups)
            if seen.group in self._ordered and seen.is_done:
                faults += _out_of_order(seen, highest)
        faults += [f"{key} never came to {group}" for group, key in self.missing()]
        return Verdict(dict(rows), twice, faults)

    def _note_first(self, seen: Seen, row: Row, dead_groups: frozenset[str]) -> None:
        if seen.group in dead_groups:
            row.dead += 1
            return
        row.consumed += seen.is_done
        sent = self.sent.get(seen.key)
        if sent is not None and not seen.tries:
            row.latest_s = max(row.latest_s, seen.at_s - sent.due_s)

    def _illegal(self, seen: Seen) -> list[str]:
        """What must not be, however often it comes."""
        sent = self.sent.get(seen.key)
        if sent is None:
            return [f"{seen.key} came to {seen.group}, and nobody sent it"]
        found = []
        if seen.at_s < sent.due_s:
            found.append(
                f"{seen.key} came to {seen.group} {1000 * (sent.due_s - seen.at_s):.0f} ms early"
            )
        if sent.is_secret:
            found.append(f"{seen.key} came to {seen.group} and was rolled back")
        if seen.group not in sent.groups and seen.group not in self._dead.values():
            found.append(f"{seen.key} came to {seen.group}, whose filter does not match")
        return found

    def _excuse(
        self,
        first: dict[tuple[str, str, int], Seen],
        copied: set[tuple[str, str]],
        again: Seen,
    ) -> str | None:
        """The event that explains why a message came again; None for none.

        :param copied: messages of which a group has two copies already, both of which it may try again.
        """
        kind = self.event_at(again.at_s, again.at_s, again.group)
        if kind is None and again.tries:
            before = first.get((again.group, again.key, again.tries - 1))
            if before is not None and before.place == again.place:
                # Its member could not give it back, and kept it: that is when the event was.
                since_s = again.at_s - self._again_s
                kind = self.event_at(min(before.at_s, since_s), since_s, again.group)
                kind = kind and NOT_GIVEN_BACK
        if kind is None and (again.group, again.key) in copied:
            kind = COPY
        if kind is not None:
            copied.add((again.group, again.key))
            if again.group in self._dead:
                copied.add((self._dead[again.group], again.key))
        return kind


MOVED = "queues moved"
NOT_GIVEN_BACK = "message not given back"
COPY = "tries of a copy that came by an event"


def kind_of(key: str) -> str:
    """The kind of message that a key names."""
    return key.partition("-")[0]


def _out_of_order(seen: Seen, highest: dict[tuple[str, str, int], int]) -> list[str]:
    topic, queue_id, offset = seen.place
    queue = (seen.group, topic, queue_id)
    before = highest.get(queue, -1)
    highest[queue] = max(before, offset)
    if offset > before:
        return []
    return [f"{seen.key} at {seen.place} came to {seen.group} first after offset {before}"]
