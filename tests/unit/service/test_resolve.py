import json
from pathlib import Path

import pytest

from equipoise_evals.gsm8k.load import QuestionSetError
from equipoise_evals.model import Plan
from equipoise_service import errors
from equipoise_service.engines.environment import Device
from equipoise_service.machine import Machine, find_device
from equipoise_service.profiles import PROFILES
from equipoise_service.questions import KINDS, load_questions, prompts_of, source_of
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import flag_value, resolve
from equipoise_service.settings import Settings

LINE = json.dumps({"question": "How many are 1 and 1?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight questions and three worked examples."""
    questions = tmp_path / "questions"
    questions.mkdir()
    (questions / "test.jsonl").write_text(f"{LINE}\n" * 8)
    (questions / "train.jsonl").write_text(f"{LINE}\n" * 3)
    return questions


def machine(tmp_path: Path, **fields: object) -> Machine:
    values = {"data": tmp_path / "data", "cache": tmp_path / "cache", "device": "simulated"} | fields
    return Machine(Settings.model_validate(values))


def plan_of(tmp_path: Path, source: Path, **fields: object) -> Plan:
    request = CompareRequest.model_validate({"model": "m", "shots": 2} | fields)
    return resolve(request, machine(tmp_path, gsm8k=str(source)))


def test_what_is_left_out_comes_from_the_profile_and_the_design(tmp_path: Path, folder: Path) -> None:
    plan = plan_of(tmp_path, folder)
    profile = PROFILES["simulated"]
    assert plan.latency is not None
    assert plan.accuracy is not None
    assert (plan.latency.steps_per_block, plan.latency.warmup_steps) == (profile.steps_per_block, profile.warmup_steps)
    assert (plan.latency.prompt_tokens, plan.latency.quads_per_pair) == (profile.prompt_tokens, profile.quads)
    assert plan.accuracy.sampling.max_new_tokens == profile.max_new_tokens
    assert plan.accuracy.concurrency == profile.concurrency
    assert (plan.latency.margin, plan.accuracy.margin_pp, plan.pairs_max, plan.stress) == (0.005, 1.0, 10, False)
    assert sorted(plan.accuracy.questions.ids) == list(range(8))
    assert plan.accuracy.questions.name == "folder"
    assert plan.arms.candidate.differs_from(plan.arms.baseline) == ("scratch",)


def test_what_the_request_says_wins(tmp_path: Path, folder: Path) -> None:
    plan = plan_of(
        tmp_path, folder, max_new_tokens=7, concurrency=3, prompt_tokens=9, steps_per_block=80, quads=4, questions=2,
        pairs_max=4, margin_accuracy_pp=2.0, margin_latency=0.01, declared_aa=True, seed=5, stress=True,
    )  # fmt: skip
    assert plan.latency is not None
    assert plan.accuracy is not None
    assert (plan.latency.prompt_tokens, plan.latency.steps_per_block, plan.latency.quads_per_pair) == (9, 80, 4)
    assert plan.latency.warmup_steps == 16  # the profile's share, 8 of 40
    assert (plan.accuracy.sampling.max_new_tokens, plan.accuracy.concurrency) == (7, 3)
    assert len(plan.accuracy.questions.ids) == 2
    assert (plan.accuracy.passes_max, plan.pairs_max, plan.looks) == (4, 4, (3, 4))
    assert (plan.accuracy.margin_pp, plan.latency.margin, plan.declared_aa, plan.seed) == (2.0, 0.01, True, 5)
    assert plan.stress


def test_the_shortest_block_leaves_steps_to_time(tmp_path: Path, folder: Path) -> None:
    plan = plan_of(tmp_path, folder, steps_per_block=8)
    assert plan.latency is not None
    assert plan.latency.warmup_steps == 1


@pytest.mark.parametrize(("part", "other"), [("latency", "accuracy"), ("accuracy", "latency")])
def test_a_half_that_is_not_asked_for_is_not_planned(tmp_path: Path, folder: Path, part: str, other: str) -> None:
    plan = plan_of(tmp_path, folder, parts=[part])
    assert plan.parts == (part,)
    assert getattr(plan, other) is None


def test_without_the_accuracy_half_no_question_is_read(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, tmp_path / "not there", parts=["latency"])
    assert prompts_of(plan, machine(tmp_path, gsm8k=str(tmp_path / "not there"))) == ()


def test_the_same_request_is_the_same_plan(tmp_path: Path, folder: Path) -> None:
    assert plan_of(tmp_path, folder, questions=4) == plan_of(tmp_path, folder, questions=4)
    assert plan_of(tmp_path, folder, questions=4) != plan_of(tmp_path, folder, questions=4, seed=2)


def test_batches_are_held_against_each_arms_own_limits(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(errors.BatchBeyondEngine, match="'baseline' runs at once"):
        plan_of(tmp_path, folder, baseline={"flags": ["--max-running-requests", "8"]})
    with pytest.raises(errors.BatchBeyondPool, match="beyond the 64 of arm 'persistent'"):
        plan_of(tmp_path, folder, candidate={"flags": ["--max-total-tokens=64"]})


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ((), None),
        (("--a", "1"), 1),
        (("--a=2",), 2),
        (("--a", "1", "--a", "3"), 3),
        (("--a=3", "--b", "--a", "1"), 1),
        (("--ab", "1"), None),
    ],
)
def test_flags_are_read_as_sglang_reads_them(flags: tuple[str, ...], value: int | None) -> None:
    assert flag_value(flags, "--a", "candidate") == value


@pytest.mark.parametrize("flags", [("--a",), ("--a", "x"), ("--a=",)])
@pytest.mark.parametrize("role", ["baseline", "candidate"])
def test_a_flag_without_its_number_is_refused_where_it_stands(flags: tuple[str, ...], role: str) -> None:
    with pytest.raises(errors.RequestInvalid, match="--a needs a whole number") as refused:
        flag_value(flags, "--a", role)
    assert [field.pointer for field in refused.value.fields] == [f"/{role}/flags"]


@pytest.mark.parametrize(
    ("file", "text", "kind", "says"),
    [
        ("test.jsonl", f"{LINE}\nnonsense\n", errors.CorruptLine, "test.jsonl, line 2"),
        ("train.jsonl", f"{LINE}\n{{}}\n", errors.CorruptLine, "train.jsonl, line 2"),
        ("test.jsonl", "", errors.EmptyQuestionSet, "test.jsonl holds no question"),
        ("test.jsonl", None, errors.MissingFolder, "test.jsonl is not there"),
        ("train.jsonl", f"{LINE}\n", errors.TooFewQuestions, "2 worked examples asked for"),
    ],
)
def test_a_faulty_question_file_is_refused_by_name(  # noqa: PLR0917 - pytest passes all by name
    tmp_path: Path, folder: Path, file: str, text: str | None, kind: type[errors.QuestionsRefused], says: str
) -> None:
    (folder / file).unlink()
    if text is not None:
        (folder / file).write_text(text)
    with pytest.raises(kind, match=says) as refused:
        plan_of(tmp_path, folder)
    named = "/shots" if kind is errors.TooFewQuestions else "/questions"
    assert [field.pointer for field in refused.value.fields] == [named]


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.MissingFolder, match="is no folder"):
        plan_of(tmp_path, tmp_path / "not there")


