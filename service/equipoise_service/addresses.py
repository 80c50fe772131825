"""Addresses of running engines that a request may name: a service must not be led to speak to any other."""

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

PLAIN = re.compile(r"https?://[^/?#@\\\s]+")


def address_fault(address: str, allowed: Collection[str]) -> str | None:
    """Why an engine's address may not be attached to; None if it may.

    Args:
        address: As ``http://host:port``.
        allowed: Hosts beside the loopback, each alone or with a port.
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as wrong:
        return f"{address!r} is no address: {wrong}"
    if not PLAIN.fullmatch(address) or not parts.hostname or port is None:
        return f"{address!r} must be http:// or https://, a host and a port, and nothing else"
    host = parts.hostname
    if _is_loopback(host) or host in allowed or f"{host}:{port}" in allowed:
        return None
    return (
        f"{host} is neither this machine's loopback nor among EQUIPOISE_ATTACH_HOSTS; whoever runs this service can "
        "allow it there"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
