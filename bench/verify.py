"""How fast does ``txrocketmq store verify`` look at a store whose bytes are in memory, and how much memory does it take?

    python -m bench.verify [--gib 1] [--repeats 3]

A store of messages of 1 KiB with unique id and tag is made, so that each message has a queue unit and two index entries. Verified are all of
them. Two processes share the work where there are two processors: one reads the log and the queues, one the log and the index; so the rate by
wall clock is that of the slower one, and CPU says what either of them takes.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from pathlib import Path

import click

from bench.recovery import make_store
from txrocketmq.store.inspect import StoreDirectory
from txrocketmq.store.rebuild import close_store, open_store
from txrocketmq.store.verify import Verifier
from txrocketmq.store.verifyindex import IndexVerifier

TARGET_MB_S = 300


def verify(place: Path, *, with_index: bool) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds of this process, bytes of the log."""
    verifier = Verifier(StoreDirectory(place), print, with_index=with_index)
    wall, cpu = time.perf_counter(), time.process_time()
    if verifier.run():
        raise SystemExit("the store has faults")
    return time.perf_counter() - wall, time.process_time() - cpu, verifier.end_offset


@click.command()
@click.option("--gib", default=1.0, show_default=True)
@click.option("--repeats", default=3, show_default=True)
@click.option("--place", type=click.Path(path_type=Path), help="Where the store is made.")
def main(gib: float, repeats: int, place: Path | None) -> None:
    """Verify a store with index, and each half of that work by itself."""
    place = Path(tempfile.mkdtemp(prefix="verify-", dir=place))
    try:
        source = place / "store"
        count = make_store(source, int(gib * (1 << 30)))
        # The index of a crashed store is made whole, so that there is something to verify.
        close_store(open_store(StoreDirectory(source).config(None)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = verify(source, with_index=True)[2]
        for name, with_index in (("log, queues and index", True), ("log and queues", False)):
            runs = [verify(source, with_index=with_index) for _ in range(repeats)]
            wall, cpu = min(run[0] for run in runs), min(run[1] for run in runs)
            print(
                f"{name:24} {size / wall / 1e6:6.0f} MB/s by the clock, "
                f"{size / cpu / 1e6:6.0f} MB/s of CPU, {cpu / count * 1e6:5.2f} us of CPU a message"
            )
        cpu = time.process_time()
        IndexVerifier(StoreDirectory(source), print).run()
        cpu = time.process_time() - cpu
        print(
            f"{'log and index':24} {'':25} {size / cpu / 1e6:6.0f} MB/s of CPU, {cpu / count * 1e6:5.2f} us of CPU a message"
        )
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"memory: {grown / 1024:.0f} MB more at most, of which mapped files are a part")
        print(f"target: {TARGET_MB_S} MB/s by the clock")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
