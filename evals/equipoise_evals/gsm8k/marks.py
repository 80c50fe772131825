r"""Explicit final answers: ``#### 42``, ``\boxed{42}``, "the answer is 42", ``A: 42``, ``"answer": 42``.

Each mark either commits to a value, commits to no single number (``#### 4, 9``), or commits to nothing because it is
no answer after all (``#### Step 1``, ``Answer:`` before a whole derivation).
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from equipoise_evals.gsm8k.answer_text import READ_WHOLE
from equipoise_evals.gsm8k.prose import UNKNOWABLE, conclusion
from equipoise_evals.gsm8k.reading import NOTHING, UNCLEAR, Reading
from equipoise_evals.gsm8k.relations import numerals_of
from equipoise_evals.gsm8k.sentences import cleaned, first_sentence, head_of, sentence_bounds, tail_of
from equipoise_evals.gsm8k.statement import is_lead, read_lead, read_statement

_MARKS_TRIED = 64
_CONTENT = 1_000


class Commitment(NamedTuple):
    """An explicit final answer: where what it says begins, and its value, None if that is no single number."""

    says_at: int
    value: str | None
    is_empty: bool = False
    """Whether nothing follows the mark: then an earlier answer stands, and without one there is none."""


_FOREIGN = (
    "答案", "答え", "答:", "정답", "respuesta", "réponse", "antwort", "ответ", "resposta", "risposta", "jawaban",
    "odpowiedź", "cevap", "उत्तर", "الجواب", "الإجابة", "đáp án", "antwoord", "svaret",
)  # fmt: skip
_MARKS = ("####", "\n#", "\\boxed", "answer", "ans:", "\na:", "result", *_FOREIGN)


def last_commitment(text: str) -> Commitment | None:
    """The last explicit final answer in the text, or None where there is none."""
    broken_off: Commitment | None = None
    for at, mark in islice(_marks_backwards("\n" + text), _MARKS_TRIED):
        commitment = _commitment_at(text, max(0, at - 1), mark)
        if commitment is not None and commitment.is_empty:
            broken_off = broken_off or commitment
        elif commitment is not None:
            return commitment
    return broken_off


def _marks_backwards(text: str) -> Iterator[tuple[int, str]]:
    """Places of every mark, last first; text has one line break added before it."""
    lowered = text.lower()
    places = {mark: lowered.rfind(mark) for mark in _MARKS}
    while True:
        mark = max(places, key=lambda name: places[name])
        at = places[mark]
        if at < 0:
            return
        yield at, mark
        places[mark] = lowered.rfind(mark, 0, at + len(mark) - 1)


def _commitment_at(text: str, at: int, mark: str) -> Commitment | None:
    if mark == "####":
        return _after_hashes(text, at)
    if mark == "\n#":
        return _after_heading(text, at)
    if mark == "\\boxed":
        return _in_box(text, at)
    return _after_words(text, at, mark)


# --- what a mark is followed by ------------------------------------------------------------------------------------

_BULLET = re.compile(r"^\s*(?:[-*•]|[0-9]{1,2}[.)])\s+(?=\S)")
_RULE = re.compile(r"[\s#*_:=`>|$(\[{.-]*$")
_INLINE_QUESTION = re.compile(r"\b(?:Question|Problem|Q)\s?[0-9]{0,3}:")
_CHOICE = re.compile(r"^\W*\(?[A-Ea-e][).:]\s+(?=[-$€£0-9])")
_NO_NUMBER = re.compile(r"\W*(?:nan|inf(?:inity)?|none|null|n/?a|undefined|unknown|∞|error)\b", re.IGNORECASE)


def _content(text: str, begin: int) -> str:
    """The rest of the line, or the next line that says something."""
    window = head_of(text[begin : begin + READ_WHOLE], _CONTENT)
    own_line, *later_lines = window.split("\n")
    if text[begin - 1] == "\n":
        own_line = _BULLET.sub("", own_line)
    for line in (own_line, *(_BULLET.sub("", line) for line in later_lines)):
        if line.strip() and not _RULE.fullmatch(line):
            return _INLINE_QUESTION.split(line, maxsplit=1)[0]
    return ""


def _read_content(content: str) -> Reading:
    content = _CHOICE.sub("", content)
    numerals = numerals_of(cleaned(content))
    if not numerals:
        return NOTHING
    if is_lead(cleaned(content)[: numerals[0].start]):
        return read_lead(content)
    return read_statement(first_sentence(content)) if len(sentence_bounds(content)) < 3 else conclusion(content)


# --- hashes and boxes ----------------------------------------------------------------------------------------------

_HEADING = re.compile(
    r"\W*(?:(?:step|part|solution|explanation|calculat|check|verif|note|given|problem|understand|summary|conclusion"
    r"|answer|final|breakdown|reasoning|approach|method|case)\w*\b|[0-9]{1,2}[.)]\s+\W*[A-Za-z])",
    re.IGNORECASE,
)
_HEADING_LINE = re.compile(r"\s*#{1,3}([ *$€£]*-?[$€£]?[0-9.,]+[ *.]*)$")
_BETWEEN_BOXES = re.compile(r"[\s$.,;]*(?:or|and|,)[\s$]*$")
_OPENING = re.compile(r"\s*\{")
_BRACE = re.compile(r"[{}]")
_UNBRACED = re.compile(r"\s*-?[0-9][0-9.,]*")


def _after_hashes(text: str, at: int) -> Commitment | None:
    """``#### 42``; as a heading (``#### Step 1``) it commits to nothing."""
    begin = at + len("####")
    content = _content(text, begin)
    if not content.strip():
        before = text[text.rfind("\n", 0, at) + 1 : at]
        return None if numerals_of(tail_of(before)) else Commitment(begin, None, is_empty=True)
    if _HEADING.match(content):
        return None
    reading = UNCLEAR if _NO_NUMBER.match(content) else _read_content(content)
    return Commitment(begin, reading.value) if reading.spoken else None


