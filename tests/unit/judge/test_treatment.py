"""Declared evidence, whole traces and fills: when arms count as different, and what is said where they do not."""

import json
import lzma
from pathlib import Path

import pytest
from pydantic import JsonValue, TypeAdapter

from equipoise_evals.judge import judge
from equipoise_evals.judge.treatment import NAMES_SHOWN, judge_evidence, judge_treatment, missing_text
from equipoise_evals.model import BY_FILLS, Evidence, Invalid, LaunchRecord, Records, Role, TreatmentRecord
from equipoise_service.interchange import RecordsDocument
from tests.support import records as make

ROOT = Path(__file__).resolve().parents[3]
STORED = ROOT / "docs" / "evidence"
EVIDENCE: TypeAdapter[tuple[Evidence, ...]] = TypeAdapter(tuple[Evidence, ...])


def declared(*said: dict[str, JsonValue]) -> tuple[Evidence, ...]:
    return EVIDENCE.validate_python(said)


def traces(baseline: dict[str, float], candidate: dict[str, float]) -> list[TreatmentRecord]:
    return [
        TreatmentRecord(pair=1, role=role, activity="GPU", steps=8, per_step=counts)
        for role, counts in (("A", baseline), ("B", candidate))
    ]


def launches(baseline: dict[str, JsonValue], candidate: dict[str, JsonValue]) -> list[LaunchRecord]:
    """Launches whose server and plugin say this, under one name each."""
    said: dict[Role, dict[str, JsonValue]] = {"A": baseline, "B": candidate}
    return [
        make.launch(1, role, "upstream").model_copy(
            update={"server_info": facts, "attestation": {"arm": "upstream"} | facts}
        )
        for role, facts in said.items()
    ]


GEMM = {"gemm": 30.0, "fmha_old<64>": 30.0}
KERNEL: dict[str, JsonValue] = {"kind": "kernel", "name": "fmha_new", "change": "appears"}


def test_there_is_no_word_before_both_arms_were_traced() -> None:
    assert judge_treatment(traces(GEMM, GEMM)[:1], (), ()) is None
    assert judge_evidence(None, declared_aa=False) is None


@pytest.mark.parametrize(
    ("change", "name", "candidate", "shown"),
    [
        ("appears", "fmha_new", {"gemm": 30.0, "fmha_new<64>": 30.0}, True),
        ("appears", "fmha_new", {"gemm": 31.0, "fmha_old<64>": 30.0}, False),
        ("appears", "gemm", {"gemm": 40.0}, False),  # it ran before
        ("disappears", "fmha_old", {"gemm": 30.0}, True),
        ("disappears", "fmha_old", {"gemm": 31.0, "fmha_old<64>": 30.0}, False),
        ("count", "gemm", {"gemm": 31.0, "fmha_old<64>": 30.0}, True),
        ("count", "fmha", {"gemm": 31.0, "fmha_old<64>": 10.0, "fmha_new<64>": 20.0}, False),  # 30 of both together
    ],
)
def test_a_kernel_that_appears_disappears_or_changes_its_count(
    change: str, name: str, candidate: dict[str, float], shown: bool
) -> None:
    seen = judge_treatment(traces(GEMM, candidate), (), declared({"kind": "kernel", "name": name, "change": change}))
    assert seen is not None
    assert (seen.active, seen.rule, seen.claims[0].shown) == (shown, "declared", shown)
    assert seen.contradicted is not shown


@pytest.mark.parametrize(
    ("evidence", "baseline", "candidate", "shown"),
    [
        ({"kind": "attribute", "name": "kv"}, {"kv": "auto"}, {"kv": "fp8"}, True),
        ({"kind": "attribute", "name": "kv"}, {"kv": "auto"}, {"kv": "auto"}, False),
        ({"kind": "attribute", "name": "kv"}, {"kv": "auto"}, {}, False),
        ({"kind": "attribute", "name": "kv", "candidate": "fp8"}, {"kv": "auto"}, {"kv": "fp8"}, True),
        ({"kind": "attribute", "name": "kv", "candidate": "fp8"}, {"kv": "auto"}, {"kv": "fp4"}, False),
        ({"kind": "attribute", "name": "kv", "baseline": "x", "candidate": "x"}, {"kv": "x"}, {"kv": "x"}, False),
        ({"kind": "attribute", "name": "a.b", "where": "attestation"}, {"a": {"b": 1}}, {"a": {"b": 2}}, True),
        ({"kind": "attribute", "name": "a.b.c"}, {"a": {"b": 1}}, {"a": {"b": 2}}, False),
        ({"kind": "version", "package": "sglang"}, {"versions": {"sglang": "1"}}, {"versions": {"sglang": "2"}}, True),
        # The full list of packages is asked first.
        (
            {"kind": "version", "package": "sglang", "candidate": "3"},
            {"versions": {"sglang": "1"}},
            {"versions": {"sglang": "2"}, "packages": {"sglang": "3"}},
            True,
        ),
        ({"kind": "version", "package": "torch"}, {"versions": {"torch": None}}, {"packages": {}}, False),
        # Attested as PyPI compares names (PEP 503).
        ({"kind": "version", "package": "A._b"}, {"packages": {"a-b": "1"}}, {"packages": {"a-b": "2"}}, True),
        ({"kind": "attribute", "name": "kv", "candidate": "true"}, {"kv": False}, {"kv": True}, True),
        ({"kind": "attribute", "name": "kv", "candidate": "True"}, {"kv": False}, {"kv": True}, False),
        ({"kind": "attribute", "name": "kv", "candidate": "[1, null]"}, {"kv": []}, {"kv": [1, None]}, True),
        ({"kind": "attribute", "name": "kv"}, {"kv": None}, {"kv": "fp8"}, False),
    ],
)
def test_what_engines_say_of_themselves(
    evidence: dict[str, JsonValue], baseline: dict[str, JsonValue], candidate: dict[str, JsonValue], shown: bool
) -> None:
    seen = judge_treatment(traces(GEMM, {"gemm": 29.0}), launches(baseline, candidate), declared(evidence))
    assert seen is not None
    assert seen.active is shown


