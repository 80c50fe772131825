"""Result files of other tools, in their own formats: read, compared, refused. Issue 10, acceptance 6."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from equipoise_evals.judge import canonical_json
from equipoise_evals.judge.imported import ImportRefused, judge_imported
from equipoise_evals.model import Invalid, Verdict
from equipoise_evals.model.imported import ImportedRun
from equipoise_service.cli.main import main
from equipoise_service.results import ResultFileError, read_runs
from tests.unit.model.test_model import verdict_of

DATA = Path(__file__).parent / "data" / "results"
Document = dict[str, Any]


def sglang(scale: float, shift: float = 0.0) -> str:
    one = json.loads((DATA / "sglang.jsonl").read_text())
    one |= {"mean_tpot_ms": 6.0 * scale, "mean_e2e_latency_ms": 800.0 * scale, "mean_ttft_ms": 40.0 + shift}
    return f"{json.dumps(one)}\n"


def vllm(scale: float, shift: float = 0.0) -> str:
    one = json.loads((DATA / "vllm.json").read_text())
    return json.dumps(one | {"mean_tpot_ms": 6.0 * scale, "mean_e2el_ms": 800.0 * scale, "mean_ttft_ms": 40.0 + shift})


def aiperf(scale: float, shift: float = 0.0) -> str:
    one = json.loads((DATA / "aiperf.json").read_text())
    one["inter_token_latency"]["avg"], one["request_latency"]["avg"] = 6.0 * scale, 800.0 * scale
    one["time_to_first_token"]["avg"] = 40.0 + shift
    one["input_config"]["output"]["artifact_directory"] = f"artifacts/{scale}"
    return json.dumps(one, indent=1)


WRITERS: dict[str, Callable[..., str]] = {"sglang.bench_serving": sglang, "vllm bench": vllm, "AIPerf": aiperf}
BASE = (1.0, 1.001, 0.999)


def files(folder: Path, arm: str, texts: Sequence[str]) -> list[Path]:
    made = []
    for number, text in enumerate(texts):
        made.append(folder / f"{arm}-{number}.json")
        made[-1].write_text(text)
    return made


def runs(folder: Path, arm: str, texts: Sequence[str]) -> list[ImportedRun]:
    return [run for file in files(folder, arm, texts) for run in read_runs(file)]


def judged(folder: Path, baseline: Sequence[str], candidate: Sequence[str]) -> Verdict:
    arms = runs(folder, "a", baseline), runs(folder, "b", candidate)
    return judge_imported(*arms, margin_latency=0.005, margin_accuracy_pp=1.0)[0]


@pytest.mark.parametrize("tool", WRITERS)
@pytest.mark.parametrize(("scale", "word", "overall"), [(0.95, "faster", "inconclusive"), (1.05, "slower", "block")])
def test_three_runs_an_arm_give_a_verdict_marked_unattested(
    tmp_path: Path, tool: str, scale: float, word: str, overall: str
) -> None:
    write = WRITERS[tool]
    verdict = judged(tmp_path, [write(s) for s in BASE], [write(s * scale) for s in (1.0005, 0.9995, 1.0)])
    assert verdict.unattested
    assert verdict.headline.startswith(f"Unattested ({tool}): ")
    assert (verdict.overall.word, verdict.treatment) == (overall, None)
    assert verdict.latency is not None
    assert (verdict.latency.word, verdict.latency.evidence.clock) == (word, "imported")
    busy, period = verdict.latency.evidence.busy, verdict.latency.evidence.period
    assert busy.effect == pytest.approx(scale - 1, abs=1e-3)
    assert (busy.baseline_us, period.baseline_us) == pytest.approx((6_000, 800_000), rel=1e-6)
    (first_token,) = verdict.latency.evidence.secondary
    assert (first_token.metric, first_token.batch, first_token.effect) == ("client_ttft", 16, 0.0)
    assert "the time per output token changes by" in verdict.how_sure
    assert "3 runs of each arm" in verdict.how_sure
    assert ("whether the treatment was live has not been shown" in str(verdict.overall)) is (overall == "inconclusive")


def test_an_interval_over_runs_is_that_of_their_log_ratios(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [vllm(1.0)] * 3, [vllm(0.97), vllm(0.98), vllm(0.99)])
    assert verdict.latency is not None
    interval = verdict.latency.evidence.busy.interval
    assert interval is not None
    # Logs -0.030459, -0.020203, -0.010050: mean -0.020237, SD 0.010205; t_2(0.975) SD / sqrt(3) = 0.025350.
    assert (interval.low, interval.high) == pytest.approx((-0.044560, 0.005126), abs=1e-5)


def test_what_is_not_decided_says_what_would(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [vllm(1.0)] * 3, [vllm(0.97), vllm(1.0), vllm(1.03)])
    assert verdict.overall.word == "inconclusive"
    assert "import more runs of each arm" in verdict.what_to_do
    assert "never ship it" in verdict.what_to_do


def harness(wrong: Sequence[int] = (), style: str = "") -> str:
    lines = []
    for text in (DATA / "lm_eval.jsonl").read_text().splitlines():
        row = json.loads(text)
        if row["doc_id"] in wrong:
            row |= {"exact_match": 0.0, "resps": [[f"{style}#### 999"]], "filtered_resps": ["999"]}
        lines.append(json.dumps(row))
    return "\n".join(lines)


def test_graded_samples_are_compared_question_by_question(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [harness()] * 3, [harness(wrong=range(7))] * 3)
    assert verdict.unattested
    assert verdict.overall.word == "block"
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "regression"
    assert (verdict.accuracy.evidence.graded, verdict.accuracy.evidence.only_baseline) == (8, 7)
    assert verdict.latency is None


def test_equal_answers_are_identical_and_still_do_not_ship(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [harness()] * 3, [harness()] * 3)
    assert verdict.accuracy is not None
    assert (verdict.accuracy.word, verdict.overall.word) == ("identical", "inconclusive")
    assert verdict.accuracy.evidence.no_answer == (None, None)  # the harness tells right from wrong, and no more


def test_another_filter_may_count(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text(harness())
    assert read_runs(file)[0].setup["filter"] == "strict-match"
    assert read_runs(file, "flexible-extract")[0].setup["filter"] == "flexible-extract"
    with pytest.raises(ResultFileError, match="there are: strict-match, flexible-extract"):
        read_runs(file, "none")


def test_several_runs_may_stand_in_one_file(tmp_path: Path) -> None:
    """``sglang.bench_serving`` appends to its output file."""
    file = tmp_path / "all.jsonl"
    file.write_text("".join(sglang(s) for s in BASE))
    assert [run.source for run in read_runs(file)] == [f"{file}:1", f"{file}:2", f"{file}:3"]


def test_fewer_than_three_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="2 runs of the candidate: at least 3 of each arm"):
        judged(tmp_path, [vllm(1.0)] * 3, [vllm(1.0)] * 2)
    with pytest.raises(ImportRefused, match="0 runs of the baseline"):
        judged(tmp_path, [], [vllm(1.0)] * 3)
    with pytest.raises(ImportRefused, match="3 runs of the baseline and 4 of the candidate: give as many"):
        judged(tmp_path, [vllm(1.0)] * 3, [vllm(1.0)] * 4)


@pytest.mark.parametrize(
    ("write", "change", "said"),
    [
        (sglang, {"random_input_len": 1024}, "random_input_len 512 and 1024"),
        (sglang, {"server_info": {"model_path": "other"}}, "model 'Qwen/Qwen3-8B' and 'other'"),
        (vllm, {"max_concurrency": 8}, "max_concurrency 16 and 8"),
        (vllm, {"model_id": "other"}, "model 'Qwen/Qwen3-8B' and 'other'"),
        (aiperf, {"aiperf_version": "0.4.0"}, "aiperf_version '0.3.0' and '0.4.0'"),
        (aiperf, {"input_config": {"loadgen": {"concurrency": 8}}}, "input_config"),
    ],
)
def test_set_ups_that_differ_are_refused(
    tmp_path: Path, write: Callable[[float], str], change: Document, said: str
) -> None:
    changed = json.dumps(json.loads(write(1.0)) | change)
    with pytest.raises(ImportRefused, match="have different set-ups") as refused:
        judged(tmp_path, [write(1.0)] * 3, [write(1.0), write(1.0), changed])
    assert said in str(refused.value)
    assert "b-2.json" in str(refused.value)


def test_other_questions_are_another_set_up(tmp_path: Path) -> None:
    fewer = "\n".join(harness().splitlines()[:-2])
    with pytest.raises(ImportRefused, match="questions 8 and 7"):
        judged(tmp_path, [harness()] * 3, [fewer] * 3)


def test_files_of_two_tools_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=r"is of vllm bench and .* of AIPerf"):
        judged(tmp_path, [vllm(1.0)] * 3, [aiperf(1.0)] * 3)


@pytest.mark.parametrize(
    "lossy",
    [
        json.dumps(json.loads(vllm(1.0)) | {"completed": 60, "failed": 4}),
        json.dumps({k: v for k, v in json.loads(vllm(1.0)).items() if k != "failed"} | {"completed": 60}),
    ],
)
def test_runs_that_lost_requests_are_not_judged(tmp_path: Path, lossy: str) -> None:
    verdict = judged(tmp_path, [vllm(1.0)] * 3, [vllm(1.0), lossy, vllm(1.0)])
    assert isinstance(verdict.overall, Invalid)
    assert verdict.overall.reason == "missing_answers"
    assert "4 of 64 requests of" in verdict.overall.detail
    assert (verdict.latency, verdict.accuracy) == (None, None)


@pytest.mark.parametrize("requests", [None, 0])
def test_lost_requests_of_an_unknown_number_are_not_judged(tmp_path: Path, requests: int | None) -> None:
    sound = runs(tmp_path, "a", [vllm(1.0)] * 3)
    lossy = [*sound[:2], sound[2].model_copy(update={"requests": requests, "failed": 1})]
    verdict = judge_imported(sound, lossy, margin_latency=0.005, margin_accuracy_pp=1.0)[0]
    assert isinstance(verdict.overall, Invalid)
    assert f"1 of {'an unknown number of' if requests is None else 0} requests of" in verdict.overall.detail


@pytest.mark.parametrize("scale", [0.95, 1.0, 1.002, 1.05])
def test_a_batch_that_nobody_set_is_not_named(tmp_path: Path, scale: float) -> None:
    free = [run.model_copy(update={"concurrency": None}) for run in runs(tmp_path, "a", [vllm(s) for s in BASE])]
    other = [run.model_copy(update={"tpot_ms": scale * (run.tpot_ms or 0)}) for run in free]
    verdict = judge_imported(free, other, margin_latency=0.005, margin_accuracy_pp=1.0)[0]
    assert "batch" not in verdict.headline
    assert verdict.latency is not None
    evidence = verdict.latency.evidence
    assert [one.batch for one in (evidence.busy, evidence.period, *evidence.secondary)] == [None] * 3
    assert "  " not in verdict.headline
    limited = judged(tmp_path, [vllm(s) for s in BASE], [vllm(s * scale) for s in BASE])
    assert "at batch 16" in limited.headline


def test_without_an_end_to_end_latency_one_clock_is_named(tmp_path: Path) -> None:
    arms = [[vllm(scale * s) for s in (1.0, 1.0005, 0.9995)] for scale in (1.0, 0.95)]
    bare = [[json.dumps({k: v for k, v in json.loads(t).items() if k != "mean_e2el_ms"}) for t in arm] for arm in arms]
    verdict = judged(tmp_path, *bare)
    assert "(-5.00 % time per output token)" in verdict.headline
    assert "end-to-end" not in verdict.headline + verdict.how_sure
    assert verdict.how_sure.count("time per output token") == 1
    both = judged(tmp_path, *arms)
    assert "-5.00 % end-to-end latency)" in both.headline
    assert "and the end-to-end latency by" in both.how_sure


def test_lost_requests_are_counted_where_a_tool_tells_of_them(tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    lost.write_text(json.dumps(json.loads(sglang(1.0)) | {"errors": ["", "timeout"]}))
    assert (read_runs(lost)[0].requests, read_runs(lost)[0].failed) == (2, 1)
    lost.write_text(json.dumps({k: v for k, v in json.loads(sglang(1.0)).items() if k != "errors"}))
    assert (read_runs(lost)[0].requests, read_runs(lost)[0].failed) == (None, None)
    errors = [{"error_details": {"code": 500}, "count": 2}]
    lost.write_text(json.dumps(json.loads(aiperf(1.0)) | {"error_summary": errors}))
    assert (read_runs(lost)[0].requests, read_runs(lost)[0].failed) == (66, 2)


def test_a_metric_that_a_run_does_not_state_is_not_compared(tmp_path: Path) -> None:
    """Neither zero nor the other runs' mean takes its place."""
    bare = json.dumps({k: v for k, v in json.loads(vllm(1.0)).items() if k != "mean_ttft_ms"})
    verdict = judged(tmp_path, [vllm(1.0)] * 3, [vllm(1.0), vllm(1.0), bare])
    assert verdict.latency is not None
    assert verdict.latency.evidence.secondary == ()
    without = json.loads(aiperf(1.0))
    del without["inter_token_latency"]
    unknown = judged(tmp_path, [aiperf(1.0)] * 3, [aiperf(1.0), aiperf(1.0), json.dumps(without)])
    assert (unknown.latency, unknown.overall.word) == (None, "inconclusive")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no json", "neither JSON nor JSON lines"),
        ("[1, 2]", "holds no JSON objects"),
        ("", "holds no JSON objects"),
        ('{"a": 1}', "is of no known format"),
        ('{"results": {}, "n-samples": {}}', "give the samples_….jsonl beside it"),
        (json.dumps(json.loads(vllm(1.0)) | {"mean_tpot_ms": -1}), "tpot_ms: Input should be greater than 0"),
        (json.dumps(json.loads(aiperf(1.0)) | {"time_to_first_token": {"unit": "s", "avg": 1}}), "given in 's'"),
        ('{"doc_id": 0, "filtered_resps": [], "filter": "none", "exact_match": 1.0}', "not as its tool writes it"),
        ('{"doc_id": 0, "filtered_resps": [], "filter": "none"}', "says of no question whether it was right"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    with pytest.raises(ResultFileError) as refused:
        read_runs(file)
    assert said in str(refused.value)
    with pytest.raises(ResultFileError, match="cannot be read"):
        read_runs(tmp_path / "nowhere.json")


def test_the_command_ends_as_its_verdict_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def command(baseline: list[Path], candidate: list[Path]) -> int:
        options = [o for f in baseline for o in ("--baseline", str(f))]
        return main(["judge-results", *options, *(o for f in candidate for o in ("--candidate", str(f)))])

    a = files(tmp_path, "a", [vllm(s) for s in BASE])
    b = files(tmp_path, "b", [vllm(1.05 * s) for s in (1.0005, 0.9995, 1.0)])
    assert command(a, b) == 1
    assert json.loads(capsys.readouterr().out)["unattested"] is True
    assert command(a[:2], b[:2]) == 64
    assert "at least 3 of each arm" in capsys.readouterr().err
    assert command(a, [b[0]] * 3) == 64
    assert "b-0.json counted more than once for the candidate" in capsys.readouterr().err


def test_a_verdict_of_ours_is_not_marked_and_one_that_is_never_ships() -> None:
    ours = verdict_of(-0.0164)
    assert (ours.overall.word, ours.unattested) == ("ship", False)
    with pytest.raises(ValueError, match="an unattested verdict cannot be ship"):
        Verdict.model_validate(json.loads(canonical_json(ours)) | {"unattested": True})
