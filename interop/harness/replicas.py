"""How is a master with its slave made, of whatever makes, and how are their stores compared?"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from struct import Struct
from typing import Any

from txrocketmq.codec.fastjson import loads
from txrocketmq.codec.storefiles import CQ_FILLER_SIZE
from txrocketmq.errors import BodyError

from .cluster import Cluster, make_broker, make_cluster
from .jvm import JvmSlots
from .together import Together
from .torn_link import TornLink
from .waiting import wait_until

_UNIT = Struct(">qiq")
_START = Struct(">ii20xq")
_MASTER_TIMER_OFFSET = Struct(">24xq")
_BLANK = -875286124
GROUP = "replicated"

Unit = tuple[int, int, int]


class ReplicaGroup(Together):
    """One name server of ours, a master and its slave. Use as a context manager.

    :param master: make of the master, as `make_cluster` takes it.
    :param settings: further keys of both brokers.
    :param torn: the seed of links between the two that tear.
    """

    def __init__(
        self,
        slots: JvmSlots,
        master: str,
        slave: str,
        settings: Mapping[str, str] | None = None,
        torn: int | None = None,
    ) -> None:
        super().__init__(make_cluster("ours", slots))
        self._slots = slots
        common = {
            "brokerName": GROUP,
            "namesrvAddr": self._names.namesrv,
            "registerNameServerPeriod": "10000",
            "slaveReadEnable": "true",
            "timerWheelEnable": "false",
            # Some 50,000 messages of tests fill several files.
            "mappedFileSizeCommitLog": str(8 * 1024 * 1024),
            **(settings or {}),
        }
        self.master = self._broker(master, {**common, "brokerId": "0"})
        role = {"brokerRole": "SLAVE", "brokerId": "1"}
        self.slave = self._broker(slave, {**common, **role})
        if torn is not None:
            self._tear_links(torn)

    def _tear_links(self, seed: int) -> None:
        """Whoever is the slave follows the other one through a link that tears."""
        for number, (one, other) in enumerate(
            ((self.master, self.slave), (self.slave, self.master))
        ):
            port = other.settings(["haListenPort"])["haListenPort"]
            link = TornLink(f"127.0.0.1:{port}", seed + number)
            self._stack.callback(link.close)
            one.change_settings({"haMasterAddress": link.address})

    def _broker(self, make: str, settings: Mapping[str, str], store: Path | None = None) -> Cluster:
        return make_broker(make, self._slots, settings, store)

    def _brokers(self) -> tuple[Cluster, ...]:
        return (self.master, self.slave)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self.logs())
        super().__exit__(kind, error, trace)

    def start_name_server(self) -> None:
        """For a group that is started by hand."""
        self._names.start_name_server(0)

    def close(self) -> None:
        """End what was started by hand, and delete all files."""
        for part in (self.slave, self.master, self._names):
            part.close()

    def stop_both(self) -> None:
        """In good order, the slave last."""
        for broker in (self.master, self.slave):
            broker.stop_broker(signal.SIGTERM)

    def promote_slave(self) -> None:
        """The master is gone: its slave's store goes on as the master. `slave` is the old master then, which does not run."""
        keys = ("brokerRole", "brokerId", "inSyncReplicas", "flushDiskType")
        as_master, as_slave = self.master.settings(keys), self.slave.settings(keys)
        self.slave.stop_broker(signal.SIGTERM)
        self.master, self.slave = self.slave, self.master
        self.master.change_settings(as_master)
        self.slave.change_settings(as_slave)
        self.master.start_broker()

    def old_master_becomes_slave(self) -> bool:
        """Start it on its own store; where that has what the new master never had it does not follow, and begins empty.

        Whether its store could be kept.
        """
        self.slave.start_broker()
        told = (
            "went different ways",
            "different ways before offset",
            "has what this master never had",
        )

        def is_refused() -> bool:
            return any(words in self.logs(200) for words in told)

        def follows() -> bool:
            # A log that is longer than the new master's is refused, a moment later.
            return same_logs(self.master.store, self.slave.store) or is_refused()

        wait_until(follows, "the old master follows, or says why not", 300)
        if not is_refused():
            return True
        self.slave.stop_broker(signal.SIGTERM)
        shutil.rmtree(self.slave.store)
        for log in (*self.slave.home.glob("broker.log"), *self.master.home.glob("broker.log")):
            log.write_text("")
        self.slave.start_broker()
        return False


def log_files(store: Path) -> dict[str, bytes]:
    """The files of a commit log that hold anything."""
    found = {path.name: path.read_bytes() for path in sorted((store / "commitlog").glob("0*"))}
    return {name: data for name, data in found.items() if any(data[:64])}


