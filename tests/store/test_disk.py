"""Do all disks keep the contract of `IDisk` and `IMapping`? One suite; three providers: real, in memory, simulated."""

from __future__ import annotations

import contextlib
import errno
import gc
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from zope.interface.verify import verifyObject

from txrocketmq.errors import StoreError, StoreLockedError
from txrocketmq.interfaces import IDisk, IMapping
from txrocketmq.store.disk import PAGE_BYTES, RealDisk
from txrocketmq.testing.disk import MemoryDisk
from txrocketmq.testing.simdisk import SimulatedDisk

SIZE = 16 * PAGE_BYTES


@dataclass
class Place:
    """A disk and a directory on it."""

    disk: IDisk
    root: str


@pytest.fixture(params=["real", "memory", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield Place(MemoryDisk(), "/store")
        return
    if request.param == "simulated":
        yield Place(SimulatedDisk(Random(0)), "/store")
        return
    disk = RealDisk(fd_limit=4)
    yield Place(disk, str(tmp_path))
    disk.close()


def test_provides_the_interfaces(place: Place) -> None:
    verifyObject(IDisk, place.disk)
    mapping = place.disk.map(f"{place.root}/a", SIZE, True)
    verifyObject(IMapping, mapping)
    mapping.close()


def test_a_mapped_file_has_its_full_length_and_no_blocks(place: Place) -> None:
    path = f"{place.root}/commitlog/a"
    mapping = place.disk.map(path, SIZE, True)
    assert (mapping.size, len(mapping.buffer), place.disk.size(path)) == (SIZE, SIZE, SIZE)
    assert mapping.allocated_to() == 0
    mapping.close()


@pytest.mark.parametrize("warm", [False, True])
def test_allocation_grows_by_whole_pages_up_to_the_end(place: Place, warm: bool) -> None:
    mapping = place.disk.map(f"{place.root}/a", SIZE, True)
    mapping.allocate(1, warm)
    assert mapping.allocated_to() == PAGE_BYTES
    mapping.allocate(10, warm)
    assert mapping.allocated_to() == PAGE_BYTES
    mapping.allocate(SIZE * 2, warm)
    assert mapping.allocated_to() == SIZE
    mapping.close()


@pytest.mark.parametrize("warm", [False, True])
def test_allocation_keeps_what_is_in_the_file(place: Place, warm: bool) -> None:
    path = f"{place.root}/a"
    place.disk.create(path, SIZE)
    place.disk.write_at(path, 5 * PAGE_BYTES, b"keep me")
    mapping = place.disk.map(path, SIZE, False)
    mapping.allocate(SIZE, warm)
    mapping.close()
    expected = bytes(5 * PAGE_BYTES) + b"keep me"
    assert place.disk.read_file(path) == expected.ljust(SIZE, b"\0")


def test_writes_through_a_mapping_are_read_through_the_file_and_back(place: Place) -> None:
    path = f"{place.root}/a"
    mapping = place.disk.map(path, SIZE, True)
    mapping.allocate(2 * PAGE_BYTES, True)
    mapping.buffer[100:105] = b"hello"
    assert place.disk.read_at(path, 99, 7) == b"\0hello\0"
    assert place.disk.read_ready(path, 100, 5) == b"hello"
    place.disk.write_at(path, 100, b"HE")
    assert bytes(mapping.buffer[100:105]) == b"HEllo"
    mapping.sync(0, 105)
    mapping.close()
    again = place.disk.map(path, SIZE, False)
    assert bytes(again.buffer[100:105]) == b"HEllo"
    assert again.allocated_to() >= PAGE_BYTES
    again.close()


def test_a_file_of_another_length_is_not_mapped(place: Place) -> None:
    path = f"{place.root}/a"
    place.disk.create(path, SIZE)
    with pytest.raises(StoreError, match=rf"{SIZE} bytes, expected {SIZE * 2}"):
        place.disk.map(path, SIZE * 2, False)
    with pytest.raises(StoreError):
        place.disk.map(path, SIZE * 2, True)
    with pytest.raises(FileNotFoundError):
        place.disk.map(f"{place.root}/b", SIZE, False)


def test_create_keeps_a_file_that_is_there(place: Place) -> None:
    path = f"{place.root}/deep/down/a"
    place.disk.create(path, 10)
    place.disk.write_at(path, 3, b"x")
    place.disk.create(path, 10)
    assert place.disk.read_file(path) == bytes(3) + b"x" + bytes(6)


def test_reads_end_at_the_end_of_the_file(place: Place) -> None:
    path = f"{place.root}/a"
    place.disk.create(path, 10)
    assert place.disk.read_at(path, 6, 100) == bytes(4)
    assert place.disk.read_ready(path, 6, 100) == bytes(4)
    assert place.disk.read_at(path, 60, 100) == b""
    with pytest.raises(FileNotFoundError):
        place.disk.read_at(f"{place.root}/b", 0, 1)


def test_write_at_extends_a_file(place: Place) -> None:
    path = f"{place.root}/a"
    place.disk.create(path, 2)
    place.disk.write_at(path, 4, bytearray(b"yz"))
    assert place.disk.read_file(path) == bytes(4) + b"yz"
    with pytest.raises(FileNotFoundError):
        place.disk.write_at(f"{place.root}/b", 0, b"x")


def test_zero_from_leaves_what_is_before_and_the_length(place: Place) -> None:
    path = f"{place.root}/a"
    place.disk.create(path, SIZE)
    for page in (0, 1, 5, 15):
        place.disk.write_at(path, page * PAGE_BYTES, b"x" * PAGE_BYTES)
    place.disk.zero_from(path, PAGE_BYTES + 7)
    assert place.disk.read_file(path) == (b"x" * (PAGE_BYTES + 7)).ljust(SIZE, b"\0")


def test_holes_can_be_passed_over(place: Place) -> None:
    path = f"{place.root}/a"
    place.disk.create(path, SIZE)
    assert place.disk.next_data(path, 0) == SIZE
    place.disk.write_at(path, 5 * PAGE_BYTES + 7, b"x")
    assert place.disk.next_data(path, 3) == 5 * PAGE_BYTES
    assert place.disk.next_data(path, 5 * PAGE_BYTES + 9) == 5 * PAGE_BYTES + 9
    assert place.disk.next_data(path, 6 * PAGE_BYTES) == SIZE
    assert place.disk.next_data(path, SIZE + 5) == SIZE


def test_more_files_than_cached_descriptors(place: Place) -> None:
    paths = [f"{place.root}/{number}" for number in range(12)]
    for number, path in enumerate(paths):
        place.disk.create(path, 4)
        place.disk.write_at(path, 0, str(number).encode())
    for number, path in enumerate(paths):
        assert place.disk.read_at(path, 0, 4).rstrip(b"\0") == str(number).encode()
        place.disk.sync_file(path)
    place.disk.sync_directory(place.root)
    place.disk.sync_all(place.root)


def test_replaced_file_is_new_and_the_old_one_is_the_backup(place: Place) -> None:
    path = f"{place.root}/config/topics.json"
    place.disk.replace_file(path, b"one", True)
    assert place.disk.read_file(path) == b"one"
    assert not place.disk.exists(path + ".bak")
    assert place.disk.read_at(path, 0, 10) == b"one"
    place.disk.replace_file(path, b"two", True)
    place.disk.replace_file(path, b"three", True)
    place.disk.replace_file(path, b"four", False)
    assert place.disk.read_at(path, 0, 10) == b"four"
    assert place.disk.read_file(path + ".bak") == b"two"
    assert place.disk.listdir(f"{place.root}/config") == ["topics.json", "topics.json.bak"]


def test_a_deleted_file_is_gone_even_when_it_was_just_read(place: Place) -> None:
    path = f"{place.root}/a"
    place.disk.create(path, 4)
    place.disk.write_at(path, 0, b"old")
    assert place.disk.read_at(path, 0, 3) == b"old"
    place.disk.remove(path)
    place.disk.remove(path)
    assert not place.disk.exists(path)
    with pytest.raises(FileNotFoundError):
        place.disk.read_at(path, 0, 3)
    place.disk.create(path, 4)
    assert place.disk.read_at(path, 0, 3) == bytes(3)


def test_directories(place: Place) -> None:
    disk, root = place.disk, place.root
    assert disk.listdir(f"{root}/consumequeue") == []
    disk.makedirs(f"{root}/consumequeue/TopicB/0")
    disk.makedirs(f"{root}/consumequeue/TopicB/0")
    disk.create(f"{root}/consumequeue/TopicA/3/{0:020d}", 20)
    assert disk.listdir(f"{root}/consumequeue") == ["TopicA", "TopicB"]
    assert disk.listdir(f"{root}/consumequeue/TopicA/3/{0:020d}") == []
    assert disk.exists(f"{root}/consumequeue/TopicB")
    disk.rmtree(f"{root}/consumequeue/TopicA")
    disk.rmtree(f"{root}/consumequeue/TopicA")
    assert disk.listdir(f"{root}/consumequeue") == ["TopicB"]


def test_truncate_cuts_and_extends_with_zeros(place: Place) -> None:
    path = f"{place.root}/a"
    place.disk.create(path, 8)
    place.disk.write_at(path, 0, b"12345678")
    place.disk.truncate(path, 3)
    assert place.disk.size(path) == 3
    place.disk.truncate(path, 8)
    assert place.disk.read_file(path) == b"123" + bytes(5)


def test_usage_says_used_of_total(place: Place) -> None:
    used, total = place.disk.usage(f"{place.root}/not/made/yet")
    assert 0 <= used <= total
    assert total > 0


def test_the_lock_excludes_a_second_owner_until_it_is_released(place: Place) -> None:
    lock: Any
    second: Any
    path = f"{place.root}/lock"
    lock = place.disk.lock(path)
    with pytest.raises(StoreLockedError, match="lock"):
        place.disk.lock(path)
    lock.release()
    lock.release()
    second = place.disk.lock(path)
    second.release()
    assert place.disk.read_file(path) == b"lock"


# --------------------------------------------------------------------------- the memory disk's own promises


def test_memory_disk_refuses_blocks_beyond_its_capacity() -> None:
    disk = MemoryDisk(capacity_bytes=4 * PAGE_BYTES)
    mapping = disk.map("/a", SIZE, True)
    mapping.allocate(3 * PAGE_BYTES)
    with pytest.raises(OSError, match="No space") as caught:
        mapping.allocate(SIZE)
    assert caught.value.errno == errno.ENOSPC
    assert mapping.allocated_to() == 3 * PAGE_BYTES
    disk.create("/b", 10)
    disk.write_at("/b", 0, b"fits")
    with pytest.raises(OSError, match="No space"):
        disk.write_at("/b", PAGE_BYTES, b"does not")


def test_memory_disk_loses_what_was_not_synced() -> None:
    disk = MemoryDisk()
    mapping = disk.map("/a", SIZE, True)
    mapping.allocate(SIZE)
    mapping.buffer[0:3] = b"abc"
    mapping.sync(0, 3)
    mapping.buffer[PAGE_BYTES : PAGE_BYTES + 3] = b"def"
    disk.crash()
    assert disk.read_at("/a", 0, 3) == b"abc"
    assert disk.read_at("/a", PAGE_BYTES, 3) == bytes(3)


# --------------------------------------------------------------------------- the real disk's own promises

_LOCK_ELSEWHERE = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        print("excluded")
    else:
        print("got it")
"""


def _elsewhere(path: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _LOCK_ELSEWHERE, path], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_lock_excludes_another_process_as_javas_does(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = RealDisk().lock(path)
    assert _elsewhere(path) == "excluded"
    lock.release()
    assert _elsewhere(path) == "got it"


def test_another_process_excludes_us(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\n"
            "fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)\nprint('held', flush=True)\nsys.stdin.read()",
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(StoreLockedError, match="another broker"):
        RealDisk().lock(str(path))
    holder.communicate()
    RealDisk().lock(str(path)).release()


def test_an_unwritable_place_is_no_locked_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        RealDisk().lock(str(tmp_path / "file" / "lock"))


def test_blocks_are_really_there_after_allocation(tmp_path: Path) -> None:
    path = tmp_path / "a"
    mapping = RealDisk().map(str(path), SIZE, True)
    assert path.stat().st_blocks == 0
    mapping.allocate(4 * PAGE_BYTES)
    assert path.stat().st_blocks * 512 >= 4 * PAGE_BYTES
    mapping.close()


def test_descriptors_do_not_pile_up(tmp_path: Path) -> None:
    disk = RealDisk(fd_limit=4)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(50):
        disk.create(str(tmp_path / str(number)), 4)
        disk.write_at(str(tmp_path / str(number)), 0, b"x")
        mapping = disk.map(str(tmp_path / f"m{number}"), PAGE_BYTES, True)
        mapping.close()
        mapping.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    disk.close()
    assert len(os.listdir("/proc/self/fd")) == before


_ALLOCATE_OVER_A_LIMIT = """
import resource, signal, sys
from txrocketmq.store.disk import RealDisk
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
mapping = RealDisk().map(sys.argv[1], 1 << 20, True)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
mapping.allocate(1 << 16, True)
mapping.buffer[: 1 << 16] = b"x" * (1 << 16)
try:
    mapping.allocate(1 << 20, True)
except OSError as error:
    print(error.errno, mapping.allocated_to())
"""


def test_an_allocation_that_fails_says_why_and_publishes_nothing(tmp_path: Path) -> None:
    """A file size limit stands for the full disk, which needs a disk of its own: see bench/physics.py for that one."""
    done = subprocess.run(
        [sys.executable, "-c", _ALLOCATE_OVER_A_LIMIT, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(errno.EFBIG), str(1 << 16)]


def test_a_sync_asks_the_system_for_what_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power failure takes cannot be seen from here; that the system was asked can."""
    asked: list[tuple[Any, ...]] = []

    class Watched(mmap.mmap):
        def flush(self, *arguments: int) -> None:
            asked.append(("msync", *arguments))
            super().flush(*arguments)

    def watch(name: str) -> None:
        real = getattr(os, name)

        def call(fd: int) -> None:
            asked.append((name, os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))
            real(fd)

        monkeypatch.setattr(os, name, call)

    monkeypatch.setattr(mmap, "mmap", Watched)
    watch("fsync")
    watch("fdatasync")
    disk = RealDisk()
    (tmp_path / "log").mkdir()
    mapping = disk.map(f"{tmp_path}/log/file", SIZE, True)
    assert asked == [("fdatasync", "file"), ("fsync", "log")]
    asked.clear()
    mapping.sync(PAGE_BYTES + 7, 3 * PAGE_BYTES + 1)
    assert asked == [("msync", PAGE_BYTES, 2 * PAGE_BYTES + 1)]
    mapping.close()
    asked.clear()
    disk.replace_file(f"{tmp_path}/log/table.json", b"{}", True)
    assert asked == [("fsync", "table.json.tmp"), ("fsync", "log")]
    disk.close()


def test_a_sync_of_some_bytes_writes_no_great_part_of_what_was_made_ready(tmp_path: Path) -> None:
    mapping = RealDisk().map(str(tmp_path / "log"), 8 << 20, True)
    mapping.allocate(8 << 20, True)
    mapping.sync(0, 8 << 20)

    def written() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))

    before = written()
    mapping.buffer[5 << 20 : (5 << 20) + 100] = bytes(range(100))
    mapping.sync(5 << 20, (5 << 20) + 100)
    # Nothing at all where the file system is memory.
    assert written() - before <= 128 * 1024
    mapping.close()


