"""Numbers written in digits: where they stand in a text and what exact value each one has.

A value is a canonical string: ASCII digits, an optional leading ``-``, no separators, no trailing zeros; a fraction
without a finite decimal form is ``p/q`` in lowest terms. Two values are equal exactly when their strings are. No
float is made anywhere and no digit string is converted to an integer unless it is short, so that a run of a million
digits costs no more than its length. Which number is *the answer* is not decided here.
"""

import re
from fractions import Fraction
from typing import Literal, NamedTuple

from equipoise_evals.gsm8k.number_words import fraction_of_words

MAX_EXPONENT = 400
"""Powers of ten beyond this are no answer to a word problem; they are numbers that are not read."""

MAX_FRACTION_DIGITS = 60
"""Longest numerator or denominator that is reduced; the cost of a greatest common divisor grows with the square."""

Kind = Literal["plain", "ordinal", "modifier"]


class Numeral(NamedTuple):
    """One number in a text.

    Attributes:
        start: Where it begins, its sign and currency included.
        end: Where it ends, its magnitude word and percent sign included.
        value: Its canonical value, or None when it looks numeric and is not one number (a time, a date, ``4,9``).
        kind: ``ordinal`` for ``3rd``, ``modifier`` for the number in ``5-year-old``.
        percent: Whether a percent sign follows.
        currency: Whether a currency sign precedes.
    """

    start: int
    end: int
    value: str | None
    kind: Kind = "plain"
    percent: bool = False
    currency: bool = False


def canonical_decimal(whole: str, decimals: str = "", negative: bool = False) -> str:
    """The canonical form of ``whole.decimals``, both of them digit strings."""
    whole = whole.lstrip("0") or "0"
    decimals = decimals.rstrip("0")
    digits = f"{whole}.{decimals}" if decimals else whole
    return f"-{digits}" if negative and digits != "0" else digits


def canonical_fraction(value: Fraction) -> str:
    """The canonical form of a fraction: decimal where that is finite, else ``p/q`` in lowest terms."""
    places, rest = 0, value.denominator
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest //= prime
            power += 1
        places = max(places, power)
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    scaled = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    cut = len(scaled) - places
    return canonical_decimal(scaled[:cut], scaled[cut:], value < 0)


def shifted(value: str | None, exponent: int) -> str | None:
    """A canonical value times ten to the ``exponent``; None where that is no readable number."""
    if value is None or abs(exponent) > MAX_EXPONENT:
        return None
    if "/" in value:
        return canonical_fraction(Fraction(value) * Fraction(10) ** exponent)
    whole, _, decimals = value.lstrip("-").partition(".")
    if exponent >= 0:
        decimals = decimals.ljust(exponent, "0")
        whole, decimals = whole + decimals[:exponent], decimals[exponent:]
    else:
        whole = whole.rjust(1 - exponent, "0")
        whole, decimals = whole[:exponent], whole[exponent:] + decimals
    return canonical_decimal(whole, decimals, value.startswith("-"))


def negated(value: str | None) -> str | None:
    """The canonical value with its sign turned."""
    if value is None or value == "0":
        return value
    return value[1:] if value.startswith("-") else f"-{value}"


def as_fraction(value: str) -> Fraction | None:
    """A canonical value as a fraction, or None where it is too long to compute with."""
    return Fraction(value) if len(value) <= MAX_FRACTION_DIGITS else None


_PLAIN = re.compile(r"([0-9]*)(?:\.([0-9]*))?")
_GROUPED = (
    re.compile(r"([0-9]{1,3}(?:,[0-9]{3})+)(?:\.([0-9]+))?"),
    re.compile(r"([0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3})(?:\.([0-9]+))?"),  # lakh and crore: 12,34,567
    re.compile(r"([0-9]{1,3}(?:['_][0-9]{3})+)(?:\.([0-9]+))?"),
    re.compile(r"([0-9]{1,3}(?:\.[0-9]{3})+),([0-9]{1,2})"),  # 1.234,50
    re.compile(r"([0-9]{1,3}(?:\.[0-9]{3}){2,})()"),  # 1.234.567
    re.compile(r"([0-9]+),(00?)"),  # 64,00: a decimal comma that changes no value
)
_QUOTIENT = re.compile(r"([0-9]+)/([0-9]+)")
_WHOLE_HOUR = re.compile(r"([0-9]{1,2}):00")


