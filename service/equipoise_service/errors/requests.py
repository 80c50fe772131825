"""What is wrong with a request, or asks for what this machine cannot do."""

from collections.abc import Sequence

from equipoise_service.errors.base import FieldError, Refusal


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
