# Sourced: makes .venv with txrocketmq and the extras named in $EXTRAS, at the locked versions.
# A bare Debian splits the venv module off into python3-venv; it is installed when missing (needs root).
PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c 'import ensurepip' 2>/dev/null; then
    echo "installing python3-venv"
    apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
fi
if ! [ -x .venv/bin/python ]; then
    "$PYTHON" -m venv .venv
fi
stamp=".venv/installed${EXTRAS:-}"
if ! [ -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ] || [ requirements.lock -nt "$stamp" ]; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        -c requirements.lock -e ".${EXTRAS:-}"
    touch "$stamp"
fi
