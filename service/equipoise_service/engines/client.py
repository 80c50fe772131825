"""HTTP client of one engine: the parts of SGLang's interface that Equipoise uses, typed.

It owns the wire and nothing else: whether the engine's process lives, and what an answer proves, is decided elsewhere.
"""

import io
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self, TypeVar

import aiohttp
from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from equipoise_evals.model import SamplingPlan
from equipoise_evals.model.records import ClientTiming
from equipoise_evals.ports import Generation, RequestFailed
from equipoise_service.engines.streaming import Chunk, NoTiming, timing

JsonObject = dict[str, JsonValue]
_OBJECT: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)
CHUNK_LIMIT_BYTES = 64 * 1024 * 1024


Parsed = TypeVar("Parsed", bound=BaseModel)


class EngineUnreachable(RequestFailed):
    """The connection was refused, reset or closed: the engine may be gone."""


class _Wire(BaseModel):
    """Parts of SGLang's answers; fields that Equipoise does not use may come and go with versions."""

    model_config = ConfigDict(extra="ignore")


class _Finish(_Wire):
    type: str
    message: str | None = None


class _Meta(_Wire):
    finish_reason: _Finish | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class _Answer(_Wire):
    text: str
    output_ids: tuple[int, ...]
    meta_info: _Meta


class _StreamMeta(_Wire):
    """What every chunk has; one that ends a request aborted while it waited has nothing else."""

    finish_reason: _Finish | None
    completion_tokens: int


class _StreamChunk(_Wire):
    index: int = 0
    meta_info: _StreamMeta


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


class EngineClient:
    """Speaks to one engine on the loopback."""

    def __init__(self, port: int, *, request_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._request_s = request_s
        self._clock = clock
        # No limit on connections: the number of requests in flight is the experiment's, never the client's.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            read_bufsize=1 << 20,
            timeout=aiohttp.ClientTimeout(total=request_s),
        )

    async def __aenter__(self) -> Self:
        """The client itself; its connections are closed at exit."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def generate(self, prompt: str, sampling: SamplingPlan) -> Generation:
        """Answer one prompt.

        Raises:
            EngineUnreachable: The connection failed.
            RequestFailed: Any other failure of this request.
        """
        sent = sampling_params(sampling)
        body: JsonObject = {"text": prompt, "sampling_params": sent, "stream": False}
        answer = _parse(_Answer, await self._request("POST", "/generate", body))
        finish = answer.meta_info.finish_reason
        if finish is None or finish.type == "abort":
            raise RequestFailed(f"the engine aborted the request: {finish.message if finish else 'no finish reason'}")
        return Generation(
            text=answer.text,
            output_ids=answer.output_ids,
            finish_reason=finish.type,
            prompt_tokens=answer.meta_info.prompt_tokens,
            cached_tokens=answer.meta_info.cached_tokens,
            sampling=sent,
        )

    async def stream_batch(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, on_token: Callable[[int], None] | None = None
    ) -> tuple[ClientTiming, ...]:
        """Decode all ``prompts`` together and time each as its client sees it.

        One request carries the whole batch: SGLang hands a list of token ids to its scheduler in one message, so that
        the sequences are prefilled together and decode in step. ``on_token`` hears the least number of tokens that
        every sequence has reached.

        Raises:
            EngineUnreachable: The connection failed.
            RequestFailed: The stream broke off, reported an error, or gave no timing.
        """
        body: JsonObject = {
            "input_ids": [list(prompt) for prompt in prompts],
            "sampling_params": sampling_params(
                SamplingPlan(max_new_tokens=new_tokens, stop=(), ignore_eos=True, temperature=0.0)
            ),
            "stream": True,
        }
        chunks: list[list[Chunk]] = [[] for _ in prompts]
        reached = 0
        started_s = self._clock()
        async for index, chunk in self._stream(body, len(prompts)):
            chunks[index].append(chunk)
            least = min(of_one[-1].total_tokens if of_one else 0 for of_one in chunks)
            if on_token and least > reached:
                on_token(least)
            reached = least
        try:
            return tuple(timing(started_s, of_one) for of_one in chunks)
        except NoTiming as reason:
            raise RequestFailed(f"a stream gave no timing: {reason}") from reason

    async def stream_one(self, prompt: Sequence[int], new_tokens: int, abort_after: int | None) -> str:
        """Decode one prompt to its end, and ask the engine to abort it once ``abort_after`` tokens have come.

        SGLang notices only seconds later that a client has hung up, when a short request has long finished; so the
        abort is asked for by name, and the stream read on until the engine says how the request ended.

        Returns:
            The engine's reason: ``length``, or ``abort`` where the abort came in time.

        Raises:
            EngineUnreachable: The connection failed.
            RequestFailed: The stream broke off, reported an error, or was aborted without having been asked to.
        """
        sampling = SamplingPlan(max_new_tokens=new_tokens, stop=(), ignore_eos=True, temperature=0.0)
        name = f"eq-{uuid.uuid4().hex}"
        body: JsonObject = {
            "rid": name, "input_ids": list(prompt), "sampling_params": sampling_params(sampling), "stream": True,
        }  # fmt: skip
        finish: _Finish | None = None
        asked = False
        async for data in self._events(body):
            if data == b"[DONE]":
                break
            meta = _stream_chunk(data).meta_info
            finish = meta.finish_reason
            if finish is None and not asked and abort_after is not None and meta.completion_tokens >= abort_after:
                asked = True
                await self._request("POST", "/abort_request", {"rid": name})
        if finish is None:
            raise RequestFailed("the stream ended before its request did")
        if finish.type == "abort" and not asked:
            raise RequestFailed(f"the engine aborted a stream: {finish.message}")
        return finish.type

    async def _stream(self, body: JsonObject, sequences: int) -> AsyncIterator[tuple[int, Chunk]]:
        ended = False
        async for data in self._events(body):
            arrived_s = self._clock()
            if data == b"[DONE]":
                ended = True
                break
            chunk = _stream_chunk(data)
            finish = chunk.meta_info.finish_reason
            if finish is not None and finish.type == "abort":
                raise RequestFailed(f"the engine aborted a stream: {finish.message}")
            if not 0 <= chunk.index < sequences:
                raise RequestFailed(f"a chunk belongs to sequence {chunk.index} of {sequences}")
            yield chunk.index, Chunk(arrived_s, chunk.meta_info.completion_tokens)
        if not ended:
            raise RequestFailed("the stream ended without its end mark")

    async def _events(self, body: JsonObject) -> AsyncIterator[bytes]:
        """The data of each server-sent event."""
        try:
            async with self._session.post(self._base + "/generate", **_json(body)) as response:
                await _require_ok(response)
                async for line in _lines(response.content):
                    if line.startswith(b"data:"):
                        yield line[5:].strip()
        except TimeoutError as late:
            raise RequestFailed(f"the stream did not end within {self._request_s:g} s") from late
        except aiohttp.ClientError as broken:
            raise EngineUnreachable(f"the stream broke: {type(broken).__name__}: {broken}") from broken

    async def health(self) -> None:
        """``GET /health``; refused until the engine's own warm-up generation is through."""
        await self._request("GET", "/health", None)

    async def server_info(self) -> JsonObject:
        """``GET /server_info``; asking also makes the plugin flush its step log."""
        return await self._object("GET", "/server_info")

    async def model_info(self) -> JsonObject:
        """``GET /model_info``."""
        return await self._object("GET", "/model_info")

    async def flush_cache(self) -> None:
        """Empty the prefix cache."""
        await self._request("POST", "/flush_cache", None)

    async def start_profile(self, folder: str, steps: int, activity: str) -> None:
        """Begin a profiler trace of ``steps`` forward steps, written into ``folder`` when they are done."""
        body: JsonObject = {
            "output_dir": folder,
            "num_steps": steps,
            "activities": [activity],
            "with_stack": False,
            "record_shapes": False,
        }
        await self._request("POST", "/start_profile", body)

    async def _object(self, method: str, path: str) -> JsonObject:
        raw = await self._request(method, path, None)
        try:
            return _OBJECT.validate_json(raw)
        except ValidationError as broken:
            raise RequestFailed(f"{path} answered with something that is no JSON object: {raw[:80]!r}") from broken

    async def _request(self, method: str, path: str, body: JsonObject | None) -> bytes:
        try:
            async with self._session.request(method, self._base + path, **_json(body)) as response:
                await _require_ok(response)
                return await response.read()
        except TimeoutError as late:
            raise RequestFailed(f"{path} did not answer within {self._request_s:g} s") from late
        except aiohttp.ClientError as broken:
            raise EngineUnreachable(f"{path}: {type(broken).__name__}: {broken}") from broken


