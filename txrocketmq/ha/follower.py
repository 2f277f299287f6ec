"""To which master does a slave hold its link, and when does it dial again?

Stands for the life of ``DefaultHAClient``::

    READY --address known, nothing speaks against it--> dialling --connected--> TRANSFER --lost--> READY, again after 5 s

When the master's address changes, a link to the old one is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IProtocolFactory, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from txrocketmq.config.schema import MessageStoreConfig
from txrocketmq.ha.slave import SlaveLink
from txrocketmq.ha.transport import MakeSlaveLink, SlaveFactory, SlaveProtocol
from txrocketmq.interfaces import IReplicaLog
from txrocketmq.model.replication import LinkState

RETRY_S = 5.0
"""Between two tries, as officially."""

Dial = Callable[[str, int, IProtocolFactory], "Deferred[Any]"]
"""Connects to a host and port; a Deferred of the protocol."""

Objection = Callable[[], "Deferred[str | None]"]
"""Asked before each dialling: why the master must not be followed, None when it may."""


class Follower:
    """Keeps a slave at its master.

    :ivar master_address: where the master's log is had, ``host:port``; None while it is not known.
    :ivar objection: see `Objection`.
    :ivar link_class: makes the links' machines.
    """

    _log = Logger()

    def __init__(
        self, store: IReplicaLog, config: MessageStoreConfig, clock: IReactorTime, dial: Dial
    ) -> None:
        self.master_address: str | None = None
        self.objection: Objection = lambda: succeed(None)
        self.link_class: MakeSlaveLink = SlaveLink
        self._store = store
        self._config = config
        self._clock = clock
        self._dial = dial
        self._protocol: SlaveProtocol | None = None
        self._dialling: Deferred[Any] | None = None
        self._again: IDelayedCall | None = None
        self._is_running = False
        self._last_objection: str | None = None
        self._was_refused = False

    @property
    def link(self) -> SlaveLink | None:
        """The link while there is one."""
        return self._protocol.link if self._protocol is not None else None

    @property
    def state(self) -> LinkState:
        """The official name of where things stand."""
        if not self._is_running:
            return LinkState.SHUTDOWN
        return LinkState.TRANSFER if self._protocol is not None else LinkState.READY

    def start(self) -> None:
        """Follow from now on."""
        self._is_running = True
        self._connect()

    def stop(self) -> None:
        """Follow nobody any more."""
        self._is_running = False
        self._drop("the slave stops")

    def set_master_address(self, address: str | None) -> None:
        """Follow the master that is at this address; None: nobody for now."""
        if address == self.master_address:
            return
        self._log.info(
            "the master's replication address is {new}, was {old}",
            new=address,
            old=self.master_address,
        )
        self.master_address = address
        self._drop("the master's address changed")
        self._connect()

    def tick(self) -> None:
        """To be called about once a second."""
        if self._protocol is not None and self._protocol.link is not None:
            self._protocol.link.tick()

    def _drop(self, reason: str) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._dialling is not None:
            dialling, self._dialling = self._dialling, None
            dialling.cancel()
        if self._protocol is not None:
            protocol, self._protocol = self._protocol, None
            protocol.close(reason)

    def _connect(self) -> None:
        self._again = None
        if not self._is_running or self.master_address is None:
            return
        if self._dialling is not None or self._protocol is not None:
            return
        attempt = Deferred.fromCoroutine(self._try(self.master_address))
        self._dialling = attempt
        attempt.addCallbacks(
            self._tried, self._failed, callbackArgs=(attempt,), errbackArgs=(attempt,)
        )

    async def _try(self, address: str) -> SlaveProtocol | None:
        reason = await self.objection()
        if reason is not None:
            if reason != self._last_objection:
                self._log.error(
                    "master {address} is not followed: {reason}", address=address, reason=reason
                )
            self._last_objection = reason
            return None
        self._last_objection = None
        host, _, port = address.rpartition(":")
        factory = SlaveFactory(
            address, self._store, self._config, self._clock, self._lost, self.link_class
        )
        return cast(
            SlaveProtocol,
            await self._dial(
                host.removeprefix("[").removesuffix("]"), int(port), cast(IProtocolFactory, factory)
            ),
        )

    def _tried(self, protocol: SlaveProtocol | None, attempt: Deferred[Any]) -> None:
        if self._dialling is not attempt:
            # Meanwhile somebody else is to be followed, or nobody.
            if protocol is not None:
                protocol.close("not wanted any more")
            return
        self._dialling = None
        if protocol is None:
            self._later()
            return
        if protocol.link is None or protocol.link.state is LinkState.SHUTDOWN:
            self._later()
            return
        self._was_refused = False
        self._protocol = protocol
        self._log.info("follows master {address}", address=self.master_address)

    def _failed(self, failure: Failure, attempt: Deferred[Any]) -> None:
        if self._dialling is not attempt:
            return
        self._dialling = None
        if not self._was_refused:
            self._was_refused = True
            self._log.warn(
                "master {address} cannot be reached, tried again every {seconds:.0f} s: {reason}",
                address=self.master_address,
                seconds=RETRY_S,
                reason=failure.getErrorMessage(),
            )
        self._later()

    def _lost(self, protocol: SlaveProtocol, reason: str) -> None:
        if self._protocol is not protocol:
            return
        self._protocol = None
        self._log.info("the link to the master is lost: {reason}", reason=reason)
        self._later()

    def _later(self) -> None:
        if self._is_running and self._again is None:
            self._again = self._clock.callLater(RETRY_S, self._connect)
