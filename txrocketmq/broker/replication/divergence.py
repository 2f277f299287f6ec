"""Is a slave's log the beginning of its master's? Asked before the slave follows it.

Nothing official stands behind this: in plain replication the two sides compare offsets alone, and an old master that comes back as a
slave with messages that the new one never had goes on behind them as if nothing were. Here the slave asks its master for the
record that its own log ends with (VIEW_MESSAGE_BY_ID, which every line serves) and compares the bytes. A master that has no message at
that place, though its log reaches over it, is another one as well.
"""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred

from txrocketmq.codec.bodies import KVTable, decode_body
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import ViewMessageRequestHeader
from txrocketmq.errors import BodyError, RemotingError
from txrocketmq.interfaces import IMessageStore, IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode

REQUEST_TIMEOUT_MS = 3_000
MIN_OFFSET, MAX_OFFSET = "commitLogMinOffset", "commitLogMaxOffset"
"""Of the run-time figures of every line."""


class DivergenceCheck:
    """Compares the end of this log with the master's."""

    def __init__(self, store: IMessageStore, client: IRemotingClient) -> None:
        self._store = store
        self._client = client

    async def fault(self, master_address: str | None) -> str | None:
        """Why the master must not be followed; None when nothing speaks against it, or when it cannot be asked."""
        last = self._store.last_record()
        if last is None or master_address is None:
            return None
        offset, ours = last
        try:
            answer = await self._ask(
                master_address,
                RequestCode.VIEW_MESSAGE_BY_ID,
                ViewMessageRequestHeader(offset=offset),
            )
            if answer.code == ResponseCode.SUCCESS.value:
                is_same = bytes(answer.body) == ours
            else:
                is_same = not await self._has_all(master_address, offset)
        except (RemotingError, BodyError):
            return None
        if is_same:
            return None
        return (
            f"the log here ends with a message at offset {offset} that is another one in the master's: the two went "
            "different ways. What this broker has alone can be had with `txrocketmq store export`; to follow the "
            "master, empty this broker's store"
        )

    async def _has_all(self, master_address: str, offset: int) -> bool:
        """Whether the master's log reaches over all from an offset to the end of the one here; it has no message that begins there, then.

        It may have deleted so old a file, or end before: both are told where the log flows.
        """
        answer = await self._ask(master_address, RequestCode.GET_BROKER_RUNTIME_INFO, None)
        if answer.code != ResponseCode.SUCCESS.value:
            return False
        figures = decode_body(KVTable, answer.body).table
        try:
            first, end = (int(figures[name]) for name in (MIN_OFFSET, MAX_OFFSET))
        except (KeyError, ValueError):
            return False
        return first <= offset and self._store.max_physical_offset() <= end

    async def _ask(self, address: str, code: RequestCode, header: object) -> RemotingCommand:
        asked = self._client.request(address, code.value, header, b"", REQUEST_TIMEOUT_MS, None)
        return await cast("Deferred[RemotingCommand]", asked)
