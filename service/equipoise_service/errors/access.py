"""Who asks, from where, how much and how often."""

from equipoise_service.errors.base import AGAIN, Refusal


class AccessRefused(Refusal):
    """Who asks, from where, how much or how often stands against it."""


class Unauthenticated(AccessRefused):
    """No token, or one that is unknown, expired or revoked; which of them is not told."""

    title = "Token needed"
    status = 401
    type = "unauthenticated"
    remedy = "Ask whoever runs this service for a token; a browser sends it as the password, with any name."

    def __init__(self, shown: bool, browser: bool) -> None:
        why = "the token is not valid" if shown else "this service asks for a token"
        super().__init__(f"{why}; send one as `Authorization: Bearer …`, or set EQUIPOISE_TOKEN for `equipoise`")
        self.headers = {
            "WWW-Authenticate": 'Basic realm="Equipoise: the token is the password"' if browser else "Bearer"
        }


class Forbidden(AccessRefused):
    """A valid token whose scope does not allow this."""

    title = "Scope too small"
    status = 403
    type = "forbidden"
    remedy = "Use a token of the scope that is named."

    def __init__(self, scope: str, needed: str) -> None:
        super().__init__(f"this needs a token of scope {needed!r}; the one shown has scope {scope!r}")


class AdminByCommand(AccessRefused):
    """Where nobody is asked who they are, any user of the machine could leave a token behind for later."""

    title = "Not over HTTP"
    status = 403
    type = "admin-by-command"
    remedy = "Use the command on the service's own machine."

    def __init__(self) -> None:
        super().__init__(
            "a service that asks nobody for a token changes tokens and webhooks by command only: `equipoise token`, "
            "`equipoise webhook`"
        )


class CrossSite(AccessRefused):
    """A browser says that a page of another site asks for a change."""

    title = "Asked by another site"
    status = 403
    type = "cross-site"
    remedy = "Nothing was changed. Use the pages of this service itself."

    def __init__(self) -> None:
        super().__init__("a page of another site asked for this; only the service's own pages and programs may")


class WrongHost(AccessRefused):
    """A name that anybody's DNS could point to this machine."""

    title = "Not this service's name"
    status = 421
    type = "wrong-host"
    remedy = "Use the address that the service printed when it started, or list the name in EQUIPOISE_ALLOWED_HOSTS."

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host[:253]!r} is no name of this service; use its address, or list the name in EQUIPOISE_ALLOWED_HOSTS"
        )


class BodyTooLarge(AccessRefused):
    """More bytes than any request needs."""

    title = "Body too large"
    status = 413
    type = "body-too-large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the body is longer than {limit_bytes} bytes")
        self.headers = {"Connection": "close"}


class BodyTooSlow(AccessRefused):
    """A body that does not end."""

    title = "Body too slow"
    status = 408
    type = "body-too-slow"

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"the body was not complete after {limit_s:g} s")
        self.headers = {"Connection": "close"}


class TooManyRequests(AccessRefused):
    """One caller asks faster than is allowed."""

    title = "Too many requests"
    status = 429
    type = "too-many-requests"
    remedy = AGAIN

    def __init__(self, per_s: float, wait_s: int) -> None:
        super().__init__(f"at most {per_s:g} requests a second from one caller; ask again in {wait_s} s")
        self.headers = {"Retry-After": str(wait_s)}


class QueueFull(AccessRefused):
    """As many comparisons wait as may wait."""

    title = "Queue full"
    status = 429
    type = "queue-full"
    remedy = AGAIN

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} comparisons wait already, and no more may (EQUIPOISE_QUEUE_MAX); ask again later")
        self.headers = {"Retry-After": "60"}
