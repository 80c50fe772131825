"""What is stored, or not, and what its status does not allow."""

from collections.abc import Sequence

from equipoise_service.errors.base import AGAIN, Refusal


class ComparisonNotFound(Refusal):
    """No comparison has this id."""

    title = "Comparison not found"
    status = 404
    type = "comparison-not-found"
    remedy = "Look for it in the list; a service shows the comparisons of its own data folder only."

    def __init__(self, comparison_id: str) -> None:
        super().__init__(f"there is no comparison {comparison_id!r}; `equipoise report` and GET /comparisons list them")


class LogNotKept(Refusal):
    """No log of this start of an engine is kept."""

    title = "Log not kept"
    status = 404
    type = "log-not-kept"
    remedy = "The page of the comparison lists the logs that are kept, where its engines ran on this service."

    def __init__(self, comparison_id: str, launch: str) -> None:
        super().__init__(f"no log of the start {launch!r} of comparison {comparison_id} is kept here")


class NotFinished(Refusal):
    """A report was asked for of a comparison that has no verdict."""

    title = "No verdict"
    status = 409
    type = "no-verdict"
    remedy = "Its page shows how far it has come, or why it ended without a verdict; its raw records can be had there."

    def __init__(self, comparison_id: str, status: str) -> None:
        super().__init__(f"comparison {comparison_id} is {status} and has no verdict to report")


class AlreadyFinished(Refusal):
    """A comparison that has ended cannot be cancelled."""

    title = "Already finished"
    status = 409
    type = "already-finished"
    remedy = "Nothing has to be done; its page shows how it ended."

    def __init__(self, comparison_id: str, status: str) -> None:
        super().__init__(f"comparison {comparison_id} is already {status}")


class NotResumable(Refusal):
    """Only a comparison that ended without a verdict can be gone on with."""

    title = "Not resumable"
    status = 409
    type = "not-resumable"
    remedy = "Its page shows its verdict, or how far it has come; to measure anew, submit it again."

    def __init__(self, comparison_id: str, status: str, suspect: str | None = None) -> None:
        why = (
            "only one that failed, was cancelled or was interrupted can be resumed"
            if suspect is None
            else f"an engine of it was not what it should have been ({suspect}), so its answers are not relied on"
        )
        super().__init__(f"comparison {comparison_id} is {status}; {why}")


class NotEnded(Refusal):
    """Only what has ended can be exported: the records of anything else still grow."""

    title = "Not ended"
    status = 409
    type = "not-ended"
    remedy = "Its page shows how far it has come; export it once it has ended."

    def __init__(self, comparison_id: str, status: str) -> None:
        super().__init__(f"comparison {comparison_id} is {status}; only one that has ended can be exported")


class NotComparable(Refusal):
    """Two comparisons whose results cannot be set beside each other; ``reasons`` says why, all of it at once."""

    title = "Not comparable"
    status = 409
    type = "not-comparable"
    remedy = "Choose two comparisons of one model that measured the same; each has its own report."

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(f"these comparisons cannot be compared: {'; '.join(reasons)}")
        self.reasons = tuple(reasons)


class StorageUnavailable(Refusal):
    """The database cannot be read or written now; nothing was stored."""

    title = "Storage unavailable"
    status = 503
    type = "storage-unavailable"
    remedy = AGAIN

    def __init__(self, why: str) -> None:
        super().__init__(f"the database cannot be used now: {why}; ask again in a moment")


class TokenNotFound(Refusal):
    """No token has this id."""

    title = "Token not found"
    status = 404
    type = "token-not-found"

    def __init__(self, token_id: str) -> None:
        super().__init__(f"there is no token {token_id!r}; `equipoise token list` and GET /tokens list them")


class WebhookNotFound(Refusal):
    """No webhook has this id."""

    title = "Webhook not found"
    status = 404
    type = "webhook-not-found"

    def __init__(self, webhook_id: str) -> None:
        super().__init__(f"there is no webhook {webhook_id!r}; `equipoise webhook list` and GET /webhooks list them")
