"""What the experiment needs from the world, said as Protocols; the service satisfies them, tests pass fakes.

An engine that cannot do what is asked raises ``EngineFault``; the experiment never catches it to carry on.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field, JsonValue

from equipoise_evals.model import (
    ArmSpec,
    Frozen,
    Plan,
    Record,
    Records,
    Role,
    SamplingPlan,
    StepColumns,
    Verdict,
)
from equipoise_evals.model.records import (
    ClientTiming,
    Clock,
    LaunchRecord,
    PromptProbe,
    StressRecord,
    TokenChoice,
    TreatmentRecord,
)


class EngineFault(Exception):
    """An engine did not do what was asked.

    Attributes:
        role: The arm whose engine it is.
        stage: What was being done: ``start``, ``attest``, ``warm_up``, ``treatment``, ``stress``, ``gsm8k``,
            ``decode``, ``stop``.
        reason: One sentence that says what happened and what to do.
        log_tail: The last lines of the engine's log.
    """

    def __init__(self, role: Role, stage: str, reason: str, log_tail: str = "") -> None:
        super().__init__(f"arm {role}, stage {stage}: {reason}")
        self.role = role
        self.stage = stage
        self.reason = reason
        self.log_tail = log_tail


class Generation(Frozen):
    """One answer of an engine to one prompt.

    ``sampling`` is what was sent with it, None where nobody says; ``retries`` how often it was sent in vain before.
    """

    text: str
    output_ids: tuple[int, ...]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    sampling: dict[str, JsonValue] | None = None
    retries: int = 0


class RequestFailed(Exception):
    """One request got no answer; it becomes a ``Failed`` answer, never a wrong one."""


@dataclass(frozen=True)
class ChatMessage:
    """One turn of a chat."""

    role: Literal["user", "assistant"]
    content: str


Asked = str | tuple[ChatMessage, ...]
"""What an engine is asked: a text to go on with, or turns for its model's chat template."""


class Decoded(Frozen):
    """One block's worth of decoding: the engine's own step clock and the clients' view of the same steps.

    ``telemetry`` is what the device said of itself meanwhile; empty where there is none to ask. ``disturbed`` says what
    foreign load there was beside it; None if none was seen.
    """

    steps: StepColumns
    client: tuple[ClientTiming, ...]
    telemetry: dict[str, JsonValue] = Field(default_factory=dict)
    disturbed: str | None = None
    clock: Clock = "engine"


class Engine(Protocol):
    """A running, ready engine of one arm."""

    @property
    def role(self) -> Role:
        """The arm it plays."""
        ...

    @property
    def arm(self) -> ArmSpec:
        """The arm's specification."""
        ...

    async def attest(self) -> LaunchRecord:
        """Read ``/server_info`` and report what this engine says and proves it is."""
        ...

    async def probe(self, prompt: Asked) -> PromptProbe:
        """A prompt's tokens as the model gets them; raises ``EngineFault`` unless they begin with exactly one BOS."""
        ...

    async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
        """Answer one prompt; raises ``RequestFailed`` for this request, ``EngineFault`` if the engine is gone."""
        ...

    async def choose(self, prompt: Asked, prefix: Sequence[int], tokens: tuple[int | None, int | None]) -> TokenChoice:
        """Log-probabilities of the token after ``prompt`` and the output tokens ``prefix``; raises as ``generate``."""
        ...

    async def decode(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        """Decode ``steps`` steps of ``batch`` requests together, each after ``prompt_tokens`` random tokens."""
        ...

    async def prefill(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        """Prefill ``batch`` prompts of ``prompt_tokens`` random tokens together, ``steps`` times one after another.

        Each is a step whose ``busy_us`` is what the engine took and ``period_us`` the time to first token here, a mean
        over the batch.
        """
        ...

    async def count_kernels(self, batch: int, steps: int, prefill_tokens: int | None = None) -> TreatmentRecord:
        """Count kernels (or operators) per decode step, in a profiler trace of about ``steps`` of them.

        With ``prefill_tokens`` per whole prefill of a batch of prompts of so many tokens, over exactly ``steps`` of
        them: how a prefill is cut into forward passes may be what the arms differ in.
        """
        ...

    async def stress(self, batch: int, seed: int) -> StressRecord:
        """Run the phases of `stress_profile`, each until the engine is idle, and count how requests ended.

        Raises ``EngineFault`` in stage ``stress``, naming the phase after which the engine no longer attests its arm
        or its guard has tripped.
        """
        ...


Engines = Mapping[Role, Engine]
"""The engines of a launch pair that run at once: both, or one."""


class Launcher(Protocol):
    """Starts launch pairs."""

    def launch_pair(
        self, plan: Plan, pair: int, order: tuple[Role, ...]
    ) -> AbstractAsyncContextManager[dict[Role, Engine]]:
        """Start the engines of ``order`` one after the other; they are ready inside the context and gone after it.

        Both engines of a pair, or one of them where the plan's layout has one run at a time.

        How each engine ended is reported to the recorder that the launcher was built with.
        """
        ...


class Recorder(Protocol):
    """Keeps each record durably as it comes."""

    def append(self, record: Record) -> None:
        """Store one record; when this returns, it survives a crash.

        An ``AnswerRecord`` alone may still be on its way to the disk: the next question does not wait for it. A
        ``PassRecord`` takes the place of the answers that it is made of.
        """
        ...

    def records(self) -> Records:
        """Everything appended so far, in order."""
        ...


class Progress(Protocol):
    """Hears what is being done, for people who wait."""

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        """Report that ``done`` of ``total`` units of ``stage`` are finished."""
        ...


Judged = Callable[[int, Verdict], None]
"""Hears the verdict so far after each launch pair, by the number of pairs; most decide nothing yet."""


def unheard(pair: int, verdict: Verdict) -> None:
    """Nobody listens."""
    del pair, verdict


MonotonicClock = Callable[[], float]
"""Seconds of a clock that never steps back; ``time.monotonic`` outside tests."""


class World:
    """What the experiment is given of the world: a launcher, a clock, a recorder and those who listen."""

    def __init__(
        self,
        launcher: Launcher,
        clock: MonotonicClock,
        recorder: Recorder,
        progress: Progress,
        judged: Judged = unheard,
    ) -> None:
        self.launcher = launcher
        self.clock = clock
        self.recorder = recorder
        self.progress = progress
        self.judged = judged