def _json(body: JsonObject | None) -> dict[str, Any]:
    """A body as aiohttp sends it piece by piece: a batch of long prompts, sent whole, would lock the event loop."""
    if body is None:
        return {}
    return {"data": io.BytesIO(json.dumps(body).encode()), "headers": {"Content-Type": "application/json"}}


async def _require_ok(response: aiohttp.ClientResponse) -> None:
    if response.status >= 400:
        text = (await response.text(errors="replace"))[:300]
        raise RequestFailed(f"HTTP {response.status} from {response.url.path}: {text}")


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines without a limit on one line's length other than ``CHUNK_LIMIT_BYTES``."""
    pending = b""
    async for block in stream.iter_any():
        *complete, pending = (pending + block).split(b"\n")
        if len(pending) > CHUNK_LIMIT_BYTES:
            raise RequestFailed(f"a line of the stream is longer than {CHUNK_LIMIT_BYTES} bytes")
        for line in complete:
            yield line


def _parse(kind: type[Parsed], raw: bytes) -> Parsed:
    try:
        return kind.model_validate_json(raw)
    except ValidationError as broken:
        raise RequestFailed(f"the engine's answer does not have the expected form: {raw[:120]!r}") from broken


def _stream_chunk(data: bytes) -> _StreamChunk:
    try:
        value: Any = json.loads(data)
    except ValueError as broken:
        raise RequestFailed(f"the stream holds something that is no JSON: {data[:80]!r}") from broken
    if isinstance(value, dict) and "error" in value:
        raise RequestFailed(f"the engine reported an error in the stream: {value['error']}")
    try:
        return _StreamChunk.model_validate(value)
    except ValidationError as broken:
        raise RequestFailed(f"a chunk of the stream does not have the expected form: {data[:120]!r}") from broken
