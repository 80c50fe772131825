"""Ids of comparisons: UUID version 7 (RFC 9562, section 5.7), so that sorting by id sorts by time."""

import secrets
import time
import uuid


def new_id(time_ns: int | None = None) -> str:
    """A new id in lower-case canonical form.

    The 12 bits of ``rand_a`` hold the fraction of the millisecond (RFC 9562, section 6.2, method 3), which orders ids
    made about 250 ns apart.

    Args:
        time_ns: Nanoseconds since the Unix epoch; now if None.
    """
    now_ns = time.time_ns() if time_ns is None else time_ns
    milliseconds, rest_ns = divmod(now_ns, 1_000_000)
    fraction = rest_ns * 4096 // 1_000_000
    random_b = secrets.randbits(62)
    value = (milliseconds & (1 << 48) - 1) << 80 | 7 << 76 | fraction << 64 | 0b10 << 62 | random_b
    return str(uuid.UUID(int=value))


def is_id(text: str) -> bool:
    """Whether a text has the form of a comparison's id."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
