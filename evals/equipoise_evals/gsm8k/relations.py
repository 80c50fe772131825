"""The numbers of a statement and how two of them stand to each other: operands, rivals, parts of one amount."""

import re
from collections.abc import Sequence

from equipoise_evals.gsm8k.number_words import WordNumber, scan_words
from equipoise_evals.gsm8k.numerals import Numeral, as_fraction, canonical_fraction, negated, scan
from equipoise_evals.gsm8k.reading import Reading


def numerals_of(text: str) -> list[Numeral]:
    """The numbers in digits, or where there are none those in words that count something."""
    digits = scan(text)
    if digits:
        return digits
    return [
        _spelled(text, word)
        for word in scan_words(text)
        if not _counts_nothing(text, word.start, word.end, word.is_part)
    ]


_MINUS = re.compile(r"\b(?:minus|negative)\s$", re.IGNORECASE)


def _spelled(text: str, word: WordNumber) -> Numeral:
    value = canonical_fraction(word.value) if word.value is not None else None
    minus = _MINUS.search(text, max(0, word.start - 9), word.start)
    return Numeral(minus.start(), word.end, negated(value)) if minus else Numeral(word.start, word.end, value)


_PRONOUN_BEFORE = re.compile(r"\b(?:this|that|each|every|no|any|which|another|the|other|last|first)\s+$", re.IGNORECASE)
_PRONOUN_AFTER = re.compile(
    r"\s+(?:of|can|could|must|should|would|might|by|who|that|day|another|needs|has|is)\b", re.IGNORECASE
)


def _counts_nothing(text: str, start: int, end: int, is_part: bool) -> bool:
    """Whether words that could be a number are a pronoun (``this one``) or a share of something (``a third of``)."""
    if is_part:
        return re.match(r"\s+(?:of|as)\b", text[end:]) is not None
    if text[start:end].lower() != "one":
        return False
    return _PRONOUN_BEFORE.search(text[:start]) is not None or _PRONOUN_AFTER.match(text[end:]) is not None


_OPERATOR = re.compile(
    r"""
    (?: \s*(?:[A-Za-z°.']{1,15}(?:\^[0-9])?\s+){0,3} | \s*[A-Za-z°]{1,4} )?  # the unit of the first number
    [)\]]*\s*
    (?: [-–+*×÷/^→] | \bx\b | (?<=\s):(?=\s) | \b(?:times|plus|minus|multiplied\ by|divided\ by|to|through|of)\b )
    \s*[(\[]*\s*[$€£]?\s*
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TIMES_GLUED = re.compile(r"\s*[xX]\s*")
WORDS = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_ENDS_THOUGHT = re.compile(r"[.!?:](?:\s|$)|[\"']\s?:|[(—\n]|\s–\s|\.\.\.|…")
_LAST_LATIN = 0x24F
_CONNECTS = re.compile(
    r"""
    \s*
    | \s*(?:[A-Za-z°%.']{1,20}\s*){0,4}
      (?: [,;/&|] | \b(?:and|or|nor|to)\b )
      [\s,]* (?:and|or)? [\s$€£(]*
      (?:(?:the|a|another|about|approximately|around|maybe|perhaps|possibly|even|else)\s+){0,2}
    """,
    re.VERBOSE | re.IGNORECASE,
)
_COMPOUND = re.compile(
    r"""
    \s*(?: (?:remainder|rem\.?|r)\s+[0-9]
        | years?,?\s+[0-9]+\ (?:months?|weeks?|days?)
        | weeks?,?\s+[0-9]+\ days?
        | days?,?\s+[0-9]+\ (?:hours?|hrs?)
        | (?:hours?|hrs?|h),?\s+[0-9]+\ ?(?:minutes?|mins?|m\b)
        | (?:minutes?|mins?|m),?\s+[0-9]+\ ?(?:seconds?|secs?|s\b)
        | (?:feet|foot|ft\.?|'),?\s*[0-9]+\ ?(?:inch|in\b|")
        | yards?,?\s+[0-9]+\ (?:feet|foot|ft)
        | miles?,?\s+[0-9]+\ (?:feet|yards)
        | (?:pounds?|lbs?\.?),?\s+[0-9]+\ ?(?:ounces?|oz)
        | dollars?,?\s+[0-9]+\ cents?
        | (?:kilometers?|km),?\s+[0-9]+\ ?(?:meters?|m\b)
        | (?:meters?|m),?\s+[0-9]+\ ?(?:centimeters?|cm)
        | (?:kilograms?|kg),?\s+[0-9]+\ ?(?:grams?|g\b)
        | gallons?,?\s+[0-9]+\ (?:quarts?|pints?) )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_PARTING = frozenset(
    """
    in for per after over at with from by which that because since each every than as on when if while who whose is are
    was were has have had i e g so then therefore thus hence out remaining left using given of among between during
    within until before into made make makes to get gets got cost costs confidence date note check
    """.split()  # noqa: SIM905 - forty quoted words would be harder to read
)


def is_operation(text: str, left: Numeral, right: Numeral) -> bool:
    """Whether two neighbouring numbers form a sum, a product, a range or a ratio rather than two statements."""
    glue = text[left.end : right.start]
    if _TIMES_GLUED.fullmatch(glue):
        return True
    match = _OPERATOR.fullmatch(glue)
    if match is None:
        return False
    return left.percent if re.search(r"\bof\b", glue, re.IGNORECASE) else True


def are_rivals(text: str, left: Numeral, right: Numeral) -> bool:
    """Whether two neighbouring numbers are a list, alternatives or parts of one amount: ``4, 9``, ``12 or 14``."""
    if left.value is not None and left.value == right.value:
        return False
    glue = text[left.end : right.start]
    if _ENDS_THOUGHT.search(glue):
        return False
    if any(character.isalpha() and ord(character) > _LAST_LATIN for character in glue):
        return True
    if _PARTING.intersection(word.lower() for word in WORDS.findall(glue)):
        return False
    if not glue.strip() and (right.kind == "modifier" or (right.currency and not left.currency)):
        return False  # 2 $10 bills, 56 6-inch pencils
    return _CONNECTS.fullmatch(glue) is not None or _COMPOUND.match(text, left.end) is not None


_DOLLARS = re.compile(r"\s*(?:dollars?|euros?|pounds?)?,?\s*(?:and\s+)?", re.IGNORECASE)
_CENTS = re.compile(r"\s*(?:cents?|pence)\b", re.IGNORECASE)


def dollars_and_cents(text: str, numerals: Sequence[Numeral]) -> Reading | None:
    """``5 dollars and 50 cents`` is one amount, 5.5."""
    if len(numerals) < 2:
        return None
    dollars, cents = numerals[0], numerals[1]
    glue = text[dollars.end : cents.start]
    if not _DOLLARS.fullmatch(glue) or not (dollars.currency or glue.strip()) or not _CENTS.match(text, cents.end):
        return None
    whole, part = (as_fraction(numeral.value) if numeral.value else None for numeral in (dollars, cents))
    if whole is None or part is None or not 0 <= part < 100 or part.denominator != 1:
        return None
    return Reading(True, canonical_fraction(whole + part / 100))
