"""Which name server is asked? One, chosen by chance and kept; the next one when it fails.

Stands for the name server half of the official ``NettyRemotingClient`` (``getAndCreateNameserverChannel``,
``updateNameServerAddressList``). Names of hosts are looked up here, so that all addresses of a name count as servers: anew every 30 s
and whenever an address fails.
"""

from __future__ import annotations

import random as random_numbers
import time
from collections.abc import Callable, Sequence

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from txrocketmq.codec.command import RemotingCommand
from txrocketmq.codec.headers import Header
from txrocketmq.errors import MQClientError, NoRouteError, RemotingError
from txrocketmq.interfaces import IRemotingClient
from txrocketmq.model.codes import ResponseCode
from txrocketmq.remoting.host_names import Resolver
from txrocketmq.remoting.transport import format_address, parse_address

log = Logger()

LOOKUP_S = 30
"""Seconds after which the addresses of a host name are looked up again."""


class NameServers:
    """The list of name servers, and the one in use.

    :param addresses: ``host:port`` each.
    :param now: seconds, for the age of what was looked up.
    :param resolve: a host name to its numeric addresses; without it names are left to the connection's own look-up.
    :param random: a number in [0, 1): who is asked first.
    :ivar configured: the list as given.
    :ivar chosen: the address in use, None before the first request and after a failure.
    """

    def __init__(
        self,
        remoting: IRemotingClient,
        addresses: Sequence[str],
        *,
        now: Callable[[], float] = time.monotonic,
        timeout_ms: int = 3000,
        resolve: Resolver | None = None,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        self._remoting = remoting
        self._now = now
        self._timeout_ms = timeout_ms
        self._resolve = resolve
        self.configured = list(addresses)
        self._addresses = list(addresses)
        self._resolved: dict[str, list[str]] = {}
        self._look_up_at = 0.0
        self._looking: list[Deferred[None]] | None = None
        self._next = int(random() * 1_000_000)
        self.chosen: str | None = None

    @property
    def addresses(self) -> list[str]:
        """Who may be asked now: numeric where names could be looked up."""
        return list(self._addresses)

    @property
    def text(self) -> str:
        """The list, for people."""
        return "; ".join(self.configured)

    def update(self, addresses: Sequence[str]) -> None:
        """Another list: servers that are not in it are dropped at once, requests at them go on at the others."""
        if not addresses or list(addresses) == self.configured:
            return
        log.info("name servers: {new} instead of {old}", new="; ".join(addresses), old=self.text)
        self.configured = list(addresses)
        self._look_up_at = 0.0
        self._expand()

    async def request(
        self,
        code: int,
        header: Header | None,
        body: bytes = b"",
        timeout_ms: int | None = None,
        is_enough: Callable[[RemotingCommand], bool] = lambda answer: True,
    ) -> RemotingCommand:
        """The first answer that is enough; where none is, the first that any server gives.

        :raises NoRouteError: no server answers, or none is known; names each with its reason.
        """
        if not self.configured:
            raise NoRouteError(
                "no name server is known: set namesrv_addr, or NAMESRV_ADDR in the environment"
            )
        asked: dict[str, str] = {}
        first: tuple[str, RemotingCommand] | None = None
        await self.look_up()
        # Each is asked once, also where the list changes meanwhile: names may be looked up in another order each time.
        while True:
            address = self._choose(asked)
            if address is None:
                break
            try:
                answer: RemotingCommand = await self._remoting.request(
                    address, int(code), header, body, timeout_ms or self._timeout_ms, None
                )
            except RemotingError as error:
                asked[address] = str(error)
                self._failed(address)
                await self.look_up()
                continue
            if is_enough(answer):
                return answer
            asked[address] = "does not know"
            first = first or (address, answer)
        if first is None:
            raise NoRouteError(f"no name server answers: {'; '.join(asked.values())}")
        if first[0] in self._addresses:
            self.chosen = first[0]
        return first[1]

    def _choose(self, asked: dict[str, str]) -> str | None:
        chosen = self.chosen
        if chosen is not None and chosen not in asked:
            return chosen
        for _ in self._addresses:
            address = self._addresses[self._next % len(self._addresses)]
            self._next += 1
            if address not in asked:
                self.chosen = address
                return address
        return None

    def _failed(self, address: str) -> None:
        if self.chosen == address:
            self.chosen = None
        if address not in self.configured:  # an address of a name: perhaps it has moved
            self._look_up_at = 0.0

    # ----------------------------------------------------------------- host names

    def look_up(self) -> Deferred[None]:
        """Look host names up, where there are any and the last time is too long ago. Never fails: what cannot be looked up stays
        as it was."""
        resolve = self._resolve
        names = {parse_address(address)[0] for address in self.configured}
        names = {name for name in names if not (isIPAddress(name) or isIPv6Address(name))}
        if resolve is None or not names or self._now() < self._look_up_at:
            return succeed(None)
        done: Deferred[None] = Deferred()
        if self._looking is not None:
            self._looking.append(done)
            return done
        self._looking = [done]
        Deferred.fromCoroutine(self._look_up_all(resolve, sorted(names))).addErrback(
            lambda failure: log.failure("look-up of name servers failed", failure)
        )
        return done

    async def _look_up_all(self, resolve: Resolver, names: list[str]) -> None:
        try:
            for name in names:
                try:
                    found = await resolve(name)
                except Exception as error:
                    log.warn("name server {name}: {error}", name=name, error=error)
                else:
                    if found:
                        self._resolved[name] = found
            self._look_up_at = self._now() + LOOKUP_S
            self._expand()
        finally:
            waiting, self._looking = self._looking or [], None
            for deferred in waiting:
                deferred.callback(None)

    def _expand(self) -> None:
        """Put the addresses of names in their place; drop who is no longer among them."""
        found: dict[str, None] = {}
        for address in self.configured:
            host, port = parse_address(address)
            for numeric in self._resolved.get(host, ()):
                found[format_address(numeric, port)] = None
            if host not in self._resolved:
                found[address] = None
        gone = [address for address in self._addresses if address not in found]
        if list(found) == self._addresses:
            return
        self._addresses = list(found)
        if self.chosen not in found:
            self.chosen = None
        for address in gone:
            self._remoting.close_address(address)


def check_answer(answer: RemotingCommand, servers: str) -> None:
    """A server that answers, but is none for routes, is worth a clear word.

    :raises MQClientError: it is no name server.
    """
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise MQClientError(
            f"{servers} answers, but is no name server: {answer.remark} (name servers mostly "
            "listen on 9876, brokers on 10911)"
        )
