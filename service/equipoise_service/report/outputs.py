"""The outputs of the arms, pass by pass and against each other, as every report shows them.

Compared are the two passes of each launch pair, and the first two of each arm: the control, which says how much an arm
differs from itself. Log-probabilities where answers part were asked of the engines in the run and are in the records.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from equipoise_evals.gsm8k.equality import Divergence, PassEquality, compare_passes
from equipoise_evals.gsm8k.summary import PassSummary, summarize
from equipoise_evals.model import (
    ROLES,
    DivergenceRecord,
    Frozen,
    PassRecord,
    QuestionsRecord,
    Role,
    TokenChoice,
)

Control = Literal["A/A", "B/B", "A/B"]

MOST_LISTED = 100
"""Divergences of two passes that a report lists, flips first; all of them are in the records."""

NEAR_TIE_NATS = 0.5
"""Where both engines hold the two tokens for this close, rounding alone can choose between them.

bfloat16 logits between 16 and 32 are an eighth apart, and errors of several layers add: where SmolLM2 in bfloat16
parted from float32 (``docs/evidence/outputs-cpu-bfloat16.md``), the gaps were 0.04 to 0.36.
"""


class Parted(Frozen):
    """A divergence with what the engines think of the two tokens there.

    Attributes:
        choices: By role; empty where the engines were not asked.
        gap_nats: The larger of the engines' gaps between the two tokens' log-probabilities; None where not known.
        near_tie: Whether that gap is within reach of rounding; None where it is not known.
    """

    divergence: Divergence
    choices: dict[Role, TokenChoice]
    gap_nats: float | None
    near_tie: bool | None


class PassPair(Frozen):
    """Two passes compared; ``parted`` are the divergences listed, ``left_out`` how many are not."""

    first: str
    second: str
    control: Control
    asked: int
    compared: int
    texts_equal: int
    tokens_compared: int
    tokens_equal: int
    flips: int
    parted: tuple[Parted, ...]
    left_out: int


class Outputs(Frozen):
    """Every pass, and every two that are compared."""

    passes: tuple[PassSummary, ...]
    pairs: tuple[PassPair, ...]


def outputs_of(
    questions: Iterable[QuestionsRecord], passes: Iterable[PassRecord], divergences: Iterable[DivergenceRecord]
) -> Outputs | None:
    """What the passes say; None without any.

    Raises:
        PassesDiffer: Two passes did not ask the same questions.
    """
    golds = {asked.question.id: asked.question.gold for record in questions for asked in record.asked}
    named: dict[str, PassRecord] = {}
    for role in ROLES:
        of_role = sorted((done for done in passes if done.role == role), key=lambda done: done.pair)
        named |= {f"{role}{number}": done for number, done in enumerate(of_role, 1)}
    if not named:
        return None
    chosen = {(asked.pair, asked.question_id): asked for asked in divergences}
    return Outputs(
        passes=tuple(summarize(name, done, golds) for name, done in named.items()),
        pairs=tuple(_pair(first, second, named, golds, chosen) for first, second in _compared(named)),
    )


def _compared(named: Mapping[str, PassRecord]) -> Iterable[tuple[str, str]]:
    wanted = [("A1", "B1"), ("A1", "A2"), ("B1", "B2"), *((f"A{n}", f"B{n}") for n in range(2, len(named)))]
    return [(first, second) for first, second in wanted if first in named and second in named]


def _pair(
    first: str,
    second: str,
    named: Mapping[str, PassRecord],
    golds: Mapping[int, str],
    chosen: Mapping[tuple[int, int], DivergenceRecord],
) -> PassPair:
    a, b = named[first], named[second]
    equality = compare_passes(a, b, golds)
    # Log-probabilities were asked for where the two passes of one launch pair part.
    asked = {question: found for (pair, question), found in chosen.items() if pair == a.pair == b.pair}
    listed = _flips_first(equality)[:MOST_LISTED]
    return PassPair(
        first=first,
        second=second,
        control="A/B" if a.role != b.role else "A/A" if a.role == "A" else "B/B",
        asked=equality.asked,
        compared=equality.compared,
        texts_equal=equality.texts_equal,
        tokens_compared=equality.tokens_compared,
        tokens_equal=equality.tokens_equal,
        flips=len(equality.flips),
        parted=tuple(_parted(divergence, asked.get(divergence.question_id)) for divergence in listed),
        left_out=len(equality.divergences) - len(listed),
    )


def _flips_first(equality: PassEquality) -> list[Divergence]:
    return sorted(equality.divergences, key=lambda divergence: not divergence.flips)


def _parted(divergence: Divergence, asked: DivergenceRecord | None) -> Parted:
    choices = asked.choices if asked and asked.token_index == divergence.token_index else {}
    gaps = [abs(a - b) for a, b in (choice.logprobs for choice in choices.values()) if a is not None and b is not None]
    gap = max(gaps) if len(gaps) == len(ROLES) else None
    return Parted(
        divergence=divergence,
        choices=choices,
        gap_nats=gap,
        near_tie=None if gap is None else gap <= NEAR_TIE_NATS,
    )
