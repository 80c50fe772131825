"""Addresses and names of machines, and those of running engines that a request may name.

A service must not be led to speak to any other.
"""

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

PLAIN = re.compile(r"https?://[^/?#@\\\s]+")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address that is bound."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def is_address(name: str) -> bool:
    """Whether a name is an address of IP, which no DNS has to resolve."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def address_fault(address: str, allowed: Collection[str]) -> str | None:
    """Why an engine's address may not be attached to; None if it may.

    Args:
        address: As ``http://host:port``.
        allowed: Hosts beside the loopback, each alone or with a port, in letters of any size.
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as wrong:
        return f"{address!r} is no address: {wrong}"
    if not PLAIN.fullmatch(address) or not parts.hostname or port is None:
        return f"{address!r} must be http:// or https://, a host and a port, and nothing else"
    host = parts.hostname
    if is_loopback(host) or not {host, f"{host}:{port}"}.isdisjoint(name.lower() for name in allowed):
        return None
    return (
        f"{host} is neither this machine's loopback nor among EQUIPOISE_ATTACH_HOSTS; whoever runs this service can "
        "allow it there"
    )


def endpoint(address: str) -> tuple[str | None, int | None]:
    """Host and port of an engine's address, the same for every name of this machine's loopback."""
    parts = urlsplit(address)
    host = parts.hostname
    return ("localhost" if host is not None and is_loopback(host) else host), parts.port