def test_an_attribute_without_a_launch_shows_nothing() -> None:
    seen = judge_treatment(traces(GEMM, GEMM), (), declared({"kind": "attribute", "name": "kv"}))
    assert seen is not None
    assert (seen.active, seen.claims[0].seen) == (False, "not recorded in the baseline, not recorded in the candidate")


def test_evidence_that_does_not_appear_says_what_was_seen_instead() -> None:
    """Issue 10, acceptance 2."""
    candidate = {"gemm": 30.0, "fmha_old<64>": 20.0, "extra": 7.0}
    seen = judge_treatment(traces(GEMM, candidate), (), declared(KERNEL))
    assert seen is not None
    assert missing_text(seen) == (
        "declared evidence did not appear (kernel 'fmha_new' appears: 0 per step in the baseline, 0 in the candidate); "
        "seen instead: 2 names differ per step, among them fmha_old<64> 30 and 20, extra 0 and 7"
    )
    assert isinstance(judge_evidence(seen, declared_aa=False), Invalid)
    assert judge_evidence(seen, declared_aa=True) == Invalid(
        reason="arms_differ",
        detail="arms that were declared equal ran different code (fmha_old<64> 30 and 20, extra 0 and 7 per step)",
    )


def test_of_two_pieces_of_evidence_both_must_appear() -> None:
    both = declared(KERNEL, {"kind": "version", "package": "sglang"})
    said = launches({"packages": {"sglang": "1"}}, {"packages": {"sglang": "2"}})
    seen = judge_treatment(traces(GEMM, GEMM), said, both)
    assert seen is not None
    assert (seen.active, seen.contradicted) == (False, True)  # one of the two was shown: something does differ
    assert "seen instead: no counts per step differ" in missing_text(seen)
    assert "sglang" not in missing_text(seen)
    assert judge_evidence(seen, declared_aa=True) == Invalid(
        reason="arms_differ",
        detail="arms that were declared equal ran different code (version of sglang differs: '1' in the baseline, "
        "'2' in the candidate)",
    )


@pytest.mark.parametrize("evidence", [(), declared(KERNEL)])
def test_a_pair_that_changes_nothing_is_inactive_whatever_was_declared(evidence: tuple[Evidence, ...]) -> None:
    """Issue 10, acceptance 2."""
    plan = make.plan(evidence=evidence)
    records = make.together([make.questions()], make.launches(plan, 3), make.treatment(60.0, 60.0), make.equal_passes())
    verdict = judge(records, plan)
    assert verdict.overall.word == "treatment_inactive"
    assert "the same kernels" in verdict.headline


def test_without_declared_evidence_any_kernel_counts_and_fills_alone_do_not_decide() -> None:
    plan = make.plan(evidence=())
    other = [
        TreatmentRecord(pair=1, role=role, activity="CPU", steps=8, per_step={"aten::ones": 60.0, "aten::bmm": n})
        for role, n in (("A", 60.0), ("B", 61.0))
    ]
    records = make.together([make.questions()], make.launches(plan, 3), other, make.equal_passes())
    verdict = judge(records, plan)
    assert verdict.treatment is not None
    assert (verdict.treatment.rule, verdict.treatment.active, verdict.treatment.differing) == ("kernels", True, 1)
    assert verdict.treatment.baseline_per_step == {"aten::bmm": 60.0}
    assert judge(records, make.plan()).overall.word == "treatment_inactive"  # by fills, as the first preset asks


