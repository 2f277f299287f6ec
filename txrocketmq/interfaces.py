"""Every seam of the servers in one place: who may ask whom for what. The client's are in `txrocketmq.client.interfaces`,
those of plug-ins for a broker in `txrocketmq.broker.interfaces`.

Each interface has a real provider and an in-memory one, and one test suite runs on both. Checks that a provider keeps its
interface happen when parts are assembled, never per message.

Units: ``*_ms`` are milliseconds (wall-clock ones since the Unix epoch), ``*_bytes`` are bytes, a *physical offset* indexes the
commit log in bytes, a *logical offset* counts entries of one consume queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from txrocketmq.model.message import MessageExt, MessageRecord
    from txrocketmq.model.replication import Replicated
    from txrocketmq.store.results import GetMessageResult, PutMessageResult, QueryMessageResult
    from txrocketmq.store.timer.timer_store import TimerStore

# --------------------------------------------------------------------------- remoting


class IConnection(Interface):
    """One live remoting connection, as request handlers and connection listeners see it."""

    remote_address = Attribute(
        "``(host, port)`` of the peer; host is a numeric address without brackets."
    )
    local_address = Attribute("``(host, port)`` of this end.")
    remote_text = Attribute("The peer as ``host:port`` text, IPv6 hosts bracketed.")
    is_open = Attribute("False once the connection is lost or being closed.")
    is_writable = Attribute("False while more bytes wait for the peer than the high mark allows.")
    attributes = Attribute("A dict for the roles' own marks (client id, broker address).")

    def request(
        code: int,
        header: object,
        body: bytes,
        timeout_ms: int,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Deferred[Any]:
        """Send a request to the peer; a Deferred of its `RemotingCommand`, or a failed one with `RemotingError`."""

    def oneway(code: int, header: object, body: bytes) -> bool:
        """Send a request that gets no answer; False when the connection is closed or its output is over the high mark."""

    def answer(request: Any, reply: Any) -> None:
        """Answer a request (`remoting.dispatch.Request`) whose handler returned None, with a `Reply`; nothing when it is
        oneway or the connection is gone. `Request.answer` is the usual way to call it."""

    def call_when_writable(callback: Callable[[], object]) -> None:
        """Call back once the peer has taken what waits for it; at once when nothing does, never when the connection is lost
        first. Whoever has much to say to a slow peer waits here instead of piling up bytes."""

    def close(reason: str) -> None:
        """Close the connection after what was written; the reason goes to the log."""


class IConnectionListener(Interface):
    """Told about the life of connections (official ``ChannelEventListener``)."""

    def connected(connection: IConnection) -> None:
        """A connection was accepted or made."""

    def disconnected(connection: IConnection, reason: str) -> None:
        """A connection is gone; called once for each, also after `idle`."""

    def idle(connection: IConnection) -> None:
        """Nothing was read or written for the idle time (120 s); the connection is closed right after."""


class IRemotingClient(Interface):
    """Requests to any address over pooled connections, with reconnect and back-off."""

    def request(
        address: str,
        code: int,
        header: object,
        body: bytes,
        timeout_ms: int,
        ext_fields: Mapping[str, str] | None = None,
    ) -> Deferred[Any]:
        """A Deferred of the answer, a `RemotingCommand` of whatever code; fails with `RemotingError`."""

    def oneway(
        address: str, code: int, header: object, body: bytes, timeout_ms: int
    ) -> Deferred[None]:
        """A Deferred that fires with None once the request was handed to the connection."""

    def close_address(address: str) -> None:
        """Drop the pooled connection to an address that is no longer wanted."""

    def stop() -> Deferred[None]:
        """Close all connections; a Deferred that fires when they are gone. Waiters get `RemotingSendError`."""


# --------------------------------------------------------------------------- disk


class IMapping(Interface):
    """One file of a fixed size that is written in place through shared memory."""

    size = Attribute("The file's length in bytes.")
    buffer = Attribute("A writable memoryview of the whole file.")
    descriptor = Attribute("The file's descriptor for `IKernelSyncs`, None where it has none.")

    def allocated_to() -> int:
        """Bytes from the start whose blocks exist on disk: only these may be written without risk of SIGBUS."""

    def allocate(end: int, warm: bool = False) -> None:
        """Make blocks exist up to ``end`` (blocking; pool only). OSError ENOSPC when the disk is full. With ``warm`` the
        pages are brought into memory too, so that the first write to each costs no more than the next."""

    def sync(start: int, end: int) -> None:
        """Force bytes to the device (blocking; pool only). OSError EIO means they may be lost for good."""

    def close() -> None:
        """Release the mapping; the buffer must not be used any more."""


class IDisk(Interface):
    """The file system as the store uses it; all paths absolute. Failures are OSError with the real errno."""

    def map(path: str, size: int, create: bool) -> IMapping:
        """Map a file of exactly ``size`` bytes; create it (sparse, full length) when asked and absent."""

    def create(path: str, size: int) -> None:
        """Make a file of this length without blocks (sparse) and its directories; nothing when it is there. Not synced."""

    def read_at(path: str, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes (blocking when cold)."""

    def read_ready(path: str, offset: int, size: int) -> bytes | None:
        """Read up to ``size`` bytes that are in memory; None when the device would have to be asked."""

    def write_at(path: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data`` into an existing file, through the page cache; OSError ENOSPC when the disk is full."""

    def zero_from(path: str, offset: int) -> None:
        """Make all bytes from ``offset`` to the end read as zero; the length stays (blocking; pool or start only)."""

    def next_data(path: str, offset: int) -> int:
        """Where the first bytes at or behind ``offset`` lie that are no hole (they may be zero); the file's length when there
        are none."""

    def sync_file(path: str) -> None:
        """Force a file's bytes and length to the device (blocking; pool only)."""

    def sync_directory(path: str) -> None:
        """Force a directory's entries to the device (blocking; pool only)."""

    def sync_all(path: str) -> None:
        """Force everything on the file system that holds a path to the device (blocking; start only)."""

    def read_file(path: str) -> bytes:
        """The whole file; FileNotFoundError when absent."""

    def replace_file(path: str, data: bytes, keep_backup: bool) -> None:
        """Write a new file, sync it, keep the old one as ``.bak`` when asked, rename over, sync the directory (blocking)."""

    def listdir(path: str) -> list[str]:
        """Names in a directory, sorted; empty when it is absent, or a file."""

    def size(path: str) -> int:
        """A file's length; FileNotFoundError when absent."""

    def exists(path: str) -> bool:
        """Whether a file or directory is there."""

    def makedirs(path: str) -> None:
        """Make a directory and its parents, on the device too when this returns (blocking); nothing when present."""

    def rename(path: str, target: str) -> None:
        """Give a file another name, in another directory too, in one step; what had that name is gone. Not synced: the change is
        on the device when the target's directory is."""

    def remove(path: str) -> None:
        """Delete a file; nothing when absent."""

    def rmtree(path: str) -> None:
        """Delete a directory with all in it; nothing when absent."""

    def truncate(path: str, size: int) -> None:
        """Cut or extend a file."""

    def lock_directory(path: str) -> object:
        """Keep other processes of txrocketmq from using a directory, without a file in it; an object with ``release()``.
        StoreLockedError."""

    def lock(path: str) -> object:
        """Take the exclusive fcntl lock on byte 0 of a file, returning an object with ``release()``; StoreLockedError."""

    def set_read_ahead(directory: str, is_on: bool) -> None:
        """Whether the system may read more of a file below a directory than is asked for; it may unless told otherwise. For
        reads, not for mappings."""

    def usage(path: str) -> tuple[int, int]:
        """``(used, total)`` bytes of the file system that holds the path."""

    boot_id = Attribute(
        "Names this run of the machine: as long as it is the same, files hold all that was written to them, synced or not. "
        "Empty where nobody knows."
    )


class IBlockingPool(Interface):
    """A bounded pool for blocking work on bytes and numbers (never on shared objects)."""

    def submit(function: Callable[..., object], *args: object) -> Deferred[Any]:
        """Run in a thread; a Deferred of the result. Fails with StoreError when the pool's queue is full or it is stopped."""

    def stop() -> Deferred[None]:
        """A Deferred that fires when all accepted work is done and the threads are gone."""


class IKernelSyncs(Interface):
    """Syncs of files that need no thread. They write all of a file that is not on the device, also what is made ready ahead."""

    is_open = Attribute("Whether it takes any. Any thread.")

    def sync(descriptor: int, end: int) -> Deferred[None] | None:
        """Begin to force a file's bytes to the device; a Deferred that fires when they are there, or fails with OSError as a blocking
        sync would. None where that cannot be done now: a pool has to.

        :param end: up to where the file is written now; tells this sync from others, here and for who traces system calls.
        """


class IConfigFiles(Interface):
    """The JSON files under ``<storePathRootDir>/config``: atomic, with a ``.bak`` that serves when the main one is damaged."""

    def load(name: str, read: Callable[[bytes], Any]) -> Any:
        """What ``read`` makes of a file (``topics.json`` ...), or of its backup when the file is missing, empty or damaged (``read``
        raises `BodyError`); None when neither is there. `StoreError` when one is there and nothing of it can be read: to go
        on with an empty table would write over what an operator may still save."""

    def save(name: str, data: bytes) -> object:
        """Persist off the reactor, newest content wins; a Deferred that fires when this or newer content is on disk."""

    def save_now(name: str, data: bytes) -> None:
        """Persist before returning (shutdown only)."""


# --------------------------------------------------------------------------- store


class IMessageAppender(Interface):
    """Accepts messages. All methods run in the reactor thread and never block."""

    write_refusal = Attribute("Why no messages are taken, None when they are.")

    def put_message(record: MessageRecord) -> PutMessageResult | Deferred[PutMessageResult]:
        """Append one `MessageRecord`; a `PutMessageResult`, or a Deferred of one where a flush or a replica is waited for."""

    def put_batch(record: MessageRecord) -> PutMessageResult | Deferred[PutMessageResult]:
        """Append a client batch (``record.body`` is the batch body) as consecutive messages of one queue; result as above."""

    def append_raw(offset: int, data: bytes | memoryview) -> bool:
        """Append replicated log bytes at exactly this physical offset (slave side); their messages can be read when this returns.
        An empty log may begin at any file's start. False when the store cannot take them just now: the same is to be offered
        again a little later. StoreError when they can never be appended: a gap, a file's end within them, another log's bytes, a
        store that is closed or cannot be written any more."""


class IMessageReader(Interface):
    """Finds messages."""

    def get_message(
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        message_filter: IMessageFilter | None,
    ) -> GetMessageResult | Deferred[GetMessageResult]:
        """Read from a queue: a `GetMessageResult`, or a Deferred of one when the bytes are cold. None as the filter lets all
        through; ``max_bytes`` bounds the answer besides the official in-memory and on-disk limits. StoreError when the store
        is not open."""

    def look_message(physical_offset: int) -> MessageExt | None:
        """The `MessageExt` at a physical offset, or None."""

    def look_message_bytes(physical_offset: int, size: int) -> bytes | None:
        """The record's bytes; with size 0 the record's own length is used. None when nothing valid is there."""

    def query_message(
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
    ) -> QueryMessageResult:
        """The newest ``max_count`` records with a key (``index_type`` ``T``: with a tag), in log order, and how far the index
        reaches."""


class IMessageFilter(Interface):
    """Decides which entries of a queue a consumer gets."""

    needs_record = Attribute("Whether `matches_record` has to be asked at all.")

    def matches_tags_code(tags_code: int) -> bool:
        """Cheap check on the consume queue's entry."""

    def matches_extension(tags_code: int, store_timestamp_ms: int, bit_map: bytes) -> bool:
        """The same on an entry with an extension; the bit map is empty when there is none."""

    def matches_record(record: bytes) -> bool:
        """Full check on the record's bytes; True where only tags count."""


class IQueueOffsets(Interface):
    """Positions in queues."""

    def min_offset(topic: str, queue_id: int) -> int:
        """Smallest logical offset that can be read; 0 for an unknown queue."""

    def max_offset(topic: str, queue_id: int) -> int:
        """The next logical offset to be given; 0 for an unknown queue."""

    def offset_by_time(topic: str, queue_id: int, timestamp_ms: int, upper: bool) -> int:
        """Logical offset for a store time (``BoundaryType`` lower, or upper)."""

    def store_time(topic: str, queue_id: int, offset: int) -> int:
        """Store time of an entry in ms, -1 when absent."""

    def earliest_store_time(topic: str, queue_id: int) -> int:
        """Store time of a queue's first entry in ms, -1 when it has none."""

    def is_in_memory(topic: str, queue_id: int, offset: int) -> bool:
        """Whether an entry's record is within the in-memory share of the log (``accessMessageInMemoryMaxRatio``)."""

    def is_in_cold_area(topic: str, queue_id: int, offset: int) -> bool:
        """Whether there is an entry whose record is beyond the hot share of the log (``accessMessageInMemoryHotRatio``)."""

    def recovering(topic: str, queue_id: int) -> str | None:
        """Why a queue's next offset is not known yet after a start; None when it is."""

    def incomplete(topic: str, queue_id: int) -> str | None:
        """Why not all messages of a queue can be read yet after a start; None when they can. Until then its smallest offset is
        not known either."""

    def is_readable(topic: str, queue_id: int, offset: int) -> bool:
        """Whether there are messages from an offset on that can be read now."""

    def queues() -> Iterable[tuple[str, int]]:
        """All ``(topic, queue_id)`` that have a consume queue."""

    def delete_topics(topics: Iterable[str]) -> int:
        """Remove the consume queues of topics; how many topics had any."""


class IReplicas(Interface):
    """Who has copies of the log, as the store sees them; provided by ``ha.service.HaService``."""

    def appended() -> None:
        """Something was appended to the log; called for each append."""

    def has_enough() -> bool:
        """Whether so many replicas are in sync that messages may be taken."""

    def when_replicated(end_offset: int) -> Deferred[Replicated] | None:
        """What becomes of everything below an offset at the replicas; None when nobody has to wait for them."""


class ICompactedSource(Interface):
    """A master's copies of compacted topics, as its slave asks for them; provided by ``broker.replication.compacted.MastersCopies``."""

    def is_there() -> bool:
        """Whether this broker is a slave, so that its master has what it lacks."""

    def queues() -> Iterable[tuple[str, int]]:
        """Topic and queue id of all queues of compacted topics."""

    def fetch(topic: str, queue_id: int, offset: int) -> Deferred[tuple[bytes, int | None]]:
        """Whole records from a logical offset on, and the offset to go on with; None: no more. StoreError: the master does not answer."""


class IReplicationControl(Interface):
    """What replication needs of the log."""

    is_cutting = Attribute("Whether `truncate_log` is at work: nobody may lead with this log.")

    def set_replicas(replicas: IReplicas | None) -> None:
        """Who is told of appends and asked for acknowledgements from now on; None: nobody."""

    def truncate_log(offset: int) -> Deferred[None]:
        """Cut what a record's first byte begins, and all behind it, off log, queues and index; nobody appends meanwhile, reads
        raise StoreError. StoreError where the log does not go back so far, or is being cut already."""

    def confirm_offset() -> int:
        """Up to where replicas agree on the log; its end where nobody asks them."""

    def set_confirm_offset(offset: int | None) -> None:
        """Show nothing beyond that from now on, and what is below; None: show everything."""

    def roles_changed(leads: bool) -> None:
        """A master is a slave now, or a slave a master (``leads``): what waited to be shown is found in the log, up to the confirm
        offset. Each queue's next message goes behind its last one; at a master behind those that still wait, too."""

    def last_file_offset() -> int:
        """Start of the newest file."""

    def last_record() -> tuple[int, bytes] | None:
        """Offset and bytes of the newest message that is in a queue; None when there is none. Opens a file (not per message)."""

    def master_flushed_offset() -> int:
        """What a master said of how far its log was flushed when it started; 0 when none did."""

    def set_master_flushed_offset(offset: int) -> None:
        """Keep that, in the checkpoint too."""

    def max_physical_offset() -> int:
        """End of the log in bytes."""

    def min_physical_offset() -> int:
        """Start of the oldest file."""

    def flushed_offset() -> int:
        """Everything below is on the device."""

    def set_compacted_source(source: ICompactedSource) -> None:
        """Who has messages of compacted topics that are older than a slave's log."""

    def read_log(offset: int, max_bytes: int) -> bytes | Deferred[bytes]:
        """Contiguous log bytes for a replica, never across a file's end; empty outside the log. A Deferred where the device is asked."""


class IReplicaLog(IMessageAppender, IReplicationControl):
    """What replication needs of a store."""


class IStoreUpkeep(Interface):
    """What operators ask of a store besides its messages; provided by ``store.upkeep.StoreUpkeep``."""

    def queue_units(
        topic: str, queue_id: int, index: int, count: int
    ) -> list[tuple[int, int, int]] | None:
        """Physical offset, record size and tags code of entries from a logical offset on; None for an unknown queue."""

    def read_units(
        topic: str, queue_id: int, index: int, count: int
    ) -> (
        list[tuple[int, tuple[int, int, int], int]]
        | Deferred[list[tuple[int, tuple[int, int, int], int]]]
    ):
        """As `queue_units`, each with its logical offset before it and the number of its messages behind; begins at the
        queue's first entry when ``index`` is before it, empty beyond the end and for an unknown queue. A Deferred where the
        device has to be asked."""

    def read_records(
        places: Sequence[tuple[int, int]],
    ) -> list[bytes | None] | Deferred[list[bytes | None]]:
        """The records at physical offsets, each with its size; None for one that is not there. A Deferred where the device has to
        be asked."""

    def timer_store(now_ms: Callable[[], int]) -> TimerStore:
        """What keeps timed messages, not loaded yet; for one user."""

    def set_read_ahead(is_on: bool) -> None:
        """Whether the system may read more of the commit log than is asked for."""

    def clean_expired_queues() -> int:
        """Forget queues whose messages are all gone from the log, with their files; how many there were."""

    def delete_expired_files() -> Deferred[int]:
        """Delete files of the log that are older than ``fileReservedTime``, and what pointed at them, whatever the hour: some now
        and the others in the passes to come; how many went now."""

    def start() -> None:
        """Begin to delete what is expired at its hour, and what must go for a full disk; the store is started."""

    def stop() -> Deferred[None]:
        """End that; fires when nothing is under way."""

    def earliest_time() -> int:
        """Store time of the log's oldest message in ms, -1 when it has none."""

    def disk_usage() -> tuple[list[tuple[str, int, int]], tuple[int, int]]:
        """``(path, used bytes, total bytes)`` of each directory of the log, ``(used, total)`` of the queues' one."""

    def recovery_figures() -> dict[str, str]:
        """How far work of the start is that goes on while the store serves, by names of ours; empty when there is none."""

    def write_refusal() -> str | None:
        """Why no messages are taken now, None when they are."""

    def dispatch_behind_bytes() -> int:
        """Bytes of the log whose messages nobody can read yet."""

    def lock_time_ms() -> int:
        """For how long messages have been refused because the device is behind, 0 when they are not. Officially: how long the
        append that is under way has held the log's lock."""


class IStoreLifecycle(Interface):
    """Start, recovery and stop of the store."""

    def load() -> Deferred[None]:
        """Lock the directory, open files, recover. A Deferred that fires when the store may serve; fails with StoreError.
        Some queues, and the index, may be completed after that (`IQueueOffsets.recovering`)."""

    def start() -> None:
        """Begin timed work (flush, checkpoint)."""

    def stop() -> Deferred[None]:
        """Flush everything, write the checkpoint, remove the abort file, release the lock. A Deferred."""

    def add_arrival_listener(
        listener: Callable[[str, int, int, int, int], object],
        awaits: Callable[[str, int], bool] | None = None,
    ) -> None:
        """Call ``listener(topic, queue_id, next_offset, tags_code, store_timestamp_ms)`` for each message once it can be read. Of
        messages that a replica gets together the time is that of the newest one.

        :param awaits: of topic and queue id: False where the listener would do nothing just now, so that it need not be called.
        """

    def add_whole_listener(listener: Callable[[str, int], object]) -> None:
        """Call ``listener(topic, queue_id)`` for each queue that was incomplete (`IQueueOffsets.incomplete`) once it no longer is: of
        what it got meanwhile nobody was told."""

    def use_topic_attributes(look_up: Callable[[str], Mapping[str, str] | None]) -> None:
        """Ask this for the attributes of a topic; None as the answer means that it is unknown."""

    def use_filter_bits(make: Callable[[str, Mapping[str, str]], bytes | None]) -> None:
        """Keep what this makes of a message's topic and properties in the extensions of consume queues; None: nothing is made.
        Without effect unless there are extensions (``enableConsumeQueueExt``)."""


class IMessageStore(IReplicaLog, IMessageReader, IQueueOffsets, IStoreLifecycle):
    """The whole store (official ``MessageStore``); provided by ``store.message_store.MessageStore``, on the real disk or,
    for tests and demos, on `txrocketmq.testing.disk.MemoryDisk`."""


class ICommitWaiter(Interface):
    """Group commit: many waiters answered by one flush or one replica's report."""

    def wait_for(offset: int, timeout_ms: int) -> object:
        """A Deferred that fires True once everything below ``offset`` is safe, False at the timeout."""


# --------------------------------------------------------------------------- broker


class IBrokerFeature(Interface):
    """One more kind of message, or one more service, of a broker. ``broker.feature.Feature`` does nothing of it."""

    def handlers() -> Mapping[str, object]:
        """The objects whose methods the operations table names, by their names there."""

    def lane_limits() -> Mapping[Any, int]:
        """How many requests of its own lanes (`remoting.dispatch.Lane`) may wait for a deferred answer."""

    def load() -> None:
        """Read the tables; once, after the store is loaded. StoreError when a file is not what its name says."""

    def start() -> None:
        """Begin timed work; the ports listen."""

    def stop() -> None:
        """End timed work and answer what is held."""

    def role_changed() -> None:
        """The broker is a master now, or a slave, without a restart (controller mode)."""

    def save_changes() -> None:
        """Save tables that changed; called at every ``flushConsumerOffsetInterval``."""

    def save() -> Deferred[None] | None:
        """Save the tables at the stop, after `stop`; None when there is nothing to wait for."""

    def topic_deleted(topic: str) -> None:
        """A topic is gone, its queues with it."""

    def group_deleted(group: str) -> None:
        """A subscription group is gone."""

    def disconnected(connection: IConnection) -> None:
        """A client's connection is lost."""

    def figures() -> Mapping[str, str]:
        """Figures for the run-time information, by their official names."""


# --------------------------------------------------------------------------- name server


class IBrokerDirectory(Interface):
    """The route table: pure, told the time, owns no connection."""

    def pick_route(topic: str) -> object:
        """`TopicRouteData` for a topic, or None."""
