"""Real SGLang engines on the CPU under the real launcher: readiness, attestation, step clock, treatment, answers."""

import asyncio

import numpy as np
import psutil
import pytest

from equipoise_evals.decode.stress import StressPhase, StressRequest
from equipoise_evals.model import SamplingPlan
from equipoise_evals.ports import ChatMessage
from equipoise_service.engines.stress import capacity
from tests.integration.conftest import RealPair

pytestmark = pytest.mark.engine

LAYERS = 30
PROMPT = "Question: Tom has 3 apples and buys 4 more. How many apples has he?\nAnswer:"


async def test_both_engines_attest_their_arm_and_have_equal_pools(real_pair: RealPair) -> None:
    launches = {role: await engine.attest() for role, engine in real_pair.engines.items()}

    assert [launches[role].attestation["arm"] for role in ("A", "B")] == ["baseline", "persistent"]
    assert {launch.attestation["kernel_path"] for launch in launches.values()} == {"reference"}
    assert {launch.server_info["max_total_num_tokens"] for launch in launches.values()} == {16384}
    assert {launch.server_info["dtype"] for launch in launches.values()} == {"float32"}
    assert launches["A"].started_first


def test_the_engines_listen_on_the_loopback_and_on_their_own_ports(real_pair: RealPair) -> None:
    for engine in real_pair.engines.values():
        assert set(engine.launch.owned_ports) == set(engine.launch.start.ports)
        main = [
            process for process in engine.tree.members() if process.cmdline()[1:3] == ["-m", "sglang.launch_server"]
        ]
        listening = [
            connection.laddr[0]
            for connection in main[0].net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert listening == ["127.0.0.1"]


@pytest.mark.parametrize("batch", [1, 16])
async def test_a_block_decodes_all_its_requests_together(real_pair: RealPair, batch: int) -> None:
    prompt_tokens, steps = 32, 12

    block = await real_pair.engines["A"].decode(batch, prompt_tokens, steps, seed=3)

    assert len(block.steps) == steps
    assert set(block.steps.real_batch) == {batch}
    # One prefill token per request, then one more in each step; the step attends to its own token as well.
    first = batch * (prompt_tokens + 1)
    assert list(block.steps.context_tokens) == [first + batch * step for step in range(steps)]
    assert all(busy_us > 0 for busy_us in block.steps.busy_us)
    assert block.steps.period_us[0] is None
    assert all(period_us is not None for period_us in block.steps.period_us[1:])
    assert len(block.client) == batch
    assert {timing.output_tokens for timing in block.client} == {1 + steps + 4}


async def test_the_period_holds_the_busy_time_and_the_client_waits_for_the_period(real_pair: RealPair) -> None:
    block = await real_pair.engines["B"].decode(1, 32, 16, seed=4)

    periods_us = [period_us for period_us in block.steps.period_us if period_us is not None]
    assert sum(periods_us) >= sum(block.steps.busy_us[:-1])
    # The client sees the same steps and the four spare ones, whatever else the machine does meanwhile.
    assert block.client[0].tpot_us == pytest.approx(sum(periods_us) / len(periods_us), rel=0.5)


async def test_the_trace_shows_the_fills_in_the_baseline_arm_only(real_pair: RealPair) -> None:
    """Acceptance 3: one ``aten::zeros`` and two ``aten::ones`` per layer and step, and none."""
    counts = {role: await engine.count_kernels(1, 8) for role, engine in real_pair.engines.items()}

    assert counts["A"].steps == counts["B"].steps == 8
    assert counts["A"].per_step["aten::zeros"] == LAYERS
    assert counts["A"].per_step["aten::ones"] == 2 * LAYERS
    assert "aten::zeros" not in counts["B"].per_step
    assert "aten::ones" not in counts["B"].per_step


async def test_prefills_are_timed_and_counted_whole(real_pair: RealPair) -> None:
    engine = real_pair.engines["B"]

    block = await engine.prefill(1, 48, 6, seed=5)

    assert list(block.steps.context_tokens) == [48] * 6
    assert set(block.steps.graph_batch) == {0}
    first_tokens_us = [us for us in block.steps.period_us if us is not None]
    assert len(first_tokens_us) == 6
    # The client waits for the engine, and for a little else.
    assert all(ttft > busy > 0 for ttft, busy in zip(first_tokens_us, block.steps.busy_us, strict=True))
    together = await engine.prefill(3, 32, 4, seed=6)  # in however many passes the engine lets them in
    assert (list(together.steps.context_tokens), set(together.steps.real_batch)) == ([3 * 32] * 4, {3})
    counted = await engine.count_kernels(1, 3, 48)
    assert (counted.phase, counted.steps) == ("prefill", 3)
    assert counted.per_step["aten::linear"] == 4 * LAYERS  # of q, k and v together, of o, and two of the MLP


async def test_greedy_answers_are_equal_in_both_arms_alone_and_together(real_pair: RealPair) -> None:
    """float32 gives identical texts, whatever else is decoded at the same time."""
    sampling = SamplingPlan(max_new_tokens=24, stop=("\nQuestion:",))
    alone = [await engine.generate(PROMPT, sampling) for engine in real_pair.engines.values()]
    together = await asyncio.gather(
        *(real_pair.engines["B"].generate(prompt, sampling) for prompt in [PROMPT, "One, two,", "The sky is", PROMPT])
    )

    assert alone[0].output_ids == alone[1].output_ids == together[0].output_ids == together[3].output_ids
    assert alone[0].cached_tokens == 0
    assert 0 < len(alone[0].output_ids) <= 24
    assert alone[0].finish_reason in ("stop", "length")


async def test_stress_is_counted_and_leaves_the_guard_clean_and_the_answers_as_they_were(real_pair: RealPair) -> None:
    """Phases of the profile's kinds, but small: its own fill a pool of 16,384 tokens, which takes minutes on a CPU."""
    engine, sampling = real_pair.engines["B"], SamplingPlan(max_new_tokens=16, stop=())
    short = StressRequest(prompt_tokens=16, new_tokens=24)
    phases = [
        StressPhase(name="long_prefills", requests=(short, short, StressRequest(prompt_tokens=512, new_tokens=1))),
        StressPhase(name="mixed_lengths", requests=(short, StressRequest(prompt_tokens=1, new_tokens=24))),
        StressPhase(name="aborts", requests=(short, short.model_copy(update={"abort_after": 4})) * 2),
    ]
    before = await engine.generate(PROMPT, sampling)

    ended = [await engine.stress_phase(phase, np.random.default_rng(1)) for phase in phases]

    assert [(one.finished, one.aborted, one.failed) for one in ended] == [(3, 0, 0), (2, 0, 0), (2, 2, 0)]
    assert {one.guard for one in ended} == {"clean"}
    assert sorted({one.guard_checks for one in ended}) == [one.guard_checks for one in ended]
    assert (await engine.generate(PROMPT, sampling)).output_ids == before.output_ids


async def test_a_request_that_the_engine_refuses_is_a_failed_one(real_pair: RealPair) -> None:
    engine = real_pair.engines["A"]
    size = capacity(await engine.client.server_info())
    # The embedded model's context of 8,192 tokens, less one, less five.
    assert size == (16_384, 8_186)
    phase = StressPhase(
        name="full_pool",
        requests=(
            StressRequest(prompt_tokens=8_192, new_tokens=1),
            StressRequest(prompt_tokens=8, new_tokens=2),
        ),
    )

    ended = await engine.stress_phase(phase, np.random.default_rng(1))

    assert (ended.finished, ended.failed, ended.guard) == (1, 1, "not_applicable")
    assert ended.first_error is not None
    assert "8192" in ended.first_error


async def test_what_an_engine_chose_is_what_it_holds_for_likeliest(real_pair: RealPair) -> None:
    """The token after a prefix comes out of a decode step of the same float32 arithmetic as in the answer."""
    engine = real_pair.engines["B"]
    answer = await engine.generate(PROMPT, SamplingPlan(max_new_tokens=12, stop=()))
    for index in (0, 1, 7):
        token = answer.output_ids[index]
        choice = await engine.choose(PROMPT, answer.output_ids[:index], (token, 0))
        assert choice.path == ("decode" if index else "prefill")
        assert choice.top[0] == (token, choice.logprobs[0])
        assert choice.logprobs[0] is not None
        assert choice.logprobs[1] is not None
        assert choice.logprobs[1] < choice.logprobs[0] < 0
        assert len(choice.top) == 2


async def test_a_chat_is_asked_through_the_models_template(real_pair: RealPair) -> None:
    """SmolLM2's template opens each turn with ``<|im_start|>``, token 1; its tokenizer puts no BOS of its own."""
    turns = (ChatMessage("user", PROMPT),)
    probes = [await engine.probe(turns) for engine in real_pair.engines.values()]
    assert probes[0] == probes[1]
    assert probes[0].head[0] == 1
    assert probes[0].bos is None
    answers = [await engine.generate(turns, SamplingPlan(max_new_tokens=16)) for engine in real_pair.engines.values()]
    assert answers[0].output_ids == answers[1].output_ids
    assert answers[0].prompt_tokens == probes[0].tokens
    assert answers[0].sampling is not None
    assert answers[0].sampling["temperature"] == 0.0
