"""Addresses and names of machines."""

import ipaddress


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
