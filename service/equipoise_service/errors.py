"""What the service refuses or reports by name, as one drawn tree. ``api/problems.py`` puts them on the wire.

::

    EquipoiseError                     title, status, type (the last part of the problem's URI)
    ├── SettingsError              500  a variable of the environment holds something unusable (stops the process)
    │   ├── NoTokens               500  beyond the loopback nobody enters without a token (stops the process)
    │   └── PresetError            500  a preset file has a mistake; names file, line and reason (stops the process)
    ├── DataInUse                  500  another service holds the data folder (stops the process)
    ├── ServerError                500  the HTTP server did not start (stops the process)
    └── Refusal
        ├── RequestInvalid         422  fields unknown, of the wrong type or out of range; every one is named
        ├── UnknownPreset          422
        ├── BatchBeyondEngine      422
        ├── BatchBeyondPool        422
        ├── BackendUnsupported     422  this GPU and SGLang version refuse the arm's attention backend
        ├── ModelRefused
        │   ├── UnknownModel       422
        │   ├── ModelNotAllowed    422
        │   ├── GatedModel         422
        │   └── ModelUnavailable   503  known, but not complete here and not reachable
        ├── QuestionsRefused
        │   ├── MissingFolder      422
        │   ├── CorruptLine        422  file and 1-based line named
        │   ├── EmptyQuestionSet   422
        │   ├── TooFewQuestions    422
        │   ├── QuestionsChanged   409  the set is no longer the one that was planned
        │   └── QuestionsUnavailable 503
        ├── NoEngine               503  this machine has no engine environment to start engines from
        ├── TooFewDevices          422  layout and parallelism ask for more GPUs than there are
        ├── UnknownEngine          422  an arm names an engine environment that is not registered
        ├── EmptyIdempotencyKey    422
        ├── IdempotencyConflict    409
        ├── InvalidCursor          422
        ├── ComparisonNotFound     404
        ├── AccessRefused
        │   ├── Unauthenticated    401  no token, or one that is not valid
        │   ├── Forbidden          403  the token's scope does not allow this
        │   ├── AdminByCommand     403  tokens and webhooks of a service that asks nobody who they are
        │   ├── CrossSite          403  another site's page asks for a change
        │   ├── WrongHost          421  addressed by a name that is not this service's
        │   ├── BodyTooLarge       413
        │   ├── BodyTooSlow        408
        │   ├── TooManyRequests    429
        │   └── QueueFull          429
        ├── TokenNotFound          404
        ├── WebhookNotFound        404
        ├── LogNotKept             404  the log of an engine that did not run here, or is kept no more
        ├── NotFinished            409  a report of something that has no verdict
        ├── AlreadyFinished        409  cancelling what has ended
        ├── NotResumable           409  resuming what has a verdict, has not ended, or failed its attestation
        ├── NotEnded               409  exporting what is queued or running
        ├── NotComparable          409  two comparisons whose results do not answer the same question
        └── StorageUnavailable     503  the database is locked, full or cannot be reached; it is tried again

A constructor takes the facts and writes the sentence, so that no two places word the same refusal differently. The
status also decides the exit code of a command that meets the error, but for settings (``cli/exit_codes.py``).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

AGAIN = "The same request may succeed later, once what is said above is there again."


class FieldError(NamedTuple):
    """One thing wrong with one field; ``pointer`` is a JSON pointer into the request (or ``query/name``)."""

    pointer: str
    detail: str


class EquipoiseError(Exception):
    """The root: everything this service refuses or reports by name.

    ``remedy`` says what to do next, for the page that a browser gets; a sentence that already says it need not.
    """

    title: ClassVar[str] = "Internal error"
    status: ClassVar[int] = 500
    type: ClassVar[str] = "internal"
    remedy: ClassVar[str] = "The service's log has what happened; start there."

    def __init__(self, detail: str, fields: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fields = tuple(fields)
        self.headers: dict[str, str] = {}


class SettingsError(EquipoiseError):
    """A setting cannot be used; ``variable`` is its name in the environment."""

    title = "Unusable setting"
    type = "settings"

    def __init__(self, variable: str, why: str) -> None:
        super().__init__(f"{variable}: {why}")
        self.variable = variable


class NoTokens(SettingsError):
    """Nobody could use a service that listens beyond the loopback and knows no token."""

    title = "No tokens"
    type = "no-tokens"

    def __init__(self, host: str) -> None:
        super().__init__(
            "EQUIPOISE_HOST",
            f"{host} can be reached from other machines, where every request needs a token, and there is none yet: "
            "make one with `equipoise token create NAME --scope admin`, or bind 127.0.0.1",
        )


class PresetError(SettingsError):
    """A preset file, or the folder of them, cannot be used; nothing was started."""

    title = "Unusable preset"
    type = "preset"

    def __init__(self, file: Path, line: int | None, why: str) -> None:
        self.file, self.line = file, line
        super().__init__("EQUIPOISE_PRESETS", f"{file}{'' if line is None else f':{line}'}: {why}")


class DataInUse(EquipoiseError):
    """Another service works in this data folder."""

    title = "Data folder in use"
    type = "data-in-use"

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(
            f"the data folder {folder} is in use by {holder}: wait until its comparison has ended, use the service "
            "that holds it (--url), or set EQUIPOISE_DATA to another folder"
        )


class ServerError(EquipoiseError):
    """The HTTP server cannot bind its address or did not start."""

    title = "Server not started"
    type = "server"


class Refusal(EquipoiseError):
    """Something a client asked for and will not get; nothing is broken."""

    title = "Refused"
    status = 422
    type = "refused"
    remedy = "Change what is said above and ask again."


class RequestInvalid(Refusal):
    """The request itself is wrong; ``fields`` names every fault at once."""

    title = "Invalid request"
    type = "invalid-request"

    def __init__(self, fields: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{field.pointer or 'request'}: {field.detail}" for field in fields), fields)


class UnknownPreset(Refusal):
    """No such preset."""

    title = "Unknown preset"
    type = "unknown-preset"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        detail = f"there is no preset {name!r}; known: {', '.join(known)}"
        super().__init__(detail, [FieldError("/preset", detail)])


class BatchBeyondEngine(Refusal):
    """A batch that the engine would never run together."""

    title = "Batch size beyond the engine's limit"
    type = "batch-beyond-engine"

    def __init__(self, batch: int, limit: int, arm: str) -> None:
        detail = (
            f"batch size {batch} is beyond the {limit} requests that arm {arm!r} runs at once "
            f"(--max-running-requests {limit}); ask for a smaller batch or give both arms a larger limit"
        )
        super().__init__(detail, [FieldError("/batch_sizes", detail)])


class BatchBeyondPool(Refusal):
    """A batch whose tokens the engine's KV pool cannot hold at once."""

    title = "Batch size beyond the engine's limit"
    type = "batch-beyond-engine"

    def __init__(self, batch: int, tokens: int, pool: int, arm: str) -> None:
        detail = (
            f"batch size {batch} needs {tokens} tokens, beyond the {pool} of arm {arm!r} (--max-total-tokens {pool}); "
            "ask for a smaller batch or shorter blocks, or give both arms a larger pool"
        )
        super().__init__(detail, [FieldError("/batch_sizes", detail)])


