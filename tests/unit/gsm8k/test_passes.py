"""A pass over a scripted engine: order, requests in flight, failures as their own state, faults, resumption."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from equipoise_evals.gsm8k.passes import run_pass
from equipoise_evals.gsm8k.prompt import Prompt, build_prompts
from equipoise_evals.model import (
    AccuracyPlan,
    Answer,
    Answered,
    ArmSpec,
    Failed,
    LaunchRecord,
    PromptProbe,
    Question,
    Role,
    SamplingPlan,
    StressRecord,
    TokenChoice,
    TreatmentRecord,
)
from equipoise_evals.ports import Asked, Decoded, EngineFault, Generation, RequestFailed
from tests.support.records import accuracy_plan

ARM = ArmSpec(name="candidate", scratch="persistent")
# Asked in an order that is not that of the ids; the gold is the id.
IDS = (3, 0, 7, 5, 1, 6, 2, 4)
PROMPTS = build_prompts([Question(id=n, question=f"Number {n}?", rationale="", gold=str(n)) for n in IDS], ())
BY_TEXT = {prompt.text: prompt.question.id for prompt in PROMPTS}


PROBE = PromptProbe(tokens=11, head=(2, 5, 6), bos=2)


class Clock:
    """Each reading is one second later."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class Heard:
    """What progress was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int, str]] = []

    def __call__(self, stage: str, done: int, total: int, detail: str = "") -> None:
        self.told.append((stage, done, total, detail))


class ScriptedEngine:
    """Answers with the question's number, after some turns of the event loop, unless ``script`` raises."""

    def __init__(self, script: Callable[[int], str] = lambda number: f"#### {number}", role: Role = "B") -> None:
        self.script = script
        self.role: Role = role
        self.arm = ARM
        self.asked: list[int] = []
        self.samplings: list[SamplingPlan] = []
        self.in_flight = self.most_in_flight = self.cancelled = 0

    async def probe(self, prompt: Asked) -> PromptProbe:
        assert prompt == PROMPTS[0].text
        return PROBE

    async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
        number = BY_TEXT[str(prompt)]
        self.asked.append(number)
        self.samplings.append(sampling)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            for _ in range(1 + number * 3 % 7):  # answers arrive in another order than they were asked
                await asyncio.sleep(0)
            text = self.script(number)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1
        return Generation(
            text=text,
            output_ids=(number, 9),
            finish_reason="stop",
            prompt_tokens=11,
            cached_tokens=2,
            sampling={"temperature": sampling.temperature},
        )

    async def attest(self) -> LaunchRecord:
        raise AssertionError("a pass only generates")

    async def choose(self, prompt: Asked, prefix: Sequence[int], tokens: tuple[int | None, int | None]) -> TokenChoice:
        raise AssertionError("a pass only generates")

    async def decode(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        raise AssertionError("a pass only generates")

    async def prefill(self, batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
        raise AssertionError("a pass only generates")

    async def count_kernels(self, batch: int, steps: int, prefill_tokens: int | None = None) -> TreatmentRecord:
        raise AssertionError("a pass only generates")

    async def stress(self, batch: int, seed: int) -> StressRecord:
        raise AssertionError("a pass only generates")


def plan(concurrency: int = 3) -> AccuracyPlan:
    return accuracy_plan(len(IDS), concurrency=concurrency)


def failing(numbers: Sequence[int]) -> Callable[[int], str]:
    def script(number: int) -> str:
        if number in numbers:
            raise RequestFailed(f"HTTP 500 for {number}")
        return f"#### {number}"

    return script


@pytest.mark.parametrize("concurrency", [1, 3, 8, 100])
async def test_every_question_once_in_the_planned_order(concurrency: int) -> None:
    engine, heard = ScriptedEngine(), Heard()
    record = await run_pass(engine, plan(concurrency), PROMPTS, pair=2, clock=Clock(), progress=heard)
    assert engine.asked == list(IDS)
    assert engine.most_in_flight == min(concurrency, len(IDS))
    assert (record.pair, record.role, record.duration_s) == (2, "B", 1.0)
    assert record.probe == PROBE
    assert record.answers == tuple(
        Answered(
            question_id=number,
            text=f"#### {number}",
            output_ids=(number, 9),
            finish_reason="stop",
            prompt_tokens=11,
            cached_tokens=2,
            sampling={"temperature": 0.0},
        )
        for number in IDS
    )


async def test_sampling_is_the_plans() -> None:
    engine = ScriptedEngine()
    await run_pass(engine, plan(), PROMPTS, pair=1, clock=Clock(), progress=Heard())
    assert engine.samplings == [plan().sampling] * len(IDS)


async def test_the_engine_is_kept_full() -> None:
    """A new request starts as soon as one ends: with the slow ones never done, the others still all are asked."""
    release = asyncio.Event()

    class Stuck(ScriptedEngine):
        async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
            if BY_TEXT[str(prompt)] in IDS[:2]:
                self.asked.append(BY_TEXT[str(prompt)])
                await release.wait()
                return Generation(text="", output_ids=(), finish_reason="stop", prompt_tokens=1, cached_tokens=0)
            return await super().generate(prompt, sampling)

    engine, heard = Stuck(), Heard()
    task = asyncio.create_task(run_pass(engine, plan(3), PROMPTS, pair=1, clock=Clock(), progress=heard))
    while heard.told[-1:] != [("gsm8k", 6, 8, "candidate, 6 right of 6")]:
        await asyncio.sleep(0)
    assert engine.asked == list(IDS)
    release.set()
    assert [answer.question_id for answer in (await task).answers] == list(IDS)


async def test_progress_counts_right_of_answered() -> None:
    engine = ScriptedEngine(lambda number: f"#### {number if number % 2 else number + 1}")
    heard = Heard()
    await run_pass(engine, plan(1), PROMPTS, pair=1, clock=Clock(), progress=heard)
    assert heard.told[0] == ("gsm8k", 0, 8, "candidate")
    assert [done for _, done, _, _ in heard.told] == list(range(9))
    assert heard.told[-1] == ("gsm8k", 8, 8, "candidate, 4 right of 8")


async def test_failed_requests_are_their_own_state() -> None:
    engine, heard = ScriptedEngine(failing([7, 2])), Heard()
    record = await run_pass(engine, plan(), PROMPTS, pair=1, clock=Clock(), progress=heard)
    failed = [answer for answer in record.answers if isinstance(answer, Failed)]
    assert failed == [
        Failed(question_id=7, error="HTTP 500 for 7"),
        Failed(question_id=2, error="HTTP 500 for 2"),
    ]
    assert [answer.question_id for answer in record.answers] == list(IDS)
    assert heard.told[-1] == ("gsm8k", 8, 8, "candidate, 6 right of 6, 2 failed")


async def test_each_answer_is_handed_on_as_it_comes() -> None:
    heard_at: list[tuple[int, int]] = []
    engine = ScriptedEngine(failing([5]))
    record = await run_pass(
        engine,
        plan(),
        PROMPTS,
        pair=1,
        clock=Clock(),
        progress=Heard(),
        on_answer=lambda answer: heard_at.append((answer.question_id, len(engine.asked))),
    )
    assert sorted(number for number, _ in heard_at) == sorted(IDS)
    assert [number for number, _ in heard_at] != list(IDS)
    assert heard_at[0][1] < len(IDS)
    assert [answer.question_id for answer in record.answers] == list(IDS)


async def test_engine_fault_ends_the_pass_and_cancels_the_rest() -> None:
    fault = EngineFault("B", "gsm8k", "its process is gone", "tail")

    def script(number: int) -> str:
        if number == 7:
            raise fault
        return f"#### {number}"

    engine = ScriptedEngine(script)
    kept: list[Answer] = []
    with pytest.raises(EngineFault) as caught:
        await run_pass(engine, plan(), PROMPTS, pair=1, clock=Clock(), progress=Heard(), on_answer=kept.append)
    assert caught.value is fault
    assert engine.cancelled > 0
    assert engine.in_flight == 0
    assert len(kept) + engine.cancelled + 1 == len(engine.asked) < len(IDS)


async def test_requests_that_see_the_same_death_are_one_fault() -> None:
    class Dying(ScriptedEngine):
        async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
            raise EngineFault("B", "gsm8k", f"gone at {BY_TEXT[str(prompt)]}")

    with pytest.raises(EngineFault, match="gone at 3"):
        await run_pass(Dying(), plan(), PROMPTS, pair=1, clock=Clock(), progress=Heard())


async def test_a_defect_is_not_a_failed_request() -> None:
    def script(number: int) -> str:
        raise KeyError(number)

    with pytest.raises(KeyError):
        await run_pass(ScriptedEngine(script), plan(1), PROMPTS, pair=1, clock=Clock(), progress=Heard())


async def test_several_defects_stay_together() -> None:
    class Broken(ScriptedEngine):
        async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
            raise KeyError(prompt)

    with pytest.raises(ExceptionGroup) as caught:
        await run_pass(Broken(), plan(3), PROMPTS, pair=1, clock=Clock(), progress=Heard())
    assert len(caught.value.exceptions) == 3


async def test_cancelling_the_pass_cancels_its_requests() -> None:
    engine = ScriptedEngine()
    task = asyncio.create_task(run_pass(engine, plan(3), PROMPTS, pair=1, clock=Clock(), progress=Heard()))
    while engine.in_flight < 3:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.in_flight == 0
    assert engine.cancelled == 3


@pytest.mark.parametrize("dies_at", range(len(IDS)))
async def test_killed_anywhere_it_resumes_without_asking_again(dies_at: int) -> None:
    """Issue 5, acceptance 8: what was answered is asked no second time, and the record is that of an unbroken pass."""

    def script(number: int) -> str:
        if number == IDS[dies_at]:
            raise EngineFault("B", "gsm8k", "killed")
        return f"#### {number}"

    kept: dict[int, Answer] = {}

    def keep(answer: Answer) -> None:
        kept[answer.question_id] = answer

    with pytest.raises(EngineFault):
        await run_pass(ScriptedEngine(script), plan(), PROMPTS, pair=1, clock=Clock(), progress=Heard(), on_answer=keep)
    answered = set(kept)
    engine, heard = ScriptedEngine(), Heard()
    record = await run_pass(engine, plan(), PROMPTS, pair=1, clock=Clock(), progress=heard, on_answer=keep, done=kept)
    assert engine.asked == [number for number in IDS if number not in answered]
    assert heard.told[0][1:3] == (len(answered), len(IDS))
    unbroken = await run_pass(ScriptedEngine(), plan(), PROMPTS, pair=1, clock=Clock(), progress=Heard())
    assert record.answers == unbroken.answers


async def test_everything_done_asks_nothing() -> None:
    first = await run_pass(ScriptedEngine(failing([6])), plan(), PROMPTS, pair=1, clock=Clock(), progress=Heard())
    engine, heard = ScriptedEngine(), Heard()
    done = {answer.question_id: answer for answer in first.answers}
    again = await run_pass(engine, plan(), PROMPTS, pair=1, clock=Clock(), progress=heard, done=done)
    assert engine.asked == []
    assert again.answers == first.answers
    assert heard.told == [("gsm8k", 8, 8, "candidate, 7 right of 7, 1 failed")]


async def test_no_questions() -> None:
    nothing: tuple[Prompt, ...] = ()
    record = await run_pass(ScriptedEngine(), plan(), nothing, pair=1, clock=Clock(), progress=Heard())
    assert (record.answers, record.probe) == ((), None)
