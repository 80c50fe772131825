"""What one statement says the answer is: a number, several that rival each other, or nothing.

A statement is one sentence, or what follows a mark such as ``####``. Which statements count is not decided here.
"""

import re
from collections.abc import Sequence

from equipoise_evals.gsm8k.clauses import is_bound, stated_number
from equipoise_evals.gsm8k.numerals import Numeral
from equipoise_evals.gsm8k.reading import NOTHING, UNCLEAR, Reading
from equipoise_evals.gsm8k.relations import WORDS, are_rivals, dollars_and_cents, is_operation, numerals_of
from equipoise_evals.gsm8k.sentences import cleaned, first_sentence, head_of, tail_of

_ROUNDED = re.compile(r"\bround(?:s|ed|ing)?(?: it)?(?: up| down| off)? to (?=[$€£]?[0-9])", re.IGNORECASE)
_BOLD = re.compile(r"\*\*([^*\n]{1,200})\*\*")
_NEGATED = re.compile(
    r"(?:\bnot|n't|\bnever|\brather than|\binstead of)\s+(?:the\s+|just\s+|only\s+|equal to\s+)?[$€£]?$", re.IGNORECASE
)


def read_statement(text: str) -> Reading:
    """Read a sentence that concludes: ``Therefore she picks 63 apples in 9 days.`` says 63."""
    text = cleaned(tail_of(text))
    if bold := _read_bold(text):
        return bold
    text = text.replace("**", "")
    if rounded := _ROUNDED.search(text):
        return read_lead(text[rounded.end() :])
    if _EQUALS.search(text):
        return _read_equation(text)
    numerals = numerals_of(text)
    if not numerals:
        return NOTHING
    stated = [numeral for numeral in numerals if not _is_denied(text, numeral)]
    return stated_number(text, stated) if stated else NOTHING


def read_lead(text: str) -> Reading:
    """Read what follows a mark, where the answer comes first: ``42 apples in 9 days`` says 42."""
    text = cleaned(head_of(text))
    if rounded := _ROUNDED.search(text):
        text = text[rounded.end() :]
    if bold := _read_bold(text):
        return bold
    text = text.replace("**", "")
    sentence = first_sentence(text)
    if _EQUALS.search(sentence):
        return _read_equation(sentence)
    numerals = [numeral for numeral in numerals_of(text) if not _is_denied(text, numeral)]
    if not numerals:
        return NOTHING
    return _read_first(text, numerals)


def _read_bold(text: str) -> Reading | None:
    """The last bold number, where one is bold: emphasis is how a writer says which number is meant."""
    bold = [match for match in _BOLD.finditer(text) if numerals_of(match[1])]
    if not bold:
        return None
    if len(bold) > 1:
        between = text[bold[-2].end() : bold[-1].start()]
        if re.fullmatch(r"[\s,;/]*(?:or|and|to|-|–)?\s*", between):
            return UNCLEAR
    return read_lead(bold[-1][1].replace("**", ""))


def _is_denied(text: str, numeral: Numeral) -> bool:
    return _NEGATED.search(text, max(0, numeral.start - 40), numeral.start) is not None


def _read_first(text: str, numerals: Sequence[Numeral]) -> Reading:
    first = numerals[0]
    if is_bound(text, first):
        return UNCLEAR
    if money := dollars_and_cents(text, numerals):
        return money
    if len(numerals) > 1 and (is_operation(text, first, numerals[1]) or are_rivals(text, first, numerals[1])):
        return UNCLEAR
    return Reading(True, first.value)


_EQUALS = re.compile(r"(?<![<>!])=+|≈+")
_SUBORDINATE = re.compile(r"\W*(?:since|as|because|if|given|when)\b", re.IGNORECASE)
_MAIN_CLAUSE = re.compile(r"\s*[$€£]?[0-9][0-9.]*[^,0-9]{0,30},\s+(?=[a-z]+\s[^0-9]*[0-9])")
_CONCLUDED_AFTER = re.compile(
    r"[0-9][^0-9]*?,?\s(?:so|then|meaning|which means|therefore|thus|hence)\b[^0-9]*?(?<![A-Za-z0-9])"
    r"([$€£-]{0,2}[0-9][^;(]*)$",
    re.IGNORECASE,
)
_CONVERTED = re.compile(
    r"[0-9][^0-9]*?,?\swhich is ([$€£]?[0-9][0-9.,]*(?: [a-z]+){0,2}\.?)$",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"(?<![-+*×/=] )(?<![-+*×/=])(?:^|[\s,;(])([A-Za-z])\s*=\s*[-$]?[0-9]")
_LEAD_WORDS = frozenset(
    """
    is was are be about approximately approx around roughly exactly only just total of a an the there it it's that
    she he they we i has have x y n so now simply which equals equal to usd rs still no not answer final at least
    """.split()  # noqa: SIM905 - forty quoted words would be harder to read
)
_WORKS = re.compile(r"[+*×÷/^√π]")
_OPERATES_ON = re.compile(
    r"\s*(?:[+*×÷^√π]\s*(?:[A-Za-z0-9($√]|$)|(?<![ \n])\(|[-/](?:\s*[0-9($√]|\s*$|\s+[a-z])|[xyz]\b\s*(?:[0-9($√]|$))"
)
_OPERATED_ON = re.compile(r"[-+*×÷/^(√]\s*[$€£]?$")


def is_lead(prefix: str) -> bool:
    """Whether the words before a number lead straight to it, as ``approximately`` and ``x`` do."""
    prefix = prefix.replace("**", "")
    return all(word.lower() in _LEAD_WORDS for word in WORDS.findall(prefix)) and not _WORKS.search(prefix)


def _read_equation(text: str) -> Reading:
    """The value of an equation, unless its sentence goes on to conclude from it.

    ``6 * 8 = 48`` and ``48 = 6 * 8`` both say 48; ``x = 5, y = 3`` says two things.
    """
    if len(set(_VARIABLE.findall(text))) > 1:
        return UNCLEAR
    sides = _EQUALS.split(text)
    right, left = sides[-1], sides[-2]
    if concluded := _CONCLUDED_AFTER.search(right):
        return read_statement(concluded[1])
    if converted := _CONVERTED.search(right):
        return read_lead(converted[1])
    if (main := _MAIN_CLAUSE.match(right)) and _SUBORDINATE.match(text):
        return read_statement(right[main.end() :])
    return _read_sides(left, right)


def _read_sides(left: str, right: str) -> Reading:
    """The last side if it is a number of its own, else the number that the side before it ends in."""
    numerals = numerals_of(right)
    carried_out = bool(numerals) and not _opens_operation(right, numerals)
    if carried_out and is_lead(right[: numerals[0].start]):
        return _read_first(right, numerals)
    stated = numerals_of(left)
    if stated and _closes_side(left, stated):
        return Reading(True, stated[-1].value)
    return read_statement(right) if carried_out and not stated else UNCLEAR


def _opens_operation(text: str, numerals: Sequence[Numeral]) -> bool:
    first = numerals[0]
    if len(numerals) > 1 and is_operation(text, first, numerals[1]):
        return True
    return _OPERATES_ON.match(text, first.end) is not None


def _closes_side(text: str, numerals: Sequence[Numeral]) -> bool:
    """Whether a side of an equation ends in a number of its own, with at most its unit behind it."""
    last = numerals[-1]
    if len(numerals) > 1 and is_operation(text, numerals[-2], last):
        return False
    behind = text[last.end :]
    if _OPERATED_ON.search(text[: last.start]) or re.search(r"[-+*×÷/^√π)]", behind):
        return False
    return len(WORDS.findall(behind)) <= 3
