"""One pass: every question asked once of one engine, its requests kept in flight, its answers in the order asked.

It owns the order and the number of requests in flight. It retries nothing, grades nothing for the record (the running
score is for people who wait; the judge grades the stored texts), and keeps nothing: ``on_answer`` can.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from equipoise_evals.gsm8k.chat import AnyPrompt
from equipoise_evals.gsm8k.grade import grade
from equipoise_evals.model import ROLE_NAMES, AccuracyPlan, Answer, Answered, Failed, PassRecord, Role, SamplingPlan
from equipoise_evals.ports import Engine, EngineFault, MonotonicClock, Progress, RequestFailed

STAGE = "gsm8k"


async def run_pass(
    engine: Engine,
    accuracy: AccuracyPlan,
    prompts: Sequence[AnyPrompt],
    *,
    pair: int,
    clock: MonotonicClock,
    progress: Progress,
    on_answer: Callable[[Answer], None] | None = None,
    done: Mapping[int, Answer] | None = None,
) -> PassRecord:
    """Ask every prompt once, ``accuracy.concurrency`` of them in flight, started in the order given.

    The first prompt's tokens are looked at before anything is asked.

    A request that fails becomes a ``Failed`` answer and the pass goes on. When the engine itself is gone, the requests
    still in flight are cancelled and its fault is raised; answers that had arrived were given to ``on_answer``.

    Args:
        engine: The engine of one arm.
        accuracy: Sampling parameters and concurrency.
        prompts: In the order asked.
        pair: 1-based launch pair.
        clock: For ``duration_s``, which covers what this call asked, not what ``done`` brought.
        progress: Hears how many answers there are and how many of them are right.
        on_answer: Gets each new answer as it arrives, in order of arrival.
        done: Answers of an interrupted pass by question id; they are taken as they are and not asked again. Leave a
            ``Failed`` one out to have its question asked again.

    Raises:
        EngineFault: The engine is gone.
    """
    ledger = _Ledger(prompts, engine.role, progress)
    for place, prompt in enumerate(prompts):
        if done is not None and prompt.question.id in done:
            ledger.enter(place, done[prompt.question.id])
    resumed = len(ledger.answers)
    open_places = [place for place in range(len(prompts)) if place not in ledger.answers]
    next_places = iter(open_places)
    probe = await engine.probe(prompts[0].asked) if prompts else None
    started = clock()
    ledger.report()
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(accuracy.concurrency, len(open_places))):
                group.create_task(_ask_on(engine, accuracy.sampling, next_places, ledger, on_answer))
    except ExceptionGroup as failures:
        raise _single(failures) from None
    return PassRecord(
        pair=pair,
        role=engine.role,
        answers=ledger.complete(),
        duration_s=clock() - started,
        resumed=resumed,
        probe=probe,
    )


async def _ask_on(
    engine: Engine,
    sampling: SamplingPlan,
    places: Iterator[int],
    ledger: "_Ledger",
    on_answer: Callable[[Answer], None] | None,
) -> None:
    """One place in flight: ask the next open question until none is left."""
    for place in places:
        answer = await _ask(engine, sampling, ledger.prompts[place])
        if on_answer is not None:
            on_answer(answer)
        ledger.enter(place, answer)
        ledger.report()


async def _ask(engine: Engine, sampling: SamplingPlan, prompt: AnyPrompt) -> Answer:
    question = prompt.question.id
    try:
        generation = await engine.generate(prompt.asked, sampling)
    except RequestFailed as failed:
        return Failed(question_id=question, error=str(failed))
    return Answered(
        question_id=question,
        text=generation.text,
        output_ids=generation.output_ids,
        finish_reason=generation.finish_reason,
        prompt_tokens=generation.prompt_tokens,
        cached_tokens=generation.cached_tokens,
        sampling=generation.sampling,
        retries=generation.retries,
    )


def _single(failures: ExceptionGroup) -> Exception:
    """The one failure of a pass: requests in flight together see the same engine die, which is one fault."""
    faults, others = failures.split(EngineFault)
    if faults is not None and others is None:
        return faults.exceptions[0]
    return failures.exceptions[0] if len(failures.exceptions) == 1 else failures


class _Ledger:
    """The answers of one pass by place, and the running score for people who wait."""

    def __init__(self, prompts: Sequence[AnyPrompt], role: Role, progress: Progress) -> None:
        self.prompts = prompts
        self.answers: dict[int, Answer] = {}
        self._role = role
        self._progress = progress
        self._right = self._failed = 0

    def enter(self, place: int, answer: Answer) -> None:
        """Enter the answer to the question at this place."""
        self.answers[place] = answer
        if isinstance(answer, Failed):
            self._failed += 1
        else:
            self._right += grade(answer.text, self.prompts[place].question.gold).state == "correct"

    def report(self) -> None:
        """Say how far the pass is: right of answered, failed requests beside them."""
        answered = len(self.answers) - self._failed
        detail = ROLE_NAMES[self._role]
        if answered:
            detail += f", {self._right} right of {answered}"
        if self._failed:
            detail += f", {self._failed} failed"
        self._progress(STAGE, len(self.answers), len(self.prompts), detail)

    def complete(self) -> tuple[Answer, ...]:
        """Every answer, in the order asked."""
        return tuple(self.answers[place] for place in range(len(self.prompts)))