def parse_run(run: str) -> str | None:
    """The value of digits joined by ``. , : / ' _`` without spaces, or None where they are not one number.

    Commas must group digits as some country groups them: ``2,125`` is a number, ``4,9`` is not.
    """
    if plain := _PLAIN.fullmatch(run):
        return canonical_decimal(plain[1], plain[2] or "")
    for pattern in _GROUPED:
        if grouped := pattern.fullmatch(run):
            return canonical_decimal(re.sub(r"\D", "", grouped[1]), grouped[2] or "")
    if quotient := _QUOTIENT.fullmatch(run):
        return _divided(quotient[1], quotient[2])
    if hour := _WHOLE_HOUR.fullmatch(run):
        return canonical_decimal(hour[1])
    return None


def _divided(numerator: str, denominator: str) -> str | None:
    if max(len(numerator), len(denominator)) > MAX_FRACTION_DIGITS or not denominator.strip("0"):
        return None
    return canonical_fraction(Fraction(int(numerator), int(denominator)))


_RUN = re.compile(r"(?:[0-9]+|(?<![0-9A-Za-z_.)])\.[0-9]+)(?:[.,:/'_][0-9]+)*")
_SPACE_GROUPS = re.compile(r"([0-9]{1,3}(?: [0-9]{3})+)(?:\.([0-9]+))?(?![0-9/]|[.,:][0-9]|-[A-Za-z])")
_MIXED = re.compile(r"([0-9]{1,30})(?:\s*-\s*| | and | & )([0-9]{1,9})\s?/\s?([0-9]{1,9})(?![0-9/])")
_SPACED_QUOTIENT = re.compile(r"([0-9]+) ?/ ?([0-9]+)(?![0-9]| ?/|[.,][0-9])")
_EXPONENT = re.compile(
    r"[eE]([+-]?[0-9]{1,9})(?![0-9A-Za-z])|\s*[x×*]\s*10\s?\^\s?[{(]?([+-]?[0-9]{1,9})[})]?(?![0-9])"
)
_POWER = re.compile(r"\s?(?:\^|\*\*)\s?[{(]?(-?[0-9]{1,9})[})]?")
_AND_A_PART = re.compile(r"\s+and\s+(?:a|one)[\s-]+(half|third|quarter|fourth|fifth)\b", re.IGNORECASE)
_MAGNITUDE = re.compile(
    r"[\s-]*(hundred|thousand|million|billion|trillion|lakh|crore)s?\b|\s?(bn|mn)\b|(k)(?![\w^])|(M|B)(?![\w^'])",
    re.IGNORECASE,
)
_EXPONENTS = {
    "hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "lakh": 5, "crore": 7,
    "bn": 9, "mn": 6, "k": 3, "M": 6, "B": 9,
}  # fmt: skip
_PERCENT = re.compile(r"\s?(?:%|percent\b|per cent\b)", re.IGNORECASE)
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b", re.IGNORECASE)
_SYMBOL_BEHIND = re.compile(r"\s?[π√]")
_NAME_BEHIND = re.compile(r"(?!x)(?![a-z]{1,2}[23](?![0-9]))[A-Za-z]{1,3}[0-9]")
_MODIFIER = re.compile(r"-(?=[A-Za-z]{2,})")
_CURRENCY_BEFORE = re.compile(
    r"(?:(?:US|CA|AU|NZ|HK|R|C|A)?[$€£¥₹₽₩₫₱฿]|\b(?:USD|EUR|GBP|INR|CAD|AUD|JPY|CNY|CHF|PHP|RM|Rs\.?|kr\.?))\s?$"
)
_TIMES_BEFORE = re.compile(r"[0-9)%][xX]$")
_SIGN_BEFORE = re.compile(r"[-–]\s?$")
_WORD_SIGN_BEFORE = re.compile(r"\b(negative|minus) $", re.IGNORECASE)
_STATING_WORD = re.compile(r"(?:^|\b(?:is|was|be|equals|of|to|at))$", re.IGNORECASE)


def scan(text: str) -> list[Numeral]:
    """Every number written in digits, in order; digits inside names (``H2O``) and exponents of units are none."""
    found: list[Numeral] = []
    position = 0
    while run := _RUN.search(text, position):
        if _is_part_of_a_name(text, run.start()):
            position = run.end()
            continue
        numeral = _numeral_at(text, run)
        found.append(numeral)
        position = max(numeral.end, run.end())
    return found


def _is_part_of_a_name(text: str, start: int) -> bool:
    before = text[start - 1 : start]
    if before in ("^", "_", "#") and before:
        return True
    if not (before.isascii() and before.isalpha()) or _TIMES_BEFORE.search(text, max(0, start - 3), start):
        return False
    return _CURRENCY_BEFORE.search(text, max(0, start - 5), start) is None


