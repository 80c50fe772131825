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

from equipoise_service.errors.access import (
    AccessRefused,
    AdminByCommand,
    BodyTooLarge,
    BodyTooSlow,
    CrossSite,
    Forbidden,
    QueueFull,
    TooManyRequests,
    Unauthenticated,
    WrongHost,
)
from equipoise_service.errors.base import AGAIN, EquipoiseError, FieldError, Refusal
from equipoise_service.errors.requests import (
    BackendUnsupported,
    BatchBeyondEngine,
    BatchBeyondPool,
    EmptyIdempotencyKey,
    IdempotencyConflict,
    InvalidCursor,
    NoEngine,
    RequestInvalid,
    TooFewDevices,
    UnknownEngine,
    UnknownPreset,
)
from equipoise_service.errors.sources import (
    CorruptLine,
    EmptyQuestionSet,
    GatedModel,
    MissingFolder,
    ModelNotAllowed,
    ModelRefused,
    ModelUnavailable,
    QuestionsChanged,
    QuestionsRefused,
    QuestionsUnavailable,
    TooFewQuestions,
    UnknownModel,
)
from equipoise_service.errors.starting import DataInUse, NoTokens, PresetError, ServerError, SettingsError
from equipoise_service.errors.stored import (
    AlreadyFinished,
    ComparisonNotFound,
    LogNotKept,
    NotComparable,
    NotEnded,
    NotFinished,
    NotResumable,
    StorageUnavailable,
    TokenNotFound,
    WebhookNotFound,
)

__all__ = [
    "AGAIN",
    "AccessRefused",
    "AdminByCommand",
    "AlreadyFinished",
    "BackendUnsupported",
    "BatchBeyondEngine",
    "BatchBeyondPool",
    "BodyTooLarge",
    "BodyTooSlow",
    "ComparisonNotFound",
    "CorruptLine",
    "CrossSite",
    "DataInUse",
    "EmptyIdempotencyKey",
    "EmptyQuestionSet",
    "EquipoiseError",
    "FieldError",
    "Forbidden",
    "GatedModel",
    "IdempotencyConflict",
    "InvalidCursor",
    "LogNotKept",
    "MissingFolder",
    "ModelNotAllowed",
    "ModelRefused",
    "ModelUnavailable",
    "NoEngine",
    "NoTokens",
    "NotComparable",
    "NotEnded",
    "NotFinished",
    "NotResumable",
    "PresetError",
    "QuestionsChanged",
    "QuestionsRefused",
    "QuestionsUnavailable",
    "QueueFull",
    "Refusal",
    "RequestInvalid",
    "ServerError",
    "SettingsError",
    "StorageUnavailable",
    "TokenNotFound",
    "TooFewDevices",
    "TooFewQuestions",
    "TooManyRequests",
    "Unauthenticated",
    "UnknownEngine",
    "UnknownModel",
    "UnknownPreset",
    "WebhookNotFound",
    "WrongHost",
]
