"""Which addresses a fetch may speak to, enforced where the socket is made.

A name is resolved once; every address it has is checked; the connection goes to a checked address
and never resolves again, so that a name cannot mean one host when checked and another when used. As
every connection passes here, so does every redirect, and every way to write an address.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, cast

import httpcore2
import httpx2

from everfill.kernel.errors import ForbiddenError

__all__ = ["AddressGuard", "GuardedTransport", "is_public"]

Address = IPv4Address | IPv6Address
SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)

_NAT64: Final = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE: Final = IPv6Network("::/96")
_V4_MASK: Final = 0xFFFF_FFFF
_HINT: Final = "To let it through, name the host or network in EVERFILL_FETCH__ALLOW_PRIVATE."


def is_public(address: Address) -> bool:
    """Whether anybody on the internet could reach the same host under this address."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None or address in _NAT64_LOCAL:
            return False
        if (inner := _embedded(address)) is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64, 6to4."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or address in _COMPATIBLE:
        return IPv4Address(int(address) & _V4_MASK)
    return address.sixtofour


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Checks hosts and their addresses against one list of exceptions.

    Args:
        allow_private: Host names, addresses and networks (CIDR) that are let through.
    """

    allow_private: tuple[str, ...] = ()
    _networks: tuple[IPv4Network | IPv6Network, ...] = field(init=False, default=())
    _hosts: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        networks = {entry: _network(entry) for entry in self.allow_private}
        hosts = frozenset(_host(entry) for entry, found in networks.items() if found is None)
        object.__setattr__(self, "_hosts", hosts)
        object.__setattr__(self, "_networks", tuple(n for n in networks.values() if n is not None))

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a host, each of them checked.

        Raises:
            ForbiddenError: `address_forbidden`, if any of them is not public.
            OSError: The name does not resolve.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for text in addresses:
            if not self.allows(host, ip_address(text)):
                message = f"{host} is {text}, which is not a public address."
                raise ForbiddenError("address_forbidden", message, hint=_HINT)
        return addresses

    def allows(self, host: str, address: Address) -> bool:
        """Whether this address of this host may be spoken to."""
        if is_public(address) or _host(host) in self._hosts:
            return True
        inner = _embedded(address) if isinstance(address, IPv6Address) else None
        return any(
            candidate in network
            for network in self._networks
            for candidate in (address, inner)
            if candidate is not None and candidate.version == network.version
        )


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """An HTTP transport whose every connection goes through a guard; takes no proxy."""

    def __init__(self, guard: AddressGuard, *, connections_max: int) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(trust_env=False),
            max_connections=connections_max,
            max_keepalive_connections=connections_max // 4,
            keepalive_expiry=10,
            network_backend=_GuardedBackend(guard),
        )


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        inner: object = httpcore2.AnyIOBackend()
        self._inner = cast("httpcore2.AsyncNetworkBackend", inner)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class's signature
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first checked address that answers."""
        try:
            addresses = await self._guard.resolve(host, port)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        failed: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - the base class's signature
        socket_options: Iterable[SocketOption] | None = None,  # noqa: ARG002 - as above
    ) -> httpcore2.AsyncNetworkStream:
        """Refuse: a page is never behind a local socket."""
        raise ForbiddenError("address_forbidden", f"{path} is a local socket.")

    async def sleep(self, seconds: float) -> None:
        """Wait, as the pool asks between tries."""
        await self._inner.sleep(seconds)


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(entry.strip().strip("[]"), strict=False)
    except ValueError:
        return None


def _host(name: str) -> str:
    return name.strip().strip("[]").rstrip(".").casefold()
