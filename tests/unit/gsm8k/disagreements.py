"""Every place where the grader and the 5,276 stored correctness flags of GSM8K's example solutions part.

``python -m tests.unit.gsm8k.disagreements`` writes the evidence page again; a test compares it with what is committed.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from equipoise_evals.gsm8k.grade import grade
from tests.unit.gsm8k.shared_data import MODEL_SOLUTIONS, MODELS, json_lines

EVIDENCE = Path(__file__).parents[3] / "docs" / "evidence" / "grader-disagreements.md"


class Judged(NamedTuple):
    """One model output: where it stands, its stored flag and what the grader says."""

    line: int
    model: str
    flag: bool
    gold: str
    extracted: str | None
    state: str
    ending: str


def judged() -> list[Judged]:
    """All outputs in the order of the file; the gold is what follows the last ``A:`` of ``ground_truth``."""
    found = []
    for line, row in enumerate(json_lines(MODEL_SOLUTIONS), start=1):
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        for model in MODELS:
            output, flag = row[model]["solution"], row[model]["is_correct"]
            result = grade(output, gold)
            found.append(Judged(line, model, flag, gold, result.extracted, result.state, output[-60:]))
    return found


def render(outputs: list[Judged]) -> str:
    """The evidence page."""
    states = Counter(output.state for output in outputs)
    parted = [output for output in outputs if output.flag is not (output.state == "correct")]
    unanswered = [output for output in outputs if output.state == "no_answer"]
    return "\n".join(
        [
            "# The grader against GSM8K's example solutions",
            "",
            "Written by `python -m tests.unit.gsm8k.disagreements` from `example_model_solutions.jsonl` of",
            "openai/grade-school-math (commit 3101c7d); a test compares this page with a new run.",
            "",
            f"Outputs: {len(outputs)}. Stored as correct: {sum(output.flag for output in outputs)}. "
            f"Graded correct {states['correct']}, incorrect {states['incorrect']}, no answer {states['no_answer']}.",
            "",
            f"## Disagreements with a stored flag: {len(parted)}",
            "",
            *(
                _rows(parted)
                if parted
                else ["None: every output that is stored as correct is graded correct, and no other."]
            ),
            "",
            f"## Outputs graded as no answer: {len(unanswered)}",
            "",
            "All are stored as incorrect, so they are no disagreement. Each breaks off before a last line `A: n`, in a",
            "calculation or in a division that never ends, so it states no final answer.",
            "",
            *_rows(unanswered),
            "",
        ]
    )


def _rows(outputs: list[Judged]) -> list[str]:
    head = ["| line | model | stored | gold | extracted | ends in |", "|---|---|---|---|---|---|"]
    return head + [
        f"| {output.line} | {output.model} | {'correct' if output.flag else 'incorrect'} | {output.gold} "
        f"| {output.extracted if output.extracted is not None else '-'} | `{_cell(output.ending)}` |"
        for output in outputs
    ]


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    EVIDENCE.parent.mkdir(parents=True, exist_ok=True)
    EVIDENCE.write_text(render(judged()), encoding="utf-8")
    print(f"wrote {EVIDENCE.name}")
