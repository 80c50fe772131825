"""One run of another tool's benchmark, as its result file states it: nothing here was measured or attested by us."""

from typing import Literal

from pydantic import Field, JsonValue

from equipoise_evals.model.base import Frozen

Tool = Literal["sglang.bench_serving", "vllm bench", "AIPerf", "lm-evaluation-harness"]


class ImportedRun(Frozen):
    """A run.

    Attributes:
        tool: What measured it.
        source: File, and line where a file holds several runs.
        setup: Whatever must be the same in all runs that are compared, by name.
        requests: Requests sent; None where the tool does not say.
        failed: Requests that failed; None likewise.
        concurrency: Most requests at a time; None for no limit.
        tpot_ms: Mean time per output token after the first.
        ttft_ms: Mean time to first token.
        e2e_ms: Mean latency of a whole request.
        right: Whether each question was answered rightly, by the tool's own grading.
        texts: The answers.
    """

    tool: Tool
    source: str
    setup: dict[str, JsonValue]
    requests: int | None = Field(default=None, ge=0)
    failed: int | None = Field(default=None, ge=0)
    concurrency: int | None = Field(default=None, ge=1)
    tpot_ms: float | None = Field(default=None, gt=0)
    ttft_ms: float | None = Field(default=None, gt=0)
    e2e_ms: float | None = Field(default=None, gt=0)
    right: dict[int, bool] = Field(default_factory=dict)
    texts: dict[int, str] = Field(default_factory=dict)
