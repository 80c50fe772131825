"""How one running service is entered: whether it asks for tokens, who may read without, and how often one may ask."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from equipoise_service.access.addresses import is_address, is_loopback
from equipoise_service.access.scopes import Scope
from equipoise_service.settings import Settings

GUARDED_REQUESTS_PER_S = 50.0
BURST = 2.0
"""A caller that was quiet may ask this many times its rate at once."""
CALLERS_KEPT = 10_000
HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(:\d{1,5})?")
"""A Host header: a name or an address, and a port."""


class Caller(NamedTuple):
    """Who asks, once that is settled; ``token_id`` is None for everybody's and for the owner's requests."""

    token_id: str | None
    scope: Scope | None


class Door(NamedTuple):
    """How a service is entered.

    Attributes:
        asks: Whether a token is needed.
        public_reads: Whether reading needs none all the same.
        checks_host: Whether names that anybody could point here are refused: on the loopback, where a page in a browser
            of this machine could otherwise reach the service by a name of its own (DNS rebinding).
        allowed_hosts: Names that are not refused.
        pass_sha256: Digest of a token of this process alone, of scope admin; None if there is none.
        requests_per_s: Of one caller; None for no limit.
        body_bytes_max: Longest body.
    """

    asks: bool
    public_reads: bool
    checks_host: bool
    allowed_hosts: frozenset[str]
    pass_sha256: str | None
    requests_per_s: float | None
    body_bytes_max: int

    @classmethod
    def of(cls, settings: Settings, host: str, pass_sha256: str | None = None) -> "Door":
        """The door of a service that listens on ``host``."""
        asks = settings.require_tokens or pass_sha256 is not None or not is_loopback(host)
        return cls(
            asks=asks,
            public_reads=settings.public_reads and pass_sha256 is None,
            checks_host=is_loopback(host),
            allowed_hosts=frozenset(name.lower() for name in settings.allowed_hosts),
            pass_sha256=pass_sha256,
            requests_per_s=settings.requests_per_s or (GUARDED_REQUESTS_PER_S if asks else None),
            body_bytes_max=settings.body_bytes_max,
        )

    def knows(self, host: str) -> bool:
        """Whether a ``Host`` header may name this service.

        What is no name at all never may. Addresses and names without a dot are nobody's to point here by DNS, so they
        always may.
        """
        form = HOST.fullmatch(host)
        if form is None:
            return host == ""  # HTTP/1.0 has none
        name = (form["address"] or form["name"]).rstrip(".").lower()
        return not self.checks_host or "." not in name or is_address(name) or name in self.allowed_hosts


class Pace:
    """Token buckets, one a caller; the callers that asked last are remembered."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._most = max(1.0, BURST * per_s)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str) -> float:
        """Seconds until the caller may ask again; 0 lets this request pass and counts it."""
        now_s = self._clock()
        left, then_s = self._left.pop(caller, (self._most, now_s))
        left = min(self._most, left + (now_s - then_s) * self._per_s)
        passes = left >= 1.0
        self._left[caller] = (left - 1.0 if passes else left, now_s)
        if len(self._left) > CALLERS_KEPT:
            self._left.popitem(last=False)
        return 0.0 if passes else (1.0 - left) / self._per_s
