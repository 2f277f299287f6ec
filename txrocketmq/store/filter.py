"""Does a message's tag match a subscription? The cheap filter, on the consume queue's units alone.

Stands for the official ``DefaultMessageFilter``. The hash of a tag may match another tag's: clients compare the tag itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from zope.interface import implementer

from txrocketmq.interfaces import IMessageFilter


@implementer(IMessageFilter)
class TagsFilter:
    """Lets messages through whose tags code is one of these; a subscription to everything has no filter at all.

    :param codes: hashes of the wanted tags (``codeSet`` of the subscription).
    """

    __slots__ = ("codes",)

    needs_record = False

    def __init__(self, codes: Iterable[int]) -> None:
        self.codes = frozenset(codes)

    def matches_tags_code(self, tags_code: int) -> bool:
        """See `IMessageFilter`. Only the low 32 bits count, as officially."""
        if tags_code in self.codes:
            return True
        return ((tags_code + 0x80000000) & 0xFFFFFFFF) - 0x80000000 in self.codes

    def matches_record(self, record: bytes) -> bool:
        """See `IMessageFilter`: only tags count."""
        return True
