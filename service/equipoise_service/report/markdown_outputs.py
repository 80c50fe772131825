"""The outputs in Markdown: passes, passes compared, where answers part, flips with both answers. Cells are plain."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from equipoise_evals.gsm8k.equality import Divergence
from equipoise_evals.gsm8k.summary import PassSummary
from equipoise_service.report.markup import code, escaped, table
from equipoise_service.report.outputs import Outputs, Parted, PassPair


class Detail(NamedTuple):
    """How much of two passes' differences Markdown shows; the JSON report has more.

    Attributes:
        listed: Divergences, and as many flips with both answers.
        answer_chars: Characters of an answer, its last ones.
    """

    listed: int
    answer_chars: int


FULL = Detail(listed=20, answer_chars=600)

PASSES = (
    "pass", "asked", "right", "wrong", "no answer", "truncated", "errors", "right of asked", "right of answered",
    "strict-match", "flexible-extract", "tokens each", "finish reasons",
)  # fmt: skip
PAIRS = ("passes", "control", "compared", "equal texts", "equal tokens", "flips")
PARTED = (
    "question", "token", "baseline", "candidate", "in the baseline engine", "in the candidate engine", "gap",
    "lengths", "finish", "graded",
)  # fmt: skip


def outputs_markdown(outputs: Outputs, detail: Detail = FULL) -> list[list[str]]:
    """Blocks of the section; where nothing parts, it ends with the tables."""
    blocks = [
        ["## Outputs"],
        table(PASSES, _marked(map(pass_cells, outputs.passes))),
        table(PAIRS, _marked(map(pair_cells, outputs.pairs))),
    ]
    for pair in outputs.pairs:
        if pair.control == "A/B" and pair.parted:
            blocks += _of_pair(pair, detail)
    return blocks


def pass_cells(one: PassSummary) -> list[str]:
    """One pass as a row of ``PASSES``."""
    reasons = ", ".join(f"{reason} {count}" for reason, count in one.finish_reasons.items())
    counts = (one.asked, *(one.states[s] for s in ("correct", "incorrect", "no_answer", "truncated", "error")))
    shares = (one.right_of_asked, one.right_of_answered, one.strict_match, one.flexible_extract)
    tokens = "not known" if one.output_tokens is None else f"{one.output_tokens:.1f}"
    return [one.name, *map(str, counts), *map(_percent, shares), tokens, reasons]


def pair_cells(pair: PassPair) -> list[str]:
    """Two passes as a row of ``PAIRS``."""
    return [
        f"{pair.first}-{pair.second}",
        pair.control,
        f"{pair.compared} of {pair.asked}",
        _of(pair.texts_equal, pair.compared),
        _of(pair.tokens_equal, pair.tokens_compared),
        str(pair.flips),
    ]


def parted_cells(parted: Parted) -> list[str]:
    """One divergence as a row of ``PARTED``."""
    found = parted.divergence
    first, second = found.first, found.second
    index = "not known" if found.token_index is None else str(found.token_index)
    lengths = f"{_known(first.output_tokens)} / {_known(second.output_tokens)}"
    return [
        str(found.question_id),
        index,
        _token(first.token_at_divergence, found),
        _token(second.token_at_divergence, found),
        _choice(parted, "A"),
        _choice(parted, "B"),
        gap_text(parted),
        lengths,
        f"{first.finish_reason} / {second.finish_reason}",
        f"{first.state} / {second.state}".replace("_", " "),
    ]


def gap_text(parted: Parted) -> str:
    """The gap with its word; why there is none, where there is none."""
    if parted.gap_nats is None:
        return "not known"
    return f"{parted.gap_nats:.3f} nats: {'near tie' if parted.near_tie else 'confident change'}"


def _of_pair(pair: PassPair, detail: Detail) -> Iterator[list[str]]:
    listed = pair.parted[: detail.listed]
    more = len(pair.parted) + pair.left_out - len(listed)
    yield [f"### Where {pair.first} and {pair.second} part"]
    if not listed:
        yield [f"In {more} answers; left out here, for brevity."]
        return
    rest = f" The first {len(listed)}; {more} more are not shown." if more else ""
    yield [
        "First token that differs, 0-based, and the log-probabilities (natural) of either token there, asked of both "
        f"engines after the passes.{rest}"
    ]
    yield table(PARTED, _marked(map(parted_cells, listed)))
    flips = [parted.divergence for parted in pair.parted if parted.divergence.flips][: detail.listed]
    for flip in flips:
        yield [f"Question {flip.question_id} is right in one arm only:"]
        yield [
            f"* {name}, {side.state.replace('_', ' ')}, final answer {code(side.extracted or 'none')}: "
            f"{code(_cut(side.text, detail.answer_chars))}"
            for name, side in ((pair.first, flip.first), (pair.second, flip.second))
        ]


def _marked(rows: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    return ([escaped(cell) for cell in row] for row in rows)


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"… {text[-chars:]}"


def _choice(parted: Parted, role: str) -> str:
    choice = next((choice for of, choice in parted.choices.items() if of == role), None)
    if choice is None:
        return "not asked"
    first, second = ("ended" if logprob is None else f"{logprob:.3f}" for logprob in choice.logprobs)
    return f"{first} / {second} ({choice.path})"


def _token(token: int | None, found: Divergence) -> str:
    if found.token_index is None:
        return "not known"
    return "ended" if token is None else str(token)


def _known(number: int | None) -> str:
    return "not known" if number is None else str(number)


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.1%}"


def _of(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.1%})" if whole else "none"
