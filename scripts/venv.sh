# Makes .venv in the current directory, the checkout, with txrocketmq and the extras named in $EXTRAS at the locked versions.
# Run again it only checks. The other scripts source it; by itself: sh scripts/venv.sh
# $PYTHON is the Python to use, 3.11 or later. A bare Debian splits the venv module off into python3-venv; it is installed
# when missing (needs root).
set -eu
PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c 'import ensurepip' 2>/dev/null; then
    if [ "$PYTHON" != python3 ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "$PYTHON cannot make virtual environments: install its venv module (on Debian as root: apt-get install python3-venv)" >&2
        exit 1
    fi
    echo "installing python3-venv"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq python3-venv >/dev/null
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Python 3.11 or later is needed, $PYTHON is $("$PYTHON" -V): set PYTHON to another one" >&2
    exit 1
fi
# An environment is of no use half-made, or after its directory was moved.
if [ "$(cat .venv/made-in 2>/dev/null)" != "$PWD" ]; then
    echo "making a virtual environment in .venv"
    "$PYTHON" -m venv --clear .venv
    echo "$PWD" >.venv/made-in
fi
stamp=".venv/installed${EXTRAS:-}"
if ! [ -e "$stamp" ] || [ -n "$(find pyproject.toml requirements.lock hatch_build.py txrocketmq/native/*.[ch] -newer "$stamp")" ]; then
    echo "installing txrocketmq${EXTRAS:-} and what it needs; the first time takes a minute or two"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        -c requirements.lock -e ".${EXTRAS:-}"
    touch "$stamp"
fi
