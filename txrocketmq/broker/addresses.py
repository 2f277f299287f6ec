"""How is a broker's address written, for people and for records?"""

from __future__ import annotations

from ipaddress import ip_address

from txrocketmq.errors import ConfigError
from txrocketmq.model.message import Host


def host_port(host: str, port: int) -> str:
    """An address as it is advertised; IPv6 hosts in brackets."""
    if ":" in host and not host.startswith("["):
        return f"[{host}]:{port}"
    return f"{host}:{port}"


def numeric_host(host: str, port: int) -> Host:
    """The host part of records and message ids.

    :raises ConfigError: the host is a name; only a numeric address fits into a record.
    """
    try:
        return str(ip_address(host.strip("[]"))), port
    except ValueError:
        raise ConfigError(
            f"brokerIP1 {host} is a name that was not resolved; a record holds a numeric address"
        ) from None