class BackendUnsupported(Refusal):
    """An attention backend that the installed SGLang refuses to run on this GPU."""

    title = "Attention backend unsupported"
    type = "backend-unsupported"

    def __init__(self, arm: str, why: str) -> None:
        super().__init__(f"arm {arm!r}: {why}; nothing was changed for you: give both arms the same other backend")


class TooFewDevices(Refusal):
    """Layout and parallelism of the engines ask for more GPUs than a comparison can get here."""

    title = "Too few devices"
    type = "too-few-devices"

    def __init__(self, layout: str, needed: int, there: int) -> None:
        detail = (
            f"layout {layout} takes {needed} GPUs of one machine and there are {there}; ask for another layout, "
            "a smaller --tp-size, --pp-size or --dp-size, or more devices (EQUIPOISE_DEVICES)"
        )
        super().__init__(detail, [FieldError("/layout", detail)])


class NoEngine(Refusal):
    """This machine cannot start any engine; the operator has to set it up."""

    title = "No engine environment"
    status = 503
    type = "no-engine"
    remedy = "Whoever runs this service has to set the machine up; `equipoise doctor` looks at it."


class UnknownEngine(Refusal):
    """An arm asks for an engine environment that is not registered; ``equipoise env add`` registers one."""

    title = "Unknown engine environment"
    type = "unknown-engine"

    def __init__(self, arm: str, name: str, known: Sequence[str]) -> None:
        super().__init__(f"arm {arm!r} asks for the engine environment {name!r}; there are: {', '.join(known)}")