def test_more_questions_than_there_are(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(errors.TooFewQuestions, match="9 questions asked for"):
        plan_of(tmp_path, folder, questions=9)


def test_every_fault_of_a_question_set_has_its_refusal() -> None:
    assert set(KINDS) == set(QuestionSetError.__subclasses__())


def test_prompts_are_those_of_the_plan(tmp_path: Path, folder: Path) -> None:
    plan = plan_of(tmp_path, folder, questions=3)
    prompts = prompts_of(plan, machine(tmp_path, gsm8k=str(folder)))
    assert plan.accuracy is not None
    assert tuple(prompt.question.id for prompt in prompts) == plan.accuracy.questions.ids
    assert isinstance(prompts[0].asked, str)
    assert prompts[0].asked.count("Question:") == 3  # two worked examples, then the question


def test_chat_asks_the_same_questions_as_turns(tmp_path: Path, folder: Path) -> None:
    plan = plan_of(tmp_path, folder, questions=3, prompting="chat")
    assert plan.accuracy is not None
    assert plan.accuracy.prompting == "chat"
    chats = prompts_of(plan, machine(tmp_path, gsm8k=str(folder)))
    assert tuple(chat.question.id for chat in chats) == plan.accuracy.questions.ids
    assert isinstance(chats[0].asked, tuple)
    assert [turn.role for turn in chats[0].asked] == ["user", "assistant"] * 2 + ["user"]
    assert plan_of(tmp_path, folder).accuracy.prompting == "completion"  # type: ignore[union-attr] # it has one


def test_a_set_that_changed_since_it_was_planned_is_refused(tmp_path: Path, folder: Path) -> None:
    plan = plan_of(tmp_path, folder)
    (folder / "test.jsonl").write_text(f"{LINE}\n" * 9)
    with pytest.raises(errors.QuestionsChanged, match="not the planned ones"):
        prompts_of(plan, machine(tmp_path, gsm8k=str(folder)))


def test_the_shipped_set_is_asked_where_nothing_else_is_named(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert source_of(here) == "shipped"
    questions = load_questions(here)
    assert questions.name == "shipped"
    assert len(questions.test) >= 48


def test_a_word_names_a_set(tmp_path: Path) -> None:
    assert source_of(machine(tmp_path, gsm8k="hub")) == "hub"
    assert PROFILES["cuda"].question_set == "hub"


def test_a_simulated_model_is_nowhere(tmp_path: Path) -> None:
    model = machine(tmp_path).model("any/name")
    assert (model.name, model.source) == ("any/name", "simulated")
    assert machine(tmp_path).model("embedded").name == "simulated engines"


@pytest.mark.parametrize(("files", "device"), [([], "cpu"), (["nvidia0"], "cuda"), (["nvidiactl"], "cpu")])
def test_the_device_is_what_the_driver_shows(tmp_path: Path, files: list[str], device: Device) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert find_device(tmp_path) == device


def test_no_interpreter_is_a_refusal_of_the_machine(tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "python"
    file.touch()
    here = machine(tmp_path, device="cpu", engine_python=file, gsm8k=str(folder))
    with pytest.raises(errors.NoEngine, match="not a program") as refused:
        resolve(CompareRequest(model="m"), here)
    assert refused.value.status == 503


def test_a_layout_is_taken_as_asked_and_looks_fit_it(tmp_path: Path, folder: Path) -> None:
    plan = plan_of(tmp_path, folder, layout="alternating")
    assert (plan.layout, plan.layout_why, plan.looks) == ("alternating", "it was asked for", (4, 6, 8, 10))
    assert plan_of(tmp_path, folder).layout == "co_resident"
    odd = plan_of(tmp_path, folder, layout="alternating", pairs_max=7)
    assert (odd.pairs_max, odd.looks) == (6, (4, 6))  # after a seventh pair there would be no look
    assert odd.accuracy is not None
    assert odd.accuracy.passes_max == 6  # a seventh pass would never come, and looks are spent over those that do
    alone = plan_of(tmp_path, folder, layout="alternating", pairs_max=1)
    assert (alone.pairs_max, alone.looks) == (1, ())
    assert "not known" in plan_of(tmp_path, folder).layout_why


def test_a_crossover_needs_two_device_sets(tmp_path: Path, folder: Path) -> None:
    request = CompareRequest.model_validate({"model": "m", "shots": 2, "layout": "crossover"})
    with pytest.raises(errors.TooFewDevices, match="takes 2 GPUs of one machine and there are 0"):
        resolve(request, machine(tmp_path, gsm8k=str(folder)))
    two = machine(tmp_path, gsm8k=str(folder), devices=("0", "1"))
    assert resolve(request, two).layout == "crossover"
    wide = {"flags": ["--tp-size", "2"]}
    request = CompareRequest.model_validate(
        {"model": "m", "shots": 2, "layout": "crossover", "baseline": wide, "candidate": wide}
    )
    with pytest.raises(errors.TooFewDevices, match="takes 4 GPUs of one machine and there are 2"):
        resolve(request, two)


def test_a_kind_of_gpu_is_chosen_on_a_cluster_alone(tmp_path: Path, folder: Path) -> None:
    request = CompareRequest.model_validate({"model": "m", "shots": 2, "gpu_type": "H200"})
    with pytest.raises(errors.RequestInvalid) as refused:
        resolve(request, machine(tmp_path, gsm8k=str(folder)))
    assert "EQUIPOISE_EXECUTOR=ray" in str(refused.value)
    assert resolve(request, machine(tmp_path, gsm8k=str(folder), executor="ray")).gpu_type == "H200"


def test_the_pool_is_the_settings_else_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert machine(tmp_path).devices() == ()
    assert machine(tmp_path, device="cuda").devices() == ("3", "5")
    assert machine(tmp_path, device="cuda", devices=("7",)).devices() == ("7",)
