"""From a host to the addresses that may be connected to: looked up once, and every one of them judged."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from agent.egress.deadline import Deadline
from agent.egress.faults import FetchError
from agent.egress.target import Target

Address = IPv4Address | IPv6Address
# Gives the addresses of a host and port as text, as `getaddrinfo` writes them.
Resolver = Callable[[str, int], Sequence[str]]

# Blocks of which no host of the public internet is. Written out, for what Python's `is_global` says differs between its
# releases, and is true of multicast.
_NOT_PUBLIC_4 = [
    IPv4Network(block)
    for block in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
    )
]
_GLOBAL_UNICAST_6 = IPv6Network("2000::/3")
# Within that: protocols and tunnels (Teredo is one), documentation, and what was given back.
_NOT_PUBLIC_6 = [IPv6Network(block) for block in ("2001::/23", "2001:db8::/32", "3ffe::/16", "3fff::/20")]
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)  # the middle of an address whose last 32 bits are one of IPv4


def is_public(address: Address) -> bool:
    """Whether an address, and every IPv4 address inside it, belongs to a host of the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in block for block in _NOT_PUBLIC_4)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in _NAT64:
        return is_public(_last_32_bits(address))
    if address not in _GLOBAL_UNICAST_6 or any(address in block for block in _NOT_PUBLIC_6):
        return False
    return all(is_public(inner) for inner in _tunnelled(address))


def _tunnelled(address: IPv6Address) -> list[IPv4Address]:
    inner = [address.sixtofour] if address.sixtofour is not None else []
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        inner.append(_last_32_bits(address))
    return inner


def _last_32_bits(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFFFFFF)


def system_resolver(host: str, port: int) -> list[str]:
    """The addresses that this machine finds for a host.

    Raises:
        OSError, UnicodeError: it finds none.
    """
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def addresses_of(target: Target, resolver: Resolver, deadline: Deadline) -> list[Address]:
    """Every address of the target's host, each once.

    Raises:
        FetchError: network, it has none; or timeout.
    """
    try:
        return [ip_address(target.host)]
    except ValueError:  # a name, or an odd spelling of an address, which the system reads as it likes
        pass
    try:
        found = list(dict.fromkeys(ip_address(text) for text in _looked_up(target, resolver, deadline)))
    except (OSError, ValueError):
        found = []
    if not found:
        raise FetchError("network", f"No address is known for the host {target.host}.")
    return found


def refuse_inner(target: Target, addresses: Sequence[Address]) -> None:
    """Nothing, or the refusal of a host of which even one address is not public: any of them may be the one used.

    Raises:
        FetchError: blocked_address.
    """
    if not all(is_public(address) for address in addresses):
        raise FetchError(
            "blocked_address",
            f"{target.host} is not a host of the public internet, and nothing else may be fetched.",
        )


def _looked_up(target: Target, resolver: Resolver, deadline: Deadline) -> Sequence[str]:
    """Look the host up on a thread of its own: a lookup cannot be interrupted, only not awaited."""
    done: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put(resolver(target.host, target.port))
        except Exception as error:  # noqa: BLE001 carried over to the caller's thread and raised there
            done.put(error)

    threading.Thread(target=work, name="lookup", daemon=True).start()
    try:
        found = done.get(timeout=deadline.left())
    except queue.Empty:
        raise deadline.over() from None
    if isinstance(found, Exception):
        raise found
    return found
