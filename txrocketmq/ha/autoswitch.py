"""How do master and slave talk where a controller may change who is which? The two machines of such a link.

Stands for ``AutoSwitchHAConnection`` and ``AutoSwitchHAClient``. A life, as both sides see it::

    handshake: the slave says who it is, the master which terms wrote its log
               --the slave cuts off what the master never had--> transfer
    transfer:  as `txrocketmq.ha.master` and `txrocketmq.ha.slave`, each piece of one term only, with the offset that replicas agree on

A slave without terms is a new one: nothing is compared, and it begins where its log ends. Who finds no term in common follows nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txrocketmq.codec.autoswitch import (
    MasterFrames,
    MasterHandshake,
    Piece,
    SlaveFrames,
    SlaveHandshake,
    encode_master_handshake,
    encode_piece,
    encode_report,
    encode_slave_handshake,
)
from txrocketmq.codec.epochfile import EpochEntry
from txrocketmq.codec.haframes import MAX_BODY_BYTES
from txrocketmq.errors import ProtocolError, StoreError
from txrocketmq.ha.epochs import NO_EPOCH, EpochCache, consistent_point
from txrocketmq.ha.master import NOT_YET, MasterLink
from txrocketmq.ha.slave import SlaveLink
from txrocketmq.model.replication import LinkState

NO_HANDSHAKE = -1


class AutoMasterLink(MasterLink):
    """One slave's link.

    :param reported: told of each report, with this link, before who waits for it is answered.
    :ivar slave_id: the slave's broker id, `NO_HANDSHAKE` before it said so.
    :ivar is_learner: nobody waits for it, and it is never in sync.
    """

    def __init__(
        self,
        *args: Any,
        epochs: EpochCache,
        reported: Callable[[AutoMasterLink], object],
    ) -> None:
        super().__init__(*args)
        self.state = LinkState.HANDSHAKE
        self.slave_id = NO_HANDSHAKE
        self.is_learner = False
        self._epochs = epochs
        self._tell = reported
        self._from_last_file = False
        self._slave_frames = SlaveFrames()

    def data_received(self, data: bytes) -> None:
        """A handshake, or reports."""
        if self.state is LinkState.SHUTDOWN:
            return
        self._last_read = self._clock.seconds()
        try:
            found = self._slave_frames.feed(data)
        except ProtocolError as error:
            self._give_up(str(error))
            return
        offset = shake = None
        for item in found:
            if isinstance(item, SlaveHandshake):
                if self.state is not LinkState.HANDSHAKE or offset is not None:
                    self._give_up("it says who it is behind its reports")
                    return
                shake = item
            else:
                if shake is not None and not self._shake_hands(shake):
                    return
                shake = None
                # As in plain replication, only the newest one counts, but the first one says where to begin.
                offset = item
                if self.request_offset == NOT_YET:
                    self._took(offset)
        if shake is not None and not self._shake_hands(shake):
            return
        if offset is not None:
            self._took(offset)

    def _shake_hands(self, found: SlaveHandshake) -> bool:
        """A slave says it again while it waits for the answer; who does, and reads none, would have ever more of them wait here: False."""
        if self._is_paused:
            self._give_up("it says again who it is, and does not read the answers")
            return False
        self.slave_id, self._from_last_file, self.is_learner = found
        self._put(encode_master_handshake(self._store.max_physical_offset(), self._epochs.entries))
        return True

    def _took(self, offset: int) -> None:
        if self.slave_id == NO_HANDSHAKE:
            self._give_up("it reports before it said who it is")
            return
        if self.state is LinkState.HANDSHAKE:
            self.state = LinkState.TRANSFER
        self._reported(offset)
        if self.state is LinkState.TRANSFER:
            self._tell(self)

    def _first_offset(self) -> int:
        if self._from_last_file:
            return self._store.last_file_offset()
        return self._store.min_physical_offset()

    def _send(self, data: bytes) -> None:
        """As frames, none of which reaches over the end of a term."""
        batch = max(1, min(self._config.ha_transfer_batch_size, MAX_BODY_BYTES))
        position = 0
        while position < len(data):
            size = batch
            term = self._epochs.at(self.next_offset)
            end = None if term is None else self._epochs.end_of(term)
            if end is not None:
                size = min(size, end - self.next_offset)
            piece = data[position : position + size]
            frame = self._frame(piece)
            position += len(piece)
            self.next_offset += len(piece)
            self._put(frame)
            if self.state is LinkState.SHUTDOWN:
                return

    def _frame(self, piece: bytes) -> bytes:
        term = self._epochs.at(self.next_offset)
        if term is None:
            # The log begins before the first term that is noted: it counts as that one's.
            term = self._epochs.entries[0] if self._epochs.entries else EpochEntry(NO_EPOCH, 0)
        confirmed = self._store.confirm_offset()
        return encode_piece(Piece(self.next_offset, *term, confirmed, piece))

    def tick(self) -> None:
        """As in plain replication; nothing is sent before the first report."""
        if self.state is LinkState.TRANSFER:
            super().tick()
        elif self.state is LinkState.HANDSHAKE:
            silent_ms = (self._clock.seconds() - self._last_read) * 1000
            if silent_ms > self._config.ha_housekeeping_interval:
                self._give_up(f"nothing came from it for {silent_ms:.0f} ms")


class AutoSlaveLink(SlaveLink):
    """The link to a master.

    :param broker_id: this slave's.
    """

    def __init__(self, *args: Any, epochs: EpochCache, broker_id: int) -> None:
        super().__init__(*args)
        self.state = LinkState.HANDSHAKE
        self._epochs = epochs
        self._broker_id = broker_id
        self._is_cutting = False
        self._confirmed = 0

    def _make_frames(self) -> MasterFrames:
        return MasterFrames()

    def _report_frame(self, offset: int) -> bytes:
        return encode_report(offset)

    def connected(self) -> None:
        """Say who this is; what is here of the log is compared first."""
        config = self._config
        self.last_write = self._clock.seconds()
        self._write(
            encode_slave_handshake(
                SlaveHandshake(self._broker_id, config.sync_from_last_file, config.async_learner)
            )
        )

    def _report(self, offset: int) -> None:
        if self.state is LinkState.TRANSFER:
            super()._report(offset)

    def _take_frames(self) -> None:
        if self._is_cutting:
            return
        super()._take_frames()
        if self.state is LinkState.TRANSFER:
            try:
                end = self._store.max_physical_offset()
                self._store.set_confirm_offset(min(self._confirmed, end))
            except StoreError as error:
                self._give_up(str(error))

    def _take(self, *frame: Any) -> None:
        """A frame of the master's: the fields of one of the two kinds."""
        if len(frame) == len(MasterHandshake._fields):
            self._compare(MasterHandshake(*frame))
            return
        piece = Piece(*frame)
        if self.state is not LinkState.TRANSFER:
            raise ProtocolError("log came before the handshake")
        # Before its first byte is here: bytes of a term that is not noted would count as the one's before.
        if piece.epoch > self._epochs.last_epoch:
            self._check_term(piece)
            self._epochs.append(EpochEntry(piece.epoch, piece.epoch_start))
        # A heartbeat of a master that does not know yet where to begin names no offset.
        if piece.data:
            super()._take(piece.offset, piece.data)
        self._confirmed = piece.confirm_offset

    def _check_term(self, piece: Piece) -> None:
        """What is here already was written in the terms that are noted: a newer one that began before would take their place."""
        end = self._store.max_physical_offset()
        if piece.epoch_start < 0 or (self._epochs.entries and piece.epoch_start < end):
            raise ProtocolError(
                f"term {piece.epoch} is to begin at {piece.epoch_start}, the log here goes to {end} in older ones"
            )

    def _compare(self, found: MasterHandshake) -> None:
        if self.state is not LinkState.HANDSHAKE:
            raise ProtocolError("a second handshake")
        if self._store.is_cutting:
            # For an earlier link: until that is over nobody may count on what is here.
            raise StoreError("the log is still being cut")
        end = self._store.max_physical_offset()
        self._epochs.cut_beyond(end)
        if not self._epochs.entries:
            self._begin()
            return
        point = consistent_point(self._epochs.entries, end, found.entries, found.end_offset)
        if point is None and self._is_all_doubtful(found):
            point = 0
        if point is None:
            raise ProtocolError(
                f"no term in common: here {self._epochs.entries}, there {list(found.entries)}; empty this store "
                "to take over the master's log"
            )
        if point >= end:
            self._epochs.cut_beyond(point)
            self._begin()
            return
        self._is_cutting = True
        cutting: Deferred[None] = self._store.truncate_log(point)
        cutting.addCallbacks(self._cut, self._not_cut, callbackArgs=(point,))

    def _is_all_doubtful(self, found: MasterHandshake) -> bool:
        """Whether both logs are there from their first byte on and replicas never agreed on anything of this one."""
        starts = [
            entries[0].start_offset for entries in (self._epochs.entries, found.entries) if entries
        ]
        return starts == [0, 0] and self._store.min_physical_offset() == 0 and (
            self._store.confirm_offset() == 0
        )  # fmt: skip

    def _cut(self, _: object, point: int) -> None:
        self._is_cutting = False
        self._epochs.cut_beyond(point)
        if self.state is LinkState.HANDSHAKE:
            self._begin()

    def _not_cut(self, failure: Failure) -> None:
        self._is_cutting = False
        if self.state is not LinkState.SHUTDOWN:
            self._give_up(f"the log cannot be cut: {failure.getErrorMessage()}")

    def _begin(self) -> None:
        self.state = LinkState.TRANSFER
        end = self._store.max_physical_offset()
        self._confirmed = min(self._store.confirm_offset(), end)
        self._store.set_confirm_offset(self._confirmed)
        self._report(end)

    def tick(self) -> None:
        """As in plain replication; a handshake that is not answered is given up as well."""
        if self.state is LinkState.HANDSHAKE and not self._is_cutting:
            silent_ms = (self._clock.seconds() - self.last_read) * 1000
            if silent_ms > self._config.ha_housekeeping_interval:
                self._give_up(f"no handshake for {silent_ms:.0f} ms")
        elif self.state is LinkState.TRANSFER:
            super().tick()
