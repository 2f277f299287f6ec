"""Schedules of a controlled group: replicas whose master a controller elects, with everything around them failing as a seed decides.

Each replica is a whole broker on a clock of its own and a disk that survives it. What one host says to another arrives later, or never:
hosts are parted and joined, connections break on one side first, processes are killed in the middle of any operation on their disk, lose power,
or stand still for seconds; the controllers' leader moves, and an operator has another master elected.

Promises, looked at all the time:

* a message that a producer was told is safe is with every member of the set from which the next master is elected, whoever that will be;
* in one term one broker writes what is acknowledged, the one that was elected, and none once it knows of a newer one;
* logs are the same up to where replicas say that they agree, and what one reader saw at a place every other reader sees there;
* no group's offset passes the end of its queue at the master;
* in the end, when nothing fails any more, all are in sync, have one log, every acknowledged message, and name servers know the master;
* when one of them ends then, the others go on without it: another master is there, or the set is smaller, and messages are taken.

After a power failure nothing else fails until all are well: that is the one failure that is promised to be survived, and only with SYNC_FLUSH.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from controller_world import CONTROLLERS
from fakes import Asked, FakeRemoting
from ha_network import End, Network, Wire
from small_broker import Peer, SmallBroker, pull_header, send_header
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from tests.sim.elector import Elector
from txrocketmq.codec import headers as h
from txrocketmq.codec.command import RemotingCommand, decode_command
from txrocketmq.codec.record import decode_records
from txrocketmq.errors import RemotingConnectError, RemotingTimeoutError
from txrocketmq.model.codes import RequestCode as R
from txrocketmq.testing.pools import ImmediatePool
from txrocketmq.testing.simdisk import SimulatedCrash, SimulatedDisk

NAMES = ("192.0.2.100:9876", "192.0.2.101:9876")
LOG_FILE_BYTES = 16 * 1024
TOPIC = "TopicA"
QUEUES = 2
STEPS = 250

ACTIONS = {
    "send": 12,
    "read": 10,
    "carry": 60,
    "deliver": 60,
    "pass_time": 14,
    "pass_long": 2,
    "break_wire": 1.5,
    "break_talk": 1,
    "part": 1.2,
    "join": 2,
    "kill": 0.8,
    "arm": 0.8,
    "lose_power": 0.2,
    "start": 3,
    "freeze": 0.5,
    "thaw": 1.5,
    "move_leader": 0.3,
    "repeat_notice": 1,
    "designate": 0.4,
    "write_back": 1,
    "check": 6,
}

FAULTS = {"break_wire", "break_talk", "part", "kill", "arm", "lose_power", "freeze", "designate"}


class Violation(AssertionError):
    """A promise was broken."""


class Plug(End):
    """One end; who closes it knows at once, the other side as the network allows."""

    def write(self, data: bytes) -> None:
        # What still runs of a process that ended in the middle of this step says nothing any more.
        if not self._wire.network.is_dead(self._wire.hosts[self is self._wire.master]):
            super().write(data)

    def abortConnection(self) -> None:
        assert isinstance(self._wire, Cable)
        self._wire.cut_by(self)

    loseConnection = abortConnection


class Cable(Wire):
    """A replication link between two hosts."""

    def __init__(self, network: Hosts, number: int, slave: str, master: str) -> None:
        super().__init__(network, number, slave)
        self.hosts = (slave, master)
        self.is_accepted = False
        self.slave = Plug(self, "slave", self.slave._address)
        self.master = Plug(self, "master", self.master._address)
        self.slave.peer, self.master.peer = self.master, self.slave

    def cut_by(self, end: End) -> None:
        assert isinstance(self.network, Hosts)
        if self.network.may_talk(*self.hosts):
            self.cut()
        else:
            end.lose()


class Hosts(Network):
    """All that hosts say to each other: requests in order between two of them, and replication links."""

    def __init__(self) -> None:
        super().__init__()
        self.is_dead: Callable[[str], bool] = lambda host: False
        self.parted: set[frozenset[str]] = set()
        self.silent: set[str] = set()
        self.talks: dict[tuple[str, str], deque[Callable[[], object]]] = {}

    def may_talk(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self.parted and not self.silent & {one, other}

    def dial_from(self, source: str, host: str, port: int, factory: Any) -> Deferred[Any]:
        self.dialled += 1
        server = self.listening.get((host, port))
        if server is None or not self.may_talk(source, host):
            return fail(ConnectionRefusedError())
        wire = Cable(self, self.dialled, source, host)
        self.wires.append(wire)
        for end, made in ((wire.master, server), (wire.slave, factory)):
            end.protocol = made.buildProtocol(end.getPeer())
            end.protocol.transport = end
        wire.slave.protocol.connectionMade()
        return succeed(wire.slave.protocol)

    def say(self, source: str, target: str, act: Callable[[], object]) -> None:
        self.talks.setdefault((source, target), deque()).append(act)

    def deliver_one(self, random: Random) -> bool:
        """The next thing that one host says to another."""
        ready = sorted(pair for pair, talk in self.talks.items() if talk and self.may_talk(*pair))
        if not ready:
            return False
        self.talks[random.choice(ready)].popleft()()
        return True

    def cables(self) -> list[Cable]:
        return [wire for wire in self.wires if isinstance(wire, Cable)]

    def carry_one(self, random: Random) -> bool:
        ready = [
            (wire, end)
            for wire in self.cables()
            for end in (wire.slave, wire.master)
            if self.may_talk(*wire.hosts)
            and end.peer.is_open
            and ((end.outgoing and end.peer.is_reading) or not wire.is_accepted)
        ]
        if not ready:
            return False
        wire, end = random.choice(ready)
        if not wire.is_accepted:
            wire.is_accepted = True
            wire.master.protocol.connectionMade()
            return True
        wire.carry(end, random.choice((1, 9, 60, 3000, 1 << 20, 1 << 20)))
        return True

    def mend(self) -> None:
        """Who writes to what the other side closed hears of it now."""
        for wire in self.cables():
            if self.may_talk(*wire.hosts) and not (wire.slave.is_open and wire.master.is_open):
                wire.cut()


class Client(FakeRemoting):
    """What one process asks others."""

    def __init__(self, world: ControlledWorld, life: Life) -> None:
        self._world = world
        self._life = life
        #: Where each question went that has no answer yet.
        self.open: dict[Deferred[Any], tuple[str, Any]] = {}

    def ask(self, asked: Asked) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        if self._life.disk.ended is not None:
            return done
        target = asked.address.split(":")[0]
        late = RemotingTimeoutError(asked.address, "no answer")
        timer = self._life.clock.callLater(asked.timeout_ms / 1000, self.give_up, done, late)
        self.open[done] = target, timer
        source = self._life.host

        def answered(outcome: Any) -> None:
            self._world.net.say(target, source, lambda: self.finish(done, outcome))

        asked.deferred.addBoth(answered)
        self._world.net.say(source, target, lambda: self._world.arrive(target, asked))
        return done

    def finish(self, done: Deferred[Any], outcome: Any) -> None:
        if self._life.is_alive and done in self.open:
            self.open.pop(done)[1].cancel()
            done.callback(outcome)

    def give_up(self, done: Deferred[Any], error: Exception) -> None:
        _, timer = self.open.pop(done)
        if timer.active():
            timer.cancel()
        done.errback(error)

    def lose(self, target: str) -> None:
        """All connections to a host broke."""
        for done, (host, _) in list(self.open.items()):
            if host == target and done in self.open:
                self.give_up(done, RemotingConnectError(target, "connection lost"))

    def oneway(
        self, address: str, code: int, header: Any, body: bytes, timeout_ms: int
    ) -> Deferred[None]:
        target = address.split(":")[0]
        if code == R.BROKER_HEARTBEAT and address == CONTROLLERS[0]:
            # All controllers are told, and one mind hears it.
            self._world.net.say(
                self._life.host, target, lambda: self._world.elector.beat(header)
            )  # fmt: skip
        return succeed(None)


class LifePool(ImmediatePool):
    """Does all work with the disk; a process that ended in the middle of it never hears of it."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def submit(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> Deferred[Any]:
        if self._disk.ended is None:
            try:
                return succeed(work(*arguments, **options))
            except SimulatedCrash:
                pass
            except Exception:
                return fail()
        return Deferred()


