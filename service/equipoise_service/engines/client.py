"""HTTP client of one engine: the parts of SGLang's interface that Equipoise uses, typed.

It owns the wire and nothing else: whether the engine's process lives, and what an answer proves, is decided elsewhere.
"""

import asyncio
import io
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, Self

import aiohttp
from pydantic import JsonValue, TypeAdapter, ValidationError

from equipoise_evals.model import SamplingPlan
from equipoise_evals.model.records import ClientTiming, PromptProbe, TokenChoice
from equipoise_evals.ports import Asked, Generation, RequestFailed
from equipoise_service.engines.streaming import Chunk, NoTiming, timing
from equipoise_service.engines.wire import (
    Chosen,
    EngineAnswer,
    Finish,
    JsonObject,
    Tokens,
    parse,
    sampling_params,
    stream_chunk,
    token_choices,
)

_OBJECT: TypeAdapter[JsonObject] = TypeAdapter(JsonObject)
TOP_TOKENS = 2
PROBED_TOKENS = 8
NO_ROOM = frozenset({429, 503})
RETRY_PAUSES_S = (0.1, 0.4, 1.6)
KEEP_ALIVE_S = 3.0
"""Less than the 5 s after which SGLang's server closes an idle connection: a request must not meet that moment."""
CHUNK_LIMIT_BYTES = 64 * 1024 * 1024


class EngineUnreachable(RequestFailed):
    """The connection was refused, reset or closed: the engine may be gone."""


class NotTaken(RequestFailed):
    """The engine did not begin with the request: it was not reached, or had no room. Sending it again is safe."""


class NotReached(EngineUnreachable, NotTaken):
    """No connection was made."""


class Streamed(NamedTuple):
    """A batch as its client saw it: a timing and the chunks of each sequence, in order."""

    timings: tuple[ClientTiming, ...]
    chunks: tuple[tuple[Chunk, ...], ...]


