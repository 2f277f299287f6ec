"""Schedules in which messages have their time: files expire, disks fill up and are cleaned, readers hold what should go.

What is promised besides: no message goes before its time unless the disk is nearly full, the newest file stays, a file that a reader
needs stays, what is gone is gone from its queue too, and no offset is ever given twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from twisted.internet.defer import Deferred

from tests.sim.model import QueueKey, Sent
from tests.sim.world import FIRST_ACTIONS, FULL, World, require
from txrocketmq.store.diskspace import DiskLevel
from txrocketmq.store.results import GetMessageStatus
from txrocketmq.store.upkeep import StoreUpkeep
from txrocketmq.testing.simdisk import PAGE_BYTES, Faults

HOUR_S = 3600
ALL_HOURS = ";".join(map(str, range(24)))

CLEANING_ACTIONS = {**FIRST_ACTIONS, "hours": 3, "clean": 2, "fill_disk": 3, "read": 16}
"""What happens in a life, and how often."""

#: What a reader may hear of a message that is gone.
GONE = {
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
    GetMessageStatus.OFFSET_OVERFLOW_ONE,
    GetMessageStatus.NO_MATCHED_MESSAGE,
}


class CleaningWorld(World):
    """One schedule with timed cleaning; see `World`."""

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        actions: Mapping[str, int] = CLEANING_ACTIONS,
        **keys: object,
    ) -> None:
        sizes: dict[str, object] = {
            "clean_resource_interval": 2000,
            "delete_file_batch_max": 3,
            "file_reserved_time": 2,
            # A reader that hangs is looked at elsewhere.
            "destroy_maped_file_interval_forcibly": 2**31 - 1,
        }
        if seed % 3 == 0:
            sizes["store_path_commit_log"] = "/one,/two"
        super().__init__(seed, faults, actions, **{**sizes, **keys})
        self._upkeep: StoreUpkeep | None = None
        #: Where the log surely begins, on the device too.
        self._deleted_to = 0
        self._times: dict[int, float] = {}

    # ------------------------------------------------------------------ life

    def _open(self) -> bool:
        self._upkeep = None
        if not super()._open():
            return False
        self.config.delete_when = self._dice.choice(("", ALL_HOURS))
        self.config.clean_file_forcibly_enable = self._dice.random() < 0.8
        self._upkeep = upkeep = StoreUpkeep(
            self.store, self.config, self.disk, self.pools[3], self.clock
        )
        queue = self.store.commit_log.queue
        delete_first = queue.delete_first

        def checked() -> Deferred[None]:
            self._check_deletion()
            end = queue.files[0].base_offset + queue.file_size
            return delete_first().addCallback(lambda _: self._deleted(end))

        queue.delete_first = checked  # type: ignore[method-assign]
        upkeep.start()
        return True

    def _lose_queues(self) -> None:
        """Not here: nobody could know any more where a queue ended of which all messages had their time."""

    def _deleted(self, end: int) -> None:
        if self.disk.ended is None:
            self._deleted_to = max(self._deleted_to, end)

    def _check_deletion(self) -> None:
        """The oldest file goes; may it?"""
        queue, upkeep = self.store.commit_log.queue, self._upkeep
        assert upkeep is not None
        file = queue.files[0]
        if len(queue.files) < 2:
            self._errors.append("the newest file goes")
        if file.path in queue.readers._held:
            self._errors.append(f"{file.path} goes, and is being read")
        # The clock may have been set back by a little.
        limit = self.clock.seconds() - self.config.file_reserved_time * HOUR_S + 20
        young = [
            sent
            for sent in self.model.living()
            if sent.end <= file.end_offset and self._times[sent.physical_offset] > limit
        ]
        state = upkeep.retention.state
        forced = self.config.clean_file_forcibly_enable and (
            state is not None and state.level >= DiskLevel.CLEAN
        )
        if young and not forced:
            self._errors.append(f"{young[-1]} goes before its time")

    def _appended(self, outcome: Any, records: Any, wait: bool) -> None:
        known = len(self.model.log)
        super()._appended(outcome, records, wait)
        for sent in self.model.log[known:]:
            self._times[sent.physical_offset] = self.clock.seconds()

    def _do_hours(self) -> None:
        self._note("hours pass")
        self.clock.advance(self.rng.choice((1, 2, 5)) * HOUR_S)

    def _do_clean(self) -> None:
        assert self._upkeep is not None
        self._note("clean")
        self._upkeep.delete_expired_files()

    def _do_fill_disk(self) -> None:
        """Either really, or up to one of the steps of the ladder."""
        if self._dice.random() < 0.4:
            super()._do_fill_disk()
            return
        used = max(self.disk.used_bytes, PAGE_BYTES)
        share = self._dice.choice((0.6, 0.8, 0.88, 0.93))
        full = self.disk.capacity_bytes == FULL
        self.disk.capacity_bytes = int(used / share) if full else FULL
        self._note(f"capacity {self.disk.capacity_bytes}")

    def _stop(self) -> None:
        if self._upkeep is not None:
            ended: list[object] = []
            self._upkeep.stop().addBoth(ended.append)
            self._work_until(lambda: bool(ended), "cleaning ends")
            require(ended == [None], f"cleaning ends without a failure: {ended}")
        super()._stop()

    # ------------------------------------------------------------------ what is left

    def _check_begin(self) -> None:
        store, model = self.store, self.model
        begin = store.min_physical_offset()
        require(
            self._deleted_to <= begin <= model.begin or begin == model.begin,
            f"the log begins at {begin}, not between {self._deleted_to} and {model.begin}",
        )
        model.begin = begin

    def _see_deletions(self) -> None:
        model = self.model
        model.begin = max(model.begin, self.store.min_physical_offset())

    def _act(self, actions: Mapping[str, int] | None = None, dice: Any = None) -> None:
        super()._act(actions, dice)
        self._see_deletions()

    def _ended(self) -> None:
        # Files that were going when it happened may be gone.
        if self._store is not None:
            self._see_deletions()
        super()._ended()

    def _check_queues(self) -> None:
        # Cleaning went on while recovery was completed.
        self._see_deletions()
        assert self._upkeep is not None
        ended: list[object] = []
        self._upkeep.retention.run().addBoth(ended.append)
        self._work_until(lambda: bool(ended), "a pass ends")
        self._see_deletions()
        super()._check_queues()

    def _do_read(self) -> None:
        key = self.rng.choice((*self.model.queue_keys(), None))
        if key is None or self.store.incomplete(*key) is not None:
            super()._do_read()
            return
        shown = self.store.max_offset(*key)
        require(shown <= len(self.model.queue(key)), f"{key} shows {shown}")
        if shown:
            self._pull(key, self.rng.randrange(shown), shown)

    def _pull(self, key: QueueKey, offset: int, end: int) -> None:
        """As in `World`, but what was deleted may be skipped."""
        while offset < end:
            result = self._await(self.store.get_message(*key, offset, 32, 1 << 20, None))
            self._see_deletions()
            first = self.model.first(key)
            if result.status is not GetMessageStatus.FOUND:
                require(offset < first, f"{key} has {offset}, begins with {first}: {result}")
                require(result.status in GONE, f"{key} lost {offset}: {result}")
                offset = max(first, offset + 1)
                continue
            found = result.queue_offsets
            require(found == list(range(found[0], found[0] + len(found))), f"gapless: {result}")
            require(found[0] == offset or found[0] <= first, f"{key} skips messages: {result}")
            messages: list[Sent] = self.model.queue(key)[found[0] : found[-1] + 1]
            self._compare(messages, b"".join(result.records))
            require(result.next_begin_offset > offset, f"{key} goes on: {result}")
            offset = result.next_begin_offset

    def _heal(self) -> None:
        self.disk.faults = attrs.evolve(self._own_faults)
        super()._heal()