class Life:
    """A broker's process from its start to its end."""

    def __init__(self, world: ControlledWorld, number: int, disk: SimulatedDisk) -> None:
        self.number = number
        self.host = f"192.0.2.{number}"
        self.disk = disk
        self.clock = Clock()
        self.clock.advance(world.now)
        self.is_alive = True
        self.is_frozen = False
        self.client = Client(world, self)
        self.waiting: dict[int, Asked] = {}
        #: What it was given to store, each with the newest term that it knew of when that came.
        self.sends: dict[int, tuple[bytes, int]] = {}
        self.broker = SmallBroker(
            disk,  # type: ignore[arg-type]
            self.clock,
            client=self.client,
            pool=LifePool(disk),
            one_slave_by_default="in_sync_replicas" not in world.settings,
            dial=lambda host, port, factory: world.net.dial_from(self.host, host, port, factory),
            broker_ip1=self.host,
            broker_ip2=self.host,
            **world.settings,
        )
        self.peer = self.broker.connect(41_000)
        self.users = self.broker.connect(42_000)

    @property
    def role(self) -> Any:
        return self.broker.core.replication

    @property
    def end(self) -> int:
        return self.broker.store.max_physical_offset()

    def log(self, start: int, end: int) -> bytes:
        """Bytes of the log, as programs see them."""
        log, data = self.broker.store.commit_log, b""
        while len(data) < end - start and (
            piece := log.read(start + len(data), end - start - len(data))
        ):
            data += piece
        return data

    def take(self, asked: Asked) -> None:
        command = asked.command
        opaque = self.peer.tell(command.code, None, command.body, ext_fields=command.ext_fields)
        self.waiting[opaque] = asked

    def poll(self) -> None:
        """Answers go back."""
        for opaque, answer in self.peer.new_answers().items():
            asked = self.waiting.pop(opaque)
            answer.opaque = asked.command.opaque
            asked.deferred.callback(answer)


