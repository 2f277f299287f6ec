"""How does a master feed one slave? The machine of one link: reports in, pieces of log out, and a clock.

Stands for ``DefaultHAConnection``. A life::

    waiting --first report--> sending --report beyond what was sent, silence, connection lost--> over

Nothing is sent before the first report, which a slave may make seconds after it connected. The slave's first report says where to
begin; an empty slave says 0 and begins with the master's last file. Bytes are read ahead of the connection only as far as it
takes them; cold ones are read in the store's pool.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.codec.bodies.admin import HAConnectionRuntimeInfo
from txrocketmq.codec.haframes import MAX_BODY_BYTES, TRANSFER_HEADER, ReportReader
from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.ha.meter import FlowMeter
from txrocketmq.interfaces import IReplicaLog
from txrocketmq.model.replication import LinkState

READ_AHEAD_BYTES = 256 * 1024
"""Read from the log at once, and sent as several frames."""

NOT_YET = -1


class MasterLink:
    """One slave's link.

    :param peer: the slave as ``host:port``, for the log and the HA status.
    :param write: takes bytes for the slave; it may call `pause` while it is called.
    :param close: drops the connection, with a reason.
    :param acknowledged: told whenever `ack_offset` grew.
    :param begun: told of the first report, with this link.
    :ivar request_offset: the slave's first report, `NOT_YET` before it.
    :ivar next_offset: the first byte that was not sent yet, `NOT_YET` before the first report.
    :ivar start_offset: what ends there or before was never sent to the slave; `NOT_YET` before the first report.
    :ivar ack_offset: the slave has everything below, as far as it told.
    """

    _log = Logger()

    def __init__(
        self,
        peer: str,
        store: IReplicaLog,
        config: MessageStoreConfig,
        clock: IReactorTime,
        write: Callable[[bytes], object],
        close: Callable[[str], object],
        acknowledged: Callable[[], object],
        begun: Callable[[MasterLink], object],
    ) -> None:
        self.peer = peer
        self.state = LinkState.TRANSFER
        self.request_offset = NOT_YET
        self.next_offset = self.start_offset = NOT_YET
        self.ack_offset = NOT_YET
        self.meter = FlowMeter(config)
        self._store = store
        self._config = config
        self._clock = clock
        self._write = write
        self._close = close
        self._acknowledged = acknowledged
        self._begun = begun
        self._doubted_to = NOT_YET
        self._reports = ReportReader()
        self._is_paused = False
        self._is_reading = False
        self._is_pumping = False
        self._last_read = self._last_write = clock.seconds()

    # ------------------------------------------------------------------ from the slave

    def data_received(self, data: bytes) -> None:
        """Bytes of the slave's reports."""
        if self.state is LinkState.SHUTDOWN:
            return
        self._last_read = self._clock.seconds()
        offset = self._reports.feed(data)
        if offset is not None:
            self._reported(offset)

    def _reported(self, offset: int) -> None:
        if self.request_offset == NOT_YET:
            self._begin(offset)
        elif offset > self.next_offset:
            # What it has beyond that did not come from here: to count it would acknowledge what the slave has not got.
            self._give_up(
                f"it reports {offset} bytes of log and was sent those up to {self.next_offset}"
            )
        elif offset > self.ack_offset:
            self.ack_offset = offset
            self._acknowledged()

    def _begin(self, offset: int) -> None:
        if offset < 0:
            self._give_up(f"it begins with the report {offset}")
            return
        end = self._store.max_physical_offset()
        if offset > end:
            self._give_up(
                f"its log goes to {offset}, the one here to {end}: it has what this master never had; see "
                "to it that the right one of the two is master, or empty the slave's store"
            )
            return
        self.request_offset = self.ack_offset = offset
        # What it had before came from this log as well.
        self.start_offset = self._first_offset() if offset == 0 else 0
        self.next_offset = self.start_offset if offset == 0 else offset
        self._log.info(
            "slave {peer} has {offset} bytes of log, it gets those from {start} on",
            peer=self.peer,
            offset=offset,
            start=self.next_offset,
        )
        if self.next_offset < self._store.min_physical_offset():
            self._log.error(
                "slave {peer} wants the log from {start} on, it begins at {first} here: empty the slave's "
                "store to let it begin with the last file",
                peer=self.peer,
                start=self.next_offset,
                first=self._store.min_physical_offset(),
            )
        self._begun(self)
        self._acknowledged()
        self.pump()

    def _first_offset(self) -> int:
        """Where an empty slave begins."""
        return self._store.last_file_offset()

    # ------------------------------------------------------------------ to the slave

    def pause(self) -> None:
        """The connection takes no more for now."""
        self._is_paused = True

    def resume(self) -> None:
        """The connection has taken what waited."""
        self._is_paused = False
        self.pump()

    def pump(self) -> None:
        """Send what there is of the log, as far as the connection takes it."""
        if self._is_pumping or self.next_offset == NOT_YET:
            return
        self._is_pumping = True
        try:
            while self._may_send():
                allowed = self.meter.allowance()
                if allowed <= 0:
                    return
                found = self._store.read_log(self.next_offset, min(READ_AHEAD_BYTES, allowed))
                if isinstance(found, Deferred):
                    self._is_reading = True
                    found.addCallbacks(self._read, self._read_failed)
                    return
                if not found:
                    return
                self._send(found)
        finally:
            self._is_pumping = False

    def _may_send(self) -> bool:
        return not (self._is_paused or self._is_reading) and self.state is LinkState.TRANSFER

    def _send(self, data: bytes) -> None:
        """All of it, as frames; at most `READ_AHEAD_BYTES` wait for a connection that takes nothing."""
        batch = max(1, min(self._config.ha_transfer_batch_size, MAX_BODY_BYTES))
        for start in range(0, len(data), batch):
            piece = data[start : start + batch]
            frame = self._frame(piece)
            self.next_offset += len(piece)
            self._put(frame)
            if self.state is LinkState.SHUTDOWN:
                return

    def _frame(self, piece: bytes) -> bytes:
        """A piece of log from `next_offset` on as it travels; no bytes: a heartbeat."""
        return TRANSFER_HEADER.pack(self.next_offset, len(piece)) + piece

    def _put(self, frame: bytes) -> None:
        self.meter.count(len(frame))
        self._last_write = self._clock.seconds()
        self._write(frame)

    def _read(self, data: bytes) -> None:
        self._is_reading = False
        if self.state is LinkState.TRANSFER and data:
            self._send(data)
            self.pump()

    def _read_failed(self, failure: Failure) -> None:
        self._is_reading = False
        self._give_up(f"the log cannot be read at {self.next_offset}: {failure.getErrorMessage()}")

    # ------------------------------------------------------------------ time and end

    def tick(self) -> None:
        """To be called about once a second: heartbeats, silence, flow control."""
        if self.state is LinkState.SHUTDOWN:
            return
        self.meter.tick()
        now = self._clock.seconds()
        silent_ms = (now - self._last_read) * 1000
        if silent_ms > self._config.ha_housekeeping_interval:
            self._give_up(f"nothing came from it for {silent_ms:.0f} ms")
            return
        self.pump()
        quiet_ms = (now - self._last_write) * 1000
        if (
            quiet_ms > self._config.ha_send_heartbeat_interval
            and self.next_offset != NOT_YET
            and self._may_send()
        ):
            self._put(self._frame(b""))

    def _give_up(self, reason: str) -> None:
        self._log.warn("slave {peer} is dropped: {reason}", peer=self.peer, reason=reason)
        self.shut(reason)

    def shut(self, reason: str) -> None:
        """End the link."""
        self.closed()
        self._close(reason)

    def closed(self) -> None:
        """The connection is gone."""
        self.state = LinkState.SHUTDOWN

    def has(self, end_offset: int) -> bool:
        """Whether the slave has the message that ends there; an empty slave never gets what is before the master's last file."""
        return self.start_offset < end_offset <= self.ack_offset

    @property
    def host(self) -> str:
        """Where the slave is."""
        return self.peer.rpartition(":")[0]

    def doubt(self) -> None:
        """Another link may be the same slave's: this one is a machine of its own once it acknowledges what was not sent yet. A slave that
        gave up a link acknowledges nothing on it that was sent later."""
        self._doubted_to = self.next_offset

    @property
    def is_doubted(self) -> bool:
        """See `doubt`."""
        return self.ack_offset <= self._doubted_to

    def is_in_sync(self, end_offset: int) -> bool:
        """Whether the slave follows closely enough (`haMaxGapNotInSync`)."""
        return (
            self.request_offset != NOT_YET
            and end_offset - self.ack_offset < self._config.ha_max_gap_not_in_sync
        )

    def runtime_info(self, end_offset: int) -> HAConnectionRuntimeInfo:
        """The link as the HA status shows it."""
        return HAConnectionRuntimeInfo(
            addr=self.peer,
            slave_ack_offset=self.ack_offset,
            diff=end_offset - self.ack_offset,
            in_sync=self.is_in_sync(end_offset),
            transferred_byte_in_second=self.meter.bytes_per_second,
            transfer_from_where=self.next_offset,
        )
