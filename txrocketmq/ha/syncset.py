"""Which replicas are in sync, who should join or leave, and up to where do they agree? The set that a controller keeps, as its master sees it.

Stands for the sync-state-set half of ``AutoSwitchHAService``. A change counts only when the controller has it; while it is asked, old and new
members count together, so that no message is confirmed that a member of either set lacks. A question that was not answered may still arrive: whom it
named counts until the controller says how things stand, asked after the last such question. Nothing here knows links or requests.

A replica has caught up at a moment when it later reports everything that the log held at that moment. (Officially a slave that was sent
everything counts, whether it reported it or not.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.internet.interfaces import IReactorTime

from txrocketmq.config.schema import MessageStoreConfig


class SyncStateSet:
    """The set of broker ids.

    :ivar own_id: this broker's id.
    :ivar epoch: how often the controller changed the set.
    :ivar agreed: what the controller has.
    :ivar asked: what the controller was asked for and has perhaps, all questions together; None when there are none.
    :ivar questions: how often it was asked.
    """

    def __init__(self, config: MessageStoreConfig, clock: IReactorTime) -> None:
        self._config = config
        self._clock = clock
        self.own_id = 0
        self.epoch = 0
        self.agreed: frozenset[int] = frozenset()
        self.asked: frozenset[int] | None = None
        self.questions = 0
        self._caught_up: dict[int, float] = {}
        self._marks: dict[int, tuple[int, float]] = {}

    @property
    def members(self) -> frozenset[int]:
        """Everybody who has to agree."""
        return self.agreed | (self.asked or frozenset())

    def take(self, members: Iterable[int], epoch: int) -> bool:
        """What the controller says; False when that is no news."""
        if epoch <= self.epoch:
            return False
        # Who asks names the change that it knows: all earlier questions are refused from now on.
        self.agreed, self.epoch, self.asked = frozenset(members), epoch, None
        return True

    def stands(self, questions: int) -> None:
        """The controller answered a question how things stand, put to it when it had been asked so often for another set and answered
        or timed out each time: what it did not tell did not happen."""
        if questions == self.questions:
            self.asked = None

    def begin(self) -> None:
        """This broker became master: nobody has caught up yet, and the members there are have their time to come."""
        now = self._clock.seconds()
        self._caught_up = dict.fromkeys(self.agreed - {self.own_id}, now)
        self._marks.clear()
        self.asked = None

    def wants(self, members: Iterable[int]) -> frozenset[int]:
        """The controller is asked for this set now."""
        wanted = frozenset(members)
        self.asked = wanted | (self.asked or frozenset())
        self.questions += 1
        return wanted

    def reported(self, broker_id: int, offset: int, end: int) -> None:
        """A replica has everything below an offset; the log ends at ``end``."""
        now = self._clock.seconds()
        if offset >= end:
            self._caught_up[broker_id] = now
            self._marks.pop(broker_id, None)
            return
        mark = self._marks.setdefault(broker_id, (end, now))
        if offset >= mark[0]:
            self._caught_up[broker_id] = max(mark[1], self._caught_up.get(broker_id, 0.0))
            self._marks[broker_id] = (end, now)

    def grown(self, broker_id: int, offset: int, confirmed: int, lead_start: int) -> bool:
        """Whether a replica that is not in the set may join it: it has everything that was confirmed.

        :param lead_start: where this log ended when this process became master: what was confirmed before, if perhaps by an earlier process
            in the same term, is not beyond that, and nobody knows it better.
        """
        return broker_id not in self.agreed and offset >= max(confirmed, lead_start)

    def shrunk(self, connected: Iterable[int]) -> frozenset[int] | None:
        """The set without those that are gone or too far behind (`haMaxTimeSlaveNotCatchup`); None when nobody is."""
        present = set(connected)
        oldest = self._clock.seconds() - self._config.ha_max_time_slave_not_catchup / 1000
        kept = {
            member
            for member in self.agreed
            if member == self.own_id
            or (member in present and self._caught_up.get(member, 0.0) >= oldest)
        }
        kept.add(self.own_id)
        return frozenset(kept) if kept != self.agreed else None

    def agreed_offset(self, ends: Mapping[int, int], own_end: int, before: int) -> int:
        """Up to where all members have the log.

        :param ends: what connected replicas reported.
        :param before: the answer so far, which stands while a member is not connected.
        """
        others = self.members - {self.own_id}
        if not others <= ends.keys():
            return before
        return max(before, min([own_end, *(ends[member] for member in others)]))
