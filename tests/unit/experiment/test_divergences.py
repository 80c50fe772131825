"""Where the arms' answers part, both engines are asked again for what they think of the next token."""

import pytest

from equipoise_evals.experiment import (
    questions_record,
    run_comparison,
)
from equipoise_evals.gsm8k.measure import MOST_DIVERGENCES
from equipoise_evals.model import (
    DivergenceRecord,
    Records,
    Role,
)
from equipoise_evals.ports import EngineFault, RequestFailed, World
from tests.fakes.launching import ListRecorder
from tests.integration.service.fake import Call, FakeLauncher, Hook, nothing
from tests.support import records as make
from tests.support.experiment import Killed, prompts, run, silent


def with_parted_passes(n: int) -> ListRecorder:
    """A recorder that holds passes whose answers part at their second token, where the baseline's end."""
    recorder = ListRecorder()
    recorder.append(questions_record(prompts(n)))
    arms: dict[Role, tuple[int, ...]] = {"A": (1,), "B": (1, 5)}
    for role, ids in arms.items():
        done = make.one_pass(1, role, [True] * n)
        answers = tuple(answer.model_copy(update={"output_ids": ids}) for answer in done.answers)
        recorder.append(done.model_copy(update={"answers": answers}))
    return recorder


async def parted(hook: Hook = nothing) -> Records:
    """Records of a run that goes on after such passes."""
    plan = make.plan(accuracy=make.accuracy_plan(20), latency=None, pairs_max=1)
    recorder = with_parted_passes(20)
    await run_comparison(plan, prompts(20), World(FakeLauncher(recorder, hook), lambda: 0.0, recorder, silent))
    return recorder.records()


async def test_where_answers_part_both_engines_are_asked_again() -> None:
    records = await parted()
    found = records.of(DivergenceRecord)
    assert len(found) == MOST_DIVERGENCES
    assert {(one.pair, one.token_index, one.tokens) for one in found} == {(1, 1, (None, 5))}
    assert [one.question_id for one in found] == list(range(MOST_DIVERGENCES))
    assert all(one.choices["A"].logprobs == (-0.1, -2.5) and not one.errors for one in found)


async def test_equal_answers_are_not_asked_again() -> None:
    _, records, _ = await run()
    assert records.of(DivergenceRecord) == ()


async def test_an_engine_that_gives_no_log_probabilities_is_named_and_the_run_goes_on() -> None:
    async def refuse(call: Call) -> None:
        if (call.method, call.role) == ("choose", "B"):
            raise RequestFailed("HTTP 400")

    found = (await parted(refuse)).of(DivergenceRecord)
    assert found[0].errors == {"B": "HTTP 400"}
    assert set(found[0].choices) == {"A"}


async def test_a_resumed_run_asks_each_divergence_once() -> None:
    chosen: list[Call] = []
    kill = Killed("attest", 3)  # where the guards of the first pair are looked at last, after its passes

    async def count_and_kill(call: Call) -> None:
        if call.method == "choose":
            chosen.append(call)
        await kill(call)

    plan = make.plan(accuracy=make.accuracy_plan(3, passes_max=1))
    recorder = with_parted_passes(3)
    world = World(FakeLauncher(recorder, count_and_kill), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match="killed"):
        await run_comparison(plan, prompts(3), world)
    await run_comparison(plan, prompts(3), world)
    assert len(chosen) == 3 * 2
    assert len(recorder.records().of(DivergenceRecord)) == 3
