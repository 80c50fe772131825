"""Question sets as the service uses them: which one, which questions of it, and how its faults are told to clients."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from equipoise_evals.gsm8k import load
from equipoise_evals.gsm8k.chat import AnyPrompt, build_chats
from equipoise_evals.gsm8k.prompt import build_prompts
from equipoise_evals.gsm8k.sample import plan_questions as draw_questions
from equipoise_evals.gsm8k.sample import questions_of
from equipoise_evals.model import Plan, QuestionPlan
from equipoise_service import errors
from equipoise_service.machine import Machine
from equipoise_service.requests import CompareRequest

KINDS: dict[type[load.QuestionSetError], type[errors.QuestionsRefused]] = {
    load.FolderMissing: errors.MissingFolder,
    load.FileMissing: errors.MissingFolder,
    load.CorruptLine: errors.CorruptLine,
    load.EmptySet: errors.EmptyQuestionSet,
    load.TooFewQuestions: errors.TooFewQuestions,
    load.HubUnavailable: errors.QuestionsUnavailable,
    load.SetChanged: errors.QuestionsChanged,
}
"""Each fault of a question set and the refusal that tells of it; the sentence is the fault's own."""

SHIPPED, HUB = "shipped", "hub"


def source_of(machine: Machine) -> str:
    """Where questions come from: ``shipped``, ``hub`` or a folder; EQUIPOISE_GSM8K, else the device profile."""
    return machine.settings.gsm8k or machine.profile.question_set


def load_questions(machine: Machine) -> load.QuestionSet:
    """The question set of this machine; blocks while it downloads.

    Raises:
        QuestionsRefused: It cannot be used.
    """
    source = source_of(machine)
    with _told():
        if source == SHIPPED:
            return load.load_shipped()
        if source == HUB:
            return load.load_hub()
        return load.load_folder(Path(source).expanduser())


def plan_questions(request: CompareRequest, machine: Machine) -> QuestionPlan:
    """The questions of a request, drawn by its seed.

    Raises:
        QuestionsRefused: The set cannot be used, or has fewer questions or worked examples than asked for.
    """
    question_set = load_questions(machine)
    with _told():
        return draw_questions(question_set, request.questions, request.shots, request.seed)


def prompts_of(plan: Plan, machine: Machine) -> Sequence[AnyPrompt]:
    """The prompts of a plan, in the order asked; none without an accuracy half.

    Raises:
        QuestionsRefused: The set is no longer the one that was planned.
    """
    if plan.accuracy is None:
        return ()
    question_set = load_questions(machine)
    with _told():
        asked, shots = questions_of(question_set, plan.accuracy.questions)
    return build_chats(asked, shots) if plan.accuracy.prompting == "chat" else build_prompts(asked, shots)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except load.QuestionSetError as fault:
        too_few_shots = isinstance(fault, load.TooFewQuestions) and fault.split == "train"
        raise KINDS[type(fault)](str(fault), "/shots" if too_few_shots else "/questions") from fault
