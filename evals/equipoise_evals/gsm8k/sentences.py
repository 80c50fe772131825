"""Sentences: where they end, and how much of one is read. What they say is not decided here."""

import re

LONGEST = 400
"""Characters of a statement that are read; a sentence longer than this is not one."""

_OF_NUMBERS = "0123456789.,"
_DIGITS = re.compile(r"[0-9.,]*")
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    rf"""
    \b[0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}\b
    | \b[0-9]{{1,2}}/[0-9]{{1,2}}/(?:[0-9]{{4}}|[0-9]{{2}})\b
    | \b{_MONTH}\ [0-9]{{1,2}}(?:st|nd|rd|th)?,?\ [0-9]{{4}}\b
    | \b[0-9]{{1,2}}(?:st|nd|rd|th)?\ {_MONTH},?\ [0-9]{{4}}\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SHARE = r"[0-9]{1,3}(?:\.[0-9]{1,4})?\s?%?"
_CONFIDENCE = re.compile(
    rf"(?<![0-9.]){_SHARE}\s?(?:sure|confident|certain|confidence)\b"
    rf"|\b(?:confidence|certainty)\b(?:\s(?:level|score))?\s?(?:is|of|:|=)?\s?{_SHARE}",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*]{0,3}(?=\s)|\n")
_ABBREVIATION = re.compile(
    r"(?:\b(?:approx|i\.e|e\.g|vs|mr|mrs|ms|dr|no|st|etc|ca|rs|oz|lbs?|ft|hrs?|mins?)|\b[A-Z])\.$", re.IGNORECASE
)


def cleaned(text: str) -> str:
    """The text without dates and confidences, which state no answer."""
    return _CONFIDENCE.sub(" ", _DATE.sub(" ", text))


def head_of(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text, cut where no number is cut."""
    if len(text) <= longest:
        return text
    number = _DIGITS.match(text, longest)
    return text[: number.end() if number else longest]


def tail_of(text: str, longest: int = LONGEST) -> str:
    """The end of a text, cut where no number is cut."""
    if len(text) <= longest:
        return text
    return text[len(text[:-longest].rstrip(_OF_NUMBERS)) :]


def sentence_bounds(text: str) -> list[tuple[int, int]]:
    """Begin and end of each sentence, in order; a line break ends one too."""
    bounds: list[tuple[int, int]] = []
    begin = 0
    for end in _SENTENCE_END.finditer(text):
        if end[0] != "\n" and _ABBREVIATION.search(text, max(begin, end.start() - 8), end.start()):
            continue
        bounds.append((begin, end.end()))
        begin = end.end()
    return [*bounds, (begin, len(text))]


def first_sentence(text: str) -> str:
    """The first sentence that is not empty."""
    for begin, end in sentence_bounds(text):
        if text[begin:end].strip():
            return text[begin:end].strip()
    return ""
