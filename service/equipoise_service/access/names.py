"""What a token may be called. Its name stands in lists and logs, so it is one line without control characters."""

from typing import Annotated

from pydantic import StringConstraints, TypeAdapter, ValidationError

LONGEST_NAME = 80
TokenName = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=LONGEST_NAME, pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$"
    ),
]
_NAME: TypeAdapter[str] = TypeAdapter(TokenName)


def usable_name(name: str) -> bool:
    """Whether a token may have this name."""
    try:
        _NAME.validate_python(name)
    except ValidationError:
        return False
    return True