class ControlledWorld:
    """One schedule.

    :param seed: decides everything.
    :param actions: what happens, with its weight.
    :param settings: of all brokers, by attribute name.
    """

    def __init__(self, seed: int, actions: Mapping[str, float] = ACTIONS, **settings: Any) -> None:
        self.random = random = Random(f"controlled {seed}")
        self.history: list[str] = []
        self.now = 1_700_000_000.0
        self.net = Hosts()
        self.net.is_dead = lambda host: (
            host not in self.lives or self.lives[host].disk.ended is not None
        )
        self.elector = Elector(lambda: self.now, self._announce)
        self.names: dict[str, dict[int, str]] = {address: {} for address in NAMES}
        count = random.choice((2, 3, 3))
        self.settings: dict[str, Any] = {
            "enable_controller_mode": True,
            "controller_addr": ";".join(CONTROLLERS),
            "namesrv_addr": ";".join(NAMES),
            "register_name_server_period": 10_000,
            "broker_heartbeat_interval": 1000,
            "controller_heart_beat_timeout_mills": random.choice((2500, 4000)),
            "sync_broker_metadata_period": random.choice((1000, 3000)),
            "check_sync_state_set_period": random.choice((1000, 3000)),
            "ha_max_time_slave_not_catchup": random.choice((4000, 15_000)),
            "ha_send_heartbeat_interval": 1000,
            "ha_transfer_batch_size": random.choice((300, 4000, 32_768)),
            "mapped_file_size_commit_log": LOG_FILE_BYTES,
            "flush_disk_type": random.choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
            "all_ack_in_sync_state_set": random.random() < 0.5,
            "slave_read_enable": True,
            "timer_wheel_enable": False,
            **settings,
        }
        if not self.settings["all_ack_in_sync_state_set"] and random.random() < 0.4:
            # As many as there are: another number promises less.
            self.settings["in_sync_replicas"] = count
        # In some schedules hardly any time passes between one failure and the next.
        haste = random.choice((1, 1, 4))
        self.actions = {
            name: weight * haste if name in FAULTS | {"join", "start", "thaw"} else weight
            for name, weight in actions.items()
            if name != "lose_power" or self.settings["flush_disk_type"] == "SYNC_FLUSH"
        }
        self.disks = {
            number: SimulatedDisk(Random(random.random())) for number in range(1, count + 1)
        }
        self.lives: dict[str, Life] = {}
        self.sent = 0
        #: What a producer was told is safe: offset in the log, and the bytes there.
        self.acknowledged: dict[int, bytes] = {}
        #: What readers saw, by queue and offset.
        self.seen: dict[tuple[int, int], bytes] = {}
        self.committed = dict.fromkeys(range(QUEUES), 0)
        #: What the controller told brokers so far, any of which may arrive late.
        self.notices: list[tuple[str, bytes]] = []
        self.is_calm = False
        self.errors: list[str] = []

    # ------------------------------------------------------------------ the schedule

    def run(self) -> None:
        """:raises Violation: a promise was broken; `history` says how it came to that."""
        globalLogPublisher.addObserver(self._observe)
        try:
            for number, disk in self.disks.items():
                # The id that the controller gave it on an earlier day.
                identity = f"ClusterA#broker-a#{number}".encode()
                disk.makedirs("/store")
                disk.replace_file("/store/brokerIdentity", identity, True)
                self._start(number)
            self._settle(lambda: self._all_in_sync(), 60)
            names, weights = list(self.actions), list(self.actions.values())
            for name in self.random.choices(names, weights, k=STEPS):
                if self.is_calm and name in FAULTS:
                    continue
                self._try(getattr(self, f"_do_{name}"))
                self._after()
            self._end()
        finally:
            globalLogPublisher.removeObserver(self._observe)

    def _observe(self, event: Any) -> None:
        failure = event.get("log_failure")
        if isinstance(failure, Failure) and not failure.check(SimulatedCrash):
            self.errors.append(failure.getTraceback())

    def _note(self, text: str) -> None:
        self.history.append(f"{self.now - 1_700_000_000:.2f}: {text}")

    def _require(self, condition: object, promise: str) -> None:
        if not condition:
            raise Violation(promise)

    def _try(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Do something in the middle of which a process may end."""
        try:
            return act(*arguments)
        except SimulatedCrash:
            return True

    def _after(self) -> None:
        """Whatever a step led to."""
        for life in list(self.lives.values()):
            if life.disk.ended is not None:
                self._died(life, life.disk.ended)
        for life in list(self.lives.values()):
            life.poll()
            self._try(self._hear, life)
        if self.errors:
            raise Violation(f"something unforeseen: {self.errors[0]}")

    # ------------------------------------------------------------------ who answers whom

    def arrive(self, target: str, asked: Asked) -> None:
        if asked.address in CONTROLLERS:
            was = (self.elector.epoch, frozenset(self.elector.members))
            self.elector.answer(asked)
            if was != (self.elector.epoch, frozenset(self.elector.members)):
                self._note(f"controller: term {self.elector.epoch}, master {self.elector.master}, "
                           f"in sync {sorted(self.elector.members)}")  # fmt: skip
                self.check_safe()
        elif asked.address in NAMES:
            self._register(asked)
        elif target in self.lives:
            self.lives[target].take(asked)
        else:
            asked.fail()

    def _register(self, asked: Asked) -> None:
        if asked.command.code == R.REGISTER_BROKER:
            header = asked.command.decode_header(h.RegisterBrokerRequestHeader)
            table = self.names[asked.address]
            for number in [n for n, place in table.items() if place == header.broker_addr]:
                del table[number]
            table[header.broker_id] = header.broker_addr
            asked.answer(0, h.RegisterBrokerResponseHeader())
        else:
            asked.answer()

    def _announce(self, number: int) -> None:
        """The controller tells a broker who is master."""
        elector = self.elector
        sent = RemotingCommand.create_request(
            R.NOTIFY_BROKER_ROLE_CHANGED, elector.notice(), body=elector.set()
        )
        self.notices.append((elector.places[number], sent.encode()[4:]))
        self._notify(*self.notices[-1])

    def _notify(self, address: str, command: bytes) -> None:
        host = address.split(":")[0]
        asked = Asked(address, decode_command(command), 3000)
        asked.deferred.addErrback(lambda _: None)
        self.net.say(self.elector.leader.split(":")[0], host, lambda: self.arrive(host, asked))

    # ------------------------------------------------------------------ lives

    def _start(self, number: int) -> None:
        host = f"192.0.2.{number}"
        disk = self.disks[number]
        try:
            life = Life(self, number, disk)
        except (SimulatedCrash, AssertionError):
            if disk.ended is None:
                raise
            disk.restart()
            self._forget_host(host)
            return
        self._note(f"{number} starts with {life.end} bytes of log")
        self.lives[host] = life
        self.net.listening[(host, 10912)] = life.role.ha.factory

    def _died(self, life: Life, how: str) -> None:
        self._note(f"{life.number} ends: {how}, {life.end} bytes of log")
        life.is_alive = False
        life.disk.restart()
        del self.lives[life.host]
        self._forget_host(life.host, silently=how == "power")
        if how == "power":
            # What was not acknowledged may be gone, even if it was seen.
            self.seen.clear()
            self.is_calm = True

    def _forget_host(self, host: str, silently: bool = False) -> None:
        self.net.listening.pop((host, 10912), None)
        for wire in self.net.cables():
            if host in wire.hosts:
                (wire.slave if wire.hosts[0] == host else wire.master).is_open = False
                if not silently:
                    wire.cut()
        for pair in list(self.net.talks):
            if host in pair:
                del self.net.talks[pair]
        for other in self.lives.values():
            other.client.lose(host)

    def _hear(self, life: Life) -> None:
        """What producers are told."""
        for opaque, answer in life.users.new_answers().items():
            body, known_term = life.sends.pop(opaque, (None, 0))
            if body is None or answer.code != 0:
                continue
            header = answer.decode_header(h.SendMessageResponseHeader)
            offset = int(header.msg_id[-16:], 16)
            size = int.from_bytes(life.log(offset, offset + 4), "big")
            record = life.log(offset, offset + size)
            (message,) = decode_records(record)
            self._require(message.body == body, f"what {life.number} acknowledged is there")
            self.acknowledged[offset] = record
            # The term that it was written in: while the device was waited for, the broker may have become a slave.
            written = life.role.auto.epochs.at(offset)
            self._require(
                written is not None
                and written.epoch >= known_term
                and self.elector.masters.get(written.epoch) == life.number,
                f"{life.number} acknowledges what it wrote in a term of its own, not behind the "
                f"one that it knew: {written}, {known_term}",
            )
            for number in () if self.is_calm else self.elector.members:
                self._require(
                    self._has(number, offset, record),
                    f"{body[:6]!r} at {offset} was acknowledged by {life.number}, member {number} has it",
                )

    def _has(self, number: int, offset: int, record: bytes) -> bool:
        """Whether a replica, living or not, has a record."""
        life = self.lives.get(f"192.0.2.{number}")
        if life is not None:
            return life.log(offset, offset + len(record)) == record
        path = f"/store/commitlog/{offset - offset % LOG_FILE_BYTES:020d}"
        disk = self.disks[number]
        return disk.exists(path) and (
            disk.read_at(path, offset % LOG_FILE_BYTES, len(record)) == record
        )

    # ------------------------------------------------------------------ promises

    def check_safe(self) -> None:
        """Whoever is elected next has what was acknowledged."""
        if self.is_calm:
            # A replica that lost power gets back what it lost before anything else fails.
            return
        for offset, record in self.acknowledged.items():
            for number in self.elector.members:
                self._require(
                    self._has(number, offset, record),
                    f"what was acknowledged at {offset} is at member {number}",
                )

    def _do_check(self) -> None:
        self.check_safe()
        lives = [life for life in self.lives.values() if life.disk.ended is None]
        for one in lives:
            for other in lives:
                if one.number < other.number:
                    agreed = min(
                        one.broker.store.confirm_offset(), other.broker.store.confirm_offset()
                    )
                    self._require(
                        one.log(0, agreed) == other.log(0, agreed),
                        f"{one.number} and {other.number} are the same up to {agreed}",
                    )
        for life in lives:
            if not life.role.is_slave and life.role.master_epoch == self.elector.epoch:
                self._check_offsets(life)

    def _check_offsets(self, life: Life) -> None:
        for queue_id in range(QUEUES):
            header = h.QueryConsumerOffsetRequestHeader(
                consumer_group="G", topic=TOPIC, queue_id=queue_id, set_zero_if_not_found=False
            )
            found = life.broker.connect(43_000).ask(R.QUERY_CONSUMER_OFFSET, header)
            if found.code == 0:
                kept = found.decode_header(h.QueryConsumerOffsetResponseHeader).offset
                end = life.broker.store.max_offset(TOPIC, queue_id)
                self._require(
                    kept <= end, f"G's offset {kept} of queue {queue_id} is not beyond {end}"
                )

    # ------------------------------------------------------------------ what happens

    def _any(self) -> Life | None:
        ready = [life for life in self.lives.values() if not life.is_frozen]
        return self.random.choice(ready) if ready else None

    def _do_send(self) -> None:
        place = self.names[self.random.choice(NAMES)].get(0, "").split(":")[0]
        life = self.lives.get(place)
        if life is None or life.is_frozen or self.random.random() < 0.1:
            life = self._any()
        if life is not None:
            for _ in range(self.random.choice((1, 1, 2, 4))):
                self.sent += 1
                body = b"%06d" % self.sent + b"x" * self.random.choice((5, 200, 1500))
                header = send_header(TOPIC, queue_id=self.sent % QUEUES)
                known_term = life.role.master_epoch
                opaque = life.users.tell(R.SEND_MESSAGE_V2, header, body)
                life.sends[opaque] = body, known_term

    def _do_read(self) -> None:
        life = self._any()
        if life is None:
            return
        queue_id = self.random.randrange(QUEUES)
        known = [offset for queue, offset in self.seen if queue == queue_id]
        start = self.random.choice((self.committed[queue_id], max(known, default=-1) + 1, 0))
        self._read(life, queue_id, start)

    def _read(self, life: Life, queue_id: int, start: int) -> None:
        peer = Peer(life.broker, life.users.transport.getPeer())
        opaque = peer.tell(R.PULL_MESSAGE, pull_header(TOPIC, queue_id, start))
        answer = peer.answer(opaque)
        if answer is None or answer.code != 0:
            return
        for message in decode_records(answer.body):
            key = queue_id, message.queue_offset
            before = self.seen.setdefault(key, message.body)
            self._require(before == message.body, f"at {key} every reader sees {before[:6]!r}, "
                          f"not {message.body[:6]!r} as {life.number} shows")  # fmt: skip
            start = message.queue_offset + 1
        if not life.role.is_slave and self.random.random() < 0.5:
            self.committed[queue_id] = max(self.committed[queue_id], start)
            header = h.UpdateConsumerOffsetRequestHeader(
                consumer_group="G", topic=TOPIC, queue_id=queue_id, commit_offset=start
            )
            peer.tell(R.UPDATE_CONSUMER_OFFSET, header)

    def _do_carry(self) -> None:
        for _ in range(self.random.choice((1, 3, 10))):
            self.net.carry_one(self.random)

    def _do_deliver(self) -> None:
        for _ in range(self.random.choice((1, 3, 10))):
            self._try(self.net.deliver_one, self.random)
            self._after()

    def _do_pass_time(self) -> None:
        self._pass(self.random.choice((0.01, 0.05, 0.3)))

    def _do_pass_long(self) -> None:
        for _ in range(20):
            self._pass(0.2)
            for _ in range(30):
                self._try(self.net.carry_one, self.random)
                self._try(self.net.deliver_one, self.random)
                self._after()

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        for life in self.random.sample(list(self.lives.values()), len(self.lives)):
            if not life.is_frozen:
                self._try(life.clock.advance, self.now - life.clock.seconds())
        was = self.elector.epoch
        self.elector.scan()
        if was != self.elector.epoch:
            self._note(f"controller: term {self.elector.epoch}, master {self.elector.master}")
            self.check_safe()

    def _do_break_wire(self) -> None:
        if self.net.wires:
            self.random.choice(self.net.wires).cut()

    def _do_break_talk(self) -> None:
        pairs = sorted(pair for pair, talk in self.net.talks.items() if talk)
        if pairs:
            one, other = self.random.choice(pairs)
            for pair in ((one, other), (other, one)):
                self.net.talks.pop(pair, None)
            for source, target in ((one, other), (other, one)):
                if source in self.lives:
                    self.lives[source].client.lose(target)

    def _do_part(self) -> None:
        everybody = [f"192.0.2.{n}" for n in self.disks]
        everybody += [address.split(":")[0] for address in (*CONTROLLERS, *NAMES)]
        one = self.random.choice(everybody[: len(self.disks)])
        others = [host for host in everybody if host != one]
        for other in self.random.sample(others, self.random.choice((1, 2, len(others)))):
            self.net.parted.add(frozenset((one, other)))
        self._note(f"parted: {sorted(map(sorted, self.net.parted))}")

    def _do_join(self) -> None:
        if self.net.parted:
            self._note("joined")
        self.net.parted.clear()
        self.net.mend()

    def _do_kill(self) -> None:
        life = self._any()
        if life is not None:
            life.disk.end("kill")

    def _do_lose_power(self) -> None:
        if self._is_well():
            life = self._any()
            assert life is not None
            life.disk.end("power")

    def _do_arm(self) -> None:
        disk = self.random.choice(list(self.disks.values()))
        disk.arm(self.random.choice((3, 10, 60)), "kill")

    def _do_start(self) -> None:
        for number in self.disks:
            if f"192.0.2.{number}" not in self.lives:
                self.net.mend()
                for wire in self.net.cables():
                    if f"192.0.2.{number}" in wire.hosts:
                        wire.cut()
                self._start(number)
                return

    def _do_freeze(self) -> None:
        life = self._any()
        if life is not None:
            self._note(f"{life.number} stands still")
            life.is_frozen = True
            self.net.silent.add(life.host)

    def _do_thaw(self) -> None:
        self.net.silent.clear()
        for life in self.lives.values():
            life.is_frozen = False
        self.net.mend()

    def _do_move_leader(self) -> None:
        self.elector.leader = self.random.choice(CONTROLLERS)

    def _do_repeat_notice(self) -> None:
        if self.notices:
            self._notify(*self.random.choice(self.notices))

    def _do_designate(self) -> None:
        number = self.random.choice(list(self.disks))
        self._note(f"an operator wants {number}")
        self.elector.designate(number)
        self.check_safe()

    def _do_write_back(self) -> None:
        for disk in self.disks.values():
            disk.write_back()

    # ------------------------------------------------------------------ all is well

    def _all_in_sync(self) -> bool:
        lives = self.lives.values()
        return (
            self.elector.members == set(self.disks)
            and len(lives) == len(self.disks)
            # A master that was started again is not master until it is told so, whoever the controller still takes for it.
            and all(life.role.master_epoch == self.elector.epoch for life in lives)
            and len({life.end for life in lives}) == 1
            and len({life.broker.store.confirm_offset() for life in lives}) == 1
        )

    def _is_well(self) -> bool:
        return not (self.net.parted or self.net.silent) and self._all_in_sync()

    def _settle(self, is_done: Callable[[], bool], seconds: float, starting: bool = True) -> bool:
        end = self.now + seconds
        while self.now < end:
            self._pass(0.1)
            self._after()
            moved = True
            while moved:
                moved = self._try(self.net.carry_one, self.random)
                moved = self._try(self.net.deliver_one, self.random) or moved
                self._after()
            if starting:
                self._do_start()
            if is_done():
                return True
        return False

    def _end(self) -> None:
        for disk in self.disks.values():
            disk.disarm()
        self._do_join()
        self._do_thaw()
        self._require(self._settle(self._all_in_sync, 120), f"all come together: {self._state()}")
        self.is_calm = False
        self._do_check()
        self._go_on_without_one()
        self._do_check()
        # As long as a broker may take to register again.
        self._settle(lambda: False, 12)
        self._require(self._all_in_sync(), f"all stay together: {self._state()}")
        self._do_check()
        first, *others = self.lives.values()
        whole = first.log(0, first.end)
        for life in others:
            self._require(life.log(0, life.end) == whole, "all have one log in the end")
        for life in self.lives.values():
            for queue_id in range(QUEUES):
                self._read(life, queue_id, 0)
        master = self.elector.places[self.elector.master or 0]
        for address, table in self.names.items():
            self._require(table.get(0) == master, f"{address} knows the master: {table}")

    def _go_on_without_one(self) -> None:
        life = self.random.choice(list(self.lives.values()))
        self._try(life.disk.end, "kill")
        known = len(self.acknowledged)

        def goes_on() -> bool:
            self._do_send()
            return life.number not in self.elector.members and len(self.acknowledged) > known

        if "in_sync_replicas" not in self.settings:
            self._require(
                self._settle(goes_on, 40, starting=False),
                f"the others go on without {life.number}: {self._state()}",
            )
        self._require(self._settle(self._all_in_sync, 120), f"it comes back: {self._state()}")

    def _state(self) -> str:
        return f"controller {self.elector.master} {self.elector.members}, " + ", ".join(
            f"{life.number}: {life.broker.store_config.broker_role} {life.end} confirmed "
            f"{life.broker.store.confirm_offset()} {life.role.auto.epochs.entries} "
            f"{sorted(life.role.auto.members.members)}"
            for life in self.lives.values()
        )


def replay(seed: int, **options: Any) -> ControlledWorld:
    """Run one schedule; a failure tells its history."""
    world = ControlledWorld(seed, **options)
    try:
        world.run()
    except Exception as failure:
        failure.add_note(f"seed {seed}, {world.settings}\n" + "\n".join(world.history[-60:]))
        raise
    return world
