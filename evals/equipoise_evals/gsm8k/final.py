r"""Which number a model's output commits to as its final answer.

An explicit mark (``####``, ``\boxed{}``, "the answer is") outranks prose, and the last one counts; a correction after
it counts more. Without a mark the last sentence that concludes is read. In doubt there is no answer: two candidates,
a range, an empty box or a calculation that breaks off commit to nothing.
"""

import re

from equipoise_evals.gsm8k.answer_text import answer_text
from equipoise_evals.gsm8k.marks import last_commitment
from equipoise_evals.gsm8k.prose import concluded, conclusion
from equipoise_evals.gsm8k.reading import NOTHING, Reading

_CORRECTION = re.compile(
    r"\b(?:wait|actually|correction|corrected|oops|sorry|apologi[sz]e|my mistake|hold on|scratch that|i forgot"
    r"|i made (?:a|an) \w*\s?(?:mistake|error)|on second thought|should (?:actually )?(?:be|have been)"
    r"|let me (?:redo|recalculate|re-calculate|correct|fix|try again|rethink|reconsider|re-?evaluate)"
    r"|(?:that|this|it)(?:'s| is| was) (?:wrong|incorrect|not (?:right|correct)))\b",
    re.IGNORECASE,
)
_CORRECTION_WITHIN = 20_000
_MARKED_LINE = re.compile(r"####[ \t*$]*-?[$]?[0-9][^\n]*\n")
_ASKS = re.compile(
    r"\b(?:how (?:many|much|long|far|old|tall)|what (?:is|was|are|percent\w*|fraction)|find|calculate)\b"
    r"[^?\n]{0,300}\?",
    re.IGNORECASE,
)
_ASKED_WITHIN = 2_000


def final_answer(output: str) -> str | None:
    """The canonical value of the final answer, or None where the output commits to no single number.

    Args:
        output: What the model wrote, unedited; any text, of any length.
    """
    text = answer_text(output)
    if text is None:
        return None
    text = _before_unmarked_question(text)
    commitment = last_commitment(text)
    if commitment is None:
        return concluded(text).value
    corrected = _corrected(text[commitment.says_at :])
    return corrected.value if corrected.spoken else commitment.value


def _corrected(rest: str) -> Reading:
    """A new value that an explicit correction after the answer gives, if it gives one."""
    cue = _CORRECTION.search(rest, 0, _CORRECTION_WITHIN)
    if cue is None:
        return NOTHING
    reading = conclusion(rest[cue.start() :])
    return reading if reading.value is not None else NOTHING


def _before_unmarked_question(text: str) -> str:
    """The text before a new problem that follows ``#### n`` without any heading."""
    first = _MARKED_LINE.search(text)
    if first is None:
        return text
    rest = text[first.end() : first.end() + _ASKED_WITHIN]
    asks = _ASKS.search(rest)
    if asks is None or _CORRECTION.search(rest[: asks.end()]) or not re.search(r"[0-9]", rest[: asks.start()]):
        return text
    return text[: first.end()]
