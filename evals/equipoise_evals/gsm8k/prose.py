"""What a text without marks concludes: the last sentence that states a result, unless the text breaks off."""

import re

from equipoise_evals.gsm8k.reading import NOTHING, UNCLEAR, Reading
from equipoise_evals.gsm8k.relations import numerals_of
from equipoise_evals.gsm8k.sentences import cleaned, sentence_bounds, tail_of
from equipoise_evals.gsm8k.statement import read_lead, read_statement

_READ = 8_000
_SENTENCES_READ = 48
_RUNAWAY = 40
"""Digits after the decimal point from which an unfinished text is a division that never ended."""

_CHECK_WORDS = (
    r"check|checking|verification|verify|verifying|to (?:verify|check|confirm|double[- ]check)"
    r"|let'?s (?:verify|check|double)|let me (?:verify|check|double|confirm)|double[- ]check|sanity check|proof"
)
_CHECK = re.compile(rf"\W*(?:{_CHECK_WORDS})\b", re.IGNORECASE)
_COMMENT = re.compile(
    rf"\W*(?:(?:{_CHECK_WORDS}|note|p\.?s\b|tip|hint|fun fact|i hope|hope this|thanks|thank you|let me know|feel free"
    r"|good luck|this is because|this matches|remember|that'?s (?:a lot|quite|pretty|really)|for comparison"
    r"|in comparison|by the way|interestingly)\b"
    r"|(?:confidence|certainty|score|rating|difficulty|time(?: taken)?|date|tokens?|version|source|references?|page"
    r"|grade|points|level)\s*(?:[:=]|is\b))",
    re.IGNORECASE,
)
_IN_BRACKETS = re.compile(r"\([^()]*\)?[.\s]*")
_CONCLUDING = re.compile(
    r"\W*(?:so|therefore|thus|hence|in conclusion|finally|in total|altogether|overall|wait|actually)\b", re.IGNORECASE
)
_CONFIRMS = re.compile(r"\W*(?:yes|correct|right|exactly|indeed)\b", re.IGNORECASE)
_ENUMERATOR = re.compile(
    r"^[ \t>*-]{0,6}(?:\(?[0-9]{1,2}[.)]|step\s+[0-9]{1,2}\s*[:.)-]|[-*•])[ \t]+", re.IGNORECASE | re.MULTILINE
)
_CLOSER = re.compile(
    r"\W*(?:i hope|hope|thanks|thank|done|good luck|let me know|that'?s (?:it|all)|great|q\.?e\.?d|the end|end)\b",
    re.IGNORECASE,
)
_TERMINATED = re.compile(r"[.!?:][\"')\]}*$\s]*$|(?:[)\]}$|\"]|(?<=\S)\*)\s*$")
_DANGLING = re.compile(
    r"""
    (?: \b(?: a|an|the|and|or|but|so|then|that|which|who|whose|of|to|for|from
            | (?<![0-9]\ )(?<!sq\ )(?<!sq\.\ )(?<!cubic\ )in  # 768 sq in
            | on|at|by|with|without|into|than|as|is|are|was|were|will|would|can|could|should|must|may|might
            | her|his|their|its|my|your|our|she|he|they|we|these|those|because|since|while|if|when|where|how
            | have|has|had|get|gets|from\ both|per )
      | [-+*×÷/=≈,(^–$] | << )\s*$
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NEW_CLAUSE = re.compile(r",\s*(?:and|so|but|then|which|because|while)\b", re.IGNORECASE)
_BARE_LINE = re.compile(r"\s{0,20}[*$€£(]{0,4}-?[$€£]?[0-9][0-9.,]*%?(?: [a-z]{1,12}){0,2}[*).]{0,3}[ ]{0,9}\n")
UNKNOWABLE = re.compile(
    r"\b(?:cannot|can't|can not|could not|impossible to) (?:be )?"
    r"(?:determined?|known|calculated?|answered|found|solved?|say)\b"
    r"|\b(?:not enough|insufficient) (?:information|data)\b",
    re.IGNORECASE,
)
"""Sentences that say there is no answer."""


def concluded(text: str) -> Reading:
    """The conclusion of an unmarked text; a first line that is only a number stands unless a calculation follows."""
    reading = conclusion(text)
    bare = _BARE_LINE.match(text)
    if bare is None or (reading.value is not None and "=" in text[bare.end() :]):
        return reading
    last = text.rstrip().rpartition("\n")[2]
    return reading if _BARE_LINE.fullmatch(last + "\n") else read_lead(bare[0])


def conclusion(text: str) -> Reading:
    """What a text concludes, read from its last sentence backwards."""
    text = _ENUMERATOR.sub("", tail_of(text, _READ)).rstrip()
    bounds = [(begin, end) for begin, end in sentence_bounds(text) if text[begin:end].strip()]
    if not bounds:
        return NOTHING
    sentences = [tail_of(text[begin:end]).strip() for begin, end in bounds[-_SENTENCES_READ:]]
    return UNCLEAR if _breaks_off(sentences[-1]) else _last_concluding(sentences)


def _last_concluding(sentences: list[str]) -> Reading:
    confirmed = False
    for sentence in reversed(_counted(sentences)):
        if sentence.rstrip("\"')*").endswith("?") and not confirmed:
            continue
        reading = UNCLEAR if UNKNOWABLE.search(sentence) else read_statement(sentence.rstrip("? "))
        if reading.spoken:
            return reading
        confirmed = _CONFIRMS.match(sentence) is not None
    return NOTHING


def _counted(sentences: list[str]) -> list[str]:
    """The sentences that can conclude: no comments, no checks of a result that was already stated."""
    counted: list[str] = []
    checking = False
    for sentence in sentences:
        if checking and _CONCLUDING.match(sentence):
            checking = False
        if _CHECK.match(sentence) and any(numerals_of(earlier) for earlier in counted):
            checking = True
        if not checking and not _COMMENT.match(sentence) and not (counted and _IN_BRACKETS.fullmatch(sentence)):
            counted.append(sentence)
    return counted


def _breaks_off(sentence: str) -> bool:
    """Whether the text ends in the middle of a thought, so that what it would have concluded is unknown."""
    if _TERMINATED.search(sentence) or _COMMENT.match(sentence):
        return False
    if _DANGLING.search(sentence):
        return True
    numerals = numerals_of(cleaned(sentence))
    if not numerals:
        return len(sentence.split()) > 2 and _CLOSER.match(sentence) is None
    last = numerals[-1]
    if last.value is not None and len(last.value.partition(".")[2]) >= _RUNAWAY and sentence.endswith(last.value[-9:]):
        return True
    return _NEW_CLAUSE.search(sentence, last.end) is not None
