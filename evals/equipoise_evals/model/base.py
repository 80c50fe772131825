"""The one base of every stored value: frozen, closed, strict about infinities."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that cannot change and refuses fields it does not know.

    ``nan`` and infinities are refused on the way in: a number that is missing is ``None``, with a reason beside it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
