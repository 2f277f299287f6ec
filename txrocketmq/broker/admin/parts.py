"""Which part of a large table is asked for? Tables of topics and groups may be fetched in steps.

Stands for ``subTopicConfigTable`` and ``subGroupTable`` of the official managers.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from txrocketmq.config.schema import BrokerConfig
from txrocketmq.errors import HeaderError
from txrocketmq.model.topic import DataVersion


def part_of(
    config: BrokerConfig,
    table: Mapping[str, object],
    version: DataVersion,
    asked: Mapping[str, str],
    fields: tuple[str, str, str],
) -> list[str] | None:
    """Names of the part of a table that is asked for; None for all of it.

    :param fields: the header fields for the version known to the asker, the position to go on at, the size wanted.
    """
    version_field, start_field, count_field = fields
    if not config.enable_split_metadata or asked.keys().isdisjoint(fields):
        return None
    start = _number(asked, start_field, 0)
    if not _is_version(asked.get(version_field), version):
        start = 0
    count = config.split_metadata_size
    count = max(0, min(count, _number(asked, count_field, count)))
    return sorted(table)[start : start + count]


def _number(fields: Mapping[str, str], name: str, otherwise: int) -> int:
    text = fields.get(name)
    if not text:
        return otherwise
    try:
        return int(text)
    except ValueError:
        raise HeaderError(name, f"{text!r} is no number") from None


def _is_version(text: str | None, version: DataVersion) -> bool:
    if not text:
        return False
    try:
        return msgspec.json.decode(text, type=DataVersion) == version
    except msgspec.DecodeError:
        return False
