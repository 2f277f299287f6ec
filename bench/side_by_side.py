"""Is ours as quick as the official one? Both pairs under the same Java load, in turn, and the ratios as a table.

    python -m bench.side_by_side                     everything, 3 runs; writes docs/performance.md
    python -m bench.side_by_side --cells sync-16-1k,drain --repeats 5
    python -m bench.side_by_side --quick             short loads, to see that it works
    python -m bench.side_by_side --cells async --profile FILE    our broker under cProfile (its figures are not comparable then)

Needs the official jars (`interop/setup`). The official pair is release 5.4.0 with a 2 GB heap for the broker; both pairs are warmed
up, use the same settings and the same disk, and while one is measured the other is stopped. `bench/README.md` explains the rows.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from bench import cells, figures
from bench.pairs import OFFICIAL_LINE, OfficialPair, OurPair, Pair
from interop.harness.jvm import JvmSlots
from interop.harness.puppet import Puppet

CLIENT_FLAGS = ("-server", "-XX:+UseParallelGC", "-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
WARM_UP_S = 20
MEMORY_KEY = "memory"


class Bench:
    """One run of the harness.

    :param directory: where both pairs keep their stores.
    """

    def __init__(self, options: argparse.Namespace, puppet: Puppet, directory: Path) -> None:
        self._options = options
        self._puppet = puppet
        self._directory = directory
        self._effort = cells.QUICK if options.quick else cells.FULL
        self.commit = figures.commit_id()
        self._taken: dict[str, dict[str, list[cells.Figure]]] = {}

    def run(self) -> None:
        """Measure all cells that were asked for; `lines` has the results, also after a failure."""
        wanted = self._options.cells
        if cells.START.key in wanted:
            self._measure_starts()
        loads = [cell for cell in cells.CELLS if cell.key in wanted]
        if loads or MEMORY_KEY in wanted:
            self._measure_loads(loads)

    def lines(self) -> list[figures.Line]:
        """What was measured on both sides."""
        rows = [row for cell in cells.CELLS for row in cell.rows]
        rows += [*cells.START.rows, cells.MEMORY]
        lines = []
        for row in rows:
            taken = self._taken.get(row.key, {"official": [], "ours": []})
            runs = min(map(len, taken.values()))
            if runs:
                lines.append(figures.Line(row, taken["official"][:runs], taken["ours"][:runs]))
        return lines

    def _stage(self, pair: Pair, run: int) -> cells.Stage:
        return cells.Stage(self._puppet, pair, self._effort, os.cpu_count() or 1, run)

    def _keep(self, pair: Pair, taken: cells.Figures) -> None:
        for key, figure in taken.items():
            self._taken.setdefault(key, {"official": [], "ours": []})[pair.name].append(figure)
            extra = "" if figure.cpu_us is None else f", {figure.cpu_us:.1f} µs CPU/message"
            print(f"  {key:14} {pair.name:9} {figure.value:12,.2f}{extra}", flush=True)

    def _measure_starts(self) -> None:
        makers: Sequence[Callable[[Path], Pair]] = (OfficialPair, OurPair)
        # The first start of each reads its files from the disk and is not counted.
        for run in range(self._options.repeats + 1):
            for make in makers:
                pair = make(self._directory / "start")
                try:
                    taken = cells.first_send(self._stage(pair, run))
                finally:
                    pair.close()
                if run:
                    self._keep(pair, taken)

    def _measure_loads(self, loads: Sequence[cells.Cell]) -> None:
        settings = {"flushDiskType": self._options.flush}
        pairs: list[Pair] = [
            OfficialPair(self._directory / "official", settings),
            OurPair(self._directory / "ours", settings, self._options.profile),
        ]
        try:
            for pair in pairs:
                print(f"warming up: {pair.name}", flush=True)
                pair.start()
                pair.wait_listening()
                stage = self._stage(pair, 0)
                cells.prepare(stage)
                cells.warm_up(stage, 2 if self._options.quick else WARM_UP_S)
                pair.freeze()
            for run in range(1, self._options.repeats + 1):
                for cell in loads:
                    for pair in pairs if run % 2 else reversed(pairs):
                        pair.thaw()
                        try:
                            self._keep(pair, cell.measure(self._stage(pair, run)))
                        finally:
                            pair.freeze()
            for pair in pairs:
                for role, rss_bytes in pair.rss_anon_bytes().items():
                    print(f"  RssAnon of {pair.name} {role}: {rss_bytes / 1e6:.1f} MB")
                total = sum(pair.rss_anon_bytes().values())
                self._keep(pair, {MEMORY_KEY: cells.Figure(total / 1e6)})
        except BaseException as failure:
            for pair in pairs:
                failure.add_note(pair.logs())
            raise
        finally:
            for pair in pairs:
                pair.close()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    known = [*(cell.key for cell in cells.CELLS), cells.START.key, MEMORY_KEY]
    parser = argparse.ArgumentParser(
        prog="python -m bench.side_by_side", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--cells", help=f"comma-separated, of {', '.join(known)} (default: all)", default=""
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="short loads; writes nothing")
    parser.add_argument("--serialize", choices=("JSON", "ROCKETMQ"), default="JSON")
    parser.add_argument(
        "--flush",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
        default="ASYNC_FLUSH",
        help="of both brokers",
    )
    parser.add_argument("--profile", type=Path, help="file for our broker's cProfile statistics")
    parser.add_argument(
        "--directory", type=Path, help="where stores are kept meanwhile (default: temporary files)"
    )
    options = parser.parse_args(arguments)
    options.cells = [word for word in options.cells.split(",") if word] or known
    unknown = set(options.cells) - set(known)
    if unknown:
        parser.error(f"unknown cells {sorted(unknown)}; there are {', '.join(known)}")
    is_plain = not options.quick and not options.profile and options.flush == "ASYNC_FLUSH"
    options.is_whole = options.cells == known and is_plain
    options.profile = options.profile and options.profile.absolute()
    return options


def end(number: int, frame: object) -> NoReturn:
    """Ended from outside, it still ends what it started: some of that is stopped and would stay for ever."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and write the page when everything was measured; 1 when a target is missed."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, end)
    directory = Path(tempfile.mkdtemp(prefix="txrocketmq-bench-", dir=options.directory))
    puppet = Puppet(JvmSlots(), OFFICIAL_LINE, options.serialize, flags=CLIENT_FLAGS)
    bench = Bench(options, puppet, directory)
    try:
        bench.run()
    finally:
        puppet.close()
        shutil.rmtree(directory, ignore_errors=True)
        lines = bench.lines()
        print("\n".join(["", *figures.table(lines), "", *figures.failures(lines)]))
    if options.is_whole:
        command = shlex.join(["python", "-m", "bench.side_by_side", *arguments])
        figures.write_page(lines, command, options.repeats, bench.commit)
        print(f"wrote {figures.PAGE.relative_to(figures.ROOT)}")
    return 0 if all(line.is_met for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