def _numeral_at(text: str, run: re.Match[str]) -> Numeral:
    start, (value, end) = run.start(), _body(text, run)
    value, end = _with_power_of_ten(text, value, end)
    start, negative, currency = _with_sign(text, start)
    value, end = _with_magnitude(text, value, end, currency)
    if part := _AND_A_PART.match(text, end):
        value, end = _sum(value, fraction_of_words(part[1])), part.end()
    if _SYMBOL_BEHIND.match(text, end) or _NAME_BEHIND.match(text, end):
        value = None
    kind: Kind = "plain"
    if ordinal := _ORDINAL.match(text, end):
        kind, end = "ordinal", ordinal.end()
    elif _MODIFIER.match(text, end):
        kind = "modifier"
    percent = _PERCENT.match(text, end)
    return Numeral(
        start=start,
        end=percent.end() if percent else end,
        value=negated(value) if negative else value,
        kind=kind,
        percent=percent is not None,
        currency=currency,
    )


def _body(text: str, run: re.Match[str]) -> tuple[str | None, int]:
    """The digits themselves, with what belongs to them across a space: ``118 000``, ``3 1/2``, ``1 / 4``."""
    if mixed := _MIXED.match(text, run.start()):
        whole, over, under = (int(part) for part in mixed.groups())
        if over < under:
            return canonical_fraction(whole + Fraction(over, under)), mixed.end()
    if grouped := _SPACE_GROUPS.match(text, run.start()):
        return canonical_decimal(grouped[1].replace(" ", ""), grouped[2] or ""), grouped.end()
    if run[0].isdigit() and (quotient := _SPACED_QUOTIENT.match(text, run.start())):
        return _divided(quotient[1], quotient[2]), quotient.end()
    return parse_run(run[0]), run.end()


def _with_power_of_ten(text: str, value: str | None, end: int) -> tuple[str | None, int]:
    """``1.45e6``, ``1.45 x 10^6`` and ``10^6`` are numbers; another base with an exponent is a sum left undone."""
    if exponent := _EXPONENT.match(text, end):
        return shifted(value, int(exponent[1] or exponent[2])), exponent.end()
    if power := _POWER.match(text, end):
        return (shifted("1", int(power[1])) if value == "10" else None), power.end()
    return value, end


def _with_magnitude(text: str, value: str | None, end: int, currency: bool) -> tuple[str | None, int]:
    """``2.88 million``, ``5k``, ``$3M``; without a currency ``5B`` may be a seat too, so it is no number."""
    while magnitude := _MAGNITUDE.match(text, end):
        word, short, kilo, capital = magnitude.groups()
        if capital and not capital.isupper():
            break
        if capital == "B" and not currency:
            return None, magnitude.end()
        exponent = _EXPONENTS[(word or short or kilo or "").lower() or capital]
        value, end = shifted(value, exponent), magnitude.end()
    return value, end


def _with_sign(text: str, start: int) -> tuple[int, bool, bool]:
    """Where the number begins with sign and currency, whether it is negative, whether it is money."""
    currency = _CURRENCY_BEFORE.search(text, max(0, start - 5), start)
    begin = currency.start() if currency else start
    sign = _SIGN_BEFORE.search(text, max(0, begin - 2), begin)
    if sign and _is_a_sign(text, sign.start(), attached=len(sign[0]) == 1):
        outer = _CURRENCY_BEFORE.search(text, max(0, sign.start() - 5), sign.start())
        return (outer.start() if outer else sign.start()), True, currency is not None or outer is not None
    word = _WORD_SIGN_BEFORE.search(text, max(0, begin - 9), begin) if text[begin - 1 : begin] == " " else None
    if word and (word[1].lower() == "negative" or not re.search(r"[0-9]", text[max(0, begin - 30) : word.start(1)])):
        return word.start(1), True, currency is not None
    return begin, False, currency is not None


def _is_a_sign(text: str, at: int, attached: bool) -> bool:
    """Tell the minus of ``is -10`` from the one of ``20 - 10``, ``5-6`` and the bullet of a list."""
    before = text[max(0, at - 20) : at]
    if before[-1:].isalnum() or before[-1:] in (")", "%", "}"):
        return False
    words = before.rstrip(" ")
    if words[-1:].isdigit() or words[-1:] in (")", "%"):
        return False
    if attached:
        return True
    return words[-1:] in ("=", ":", "(") or _STATING_WORD.search(words) is not None


def _sum(value: str | None, part: Fraction) -> str | None:
    whole = as_fraction(value) if value else None
    return canonical_fraction(whole + part) if whole is not None else None