def _after_heading(text: str, at: int) -> Commitment | None:
    """``### 42``: fewer marks than GSM8K's count only with a bare number behind them."""
    line = text[at : at + 200].removeprefix("\n").partition("\n")[0]
    heading = _HEADING_LINE.match(line)
    value = read_lead(heading[1]).value if heading else None
    return Commitment(at + 1, value) if value is not None else None


def _in_box(text: str, at: int) -> Commitment:
    content, end = _braced(text, at + len("\\boxed"))
    if content is None or not content.strip():
        return Commitment(end, None, is_empty=True)
    if _has_a_rival_box(text, at, content):
        return Commitment(end, None)
    return Commitment(end, _read_content(content.rpartition("\\boxed{")[2]).value)


def _has_a_rival_box(text: str, at: int, content: str) -> bool:
    r"""Whether another box stands directly before: ``\boxed{12} or \boxed{14}``."""
    glue = text[max(0, at - 30) : at].rpartition("}")
    if not glue[1] or not _BETWEEN_BOXES.fullmatch(glue[2]):
        return False
    previous = text.rfind("\\boxed", 0, at)
    other = _braced(text, previous + len("\\boxed"))[0] if previous >= 0 else None
    return other is not None and read_lead(other).value != read_lead(content).value


def _braced(text: str, at: int) -> tuple[str | None, int]:
    """The content of the braces at a place, or the number there; None where the brace never closes."""
    opening = _OPENING.match(text, at)
    if opening is None:
        bare = _UNBRACED.match(text, at)
        return (bare[0], bare.end()) if bare else (None, at)
    depth = 1
    for brace in _BRACE.finditer(text, opening.end(), opening.end() + _CONTENT):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[opening.end() : brace.start()], brace.end()
    return None, min(len(text), opening.end() + _CONTENT)


# --- words ---------------------------------------------------------------------------------------------------------

