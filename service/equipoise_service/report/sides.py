"""Two answers side by side, with the place where they part."""

from typing import NamedTuple


class Parts(NamedTuple):
    """One answer in three pieces: what both have, the first word that differs, the rest."""

    common: str
    differs: str
    rest: str


def side_by_side(first: str, second: str) -> tuple[Parts, Parts]:
    """Split both answers at the word in which the first character differs.

    Tokens are pieces of words and the service has no tokenizer, so the word is marked that holds the first token that
    differs. Equal texts have no such word.

    >>> side_by_side("so 12 apples", "so 13 apples")[0]
    Parts(common='so ', differs='12', rest=' apples')
    """
    place = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    if place is None:
        place = min(len(first), len(second))
        if len(first) == len(second):
            return Parts(first, "", ""), Parts(second, "", "")
    begin = place
    while begin and not first[begin - 1].isspace():
        begin -= 1
    return _split(first, begin, place), _split(second, begin, place)


def _split(text: str, begin: int, place: int) -> Parts:
    end = max(begin, min(place, len(text)))
    while end < len(text) and (end == begin or not text[end].isspace()):
        end += 1
    return Parts(text[:begin], text[begin:end], text[end:])
