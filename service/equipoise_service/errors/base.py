"""The roots of the tree, and what each of its members says of itself."""

from collections.abc import Sequence
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


class Refusal(EquipoiseError):
    """Something a client asked for and will not get; nothing is broken."""

    title = "Refused"
    status = 422
    type = "refused"
    remedy = "Change what is said above and ask again."