class EngineClient:
    """Speaks to one engine: by its port on the loopback, or by the address of one that ran already."""

    def __init__(self, where: int | str, *, request_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._base = f"http://127.0.0.1:{where}" if isinstance(where, int) else where
        self._request_s = request_s
        self._clock = clock
        # No limit on connections: the number of requests in flight is the experiment's, never the client's.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
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

    async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
        """Answer one prompt.

        Raises:
            EngineUnreachable: The connection failed.
            RequestFailed: Any other failure of this request.
        """
        sent = sampling_params(sampling)
        asked: JsonObject = (
            {"text": prompt} if isinstance(prompt, str) else {"input_ids": list[JsonValue](await self.tokenize(prompt))}
        )
        body = asked | {"sampling_params": sent, "stream": False}
        raw, retries = await self._taken(body)
        answer = parse(EngineAnswer, raw)
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
            retries=retries,
        )

    async def tokenize(self, prompt: Asked) -> tuple[int, ...]:
        """Token ids of a prompt as the model gets them, special tokens included.

        Turns are rendered by the model's chat template, which writes its own BOS, and get no other; their ids are what
        ``generate`` sends, since a rendered text would be given a second BOS.
        """
        body: JsonObject = (
            {"prompt": prompt}
            if isinstance(prompt, str)
            else {"messages": [{"role": turn.role, "content": turn.content} for turn in prompt]}
        )
        return parse(Tokens, await self._request("POST", "/tokenize", body)).tokens

    async def probe(self, prompt: Asked) -> PromptProbe:
        """The tokens of a prompt in short, and the BOS of this tokenizer, which is what it makes of no text at all."""
        ids, special = await self.tokenize(prompt), await self.tokenize("")
        return PromptProbe(tokens=len(ids), head=ids[:PROBED_TOKENS], bos=special[0] if special else None)

    async def choose(self, prompt: Asked, prefix: Sequence[int], tokens: tuple[int | None, int | None]) -> TokenChoice:
        """Log-probabilities of the token after a prompt and the output tokens ``prefix``.

        The last token of the prefix is left for the engine to repeat, so that the one asked for comes out of a decode
        step as it did in the answer. Where the engine repeats another one, the whole prefix is given.
        """
        ids = [*await self.tokenize(prompt), *prefix]
        if prefix:
            chosen, choices = await self._choices(ids[:-1], 2, tokens)
            if chosen[:1] == (prefix[-1],) and len(choices) == 2:
                return choices[1]
        _, choices = await self._choices(ids, 1, tokens)
        return choices[0].model_copy(update={"path": "prefill"})

    async def _choices(
        self, ids: list[int], new_tokens: int, tokens: tuple[int | None, int | None]
    ) -> tuple[tuple[int, ...], list[TokenChoice]]:
        """Tokens that the engine goes on with, and what it thought of ``tokens`` at each."""
        known = [token for token in tokens if token is not None]
        body: JsonObject = {
            "input_ids": list[JsonValue](ids),
            "sampling_params": sampling_params(SamplingPlan(max_new_tokens=new_tokens, stop=(), ignore_eos=True)),
            "stream": False,
            "return_logprob": True,
            "top_logprobs_num": TOP_TOKENS,
            "token_ids_logprob": list[JsonValue](known),
        }
        answer = parse(Chosen, await self._request("POST", "/generate", body))
        return answer.output_ids, token_choices(answer.meta_info, tokens)

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
        return (await self.stream_tokens(prompts, new_tokens, on_token)).timings

    async def stream_tokens(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, on_token: Callable[[int], None] | None = None
    ) -> Streamed:
        """The same, with the arrival of every chunk."""
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
            timings = tuple(timing(started_s, of_one) for of_one in chunks)
        except NoTiming as reason:
            raise RequestFailed(f"a stream gave no timing: {reason}") from reason
        return Streamed(timings, tuple(map(tuple, chunks)))

    async def first_tokens_us(self, prompts: Sequence[Sequence[int]]) -> tuple[float, ...]:
        """Prefill all ``prompts`` together, and the time to first token of each in microseconds.

        Each gets one token, which comes out of its prefill.

        Raises:
            EngineUnreachable: The connection failed.
            RequestFailed: The stream broke off, reported an error, or a prompt got no token.
        """
        sampling = SamplingPlan(max_new_tokens=1, stop=(), ignore_eos=True, temperature=0.0)
        body: JsonObject = {
            "input_ids": [list(prompt) for prompt in prompts],
            "sampling_params": sampling_params(sampling),
            "stream": True,
        }
        arrived_s: dict[int, float] = {}
        started_s = self._clock()
        async for index, chunk in self._stream(body, len(prompts)):
            if chunk.total_tokens:
                arrived_s.setdefault(index, chunk.arrived_s)
        if len(arrived_s) < len(prompts):
            raise RequestFailed(f"{len(arrived_s)} of {len(prompts)} prompts got a first token")
        return tuple((arrived_s[index] - started_s) * 1e6 for index in range(len(prompts)))

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
        finish: Finish | None = None
        asked = False
        async for data in self._events(body):
            if data == b"[DONE]":
                break
            meta = stream_chunk(data).meta_info
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
            chunk = stream_chunk(data)
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
            async with self._session.post(self._base + "/generate", allow_redirects=False, **_json(body)) as response:
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

    async def start_profile(self, folder: str, activity: str, steps: int | None = None) -> None:
        """Begin a profiler trace, written into ``folder`` after ``steps`` forward passes, or by ``stop_profile``."""
        body: JsonObject = {
            "output_dir": folder,
            "num_steps": steps,
            "activities": [activity],
            "with_stack": False,
            "record_shapes": False,
        }
        await self._request("POST", "/start_profile", body)

    async def stop_profile(self) -> None:
        """End the trace that was begun without a number of forward passes; it is written when this returns."""
        await self._request("POST", "/stop_profile", None)

    async def _taken(self, body: JsonObject) -> tuple[bytes, int]:
        """Send a prompt until the engine takes it; the answer, and how often it was sent in vain.

        Only what the engine certainly did not begin is sent again: a connection that was never made, or a refusal for
        want of room. Anything else, a timeout above all, may have been answered and stays a failure.
        """
        for retries, pause_s in enumerate(RETRY_PAUSES_S):
            try:
                return await self._request("POST", "/generate", body), retries
            except NotTaken:
                await asyncio.sleep(pause_s)
        return await self._request("POST", "/generate", body), len(RETRY_PAUSES_S)

    async def _object(self, method: str, path: str) -> JsonObject:
        raw = await self._request(method, path, None)
        try:
            return _OBJECT.validate_json(raw)
        except ValidationError as broken:
            raise RequestFailed(f"{path} answered with something that is no JSON object: {raw[:80]!r}") from broken

    async def _request(self, method: str, path: str, body: JsonObject | None) -> bytes:
        try:
            url = self._base + path
            async with self._session.request(method, url, allow_redirects=False, **_json(body)) as response:
                await _require_ok(response)
                return await response.read()
        except TimeoutError as late:
            raise RequestFailed(f"{path} did not answer within {self._request_s:g} s") from late
        except aiohttp.ClientConnectorError as unmade:
            raise NotReached(f"{path}: {type(unmade).__name__}: {unmade}") from unmade
        except aiohttp.ClientError as broken:
            raise EngineUnreachable(f"{path}: {type(broken).__name__}: {broken}") from broken


def _json(body: JsonObject | None) -> dict[str, Any]:
    """A body as aiohttp sends it piece by piece: a batch of long prompts, sent whole, would lock the event loop."""
    if body is None:
        return {}
    return {"data": io.BytesIO(json.dumps(body).encode()), "headers": {"Content-Type": "application/json"}}


async def _require_ok(response: aiohttp.ClientResponse) -> None:
    if response.status >= 300:  # a redirect would lead where nobody allowed us to go
        text = (await response.text(errors="replace"))[:300]
        kind = NotTaken if response.status in NO_ROOM else RequestFailed
        raise kind(f"HTTP {response.status} from {response.url.path}: {text}")


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines without a limit on one line's length other than ``CHUNK_LIMIT_BYTES``."""
    pending = b""
    async for block in stream.iter_any():
        *complete, pending = (pending + block).split(b"\n")
        if len(pending) > CHUNK_LIMIT_BYTES:
            raise RequestFailed(f"a line of the stream is longer than {CHUNK_LIMIT_BYTES} bytes")
        for line in complete:
            yield line
