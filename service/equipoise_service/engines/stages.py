"""Where the seconds of an engine's start go, by the lines of its log: each stage ends with a line that SGLang writes.

Lines are noted as they are seen, to about 0.1 s; SGLang's own time stamps are whole seconds. A stage whose line never
came, since another version words it otherwise or the engine has none, is missing, and its time is in the next one.
"""

import re
from pathlib import Path
from typing import NamedTuple

from equipoise_service.engines import logs

MEMORY_TAKEN = "Memory pool end."
"""SGLang's line once the KV pool is allocated."""


class Milestone(NamedTuple):
    """The line with which a stage ends."""

    stage: str
    line: re.Pattern[bytes]


MILESTONES = (
    Milestone("imports", re.compile(rb"server_args=")),
    # The scheduler is a process of its own, and imports everything again.
    Milestone("spawn", re.compile(rb"equipoise: at the start gate|Init (?:parallel|torch distributed) begin")),
    Milestone("gate", re.compile(rb"equipoise: through the start gate")),
    Milestone("distributed", re.compile(rb"Load weight begin")),
    Milestone("weights", re.compile(rb"Load weight end")),
    Milestone("kv_pool", re.compile(re.escape(MEMORY_TAKEN).encode())),
    Milestone("graph_capture", re.compile(rb"Capture .*(?i:graph).* end\.")),
    Milestone("http", re.compile(rb"Application startup complete")),
)
"""In the order in which they come."""
TOKENIZER = re.compile(rb"chat template")
"""Said by the main process once it has its tokenizer, while the scheduler starts beside it."""
BEFORE_THE_GATE = frozenset({"imports", "spawn", "tokenizer"})
"""Stages that an engine has behind it when its gate opens."""
READY = "warm_up"
"""The last stage: SGLang's own warm-up, where it has one, until the engine calls itself healthy."""


class StartStages:
    """Notes when the lines of one engine's log are first seen.

    Args:
        log: The engine's log.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = 0
        self._text = b""
        self._seen_s: dict[str, float] = {}

    def look(self, since_start_s: float) -> None:
        """Read what was written since the last look, so long after the engine's start."""
        if logs.size(self._log) <= self._read:
            return
        with self._log.open("rb") as file:
            file.seek(self._read)
            self._text += file.read()
        self._read = logs.size(self._log)
        for stage, line in (*MILESTONES, ("tokenizer", TOKENIZER)):
            if stage not in self._seen_s and line.search(self._text):
                self._seen_s[stage] = since_start_s
        self._text = self._text.rpartition(b"\n")[2]

    def durations_s(self, ready_s: float) -> dict[str, float]:
        """Seconds of each stage seen, which add up to ``ready_s``; beside them, after ``imports``, ``tokenizer``."""
        found: dict[str, float] = {}
        before_s = 0.0
        for stage, _ in MILESTONES:
            if stage in self._seen_s:
                found[stage] = max(0.0, self._seen_s[stage] - before_s)
                before_s = max(before_s, self._seen_s[stage])
        if found:
            found[READY] = max(0.0, ready_s - before_s)
        if "tokenizer" in self._seen_s and "imports" in self._seen_s:
            found["tokenizer"] = max(0.0, self._seen_s["tokenizer"] - self._seen_s["imports"])
        return found
