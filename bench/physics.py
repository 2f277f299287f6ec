"""What do a disk and its page cache do to a log that is written from one thread? The figures behind docs/architecture.md.

Run it as ``python bench/physics.py [DIRECTORY]`` on the file system that is to be judged. It needs 1.5 GiB there for a while,
takes about a minute, and mounts a tmpfs of 4 MiB where it may (root) to show what a full disk does.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from txrocketmq.store.disk import RealDisk, RealMapping

MIB = 1 << 20
GIB = 1 << 30
RECORD = os.urandom(1200)
SIZE = len(RECORD)
RECORDS = 100_000
SPAN = RECORDS * SIZE // mmap.PAGESIZE * mmap.PAGESIZE + 2 * mmap.PAGESIZE

now = time.perf_counter_ns


def title(text: str) -> None:
    print(f"\n{text}")


def line(name: str, value: str) -> None:
    print(f"  {name:<58} {value}")


@contextlib.contextmanager
def fresh(place: Path, size: int, allocated: bool) -> Iterator[int]:
    """A new file of this length, with or without its blocks."""
    path = place / "probe"
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, size)
        if allocated:
            os.posix_fallocate(fd, 0, size)
        yield fd
    finally:
        os.close(fd)
        path.unlink()


def copy_records(view: memoryview) -> float:
    """Microseconds for one record."""
    start, position = now(), 0
    for _ in range(RECORDS):
        view[position : position + SIZE] = RECORD
        position += SIZE
    return (now() - start) / RECORDS / 1e3


def write_records(fd: int) -> float:
    start, position = now(), 0
    for _ in range(RECORDS):
        os.pwrite(fd, RECORD, position)
        position += SIZE
    return (now() - start) / RECORDS / 1e3


def cost_of_a_record(place: Path) -> None:
    title(f"One record of {SIZE} bytes, us")
    for allocated in (True, False):
        with fresh(place, SPAN, allocated) as fd, mmap.mmap(fd, SPAN) as mapped:
            view = memoryview(mapped)
            kind = "allocated blocks" if allocated else "a hole"
            line(f"copy into a mapping, first touch of {kind}", f"{copy_records(view):.2f}")
            line("copy into a mapping, pages there", f"{copy_records(view):.2f}")
            view.release()
    with fresh(place, SPAN, True) as fd:
        mapping = RealMapping(str(place / "probe"), os.dup(fd), SPAN)
        start = now()
        mapping.allocate(SPAN, True)
        per_page = (now() - start) / (SPAN / mmap.PAGESIZE) / 1e3
        line("making a page ready by a plain write of zeros (per page)", f"{per_page:.2f}")
        line("copy into a mapping that was made ready so", f"{copy_records(mapping.buffer):.2f}")
        start = now()
        mapping.close()
        line(f"unmapping {SPAN // MIB} MiB (all in all)", f"{(now() - start) / 1e3:.0f}")
    with fresh(place, SPAN, False) as fd:
        line("pwrite into a hole", f"{write_records(fd):.2f}")
        line("pwrite over pages that are there", f"{write_records(fd):.2f}")
    with fresh(place, SPAN, False) as fd:
        batch, start, position = [RECORD] * 16, now(), 0
        for _ in range(RECORDS // 16):
            os.pwritev(fd, batch, position)
            position += 16 * SIZE
        line("pwritev of 16 into a hole (per record)", f"{(now() - start) / RECORDS / 1e3:.2f}")


def cost_of_blocks(place: Path) -> None:
    title("Blocks for 1 GiB, us")
    for chunk in (GIB, 64 * MIB, 4 * MIB):
        with fresh(place, GIB, False) as fd:
            times = []
            for offset in range(0, GIB, chunk):
                start = now()
                os.posix_fallocate(fd, offset, chunk)
                times.append((now() - start) / 1e3)
            line(
                f"posix_fallocate in steps of {chunk // MIB} MiB",
                f"{sum(times):.0f} in all, slowest step {max(times):.0f}",
            )
    disk = RealDisk()
    mapping = disk.map(str(place / "probe"), 64 * MIB, True)
    times = []
    for end in range(4 * MIB, 64 * MIB + 1, 4 * MIB):
        start = now()
        mapping.allocate(end, True)
        times.append((now() - start) / 1e3)
    line("4 MiB allocated and warmed", f"{sum(times) / len(times):.0f}, slowest {max(times):.0f}")
    mapping.close()
    disk.remove(str(place / "probe"))


class Stalls:
    """A paced writer beside a thread that syncs without pause: what does the writer feel?"""

    SECONDS = 3
    RATE = 60 * 1000 * 1000
    FILE = 512 * MIB
    READY_AHEAD = 32 * MIB
    CHUNK = 4 * MIB

    def __init__(self, place: Path, how: str, sync: str) -> None:
        self.how, self.sync = how, sync
        self.position = 0
        self.stop = False
        self.syncs = 0
        self.disk = RealDisk()
        self.path = str(place / "probe")
        self.mapping = self.disk.map(self.path, self.FILE, True)
        if how == "mapping, cold":
            self.mapping.allocate(self.FILE)
        elif how == "mapping, ready ahead":
            self.mapping.allocate(self.READY_AHEAD, True)
        self.fd = os.open(self.path, os.O_RDWR)

    def run(self) -> None:
        jobs = [self.sync_on] if self.sync != "nothing" else []
        if self.how == "mapping, ready ahead":
            jobs.append(self.ready_ahead)
        threads = [threading.Thread(target=job) for job in jobs]
        for thread in threads:
            thread.start()
        times = sorted(self.write())
        self.stop = True
        for thread in threads:
            thread.join()
        os.close(self.fd)
        self.mapping.close()
        self.disk.remove(self.path)
        parts = [sum(times) / len(times), *(times[len(times) * n // 1000] for n in (990, 999))]
        text = "".join(f"{part / 1e3:>9.2f}" for part in parts) + f"{times[-1] / 1e3:>9.0f}"
        slow = sum(value > 1e6 for value in times)
        print(f"  {self.how:<22} {self.sync:<10}{text}{slow:>8}{self.syncs:>8}")

    def write(self) -> list[int]:
        times: list[int] = []
        buffer, begin = self.mapping.buffer, now()
        while now() - begin < self.SECONDS * 1e9 and self.position + 64 * SIZE < self.FILE:
            for _ in range(32):
                position, start = self.position, now()
                if self.how == "pwrite":
                    os.pwrite(self.fd, RECORD, position)
                else:
                    buffer[position : position + SIZE] = RECORD
                times.append(now() - start)
                self.position = position + SIZE
            ahead = begin + self.position / self.RATE * 1e9 - now()
            if ahead > 0:
                time.sleep(ahead / 1e9)
        return times

    def sync_on(self) -> None:
        done = 0
        while not self.stop:
            end = self.position
            if self.sync == "fdatasync":
                os.fdatasync(self.fd)
            else:
                self.mapping.sync(done, end)
            done = end
            self.syncs += 1
            time.sleep(0.001)

    def ready_ahead(self) -> None:
        while not self.stop:
            end = self.mapping.allocated_to()
            if end < self.position + self.READY_AHEAD:
                self.mapping.allocate(end + self.CHUNK, True)
            else:
                time.sleep(0.001)


def stalls(place: Path) -> None:
    title("A writer at 60 MB/s (50,000 records/s) beside a thread that syncs all the time, us")
    print(
        f"  {'writing by':<22} {'sync by':<10}{'mean':>9}{'p99':>9}{'p99.9':>9}{'max':>9}{'>1 ms':>8}{'syncs':>8}"
    )
    for sync in ("nothing", "fdatasync", "msync"):
        for how in ("mapping, cold", "mapping, ready ahead", "pwrite"):
            if (how, sync) != ("pwrite", "msync"):
                Stalls(place, how, sync).run()


def in_child(work: Callable[[], str]) -> str:
    """What a forked child says, or the signal that ended it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.write(writer, work().encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else said


def full_disk(place: Path) -> None:
    title("A full disk (tmpfs of 4 MiB, file of 8 MiB)")
    mount = place / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        line("not shown", "mounting needs root")
        return

    def touch_holes() -> str:
        with open(mount / "a", "w+b") as file:
            file.truncate(8 * MIB)
            mapped = mmap.mmap(file.fileno(), 8 * MIB)
            for offset in range(0, 8 * MIB, mmap.PAGESIZE):
                mapped[offset] = 1
        return "nothing"

    def allocate_first() -> str:
        mapping = RealDisk().map(str(mount / "b"), 8 * MIB, True)
        mapping.allocate(3 * MIB, True)
        try:
            mapping.allocate(6 * MIB, True)
        except OSError as error:
            mapping.buffer[: 3 * MIB] = bytes(3 * MIB)
            return f"{error}; the 3 MiB before stay writable"
        return "nothing"

    def write_plainly() -> str:
        try:
            with open(mount / "c", "wb", buffering=0) as file:
                for _ in range(8):
                    if file.write(bytes(MIB)) < MIB:
                        return "a short write, then ENOSPC"
        except OSError as error:
            return str(error)
        return "nothing"

    for name, work in (
        ("mapped writes into holes", touch_holes),
        ("allocation before mapped writes", allocate_first),
        ("plain writes", write_plainly),
    ):
        line(name, in_child(work))
        for path in mount.iterdir():
            path.unlink()
    subprocess.run(["umount", str(mount)], check=True)


def many_files(place: Path) -> None:
    count, size, unit = 2000, 6_000_000, b"u" * 20
    title(f"{count} consume queue files of {size} bytes, us for each")
    limit = Path("/proc/sys/vm/max_map_count").read_text().strip()
    line("mappings that a process may have (vm.max_map_count)", limit)
    names = [str(place / f"queue{number}") for number in range(count)]

    def each(name: str, work: Callable[[int], object]) -> None:
        start = now()
        for number in range(count):
            work(number)
        line(name, f"{(now() - start) / count / 1e3:.2f}")

    def put(number: int, data: bytes, offset: int) -> None:
        fd = os.open(names[number], os.O_RDWR)
        os.pwrite(fd, data, offset)
        os.close(fd)

    disk = RealDisk(fd_limit=512)
    each("make (sparse)", lambda number: disk.create(names[number], size))
    each("open, pwrite of 20 bytes into a hole, close", lambda number: put(number, unit, 0))
    each("open, pwrite of 50 units, close", lambda number: put(number, unit * 50, 20))
    fds = [os.open(name, os.O_RDWR) for name in names]
    each("pwrite of 20 bytes, open before", lambda number: os.pwrite(fds[number], unit, 4020))
    before = len(os.listdir("/proc/self/fd"))
    maps = []
    each("map", lambda number: maps.append(mmap.mmap(fds[number], size)))
    held = (len(os.listdir("/proc/self/fd")) - before) / count
    each("20 bytes into a mapping, first touch", lambda number: copy_unit(maps[number], unit, 4040))
    each("20 bytes into a mapping, again", lambda number: copy_unit(maps[number], unit, 4060))
    each("unmap", lambda number: maps[number].close())
    line("descriptors that a Python mapping holds besides its file's", f"{held:.0f}")
    tail = bytearray()
    each("20 bytes into a bytearray in memory", lambda _: tail.extend(unit))
    each("read of 640 bytes, preadv(RWF_NOWAIT)", lambda number: read_ready(fds[number], 640))
    for fd, name in zip(fds, names, strict=True):
        os.close(fd)
        os.unlink(name)


def copy_unit(mapped: mmap.mmap, unit: bytes, offset: int) -> None:
    mapped[offset : offset + len(unit)] = unit


def read_ready(fd: int, size: int) -> int:
    return os.preadv(fd, [bytearray(size)], 0, os.RWF_NOWAIT)


def memory(place: Path) -> None:
    title("Resident memory after 256 MiB through a mapping, kB more than before")

    def rss() -> dict[str, int]:
        status = Path("/proc/self/status").read_text().splitlines()
        return {item.split(":")[0]: int(item.split()[1]) for item in status if "Rss" in item}

    with fresh(place, 256 * MIB, True) as fd, mmap.mmap(fd, 256 * MIB) as mapped:
        before = rss()
        for offset in range(0, 256 * MIB, MIB):
            mapped[offset : offset + MIB] = bytes(MIB)
        after = rss()
    for name in ("RssAnon", "RssFile"):
        line(name, str(after[name] - before[name]))


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else None
    place = Path(tempfile.mkdtemp(prefix="physics-", dir=base))
    print(f"Linux {os.uname().release}, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}")
    try:
        cost_of_a_record(place)
        cost_of_blocks(place)
        stalls(place)
        full_disk(place)
        many_files(place)
        memory(place)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
