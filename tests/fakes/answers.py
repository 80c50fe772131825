"""Answers to grade-school questions: right with a given probability, equal in both arms unless a knob differs."""

import json
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

from tests.fakes.knobs import Identity, Knobs
from tests.fakes.world import uniform

_QUESTION = re.compile(r"Question:\s*(.*?)\s*(?:\nAnswer:|\Z)", re.S)
_GOLD = re.compile(r"####\s*(-?[\d,.]+)")


def golds(files: Iterable[Path]) -> dict[str, str]:
    """The gold answer of each question."""
    known = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            gold = _GOLD.search(row["answer"])
            if gold:
                known[_normal(row["question"])] = gold[1]
    return known


def tokens(text: str) -> tuple[list[int], list[str]]:
    """Words as tokens: ids and the pieces of text that they stand for; joining the pieces gives the text back."""
    pieces = re.findall(r"\s*\S+", text)
    return [256 + zlib.crc32(piece.encode()) % 40_000 for piece in pieces], pieces


class Answerer:
    """Answers prompts of one launch."""

    def __init__(self, knobs: Knobs, identity: Identity) -> None:
        self._knobs = knobs
        self._identity = identity
        self._golds = golds(knobs.questions)

    def answer(self, prompt: str) -> str:
        """A worked answer that ends in ``#### N``."""
        asked = _QUESTION.findall(prompt)
        question = _normal(asked[-1] if asked else prompt)
        variant, salt = self._variant(question)
        gold = self._golds.get(question)
        right = gold is not None and uniform(self._knobs.seed, "right", question, salt) < self._accuracy()
        number = gold if right else str(2 + zlib.crc32((question + salt).encode()) % 97)
        if not right and number == gold:
            number = f"{number}1"
        return f" {variant} we work it out step by step from what the question says.\n#### {number}"

    def _accuracy(self) -> float:
        accuracy = self._knobs.accuracy
        return accuracy if isinstance(accuracy, float) else accuracy.get(self._identity.arm, 0.0)

    def _variant(self, question: str) -> tuple[str, str]:
        """The wording, and the salt of the draw: arms and launches without a flip share both."""
        arm, seed = self._identity.arm, self._knobs.seed
        launch = f"{self._identity.pair}{self._identity.role}"
        if uniform(seed, "noise", launch, question) < self._knobs.noise_flip_rate:
            return "Once more", f"noise {launch}"
        if uniform(seed, "flip", arm, question) < self._knobs.flip_rate.get(arm, 0.0):
            return "Put otherwise", f"flip {arm}"
        return "First", ""


def _normal(text: str) -> str:
    return " ".join(text.split())
