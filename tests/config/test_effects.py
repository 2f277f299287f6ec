"""Do the sets of keys that act agree with the places of the code that read them?"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from txrocketmq.config.effects import AT_ONCE, AT_START
from txrocketmq.config.keys import keys_of
from txrocketmq.config.schema import (
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    NettyClientConfig,
    NettyServerConfig,
)

SECTIONS = (BrokerConfig, MessageStoreConfig, NamesrvConfig, NettyClientConfig, NettyServerConfig)
PACKAGE = Path(__file__).resolve().parent.parent.parent / "txrocketmq"
#: They declare keys, only show what others have, or have a configuration of their own.
NO_READERS = (
    re.compile(r"client/.*"),
    re.compile(r"config/(keys|schema|reference|\w+_keys)\.py"),
    re.compile("broker/runtime_info.py"),
)
OWNERS = re.compile(r"(config|network|settings|server|broker|store|namesrv|client|limits)$")


def read_attributes() -> set[str]:
    """Official names of the keys whose attributes are read somewhere."""
    names = {spec.attribute: spec.name for section in SECTIONS for spec in keys_of(section)}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if any(pattern.fullmatch(path.relative_to(PACKAGE).as_posix()) for pattern in NO_READERS):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in names
                and OWNERS.search(ast.unparse(node.value))
            ):
                found.add(names[node.attr])
    return found


def test_every_key_that_is_read_is_said_to_act() -> None:
    assert read_attributes() - AT_ONCE - AT_START == set()


def test_every_key_that_is_said_to_act_is_read() -> None:
    assert (AT_ONCE | AT_START) - read_attributes() == set()


def test_a_key_acts_at_one_moment() -> None:
    assert not AT_ONCE & AT_START
