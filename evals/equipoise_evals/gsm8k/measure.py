"""What the experiment does with questions: passes whose answers are kept as they come, and questions asked again."""

from collections.abc import Sequence
from itertools import islice

from equipoise_evals.gsm8k.chat import AnyPrompt
from equipoise_evals.gsm8k.equality import Parting, partings
from equipoise_evals.gsm8k.passes import run_pass
from equipoise_evals.model import (
    ROLES,
    AccuracyPlan,
    Answer,
    Answered,
    AnswerRecord,
    DivergenceRecord,
    PassRecord,
    Role,
    TokenChoice,
)
from equipoise_evals.ports import Asked, Engine, Engines, RequestFailed, World

MOST_DIVERGENCES = 16
"""Questions of a launch pair asked again where answers part: enough to tell a near tie from a change, and seconds."""

STOPPED = "its engine had ended by then: one runs at a time"


async def measure_pass(
    engine: Engine, accuracy: AccuracyPlan, prompts: Sequence[AnyPrompt], pair: int, world: World
) -> None:
    """One pass, each answer kept as it comes; what an earlier launch had answered of it is not asked again."""

    def keep(answer: Answer) -> None:
        world.recorder.append(AnswerRecord(pair=pair, role=engine.role, answer=answer))

    kept = [r.answer for r in world.recorder.records().of(AnswerRecord) if (r.pair, r.role) == (pair, engine.role)]
    world.recorder.append(
        await run_pass(
            engine,
            accuracy,
            prompts,
            pair=pair,
            clock=world.clock,
            progress=world.progress,
            on_answer=keep,
            done={answer.question_id: answer for answer in kept if isinstance(answer, Answered)},
        )
    )


async def ask_divergences(engines: Engines, prompts: Sequence[AnyPrompt], pair: int, world: World) -> None:
    """Ask the engines how probable either token is where the arms' answers part: a near tie or a confident change."""
    records = world.recorder.records()
    passes = {done.role: done for done in records.of(PassRecord) if done.pair == pair}
    if len(passes) < len(ROLES):
        return  # the other engine's pass is yet to come
    asked = {known.question_id for known in records.of(DivergenceRecord) if known.pair == pair}
    asked_as = {prompt.question.id: prompt.asked for prompt in prompts}
    parted = islice(partings(passes["A"], passes["B"]), MOST_DIVERGENCES)
    for parting in parted:
        if parting.question_id not in asked:
            world.progress("gsm8k", len(prompts), len(prompts), "asking again where the answers part")
            world.recorder.append(await ask_divergence(engines, asked_as[parting.question_id], parting, pair))


async def ask_divergence(engines: Engines, prompt: Asked, parting: Parting, pair: int) -> DivergenceRecord:
    """One question asked of the engines again, up to the token in which their answers part."""
    choices: dict[Role, TokenChoice] = {}
    errors: dict[Role, str] = {}
    for role in ROLES:
        if role not in engines:
            errors[role] = STOPPED
            continue
        try:
            choices[role] = await engines[role].choose(prompt, parting.prefix, parting.tokens)
        except RequestFailed as failed:
            errors[role] = str(failed)
    return DivergenceRecord(
        pair=pair,
        question_id=parting.question_id,
        token_index=len(parting.prefix),
        tokens=parting.tokens,
        choices=choices,
        errors=errors,
    )