def test_files_below_a_directory_are_not_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For files that are open and files to come; nothing else is told."""
    advice: list[tuple[str, int]] = []

    def note(fd: int, offset: int, size: int, what: int) -> None:
        assert (offset, size) == (0, 0)
        advice.append((os.path.basename(os.readlink(f"/proc/self/fd/{fd}")), what))

    monkeypatch.setattr(os, "posix_fadvise", note)
    disk, log = RealDisk(), tmp_path / "commitlog"
    log.mkdir()
    for path in (log / "one", log / "two", tmp_path / "other"):
        path.write_bytes(b"x")
    disk.read_at(str(log / "one"), 0, 1)
    disk.set_read_ahead(str(log), False)
    disk.read_at(str(log / "two"), 0, 1)
    disk.read_at(str(tmp_path / "other"), 0, 1)
    assert advice == [("one", os.POSIX_FADV_RANDOM), ("two", os.POSIX_FADV_RANDOM)]
    advice.clear()
    disk.set_read_ahead(str(log), True)
    assert sorted(advice) == [("one", os.POSIX_FADV_NORMAL), ("two", os.POSIX_FADV_NORMAL)]
    disk.close()


def test_a_disk_that_nobody_has_any_more_holds_no_files_open(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    disk = RealDisk()
    disk.create(path, 100)
    assert disk.read_at(path, 0, 100) == bytes(100)
    assert path in open_files()
    del disk
    gc.collect()
    assert path not in open_files()


def open_files() -> list[str]:
    """The paths of all descriptors of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found
