"""How do a slave's tables follow its master's? Topics, offsets, delays, groups, and what features keep besides.

Stands for ``SlaveSynchronize``. The log says nothing of these tables, so a slave asks for each of them, one after the other, soon after
it knows its master and every ten seconds then (as the 4.x line; 5.x waits a minute). Small ones that say how far deliveries are come every
three seconds (5.x does so for timed messages): what is delivered in between, a slave that acts for its lost master delivers again. What
the master has wins, whole tables at a time.

Crash story: as for the tables themselves. A slave that could not ask keeps what it had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txrocketmq.broker.sweep import Sweep
from txrocketmq.codec.command import RemotingCommand
from txrocketmq.errors import BodyError, BrokerError, RemotingError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import RequestCode, ResponseCode

PERIOD_S = 10.0
OFTEN_S = 3.0
REQUEST_TIMEOUT_MS = 3_000

_SUCCESS = ResponseCode.SUCCESS.value
_NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED.value

Take = Callable[[bytes], object]
"""Takes a table over from the body of the master's answer; BodyError when it cannot be read."""


class SlaveSync:
    """Asks the master for its tables.

    :ivar master_address: the master, ``host:port``; None while nobody knows it.
    :ivar rounds: how often all tables were asked for.
    """

    _log = Logger()

    def __init__(self, client: IRemotingClient, clock: IReactorTime, own_address: str) -> None:
        self.master_address: str | None = None
        self.rounds = 0
        self._client = client
        self._clock = clock
        self._own_address = own_address
        self._tables: list[tuple[str, RequestCode, Take]] = []
        self._often: list[tuple[str, RequestCode, Take]] = []
        self._failed: set[str] = set()
        self._sweep: Sweep | None = None
        self._often_sweep: Sweep | None = None
        self._is_asking = False
        self._wants_all = False
        self._is_held = False

    def add(self, name: str, code: RequestCode, take: Take, *, is_often: bool = False) -> None:
        """One more table to follow.

        :param name: for the log.
        :param code: the request that has the whole table as its answer's body.
        :param is_often: it is small, and asked for every three seconds.
        """
        self._tables.append((name, code, take))
        if is_often:
            self._often.append((name, code, take))

    def start(self) -> None:
        """Ask from now on."""
        self._sweep = Sweep(self._clock, PERIOD_S, self.ask)
        self._often_sweep = Sweep(self._clock, OFTEN_S, self._ask_often)
        self.ask()

    def stop(self) -> None:
        """Ask no more."""
        if self._sweep is not None and self._often_sweep is not None:
            self._sweep.stop()
            self._often_sweep.stop()
            self._sweep = self._often_sweep = None

    def set_master_address(self, address: str | None) -> None:
        """The master is elsewhere now; None: there is none for now."""
        if address == self.master_address:
            return
        self._log.info(
            "the master's address is {new}, was {old}", new=address, old=self.master_address
        )
        self.master_address = address
        self.ask()

    def hold(self) -> None:
        """Take nothing over, not even what was asked for, until `release`."""
        self._is_held = True

    def release(self) -> None:
        """Stand where the master does again, and ask it."""
        self._is_held = False
        self.ask()

    def ask(self) -> None:
        """Ask for all tables now, or when those that are under way have come."""
        self._wants_all = self._is_asking
        if self._begin(self._tables):
            self.rounds += 1

    def _ask_often(self) -> None:
        self._begin(self._often)

    def _begin(self, tables: list[tuple[str, RequestCode, Take]]) -> bool:
        address = self.master_address
        if address is None or address == self._own_address:
            return False
        if self._is_asking or self._is_held or self._sweep is None:
            return False
        self._is_asking = True
        asking = Deferred.fromCoroutine(self._ask_all(address, tables))
        asking.addErrback(lambda failure: self._log.failure("tables of the master", failure))
        asking.addCallback(self._asked)
        return True

    def _asked(self, ignored: object) -> None:
        self._is_asking = False
        if self._wants_all:
            self.ask()

    async def _ask_all(self, address: str, tables: list[tuple[str, RequestCode, Take]]) -> None:
        for name, code, take in tables:
            if not self._may_take(address):
                return
            try:
                asked = self._client.request(
                    address, code.value, None, b"", REQUEST_TIMEOUT_MS, None
                )
                answer = await cast("Deferred[RemotingCommand]", asked)
                if not self._may_take(address):
                    return
                if answer.code == _SUCCESS:
                    take(answer.body)
                elif answer.code != _NOT_SUPPORTED:
                    raise BrokerError(answer.code, answer.remark, address)
            except (RemotingError, BrokerError, BodyError) as error:
                self._note_failure(name, error)
            else:
                self._failed.discard(name)

    def _may_take(self, address: str) -> bool:
        return not self._is_held and self._sweep is not None and address == self.master_address

    def _note_failure(self, name: str, error: Exception) -> None:
        if name not in self._failed:
            self._failed.add(name)
            self._log.warn("{name} of the master are not known: {error}", name=name, error=error)
