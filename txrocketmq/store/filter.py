"""Does a message's tag match a subscription? The cheap filter, on the consume queue's units alone.

Stands for the official ``DefaultMessageFilter``. The hash of a tag may match another tag's: clients compare the tag itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from zope.interface import implementer

from txrocketmq.interfaces import IMessageFilter
from txrocketmq.store.extension import ExtendedQueue, is_address
from txrocketmq.store.unitlog import BlockCache


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

    def matches_extension(self, tags_code: int, store_timestamp_ms: int, bit_map: bytes) -> bool:
        """See `IMessageFilter`: only tags count."""
        return self.matches_tags_code(tags_code)

    def matches_record(self, record: bytes) -> bool:
        """See `IMessageFilter`: only tags count."""
        return True


@implementer(IMessageFilter)
class ThroughExtension:
    """Asks another filter about entries whose tags codes are places in an extension.

    :param ready_only: raise `ColdRead` where the extension's unit is not in memory.
    """

    def __init__(
        self, wanted: IMessageFilter, queue: ExtendedQueue, cache: BlockCache, ready_only: bool
    ) -> None:
        self.needs_record = wanted.needs_record
        self.matches_record = wanted.matches_record
        self._wanted = wanted
        self._extension = queue.extension
        self._cache = cache
        self._ready_only = ready_only

    def matches_tags_code(self, tags_code: int) -> bool:
        """See `IMessageFilter`. Where the extension lacks the unit the message passes: clients filter too."""
        if not is_address(tags_code):
            return bool(self._wanted.matches_tags_code(tags_code))
        found = self._extension.get(self._cache, tags_code, self._ready_only)
        return found is None or self.matches_extension(*found)

    def matches_extension(self, tags_code: int, store_timestamp_ms: int, bit_map: bytes) -> bool:
        """See `IMessageFilter`."""
        return bool(self._wanted.matches_extension(tags_code, store_timestamp_ms, bit_map))