class ModelRefused(Refusal):
    """The model cannot be measured."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, [FieldError("/model", detail)])


class UnknownModel(ModelRefused):
    """Neither a folder with a model, nor an id that the hub knows."""

    title = "Unknown model"
    type = "unknown-model"


class ModelNotAllowed(ModelRefused):
    """The operator's lists leave this model out."""

    title = "Model not allowed"
    type = "model-not-allowed"


class GatedModel(ModelRefused):
    """The hub wants a token, or its terms accepted."""

    title = "Gated model"
    type = "gated-model"


class ModelUnavailable(ModelRefused):
    """The model exists, but its files are not complete here and could not be fetched."""

    title = "Model unavailable"
    status = 503
    type = "model-unavailable"
    remedy = AGAIN


class QuestionsRefused(Refusal):
    """The question set cannot be asked."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, [FieldError("/questions", detail)])


class MissingFolder(QuestionsRefused):
    """The folder that EQUIPOISE_GSM8K names, or one of its files, is not there."""

    title = "Missing question folder"
    type = "missing-question-folder"


class CorruptLine(QuestionsRefused):
    """A line of a question file cannot be used; the sentence names file and line."""

    title = "Corrupt question line"
    type = "corrupt-question-line"


class EmptyQuestionSet(QuestionsRefused):
    """A question file without a question."""

    title = "Empty question set"
    type = "empty-question-set"


class TooFewQuestions(QuestionsRefused):
    """More questions or worked examples asked for than the set has."""

    title = "Too few questions"
    type = "too-few-questions"


class QuestionsChanged(QuestionsRefused):
    """Between planning and running, the files changed."""

    title = "Question set changed"
    status = 409
    type = "questions-changed"


class QuestionsUnavailable(QuestionsRefused):
    """The set exists, but could not be fetched."""

    title = "Question set unavailable"
    status = 503
    type = "questions-unavailable"
    remedy = AGAIN


class EmptyIdempotencyKey(Refusal):
    """An ``Idempotency-Key`` header without a key, or with one longer than is kept."""

    title = "Unusable idempotency key"
    type = "idempotency-key"

    def __init__(self) -> None:
        super().__init__("Idempotency-Key must hold 1 to 255 characters; leave the header out to submit without one")


class IdempotencyConflict(Refusal):
    """The same key came before with another body."""

    title = "Idempotency key reused"
    status = 409
    type = "idempotency-conflict"

    def __init__(self, key: str, comparison_id: str) -> None:
        super().__init__(
            f"Idempotency-Key {key!r} already submitted comparison {comparison_id} with another body; use a new key"
        )


class InvalidCursor(Refusal):
    """A cursor that this service did not give out."""

    title = "Invalid cursor"
    type = "invalid-cursor"

    def __init__(self, cursor: str) -> None:
        detail = f"{cursor!r} is not a cursor of this list; start again without one"
        super().__init__(detail, [FieldError("query/cursor", detail)])


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
