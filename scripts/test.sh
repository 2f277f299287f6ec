#!/bin/sh
# Install what the tests need (virtual environment, JDK, Maven, official jars; all versions locked)
# and run them: style, types, layers, then pytest. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."
EXTRAS="[test]"
. scripts/venv.sh
# Some tests make networks of their own, and one looks at a broker's system calls.
missing=
command -v ip >/dev/null || missing="iproute2"
command -v strace >/dev/null || missing="$missing strace"
# shellcheck disable=SC2086 - one word a package
[ -z "$missing" ] || { apt-get update -qq && apt-get install -y -qq $missing >/dev/null; }
interop/setup
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
.venv/bin/lint-imports
exec .venv/bin/python -m pytest -q --durations=15 "$@"
