"""Is a slave's log the beginning of its master's? Asked before the slave follows it.

Nothing official stands behind this: in plain replication the two sides compare offsets alone, and an old master that comes back as a
slave with messages that the new one never had goes on behind them as if nothing were. Here the slave asks its master for the
record that its own log ends with (VIEW_MESSAGE_BY_ID, which every line serves) and compares the bytes.
"""

from __future__ import annotations

from typing import cast

from twisted.internet.defer import Deferred

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import ViewMessageRequestHeader
from txrocketmq.errors import RemotingError
from txrocketmq.interfaces import IMessageStore, IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode

REQUEST_TIMEOUT_MS = 3_000


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
            asked = self._client.request(
                master_address,
                RequestCode.VIEW_MESSAGE_BY_ID.value,
                ViewMessageRequestHeader(offset=offset),
                b"",
                REQUEST_TIMEOUT_MS,
                None,
            )
            answer = await cast("Deferred[RemotingCommand]", asked)
        except RemotingError:
            return None
        if answer.code != ResponseCode.SUCCESS.value:
            # The master may have deleted so old a file, or end before it: both are told where the log flows.
            return None
        if bytes(answer.body) == ours:
            return None
        return (
            f"the log here ends with a message at offset {offset} that is another one in the master's: the two went "
            "different ways. What this broker has alone can be had with `txrocketmq store export`; to follow the "
            "master, empty this broker's store"
        )
