"""Three scopes, each with what the one before has, and which of them a request needs. Default is deny.

One function decides for every route that there is or will be, from method and path alone: before a body is read, and
without a route that could forget to ask.
"""

from enum import StrEnum

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PUBLIC_PATHS = frozenset({"/livez", "/readyz"})
"""Probes carry no token; they tell nothing but whether the service is well."""
PUBLIC_PREFIX = "/static/"
ADMIN_PATHS = ("/tokens", "/webhooks")


class Scope(StrEnum):
    """What a token allows; each allows what the one before does."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"

    def allows(self, needed: "Scope") -> bool:
        """Whether a token of this scope may do what needs ``needed``."""
        order = list(Scope)
        return order.index(self) >= order.index(needed)


def required_scope(method: str, path: str) -> Scope | None:
    """The scope that a request needs; None where nobody is asked who they are."""
    if path.startswith(ADMIN_PATHS):
        return Scope.ADMIN
    if method not in SAFE_METHODS:
        return Scope.SUBMIT
    return None if path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIX) else Scope.READ
