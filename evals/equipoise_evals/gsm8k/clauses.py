"""The clause of a sentence that concludes, and the number it states."""

import re
from collections.abc import Sequence
from itertools import pairwise

from equipoise_evals.gsm8k.numerals import Numeral
from equipoise_evals.gsm8k.reading import UNCLEAR, Reading
from equipoise_evals.gsm8k.relations import are_rivals, dollars_and_cents, is_operation

_CONCLUDES = re.compile(
    r"""
    \b(?: so | therefore | thus | hence | consequently | accordingly | but
        | which\ means | meaning | this\ means | that\ means | leaving | leaves | left\ with
        | in\ conclusion | in\ total | altogether | giving | gives | totall?ing | making | for\ a\ total\ of
        | equals? | equal\ to | comes?\ (?:out\ )?to | amounts?\ to | brings?\ (?:\w+\ ){1,4}to )\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_COMMENT_TAIL = re.compile(
    r"""
    \s\(
    | ,?\s(?: because | since | considering | assuming | given\ that | i\.e\. | that\ is, | e\.g\.
          | as\ (?:he|she|it|they|we|there)\b | compared\ (?:to|with) | if | where | when | while | whereas
          | although | though )\s
    | [,;—–]\s*(?:which\ is\s+|that\ is\s+|and\ that's\s+)?
      (?:[$€£]?[0-9.,]+|twice|half|double)\s*%?\s*(?:\w+\s+){0,3}?
      (?:more|less|fewer|times|higher|lower|as|of\ what|older|younger|longer|shorter|taller|heavier|lighter)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_COPULA = re.compile(r"\b(?:is|are|was|were|be|becomes?|equals?|totals?|will be|would be)\b|:(?=\s)", re.IGNORECASE)
_ALTERNATIVE = re.compile(r"\b(?:either|between|maybe|possibly|perhaps)\b", re.IGNORECASE)
_ADJUNCT = re.compile(
    r"""
    [0-9%]\s(?:out\ )?of\s$ | \b(?!(?:it|that|he|she|there|here|what|who)'s)\w+'s\s$
    | \b(?: in | for | after | over | per | every | each | within | during | among | between | with | from | out\ of
        | by | at | than | if | when | on | until | since | before | across | all | of\ the | each\ of(?:\ the)?
        | all\ of(?:\ the)?
        | step | day | week | year | question | problem | option | part | case | page | chapter | room | line
        | equation | number | no\. | figure | table
        | to\ (?!about\b|around\b|nearly\b|exactly\b|only\b|just\b)[a-z]+ )\s+
      (?:(?: the|his|her|their|its|our|my|your|these|those|all|each|every|just|only|another|last|previous|a\ total\ of
          | [A-Z]\w+'s? | \w+'s )\s+){0,2}$
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BOUND = re.compile(
    r"[<>≤≥≠±]\s?[$€£]?$|\b(?<!no )(?<!not )(?:more|less|fewer|greater|bigger|smaller) than [$€£]?$", re.IGNORECASE
)


def is_bound(text: str, numeral: Numeral) -> bool:
    """Whether a number is only the limit of the answer: ``> 5``, ``more than 5``, ``± 5``."""
    return _BOUND.search(text, max(0, numeral.start - 20), numeral.start) is not None


def stated_number(text: str, numerals: Sequence[Numeral]) -> Reading:
    """Narrow a sentence without equals sign to the clause that concludes and read the number it states.

    Args:
        text: The sentence.
        numerals: Its numbers, at least one, those that it denies left out.
    """
    if len(numerals) == 1 and is_bound(text, numerals[0]):
        return UNCLEAR
    begin, end = _conclusion(text, numerals)
    kept = _without_operations(text, [numeral for numeral in numerals if begin <= numeral.start < end])
    if not kept or (len(kept) > 1 and _ALTERNATIVE.search(text[begin : kept[0].start])):
        return UNCLEAR
    after, kept = _after_copula(text, begin, kept)
    kept = _without_adjuncts(text, kept)
    if money := dollars_and_cents(text, kept):
        return money
    if any(are_rivals(text, left, right) for left, right in pairwise(kept)):
        return UNCLEAR
    return Reading(True, (kept[0] if after else kept[-1]).value)


def _conclusion(text: str, numerals: Sequence[Numeral]) -> tuple[int, int]:
    """Where the concluding clause begins and ends: after its last cue, before its comments."""
    begin, end = 0, len(text)
    for cue in _CONCLUDES.finditer(text):
        if any(numeral.start >= cue.end() for numeral in numerals):
            begin = cue.end()
    for tail in _COMMENT_TAIL.finditer(text, begin):
        if any(begin <= numeral.start < tail.start() for numeral in numerals):
            end = tail.start()
            break
    return begin, end


def _without_operations(text: str, numerals: Sequence[Numeral]) -> list[Numeral]:
    """The numbers that are not operands: a sum that nobody carried out states no value."""
    operands: set[int] = set()
    for index in range(1, len(numerals)):
        if is_operation(text, numerals[index - 1], numerals[index]):
            operands.update((index - 1, index))
    return [numeral for index, numeral in enumerate(numerals) if index not in operands]


def _after_copula(text: str, begin: int, numerals: list[Numeral]) -> tuple[bool, list[Numeral]]:
    """The numbers behind the clause's last ``is`` or ``are`` that has one behind it."""
    for verb in reversed(list(_COPULA.finditer(text, begin))):
        behind = [numeral for numeral in numerals if numeral.start >= verb.end()]
        if behind:
            return True, behind
    return False, numerals


def _without_adjuncts(text: str, numerals: list[Numeral]) -> list[Numeral]:
    """The numbers that are not the circumstance of another: ``63 apples in 9 days`` keeps 63."""
    kept = [numeral for numeral in numerals if not _is_adjunct(text, numeral)]
    return kept or numerals


def _is_adjunct(text: str, numeral: Numeral) -> bool:
    if numeral.kind != "plain" or numeral.value is None:
        return True
    before = text[max(0, numeral.start - 60) : numeral.start]
    found = _ADJUNCT.search(before)
    return found is not None and not (numeral.currency and re.match(r"for|by", found[0], re.IGNORECASE))
