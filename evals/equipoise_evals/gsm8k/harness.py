"""The two filters of lm-evaluation-harness's ``gsm8k`` task, so that scores can be set beside published ones.

They are secondary scores and never decide a verdict: they compare text, so ``64.00`` is wrong where the gold is ``64``.
Patterns and order of the steps are those of ``lm_eval/tasks/gsm8k/gsm8k.yaml`` (task version 3.0), the selection of a
match that of ``RegexFilter`` in ``lm_eval/filters/extraction.py`` and the comparison that of
``exact_match_hf_evaluate`` in ``lm_eval/api/metrics.py``, all of lm-eval 0.4.13.
"""

import re

INVALID = "[invalid]"
"""What the harness takes for the answer where nothing matches."""

_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE_BACKWARDS = re.compile(r"(?:[$0-9.,]{2,}|[0-9])-?")
"""The task's ``(-?[$0-9.,]{2,})|(-?[0-9]+)`` read from the end: the last match there is the first one here."""
_FINAL_DOT = re.compile(r"\.$")


def strict_match(output: str) -> str:
    """The harness's ``strict-match``: what follows the first ``#### ``, or ``[invalid]``."""
    found = _STRICT.search(output)
    return found[1].strip() if found else INVALID


def flexible_extract(output: str) -> str:
    """The harness's ``flexible-extract``: the last run of number characters, or ``[invalid]``.

    The run may be punctuation: ``58, all told...`` gives ``...``, as it does in the harness.
    """
    found = _FLEXIBLE_BACKWARDS.search(output[::-1])
    return found[0][::-1] if found else INVALID


def harness_equal(extracted: str, gold: str) -> bool:
    """The harness's ``exact_match`` with the task's ignored patterns.

    Args:
        extracted: What one of the filters gave.
        gold: The text after ``####``, or the whole worked answer, which is what the harness compares with.
    """
    return _normal(extracted) == _normal(gold)


def _normal(text: str) -> str:
    # The task's patterns "," and "\$", then "(?s).*#### ", then "\.$". The third is written without a regex: where no
    # mark is found, the pattern's cost grows with the square of the text's length.
    text = text.replace(",", "").replace("$", "").rpartition("#### ")[2]
    return _FINAL_DOT.sub("", text).lower()
