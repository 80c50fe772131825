"""Where two JSON values differ, place by place."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from equipoise_evals.model import Frozen

LONGEST_LIST = 16
"""Longer lists of plain values are compared as a whole and shown by their digest."""


class Change(Frozen):
    """One place in which two documents differ: a JSON pointer, and what stands there; null where nothing does."""

    pointer: str
    first: JsonValue
    second: JsonValue


def changes(first: JsonValue, second: JsonValue, pointer: str = "") -> tuple[Change, ...]:
    """Every place in which two JSON values differ, keys in the order of the alphabet."""
    return tuple(_changes(first, second, pointer))


def _changes(first: JsonValue, second: JsonValue, pointer: str) -> Iterator[Change]:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in sorted(first.keys() | second.keys()):
            escaped = key.replace("~", "~0").replace("/", "~1")  # RFC 6901
            yield from _changes(first.get(key), second.get(key), f"{pointer}/{escaped}")
    elif _is_walked(first) and _is_walked(second):
        assert isinstance(first, list) and isinstance(second, list)  # noqa: S101, PT018 - what _is_walked says
        for place in range(max(len(first), len(second))):
            yield from _changes(_at(first, place), _at(second, place), f"{pointer}/{place}")
    elif first != second:
        yield Change(pointer=pointer, first=_shown(first), second=_shown(second))


def _is_walked(value: JsonValue) -> bool:
    return isinstance(value, list) and (len(value) <= LONGEST_LIST or any(isinstance(v, dict | list) for v in value))


def _at(values: Sequence[JsonValue], place: int) -> JsonValue:
    return values[place] if place < len(values) else None


def _shown(value: JsonValue) -> JsonValue:
    if not isinstance(value, list) or len(value) <= LONGEST_LIST:
        return value
    digest = hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()
    return f"{len(value)} values, SHA-256 {digest}"
