"""What does every configuration key mean? Prints ``docs/configuration.md`` from the declarations.

``python -m txrocketmq.config.reference > docs/configuration.md``
"""

from __future__ import annotations

import sys

from txrocketmq.config.effects import Effect
from txrocketmq.config.keys import Computed, KeySpec, format_value, keys_of
from txrocketmq.config.schema import (
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    NettyClientConfig,
    NettyServerConfig,
)

_INTRODUCTION = """\
# Configuration reference

Made from the declarations in `txrocketmq/config` by `python -m txrocketmq.config.reference`; do not edit.

A role reads its keys from an official `.properties` file (`-c FILE`), then from the environment (`NAMESRV_ADDR` for
`namesrvAddr`, `ROCKETMQ_HOME` for `rocketmqHome`), then from the command line (`-n` for `namesrvAddr`, `--set key=value`);
the last one wins. Names, types and defaults are the official ones. A key that no table lists is kept and reported once.
A value that cannot be right stops the start with one line. `-p` prints every key with its value and ends, `-m` only those
marked with `*`.

Defaults of a process differ from those of the tables in a few places:

* `listenPort` is 9876 for a name server and 10911 for a broker; `haListenPort` is `listenPort` plus one when it is not set.
* The all-in-one keeps everything below `./store`, the name server's files in `./store/namesrv`.
* A master has `brokerId` 0 whatever is set, as officially.

The column *acts* says when txrocketmq does something with the key: `at once` also after a change at run time
(`updateBrokerConfig`, `updateNamesrvConfig`), `at start` after a restart only, `no` never. The last ones are accepted, kept and
shown, so that official files load unchanged; setting one to something else than its default is reported at the start.

A change at run time is written back to the file given with `-c`, or, without one, to `config/txrocketmq.properties` in the store,
which is read at the next start before the environment. Keys of `configBlackList` cannot be changed at run time.
"""

_ACTS = {Effect.AT_ONCE: "at once", Effect.AT_START: "at start", Effect.NONE: "no"}

_SECTIONS = (
    (BrokerConfig, "Broker: BrokerConfig"),
    (MessageStoreConfig, "Broker: MessageStoreConfig"),
    (NamesrvConfig, "Name server: NamesrvConfig"),
    (NettyServerConfig, "Both: NettyServerConfig"),
    (NettyClientConfig, "Both: NettyClientConfig"),
)


def configuration_reference() -> str:
    """The whole page as Markdown."""
    parts = [_INTRODUCTION]
    for cls, title in _SECTIONS:
        parts.append(
            f"\n## {title}\n\n| key | type | default | acts | meaning |\n|---|---|---|---|---|\n"
        )
        parts += [_row(spec) for spec in sorted(keys_of(cls), key=lambda spec: spec.name.lower())]
    return "".join(parts)


def _row(spec: KeySpec) -> str:
    mark = " *" if spec.important else ""
    kind = " \\| ".join(spec.choices) or spec.java_type
    acts = _ACTS[spec.effect]
    return f"| `{spec.name}`{mark} | {kind} | {_default(spec)} | {acts} | {spec.help} |\n"


def _default(spec: KeySpec) -> str:
    if isinstance(spec.default, Computed):
        return spec.default.words
    value = format_value(spec.default)
    return f"`{value}`" if value else "-"


if __name__ == "__main__":
    sys.stdout.write(configuration_reference())
