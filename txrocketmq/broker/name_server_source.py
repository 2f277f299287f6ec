"""Who tells a broker its name servers, if the configuration does not? An address server over HTTP, or the addresses of a host name.

Stands for ``fetchNameServerAddr`` and ``updateNameServerAddressListByDnsLookup`` of ``BrokerOuterAPI``. What is found is put into the
configuration's `namesrvAddr` at run time, where all who ask name servers read it; an answer that says nothing changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txrocketmq.broker.registration import name_servers
from txrocketmq.broker.sweep import Sweep
from txrocketmq.config.schema import BrokerConfig
from txrocketmq.remoting.host_names import Resolver
from txrocketmq.remoting.transport import format_address, parse_address

DEFAULT_DOMAIN, DEFAULT_SUBGROUP, DEFAULT_PORT = "jmenv.tbsite.net", "nsaddr", 8080
SHORTEST_PERIOD_S = 1.0


def address_server_url(domain: str, sub_group: str) -> str:
    """Where the address server is asked: ``http://<domain>:8080/rocketmq/<sub-group>``; a domain may bring its own port.

    :param domain: `rmqAddressServerDomain`; the official default when empty.
    :param sub_group: `rmqAddressServerSubGroup`; the official default when empty.
    """
    domain = domain or DEFAULT_DOMAIN
    if ":" not in domain:
        domain = f"{domain}:{DEFAULT_PORT}"
    return f"http://{domain}/rocketmq/{sub_group or DEFAULT_SUBGROUP}"


class NameServerSource:
    """Keeps `namesrvAddr` as others say.

    :param fetch: asks the address server for ``host:port;host:port``; None: it is not asked.
    :param resolve: looks up the addresses of host names; None: they are left as they are.
    :param changed: called when the list is another one.
    """

    _log = Logger()

    def __init__(
        self,
        config: BrokerConfig,
        clock: IReactorTime,
        *,
        fetch: Callable[[], Deferred[str]] | None,
        resolve: Resolver | None,
        changed: Callable[[], object],
    ) -> None:
        self._config = config
        self._clock = clock
        self._fetch = fetch
        self._resolve = resolve
        self._changed = changed
        self._sweep: Sweep | None = None
        self._is_looking = False
        #: The list with names, and what was made of it.
        self._names, self._found = "", ""
        self._last_trouble = ""

    def start(self) -> None:
        """Look now, and at every period."""
        config = self._config
        by_server = not name_servers(config.namesrv_addr)
        if (self._fetch if by_server else self._resolve) is None:
            return
        period_ms = (
            config.fetch_namesrv_addr_interval
            if by_server
            else config.update_name_server_addr_period
        )
        self._sweep = Sweep(self._clock, max(SHORTEST_PERIOD_S, period_ms / 1000), self._look)
        self._look()

    def stop(self) -> None:
        """Look no more."""
        if self._sweep is not None:
            self._sweep.stop()
            self._sweep = None

    def _look(self) -> None:
        if self._is_looking:
            return
        if self._config.namesrv_addr != self._found:
            # As it was configured, or as an operator has changed it since.
            self._names = self._config.namesrv_addr or ""
        self._is_looking = True
        looking = Deferred.fromCoroutine(self._ask())
        looking.addCallbacks(self._take, self._failed)

    async def _ask(self) -> str:
        if not self._names:
            return "" if self._fetch is None else await self._fetch()
        found: list[str] = []
        for address in name_servers(self._names):
            host, port = parse_address(address)
            if self._resolve is None or isIPAddress(host) or isIPv6Address(host):
                found.append(address)
                continue
            numeric = await self._resolve(host)
            if not numeric:
                # Whoever is known by the name so far stays.
                raise LookupError(f"{host} has no address")
            found += [format_address(one, port) for one in numeric]
        return ";".join(found)

    def _take(self, text: str) -> None:
        self._is_looking = False
        found = name_servers(text)
        try:
            for address in found:
                parse_address(address)
        except ValueError as error:
            self._tell(str(error))
            return
        if self._sweep is None or not found:
            return
        self._last_trouble = ""
        joined = ";".join(found)
        if set(found) != set(name_servers(self._config.namesrv_addr)):
            self._log.info(
                "name servers: {new} instead of {old}", new=joined, old=self._config.namesrv_addr
            )
            self._found = self._config.namesrv_addr = joined
            self._changed()

    def _failed(self, failure: object) -> None:
        self._is_looking = False
        self._tell(str(getattr(failure, "value", failure)))

    def _tell(self, trouble: str) -> None:
        if trouble != self._last_trouble:
            self._last_trouble = trouble
            self._log.warn("name servers cannot be looked up: {trouble}", trouble=trouble)