_PHRASE = re.compile(
    r"""
    (?:answer|result)(?:s|\(s\))?
    (?: \s+(?:to|for|of)\s+(?!part\b|step\b|the\ (?:first|second)\b)[^.:=\n]{1,80}? | \s+here )?
    [*_"')\]]{0,4}
    (?: \s*[:=]\s*
      | \s+(?: is|was|are|equals?|should\ be|must\ be|should\ have\ been|comes?\ (?:out\ )?to|will\ be|becomes )\b
        (?:\s*[:=])? )
    [*_"'(\[]{0,4}
    """,
    re.VERBOSE | re.IGNORECASE,
)
_FOREIGN_STATES = re.compile(
    r"\s*(?:final\s*)?(?:是|为|為|は|은|는|:|=|es|est|ist|lautet|è|é|to|jest|adalah|är|হল|है|هو|هي|là|is)+\s*:?\s*",
    re.IGNORECASE,
)
_DERIVES = re.compile(
    r"\W*(?:found|obtained|calculated|computed|determined|given by|derived|the (?:sum|product|difference|number|same)"
    r"|how|not\b(?!.*\bbut\b))",
    re.IGNORECASE,
)
_STEP = re.compile(r"^\W*(?:step|part)\s*[0-9]", re.IGNORECASE)
_FINAL_BEFORE = re.compile(r"\bfinal\W{0,4}$", re.IGNORECASE)
_THE_RESULT = re.compile(r"(?:final|the|\")\W*$", re.IGNORECASE)
_LETTER_LABEL = re.compile(r"\n?[aA]:")


def _after_words(text: str, at: int, mark: str) -> Commitment | None:
    """``The answer is 42``, ``Final answer: 42``, ``A: 42``, ``"answer": 42``."""
    line_start = text.rfind("\n", 0, at) + 1
    before = text[max(line_start, at - 60) : at]
    final = _FINAL_BEFORE.search(before) is not None
    if not final and _STEP.match(text[line_start : line_start + 20]):
        return None
    if mark == "answer" and UNKNOWABLE.match(text, at + len("answer ")):
        return Commitment(at, None)
    begin = _end_of_phrase(text, at, mark, before)
    if begin is None:
        return None
    content = _content(text, begin)
    if not content.strip():
        return Commitment(begin, None, is_empty=True) if final else None
    is_label = not final and text[at:begin].rstrip("*_ \"'([").endswith(":")
    reading = _read_label(content) if is_label else _read_phrase(content)
    return Commitment(begin, reading.value) if reading.spoken else None


def _end_of_phrase(text: str, at: int, mark: str, before: str) -> int | None:
    """Where the words that announce an answer end; None where they announce none."""
    if mark == "\na:":
        label = _LETTER_LABEL.match(text, at)
        return label.end() if label else None
    if mark in _FOREIGN:
        states = _FOREIGN_STATES.match(text, at + len(mark.rstrip(":")))
        return states.end() if states else None
    if before[-1:].isalnum() or before.endswith("/") or (mark == "result" and not _THE_RESULT.search(before)):
        return None
    if mark == "ans:":
        return at + len(mark)
    phrase = _PHRASE.match(text, at)
    return phrase.end() if phrase else None


def _read_label(content: str) -> Reading:
    """What stands behind ``Answer:``; before a whole derivation the label is only its title."""
    if _NO_NUMBER.match(content):
        return UNCLEAR
    numerals = numerals_of(cleaned(content))
    if not numerals or "=" in first_sentence(content) or not is_lead(cleaned(content)[: numerals[0].start]):
        return NOTHING
    return read_lead(_CHOICE.sub("", content))


def _read_phrase(content: str) -> Reading:
    """What stands behind ``the answer is`` or ``final answer:``."""
    if _NO_NUMBER.match(content):
        return UNCLEAR
    sentence = first_sentence(content)
    numerals = numerals_of(cleaned(content))
    if not numerals or (_DERIVES.match(content) and "=" not in content):
        return NOTHING
    if _DERIVES.match(content) or not is_lead(cleaned(content)[: numerals[0].start]):
        return read_statement(sentence)
    return _read_content(content)
