"""What every header class shares, and the three official ancestors of request headers (``RpcRequestHeader`` and below)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""A Java ``int`` or ``Integer``."""

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A Java ``long`` or ``Long``."""


class Header(Struct, kw_only=True, gc=False, omit_defaults=True, rename="camel"):
    """Root of all typed headers (official ``CommandCustomHeader``).

    Attributes are snake_case, wire names their camelCase unless a field names another. A field without default is required
    (``@CFNotNull``); an optional one is None when absent, or holds the official initial value. Numbers keep Java's ranges.
    """


class RpcRequestHeader(Header, kw_only=True):
    """Official ``RpcRequestHeader``.

    Who a request is for, where a proxy or a client with name spaces says so. ``broker_name`` travels as
    ``bname``.
    """

    namespace: str | None = field(default=None, name="ns")
    namespaced: bool | None = field(default=None, name="nsd")
    broker_name: str | None = field(default=None, name="bname")
    oneway: bool | None = field(default=None, name="oway")


class TopicRequestHeader(RpcRequestHeader, kw_only=True):
    """Official ``TopicRequestHeader``.

    Adds whether the queue id counts logical queues of a static topic (``lo``).
    """

    logical: bool | None = field(default=None, name="lo")


class TopicQueueRequestHeader(TopicRequestHeader, kw_only=True):
    """Official ``TopicQueueRequestHeader``.

    The ancestor of requests that name one queue; adds no field.
    """
