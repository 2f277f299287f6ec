#!/bin/sh
# Install what the tests need (virtual environment, JDK, Maven, official jars; all versions locked)
# and run them: style, types, layers, then pytest. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
# The tests look at both twins of the hot paths, the compiled ones and the pure.
command -v cc >/dev/null && headers=$("${PYTHON:-python3}" -c 'import sysconfig; print(sysconfig.get_path("include"))') \
    && [ -e "$headers/Python.h" ] || { apt-get update -qq && apt-get install -y -qq gcc python3-dev >/dev/null; }
EXTRAS="[test]"
. scripts/venv.sh
# Some tests make networks of their own, and one looks at a broker's system calls.
missing=
command -v ip >/dev/null || missing="iproute2"
command -v strace >/dev/null || missing="$missing strace"
# shellcheck disable=SC2086 - one word a package
[ -z "$missing" ] || { apt-get update -qq && apt-get install -y -qq $missing >/dev/null; }
# Jars are fetched while the source is looked at.
interop/setup &
jars=$!
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
.venv/bin/lint-imports
wait "$jars"
# Two at a time: half of the tests wait for Java processes (tests/lanes.py).
exec .venv/bin/python -m pytest -q -n 2 --durations=15 "$@"
