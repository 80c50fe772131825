"""The result of reading a text for the number it states."""

from typing import NamedTuple


class Reading(NamedTuple):
    """What was read. ``spoken`` is False where there was nothing to read; a spoken None is no single number."""

    spoken: bool
    value: str | None


NOTHING = Reading(False, None)
UNCLEAR = Reading(True, None)
