#!/bin/sh
# Install into a virtual environment and start the all-in-one: name server on 9876, broker on 10911,
# store in ./store. Arguments go to `twistd rocketmq` (try --help).
set -eu
cd "$(dirname "$0")/.."
EXTRAS=""
. scripts/venv.sh
exec .venv/bin/twistd -n --pidfile= rocketmq "$@"
