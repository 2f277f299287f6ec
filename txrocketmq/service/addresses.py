"""Which address does a broker advertise when nobody set one?

Stands for ``NetworkUtil.getLocalAddress``. Loopback and container bridges are avoided if there is another; the address that
packets to the outside would leave from is preferred.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Sequence

import attrs

LOOPBACK = "127.0.0.1"

_SIOCGIFFLAGS = 0x8913
_SIOCGIFADDR = 0x8915
_IFF_UP = 0x1
_IFF_LOOPBACK = 0x8
_IFREQ = struct.Struct("16s24x")
_BRIDGE_NAMES = ("docker", "br-", "virbr", "veth", "cni", "flannel", "podman", "lxcbr", "lxdbr")
WILDCARDS = ("", "0.0.0.0", "::", "[::]")
# Never reached: connecting a datagram socket sends nothing, it only looks the route up.
_OUTSIDE = (("192.0.2.1", 9), ("2001:db8::1", 9))


@attrs.frozen
class Interface:
    """A network interface that is up.

    :ivar name: the system's name for it.
    :ivar addresses: its numeric addresses, IPv4 ones first.
    :ivar is_loopback: whether it leads nowhere.
    :ivar is_bridge: whether it belongs to containers of this machine.
    """

    name: str
    addresses: tuple[str, ...]
    is_loopback: bool
    is_bridge: bool


def advertised_host(wanted: str, bind_address: str) -> str:
    """The host that clients are told, IPv6 ones in brackets.

    :param wanted: what the operator set, a name or an address; empty for none.
    :param bind_address: where the server listens: the only address worth telling unless it is a wildcard.
    """
    if wanted:
        return in_brackets(wanted)
    if bind_address not in WILDCARDS:
        return in_brackets(bind_address)
    return in_brackets(choose_address(list_interfaces(), outgoing_addresses()))


def in_brackets(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def choose_address(interfaces: Sequence[Interface], preferred: Sequence[str]) -> str:
    """The best address to advertise.

    :param preferred: addresses that are taken if they are as good as any, best first.
    """
    outside = [i for i in interfaces if not i.is_loopback and not i.is_bridge]
    bridges = [i for i in interfaces if i.is_bridge and not i.is_loopback]
    for group in (outside, bridges):
        addresses = [address for interface in group for address in interface.addresses]
        for is_wanted in (_is_ipv4, _is_ipv6):
            usable = [address for address in addresses if is_wanted(address)]
            for address in preferred:
                if address in usable:
                    return address
            if usable:
                return usable[0]
    return LOOPBACK


def _is_ipv4(address: str) -> bool:
    return ":" not in address


def _is_ipv6(address: str) -> bool:
    return ":" in address


def outgoing_addresses() -> list[str]:
    """The addresses that packets to the outside leave from: IPv4, then IPv6; fewer where there is no such route."""
    found = []
    for family, target in zip((socket.AF_INET, socket.AF_INET6), _OUTSIDE, strict=True):
        with (
            contextlib.suppress(OSError),
            socket.socket(family, socket.SOCK_DGRAM) as probe,
        ):
            probe.connect(target)
            found.append(str(probe.getsockname()[0]))
    return found


def list_interfaces() -> list[Interface]:
    """The interfaces of this machine that are up, in the system's order. Linux only; elsewhere empty."""
    ipv6 = _ipv6_addresses()
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = _IFREQ.pack(name.encode())
            try:
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFFLAGS, request)
            except OSError:
                continue
            flags = struct.unpack_from("H", reply, 16)[0]
            if not flags & _IFF_UP:
                continue
            addresses = ipv6.get(name, [])
            with contextlib.suppress(OSError):
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                addresses = [socket.inet_ntoa(reply[20:24]), *addresses]
            is_bridge = name.startswith(_BRIDGE_NAMES) or os.path.isdir(
                f"/sys/class/net/{name}/bridge"
            )
            found.append(Interface(name, tuple(addresses), bool(flags & _IFF_LOOPBACK), is_bridge))
    return found


def _ipv6_addresses() -> dict[str, list[str]]:
    """Global IPv6 addresses by interface."""
    found: dict[str, list[str]] = {}
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as table:
            rows = [line.split() for line in table]
    except OSError:
        return found
    for packed, _, _, scope, _, name in rows:
        if scope == "00":
            text = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(packed))
            found.setdefault(name, []).append(text)
    return found
