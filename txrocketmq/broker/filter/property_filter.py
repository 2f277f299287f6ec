"""Does a message pass a SQL92 filter? Asked about whole records, for their properties.

Stands for ``ExpressionMessageFilter``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zope.interface import implementer

from txrocketmq.broker.filter.bloom import has_bits
from txrocketmq.broker.filter.sql92 import CompiledFilter
from txrocketmq.codec.record import peek_properties
from txrocketmq.errors import RecordError
from txrocketmq.interfaces import IMessageFilter
from txrocketmq.model.properties import parse_properties


@implementer(IMessageFilter)
class PropertyFilter:
    """Lets messages through whose properties make an expression true.

    :param live_since_ms: messages that were stored later have a bit map that takes this filter into account.
    :param positions: its bits there; none: there are none.
    """

    __slots__ = ("_bits", "_compiled", "_live_since_ms", "_positions")

    needs_record = True

    def __init__(
        self,
        compiled: CompiledFilter,
        live_since_ms: int = 0,
        positions: Sequence[int] = (),
        bits: int = 0,
    ) -> None:
        self._compiled = compiled
        self._live_since_ms = live_since_ms
        self._positions = tuple(positions)
        self._bits = bits

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties passes."""
        return self._compiled.matches(properties)

    def matches_tags_code(self, tags_code: int) -> bool:
        """See `IMessageFilter`: the queue's entry says nothing about properties."""
        return True

    def matches_extension(self, tags_code: int, store_timestamp_ms: int, bit_map: bytes) -> bool:
        """See `IMessageFilter`. What the bit map lets pass is asked again with its record; what it stops needs no reading."""
        if (
            not self._positions
            or store_timestamp_ms <= self._live_since_ms
            or len(bit_map) * 8 != self._bits
        ):
            return True
        return has_bits(bit_map, self._positions)

    def matches_record(self, record: bytes) -> bool:
        """See `IMessageFilter`. What cannot be compared, or is no record, does not pass."""
        try:
            properties = peek_properties(record)
        except RecordError:
            return False
        return self._compiled.matches(parse_properties(properties))