def log_end(store: Path) -> int:
    """Where the records of a commit log end; the store may be open."""
    files = sorted((store / "commitlog").glob("0*"))
    end = int(files[0].name) if files else 0
    for path in files:
        base = int(path.name)
        position = 0
        # It is looked at many times, and most of it may be zeros.
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            while position + _START.size <= len(data):
                size, magic, offset = _START.unpack_from(data, position)
                if size <= 0 or (magic != _BLANK and offset != base + position):
                    return base + position
                position += size
        end = base + position
    return end


def same_logs(one: Path, other: Path) -> bool:
    """Whether two commit logs end at one place with the same last file; the stores may be open."""
    end = log_end(one)
    if not end or log_end(other) != end:
        return False
    first, second = log_files(one), log_files(other)
    name = max(second)
    size = end - int(name)
    return name in first and first[name][:size] == second[name][:size]


def queue_units(store: Path) -> dict[str, dict[int, Unit]]:
    """All units of all plain consume queues, by ``topic/queue`` and logical offset."""
    found: dict[str, dict[int, Unit]] = {}
    for path in sorted((store / "consumequeue").glob("*/*/0*")):
        units = found.setdefault(f"{path.parent.parent.name}/{path.parent.name}", {})
        data = path.read_bytes()
        first = int(path.name) // _UNIT.size
        for number in range(len(data) // _UNIT.size):
            unit = _UNIT.unpack_from(data, number * _UNIT.size)
            if unit[1] not in (0, CQ_FILLER_SIZE):
                units[first + number] = unit
    return {key: units for key, units in found.items() if units}


def compare_stores(master: Path, slave: Path) -> int:
    """See that a slave's log is its master's, byte by byte from the slave's first file to its end, and the queues too.

    Both brokers are stopped. Returns how many messages the slave's queues have.
    """
    theirs, ours = log_files(master), log_files(slave)
    assert ours, "the slave has no log"
    # The last file may differ behind the slave's end only.
    for name, data in ours.items():
        end = len(data) if name != max(ours) else log_end(slave) - int(name)
        assert data[:end] == theirs[name][:end], _first_difference(name, data, theirs[name])
    assert log_end(slave) == log_end(master), "the slave is behind"
    first = int(min(ours))
    expected = {
        key: {offset: unit for offset, unit in units.items() if unit[0] >= first}
        for key, units in queue_units(master).items()
    }
    expected = {key: units for key, units in expected.items() if units}
    found = queue_units(slave)
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for key, units in expected.items():
        assert found[key] == units, key
    return sum(map(len, found.values()))


def _first_difference(name: str, one: bytes, other: bytes) -> str:
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), -1)
    return f"{name} differs at {at}"


def tables(store: Path) -> dict[str, Any]:
    """What a broker keeps besides the log, as far as slaves follow it, as it is in its files.

    ``timed`` is how many timed messages of each topic wait; ``timer`` how far the master's timer took what was sent (a slave copies that).
    """
    config = store / "config"

    def table(name: str, key: str) -> Any:
        return _whole_table(config / name).get(key) or {}

    timed = table("timermetrics", "timingCount")
    return {
        "topics": dict(_shape(table("topics.json", "topicConfigTable"))),
        "groups": dict(_shape(table("subscriptionGroup.json", "subscriptionGroupTable"))),
        "offsets": _numbers(table("consumerOffset.json", "offsetTable")),
        "delays": {int(k): int(v) for k, v in table("delayOffset.json", "offsetTable").items()},
        "modes": dict(_modes(table("messageRequestMode.json", "messageRequestModeMap"))),
        "timed": {topic: int(found["count"]) for topic, found in timed.items()},
        "timer": _timer(config / "timercheck"),
    }


def _whole_table(path: Path) -> dict[str, Any]:
    """A table of a broker that is running; empty where there is none. Official ones of 5.x write theirs in place, so half of one may be met."""
    found: dict[str, Any] = {}

    def is_whole() -> bool:
        with suppress(BodyError, FileNotFoundError):
            found.update(loads(path.read_bytes()))
            return True
        return not path.exists()

    wait_until(is_whole, f"a whole {path.name}")
    return found


def _timer(checkpoint: Path) -> int:
    """The place in the timer's queue that a master has come to, at the master and as its slave has copied it."""
    if not checkpoint.exists():
        return 0
    # Before it: lastReadTimeMs, lastTimerLogFlushPos, lastTimerQueueOffset.
    (offset,) = _MASTER_TIMER_OFFSET.unpack_from(checkpoint.read_bytes())
    return int(offset)


def _shape(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What both lines say of topics and groups."""
    names = ("readQueueNums", "writeQueueNums", "perm", "order", "consumeEnable", "retryMaxTimes")
    for key, value in table.items():
        yield key, {name: value[name] for name in names if name in value}


def _modes(table: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    for topic, groups in table.items():
        yield topic, {group: (m["mode"], m["popShareQueueNum"]) for group, m in groups.items()}


def _numbers(table: Mapping[str, Mapping[Any, Any]]) -> dict[str, dict[int, int]]:
    return {key: {int(k): int(v) for k, v in queues.items()} for key, queues in table.items()}
