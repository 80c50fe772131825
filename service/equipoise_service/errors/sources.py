"""Models and question sets that cannot be had, or not be used."""

from equipoise_service.errors.base import AGAIN, FieldError, Refusal


class ModelRefused(Refusal):
    """The model cannot be measured."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, [FieldError("/model", detail)])


class UnknownModel(ModelRefused):
    """Neither a folder with a model, nor an id that the hub knows."""

    title = "Unknown model"
    type = "unknown-model"


class ModelNotAllowed(ModelRefused):
    """The operator's lists leave this model out."""

    title = "Model not allowed"
    type = "model-not-allowed"


class GatedModel(ModelRefused):
    """The hub wants a token, or its terms accepted."""

    title = "Gated model"
    type = "gated-model"


class ModelUnavailable(ModelRefused):
    """The model exists, but its files are not complete here and could not be fetched."""

    title = "Model unavailable"
    status = 503
    type = "model-unavailable"
    remedy = AGAIN


class QuestionsRefused(Refusal):
    """The question set cannot be asked."""

    def __init__(self, detail: str, pointer: str = "/questions") -> None:
        super().__init__(detail, [FieldError(pointer, detail)])


class MissingFolder(QuestionsRefused):
    """The folder that EQUIPOISE_GSM8K names, or one of its files, is not there."""

    title = "Missing question folder"
    type = "missing-question-folder"


class CorruptLine(QuestionsRefused):
    """A line of a question file cannot be used; the sentence names file and line."""

    title = "Corrupt question line"
    type = "corrupt-question-line"


class EmptyQuestionSet(QuestionsRefused):
    """A question file without a question."""

    title = "Empty question set"
    type = "empty-question-set"


class TooFewQuestions(QuestionsRefused):
    """More questions or worked examples asked for than the set has."""

    title = "Too few questions"
    type = "too-few-questions"


class QuestionsChanged(QuestionsRefused):
    """Between planning and running, the files changed."""

    title = "Question set changed"
    status = 409
    type = "questions-changed"


class QuestionsUnavailable(QuestionsRefused):
    """The set exists, but could not be fetched."""

    title = "Question set unavailable"
    status = 503
    type = "questions-unavailable"
    remedy = AGAIN
