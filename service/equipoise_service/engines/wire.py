"""The parts of SGLang's JSON that Equipoise sends and reads, typed. Pure; nothing is sent or received here."""

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from equipoise_evals.model import SamplingPlan, TokenChoice
from equipoise_evals.ports import RequestFailed

JsonObject = dict[str, JsonValue]
Parsed = TypeVar("Parsed", bound=BaseModel)


class Wire(BaseModel):
    """Parts of SGLang's answers; fields that Equipoise does not use may come and go with versions."""

    model_config = ConfigDict(extra="ignore")


class Finish(Wire):
    """Why a request ended."""

    type: str
    message: str | None = None


class Meta(Wire):
    """What comes with every answer."""

    finish_reason: Finish | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class EngineAnswer(Wire):
    """An answer that is not streamed."""

    text: str
    output_ids: tuple[int, ...]
    meta_info: Meta


class StreamMeta(Wire):
    """What every chunk has; one that ends a request aborted while it waited has nothing else."""

    finish_reason: Finish | None
    completion_tokens: int


class StreamChunk(Wire):
    """One chunk of a stream."""

    index: int = 0
    meta_info: StreamMeta
    error: JsonValue = None


class Tokens(Wire):
    """A tokenized prompt."""

    tokens: tuple[int, ...]


Logprob = tuple[float, int, str | None]
"""Log-probability, token id, and its text where that is asked for."""


class ChosenMeta(Wire):
    """Log-probabilities of each token of an answer, one list a token."""

    output_top_logprobs: tuple[tuple[Logprob, ...], ...]
    output_token_ids_logprobs: tuple[tuple[Logprob, ...], ...]


class Chosen(Wire):
    """An answer with its log-probabilities."""

    output_ids: tuple[int, ...]
    meta_info: ChosenMeta


def sampling_params(sampling: SamplingPlan) -> JsonObject:
    """Every parameter that a model's own defaults could decide, always explicit."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "max_new_tokens": sampling.max_new_tokens,
        "min_new_tokens": 0,
        "stop": list(sampling.stop),
        "ignore_eos": sampling.ignore_eos,
        "n": 1,
    }


def token_choices(meta: ChosenMeta, tokens: tuple[int | None, int | None]) -> list[TokenChoice]:
    """What the engine thought of two tokens at each place of its answer, None standing for no token.

    Raises:
        RequestFailed: It gave no log-probabilities.
    """
    if len(meta.output_top_logprobs) != len(meta.output_token_ids_logprobs) or not meta.output_top_logprobs:
        raise RequestFailed("the engine gave no log-probabilities")
    choices = []
    for top, of_tokens in zip(meta.output_top_logprobs, meta.output_token_ids_logprobs, strict=True):
        by_id = {token: logprob for logprob, token, _ in of_tokens}
        first, second = (None if token is None else by_id[token] for token in tokens)
        pairs = tuple((token, logprob) for logprob, token, _ in top)
        choices.append(TokenChoice(logprobs=(first, second), top=pairs, path="decode"))
    return choices


def parse(kind: type[Parsed], raw: bytes) -> Parsed:
    """A whole answer of this form; anything else fails the request."""
    try:
        return kind.model_validate_json(raw)
    except ValidationError as broken:
        raise RequestFailed(f"the engine's answer does not have the expected form: {raw[:120]!r}") from broken


def stream_chunk(data: bytes) -> StreamChunk:
    """One event of a stream; an error in it, or another form, fails the request.

    Read without making values of what is not used: chunks hold all tokens and all text so far, come with every step of
    every sequence, and what reading them costs is taken from engines on the same cores.
    """
    try:
        chunk = StreamChunk.model_validate_json(data)
    except ValidationError as broken:
        raise RequestFailed(_unlike_a_chunk(data)) from broken
    if "error" in chunk.model_fields_set:
        raise RequestFailed(f"the engine reported an error in the stream: {chunk.error}")
    return chunk


def _unlike_a_chunk(data: bytes) -> str:
    """Why something is no chunk."""
    try:
        value: Any = json.loads(data)
    except ValueError:
        return f"the stream holds something that is no JSON: {data[:80]!r}"
    if isinstance(value, dict) and "error" in value:
        return f"the engine reported an error in the stream: {value['error']}"
    return f"a chunk of the stream does not have the expected form: {data[:120]!r}"
