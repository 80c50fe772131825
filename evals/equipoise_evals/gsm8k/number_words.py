"""Numbers written in English words: ``twelve``, ``forty-two``, ``one hundred and five``, ``two and a half``.

Only complete, well-formed numbers are read; ``two three`` is none. Which number is the answer is not decided here.
"""

import re
from fractions import Fraction
from typing import NamedTuple

_UNITS = {
    word: value
    for value, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        ]
    )
}
_TENS = {
    word: 10 * value
    for value, word in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], start=2
    )
} | {"fourty": 40}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {
    "half": Fraction(1, 2), "halves": Fraction(1, 2), "third": Fraction(1, 3), "thirds": Fraction(1, 3),
    "quarter": Fraction(1, 4), "quarters": Fraction(1, 4), "fourth": Fraction(1, 4), "fourths": Fraction(1, 4),
    "fifth": Fraction(1, 5), "fifths": Fraction(1, 5),
}  # fmt: skip

_CARDINAL = "|".join(sorted([*_UNITS, *_TENS], key=len, reverse=True))
_ANY = rf"(?:{_CARDINAL}|hundred|thousand|million|billion|trillion)"
_PART = rf"(?:{'|'.join(sorted(_PARTS, key=len, reverse=True))})"
_SEQUENCE = re.compile(
    rf"""
    \b(?:
        (?P<half_dozen>half\s+a\s+dozen)
      | (?P<dozen>a\s+dozen)
      | (?P<cardinal>(?:a\s+(?=hundred|thousand|million|billion))?
            {_ANY}(?:(?:\s+|-|\s+and\s+|,\s+(?={_ANY}\s+hundred)){_ANY})*)
        (?: (?P<mixed>\s+and\s+(?:a|one)[\s-]+{_PART}) | (?P<of>[\s-]+{_PART}) )?
    )\b (?P<ordinal>-(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)\b)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_JOINABLE_BY_AND = {"hundred", *_SCALES}


class WordNumber(NamedTuple):
    """A number in words: where it stands and its exact value, None where the words form no number."""

    start: int
    end: int
    value: Fraction | None
    is_part: bool
    """Whether it names a part of something, as ``one third`` does."""


def fraction_of_words(part: str) -> Fraction:
    """The value of ``half``, ``third``, ``quarter``, ``fourth`` or ``fifth``."""
    return _PARTS[part.lower()]


def scan_words(text: str) -> list[WordNumber]:
    """Every number written in words, in order."""
    found: list[WordNumber] = []
    for match in _SEQUENCE.finditer(text):
        if match["dozen"] or match["half_dozen"]:
            found.append(WordNumber(match.start(), match.end(), Fraction(12 if match["dozen"] else 6), False))
        elif not match["ordinal"]:
            found.extend(_cardinals(match))
    return found


def _cardinals(match: re.Match[str]) -> list[WordNumber]:
    """One number, or several where ``and`` joins numbers that are complete: ``five and six``."""
    found: list[WordNumber] = []
    start = match.start("cardinal")
    end = match.end()
    pieces = _split_at_and(match["cardinal"])
    for offset, piece in pieces:
        value = value_of_words(piece)
        found.append(WordNumber(start + offset, start + offset + len(piece), _fraction(value), False))
    last = found[-1]
    if match["mixed"]:
        found[-1] = last._replace(end=end, value=_plus(last.value, _part_in(match["mixed"])))
    elif match["of"]:
        # Twenty fifths are a number of parts; a twenty-fifth is a place in a row.
        is_count = last.value == 1 or match["of"].lower().endswith(("s", "half", "quarter"))
        share = _times(last.value, _part_in(match["of"])) if is_count else None
        found[-1] = last._replace(end=end, value=share, is_part=True)
    return found


def _split_at_and(words: str) -> list[tuple[int, str]]:
    pieces: list[tuple[int, str]] = []
    start = 0
    for joint in re.finditer(r"\s+and\s+", words, re.IGNORECASE):
        before = words[start : joint.start()].rsplit(maxsplit=1)[-1].lower()
        if before not in _JOINABLE_BY_AND:
            pieces.append((start, words[start : joint.start()]))
            start = joint.end()
    return [*pieces, (start, words[start:])]


def value_of_words(words: str) -> int | None:
    """The value of one cardinal number, or None where the words do not form one.

    >>> value_of_words("one hundred and five"), value_of_words("forty-two"), value_of_words("two three")
    (105, 42, None)
    """
    total, group, last = 0, 0, 10**15
    for word in re.split(r"[\s,-]+", words.lower()):
        if word in ("and", "a"):
            continue
        if word in _SCALES:
            total += (group or 1) * _SCALES[word]
            group, last = 0, 10**15
        elif word == "hundred":
            if group >= 100:
                return None
            group, last = (group or 1) * 100, 100
        else:
            value = _TENS[word] if word in _TENS else _UNITS[word]
            if not _fits(value, last):
                return None
            group, last = group + value, value
    return total + group


def _fits(value: int, last: int) -> bool:
    """Whether a word may follow the last one: tens after hundreds, units after tens, nothing after units."""
    return last >= 100 or (20 <= last < 100 and last % 10 == 0 and 0 < value < 10)


def _part_in(words: str) -> Fraction:
    return _PARTS[re.split(r"[\s-]+", words.strip().lower())[-1]]


def _fraction(value: int | None) -> Fraction | None:
    return None if value is None else Fraction(value)


def _plus(value: Fraction | None, part: Fraction) -> Fraction | None:
    return None if value is None else value + part


def _times(value: Fraction | None, part: Fraction) -> Fraction | None:
    return None if value is None else value * part
