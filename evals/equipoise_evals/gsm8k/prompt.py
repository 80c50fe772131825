"""The exact text that both arms are asked: worked examples, then the question, for completion.

It owns the layout of a prompt and nothing else: which questions and examples are used is the plan's, and how the text
is tokenized (with exactly one BOS) is the engine's. The layout is that of lm-evaluation-harness's ``gsm8k`` task, so
that scores can be set beside published ones.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from equipoise_evals.model import Question

STOP = ("\n\nQuestion:", "\nQuestion:")
"""Where a model that goes on to invent the next question is stopped.

Both need a new line, the whole word and its colon: an answer that begins with the word "Questions", as one rationale of
GSM8K does, or that speaks of a question, is not cut. ``SamplingPlan.stop`` has the same default.
"""

BETWEEN = "\n\n"


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        question: What is asked.
        text: The whole prompt; it ends in ``Answer:`` without a space, since the space belongs to the answer's first
            token.
        sha256: Hexadecimal digest of ``text`` in UTF-8.
    """

    question: Question
    text: str
    sha256: str

    @property
    def asked(self) -> str:
        """What an engine is asked."""
        return self.text


def build_prompts(asked: Sequence[Question], shots: Sequence[Question]) -> tuple[Prompt, ...]:
    """The prompts of the asked questions, in the order given, each after the same worked examples.

    Args:
        asked: Questions from the test file.
        shots: Worked examples from the train file, in the order shown; none is zero-shot.
    """
    examples = "".join(worked_example(shot) + BETWEEN for shot in shots)
    return tuple(_prompt(question, examples) for question in asked)


def worked_example(shot: Question) -> str:
    """A question with its answer, as the question set has it.

    The calculator annotations ``<<3*4=12>>`` stay: lm-evaluation-harness shows them too, and without them the worked
    examples would no longer be the set's own text.
    """
    return f"Question: {shot.question}\nAnswer: {shot.rationale}\n#### {shot.gold}"


def _prompt(question: Question, examples: str) -> Prompt:
    text = f"{examples}Question: {question.question}\nAnswer:"
    return Prompt(question, text, hashlib.sha256(text.encode()).hexdigest())
