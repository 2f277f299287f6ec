"""Does a message pass a SQL92 filter? Asked about whole records, for their properties.

Stands for the commit-log half of ``ExpressionMessageFilter``.
"""

from __future__ import annotations

from zope.interface import implementer

from txrocketmq.broker.filter.sql92 import CompiledFilter
from txrocketmq.codec.record import peek_properties
from txrocketmq.errors import RecordError
from txrocketmq.interfaces import IMessageFilter
from txrocketmq.model.properties import parse_properties


@implementer(IMessageFilter)
class PropertyFilter:
    """Lets messages through whose properties make an expression true."""

    __slots__ = ("_compiled",)

    needs_record = True

    def __init__(self, compiled: CompiledFilter) -> None:
        self._compiled = compiled

    def matches_tags_code(self, tags_code: int) -> bool:
        """See `IMessageFilter`: the queue's entry says nothing about properties."""
        return True

    def matches_record(self, record: bytes) -> bool:
        """See `IMessageFilter`. What cannot be compared, or is no record, does not pass."""
        try:
            properties = peek_properties(record)
        except RecordError:
            return False
        return self._compiled.matches(parse_properties(properties))
