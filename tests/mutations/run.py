"""Do the tests notice faults? ``python -m tests.mutations.run [NAME...] [--area AREA]``

Works on a copy of the package and its tests in a temporary directory; the tree itself is never touched. First the named tests
run as they are (a test that fails anyway proves nothing), then once for each mutation. Exit code 1 when a mutation survives, is
stale (its passage is not in the file exactly once) or leaves code that cannot be imported.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.catalog import ROOT, Mutation, StaleMutation, load_mutations

COPIED = (
    *("txrocketmq", "tests", "twisted", "bench", "docs", "scripts"),
    *("pyproject.toml", "hatch_build.py", "README.md"),
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "interop", ".hypothesis", "*.pyc")

#: Seconds that one test, and one run, may take: a fault that makes a test hang is noticed by the first, one that leaves threads
#: behind by the second.
TEST_TIMEOUT_S = 60
RUN_TIMEOUT_S = 120

KILLED, SURVIVED, STALE, BROKEN = "killed", "survived", "stale", "broken"
#: pytest's exit codes; and ours for a run that did not end.
_PASSED, _FAILED, _ENDLESS = 0, 1, -1


#: Exit code and output of a run of pytest.
Run = tuple[int, str]


class Bench:
    """A copy of the tree on which faults are tried one after the other."""

    def __init__(self, root: Path) -> None:
        self._root = root
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=LEFT_OUT)
            elif source.exists():
                shutil.copy2(source, root / name)
        # Compiled once: only the file with the fault is compiled again in each run.
        subprocess.run(
            [sys.executable, "-m", "compileall", "-q", "txrocketmq", "tests"], cwd=root, check=True
        )

    def pytest(self, tests: Sequence[str], *options: str, timeout_s: float | None = None) -> Run:
        """Run tests of the copy; pytest's exit code and output."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
        command += [f"--timeout={TEST_TIMEOUT_S}", *options, *tests]
        environment = {**os.environ, "PYTHONPATH": str(self._root), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command,
                cwd=self._root,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return _ENDLESS, ""
        return done.returncode, done.stdout

    def _build(self) -> str:
        """Compile the copy's extension; why it cannot be."""
        command = [sys.executable, "hatch_build.py"]
        done = subprocess.run(command, cwd=self._root, capture_output=True, text=True, check=False)
        return done.stderr[-200:]

    def check(self, mutations: Sequence[Mutation]) -> str:
        """Why the tests say nothing even without a fault; empty when they pass."""
        tests = sorted({test for mutation in mutations for test in mutation.tests})
        whole = {test for test in tests if "::" not in test}
        chosen = [test for test in tests if test in whole or test.partition("::")[0] not in whole]
        code, output = self.pytest(chosen, "--tb=line")
        return "" if code == _PASSED else output[-2000:]

    def judge(self, mutation: Mutation) -> tuple[str, str]:
        """What becomes of a fault, and by which test or for what reason."""
        path = self._root / mutation.file
        original = path.read_text()
        try:
            mutated = mutation.apply(original)
        except StaleMutation as error:
            return STALE, str(error)
        status = path.stat()
        path.write_text(mutated)
        is_compiled = path.suffix in (".c", ".h")
        try:
            if is_compiled and (reason := self._build()):
                return BROKEN, reason
            code, output = self.pytest(mutation.tests, "-x", "--tb=no", timeout_s=RUN_TIMEOUT_S)
        finally:
            path.write_text(original)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            if is_compiled:
                self._build()
        if code == _PASSED:
            return SURVIVED, mutation.fault
        # A fault in C may take the process with it.
        if code not in (_FAILED, _ENDLESS) and not (is_compiled and code < 0):
            return BROKEN, " ".join(output.split())[-200:]
        return KILLED, first_failure(output)


def first_failure(output: str) -> str:
    """The test that failed, from pytest's summary."""
    for line in output.splitlines():
        if line.startswith("FAILED "):
            return line.removeprefix("FAILED ").partition(" - ")[0].partition("[")[0]
    return "tests that did not end"


def choose(names: Sequence[str], area: str | None) -> list[Mutation]:
    """The mutations asked for; all without names and area."""
    mutations = load_mutations()
    unknown = set(names) - {mutation.name for mutation in mutations}
    if unknown:
        raise SystemExit(f"no such mutation: {', '.join(sorted(unknown))}")
    areas = {mutation.area for mutation in mutations}
    if area is not None and area not in areas:
        raise SystemExit(f"no such area: {area}; there are {', '.join(sorted(areas))}")
    return [
        mutation
        for mutation in mutations
        if (not names or mutation.name in names) and area in (None, mutation.area)
    ]


def main(arguments: Sequence[str]) -> int:
    """Try the mutations and print a table; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.run")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--area")
    chosen = parser.parse_args(arguments)
    mutations = choose(chosen.names, chosen.area)
    with tempfile.TemporaryDirectory(prefix="mutations-") as directory:
        bench = Bench(Path(directory))
        failure = bench.check(mutations)
        if failure:
            print(failure)
            print("the tests do not pass as they are: nothing was tried")
            return 1
        counts: Counter[str] = Counter()
        print(f"{'mutation':<40} {'area':<14} {'outcome':<9} {'s':>5}  by")
        for mutation in mutations:
            started = time.monotonic()
            outcome, by = bench.judge(mutation)
            counts[outcome] += 1
            took_s = time.monotonic() - started
            print(
                f"{mutation.name:<40} {mutation.area:<14} {outcome:<9} {took_s:5.1f}  {by}",
                flush=True,
            )
    summary = ", ".join(f"{counts[word]} {word}" for word in (KILLED, SURVIVED, STALE, BROKEN))
    print(f"{len(mutations)} mutations: {summary}")
    return 0 if counts[KILLED] == len(mutations) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