def test_a_run_whose_evidence_is_missing_is_invalid_by_name() -> None:
    plan = make.plan(evidence=declared(KERNEL))
    verdict = judge(make.together(make.launches(plan, 1), make.treatment()), plan)
    assert isinstance(verdict.overall, Invalid)
    assert verdict.overall.reason == "evidence_missing"
    assert "seen instead: 1 names differ per step, among them aten::ones 60 and 0" in verdict.overall.detail
    assert "declare what does" in verdict.what_to_do


def test_fills_may_be_declared_beside_other_evidence() -> None:
    fills: dict[str, JsonValue] = {"kind": "fills"}
    seen = judge_treatment(make_fills(), (), declared(fills, {"kind": "kernel", "name": "bmm", "change": "count"}))
    assert seen is not None
    assert [claim.shown for claim in seen.claims] == [True, False]


def test_fills_that_change_places_are_shown_by_their_names() -> None:
    fills = declared({"kind": "fills"}, {"kind": "kernel", "name": "bmm", "change": "count"})
    other = traces({"aten::zeros": 60.0, "bmm": 1.0}, {"aten::ones": 60.0, "bmm": 2.0})
    seen = judge_treatment(other, (), fills)
    assert seen is not None
    assert seen.active
    assert seen.claims[0].seen == "60 per step in the baseline, 60 in the candidate; 2 names differ"


@pytest.mark.parametrize(
    ("evidence", "later", "active"),
    [
        ({"kind": "attribute", "name": "kv"}, {}, True),  # a launch that does not say is no other word
        ({"kind": "attribute", "name": "kv"}, {"kv": "fp8"}, True),
        ({"kind": "attribute", "name": "kv"}, {"kv": "auto"}, False),
        ({"kind": "attribute", "name": "kv", "candidate": "fp8"}, {"kv": "auto"}, False),
        # The list of packages is recorded once; the few versions beside it may name the same build otherwise.
        ({"kind": "version", "package": "torch"}, {"versions": {"torch": "2+cu130"}}, True),
        ({"kind": "version", "package": "torch"}, {"packages": {"torch": "1"}}, False),
    ],
)
def test_every_launch_of_an_arm_must_agree(
    evidence: dict[str, JsonValue], later: dict[str, JsonValue], active: bool
) -> None:
    first = launches({"kv": "auto", "packages": {"torch": "1"}}, {"kv": "fp8", "packages": {"torch": "2"}})
    second = [one.model_copy(update={"pair": 2}) for one in launches({}, later)]
    seen = judge_treatment(traces(GEMM, GEMM), [*first, *second], declared(evidence))
    assert seen is not None
    assert seen.active is active


def test_launches_that_disagree_are_told() -> None:
    said = [*launches({"kv": "a"}, {"kv": "b"}), *launches({"kv": "a"}, {"kv": "c"})]
    seen = judge_treatment(traces(GEMM, GEMM), said, declared({"kind": "attribute", "name": "kv"}))
    assert seen is not None
    assert seen.claims[0].seen == "'a' in the baseline, 'b' and 'c' in the candidate"


@pytest.mark.parametrize("name", ["arm", "launch_id", "pid"])
def test_what_only_echoes_the_request_is_no_evidence(name: str) -> None:
    with pytest.raises(ValueError, match="only echoes what was asked for"):
        declared({"kind": "attribute", "where": "attestation", "name": name})
    assert declared({"kind": "attribute", "where": "server_info", "name": name})


def make_fills() -> list[TreatmentRecord]:
    return [record for record in make.treatment() if isinstance(record, TreatmentRecord)]


def test_a_verdict_shows_the_largest_differences_and_counts_all() -> None:
    many = {f"kernel {n}": float(n) for n in range(1, 101)}
    seen = judge_treatment(traces({}, many), (), ())
    assert seen is not None
    assert (seen.differing, len(seen.candidate_per_step)) == (100, NAMES_SHOWN)
    assert set(seen.candidate_per_step.values()) == set(range(61, 101))


def stored(name: str) -> tuple[RecordsDocument, Records]:
    document = RecordsDocument.model_validate(json.loads(lzma.decompress((STORED / name).read_bytes())))
    return document, document.observed


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("h200/aa-baseline.records.json.xz", False),
        ("h200/aa-upstream.records.json.xz", False),
        ("h200/llama-8b-shape.records.json.xz", True),
        ("cpu-smollm2.records.json.xz", True),
    ],
)
def test_whole_traces_of_real_engines_agree_in_an_a_a_and_differ_where_the_arms_do(name: str, active: bool) -> None:
    _, records = stored(name)
    seen = judge_treatment(records.of(TreatmentRecord), records.of(LaunchRecord), ())
    assert seen is not None
    assert seen.active is active, seen


def test_a_plan_that_says_nothing_is_judged_by_fills() -> None:
    document, _ = stored("h200/aa-baseline.records.json.xz")
    assert document.plan.evidence == BY_FILLS
    assert "evidence" not in json.loads(document.plan.model_dump_json())
