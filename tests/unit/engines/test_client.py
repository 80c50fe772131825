"""The client against a server that answers exactly what each test says, byte by byte."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from equipoise_evals.gsm8k.grade import grade
from equipoise_evals.model import PromptProbe, SamplingPlan, TokenChoice
from equipoise_evals.ports import ChatMessage, RequestFailed
from equipoise_service.engines.client import EngineClient, EngineUnreachable
from equipoise_service.engines.engine import begins_with_one_bos
from equipoise_service.engines.wire import sampling_params

REAL = json.loads((Path(__file__).parents[2] / "contract" / "data" / "sglang-0.5.23.json").read_text())
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Served = Callable[[Handler], Awaitable[EngineClient]]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Makes a client of a server with one handler for every route."""
    opened: list[Any] = []

    async def make(handler: Handler) -> EngineClient:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(app)
        await server.start_server()
        assert server.port is not None
        client = EngineClient(server.port, request_s=2)
        opened.extend([client, server])
        return client

    yield make
    for thing in opened:
        await thing.close()


def answering(body: bytes, status: int = 200, kind: str = "application/json") -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, content_type=kind)

    return handler


def streaming(*events: str) -> Handler:
    return answering("".join(f"data: {event}\n\n" for event in events).encode(), kind="text/event-stream")


def chunk(tokens: int, index: int = 0, finish: dict[str, str] | None = None) -> str:
    meta = {"finish_reason": finish, "prompt_tokens": 2, "completion_tokens": tokens, "cached_tokens": 0}
    return json.dumps({"index": index, "text": "", "output_ids": [], "meta_info": meta})


async def test_a_real_answer_is_read(served: Served) -> None:
    client = await served(answering(json.dumps(REAL["generate"]["json"]).encode()))

    generation = await client.generate("1 + 1 =", SamplingPlan())

    assert generation.text == " 20,"
    assert generation.output_ids == (216, 34, 32, 28)
    assert (generation.finish_reason, generation.prompt_tokens, generation.cached_tokens) == ("length", 5, 0)


async def test_a_real_stream_of_two_sequences_is_timed(served: Served) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for line in REAL["stream"]["lines"]:
            await response.write(f"{line}\n".encode())
        return response

    client = await served(handler)
    reached: list[int] = []

    timings = await client.stream_batch([[1], [2]], 4, reached.append)

    assert [timing.output_tokens for timing in timings] == [4, 4]
    assert reached == [1, 2, 3, 4]


async def test_sampling_is_always_explicit(served: Served) -> None:
    """A2-03: an engine's own defaults never decide."""
    seen: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        return web.json_response(REAL["generate"]["json"])

    await (await served(handler)).generate("x", SamplingPlan(max_new_tokens=7, stop=("\n",)))

    assert seen[0]["text"] == "x"
    assert seen[0]["sampling_params"] == sampling_params(SamplingPlan(max_new_tokens=7, stop=("\n",)))
    assert seen[0]["sampling_params"] == {
        "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
        "frequency_penalty": 0.0, "presence_penalty": 0.0, "max_new_tokens": 7, "min_new_tokens": 0, "stop": ["\n"],
        "ignore_eos": False, "n": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (answering(b'{"error": {"message": "boom"}}', status=500), "HTTP 500 from /generate: .*boom"),
        (answering(b"<html>"), "expected form"),
        (answering(b'{"text": null, "output_ids": []}'), "expected form"),
        (
            answering(
                json.dumps(
                    {
                        "text": "",
                        "output_ids": [],
                        "meta_info": {
                            "finish_reason": {"type": "abort", "message": "out of pages"},
                            "prompt_tokens": 1,
                            "completion_tokens": 0,
                        },
                    }
                ).encode()
            ),
            "aborted the request: out of pages",
        ),
    ],
)
async def test_a_failed_request_is_no_answer(served: Served, handler: Handler, says: str) -> None:
    client = await served(handler)

    with pytest.raises(RequestFailed, match=says):
        await client.generate("x", SamplingPlan())


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([], "without its end mark"),
        ([chunk(1), chunk(2)], "without its end mark"),
        (["{broken", "[DONE]"], "no JSON"),
        (["[1]", "[DONE]"], "expected form"),
        (['{"error": {"message": "boom"}}', "[DONE]"], "boom"),
        ([chunk(1, index=7), "[DONE]"], "sequence 7 of 1"),
        ([chunk(1, finish={"type": "abort", "message": "gone"}), "[DONE]"], "aborted a stream: gone"),
        (["[DONE]"], "0 tokens came"),  # A3-07
        ([chunk(1), "[DONE]"], "1 tokens came"),
    ],
)
async def test_a_bad_stream_gives_no_timing(served: Served, events: list[str], says: str) -> None:
    client = await served(streaming(*events))

    with pytest.raises(RequestFailed, match=says):
        await client.stream_batch([[1]], 4)


async def test_a_chunk_may_be_cut_anywhere(served: Served) -> None:
    whole = "".join(f"data: {event}\n\n" for event in [chunk(1), chunk(2), chunk(3), "[DONE]"]).encode()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for place in range(0, len(whole), 7):
            await response.write(whole[place : place + 7])
        return response

    timings = await (await served(handler)).stream_batch([[1]], 3)

    assert timings[0].output_tokens == 3


async def test_a3_17_a_wall_clock_that_steps_back_changes_no_duration(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of 0.3 s, in the middle of which the wall clock falls back by 5 s."""
    wall_s = time.time

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"data: {chunk(1)}\n\n".encode())
        monkeypatch.setattr(time, "time", lambda: wall_s() - 5.0)
        await asyncio.sleep(0.3)
        await response.write(f"data: {chunk(2)}\n\ndata: [DONE]\n\n".encode())
        return response

    (seen,) = await (await served(handler)).stream_batch([[1]], 2)
    assert seen.ttft_us > 0
    assert 0.29e6 < seen.tpot_us < 1.5e6  # a busy machine may wake us late, never early


async def test_a2_09_an_answer_without_content_is_an_error_of_its_own(served: Served) -> None:
    """No TypeError, no wrong answer. ``/generate`` has no reasoning parser: all that was written is graded."""
    body = {"text": None, "output_ids": [1], "meta_info": json.loads(chunk(1, finish={"type": "stop"}))["meta_info"]}
    client = await served(answering(json.dumps(body).encode()))
    with pytest.raises(RequestFailed, match="expected form"):
        await client.generate("x", SamplingPlan())
    assert grade("<think>7*8=56.</think>#### 56", "56").state == "correct"


@pytest.mark.parametrize(("status", "again"), [(503, True), (429, True), (500, False), (400, False)])
async def test_only_a_request_that_the_engine_did_not_begin_is_sent_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, status: int, again: bool
) -> None:
    monkeypatch.setattr("equipoise_service.engines.client.RETRY_PAUSES_S", (0.0, 0.0))
    statuses = [status, 200]

    async def handler(request: web.Request) -> web.StreamResponse:
        now = statuses.pop(0)
        return web.json_response(REAL["generate"]["json"] if now == 200 else {"error": "no"}, status=now)

    client = await served(handler)
    if again:
        assert (await client.generate("x", SamplingPlan())).retries == 1
    else:
        with pytest.raises(RequestFailed, match=f"HTTP {status}"):
            await client.generate("x", SamplingPlan())
        assert statuses == [200]


async def test_an_engine_that_never_has_room_fails_the_request_in_the_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("equipoise_service.engines.client.RETRY_PAUSES_S", (0.0, 0.0))
    asked = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return web.Response(status=503)

    with pytest.raises(RequestFailed, match="HTTP 503"):
        await (await served(handler)).generate("x", SamplingPlan())
    assert asked == 3


async def test_a_request_that_timed_out_may_have_been_answered_and_is_not_sent_again(served: Served) -> None:
    asked = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        await request.read()
        await asyncio.sleep(30)
        return web.Response()

    with pytest.raises(RequestFailed, match="did not answer within 2 s"):
        await (await served(handler)).generate("x", SamplingPlan())
    assert asked == 1


class Chooser:
    """Serves ``/tokenize`` and answers of given tokens; keeps what it was asked."""

    def __init__(self, continues: dict[int, list[int]]) -> None:
        self.continues = continues  # by number of ids in the prompt
        self.asked: list[dict[str, Any]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if request.path == "/tokenize":
            assert body == {"prompt": "1 + 1 ="}
            return web.json_response({"tokens": [50, 51, 52], "count": 3, "max_model_len": 8192})
        self.asked.append(body)
        out = self.continues[len(body["input_ids"])]
        meta = {
            "output_top_logprobs": [[[-0.1, token, None], [-2.5, 99, None]] for token in out],
            "output_token_ids_logprobs": [[[-0.1 if t == token else -2.5, t, None] for t in body["token_ids_logprob"]]
                                          for token in out],
        }  # fmt: skip
        return web.json_response({"output_ids": out, "meta_info": meta})


async def test_the_token_after_a_prefix_comes_out_of_a_decode_step(served: Served) -> None:
    chooser = Chooser({4: [8, 30]})
    choice = await (await served(chooser.handle)).choose("1 + 1 =", (7, 8), (30, 31))
    assert choice == TokenChoice(logprobs=(-0.1, -2.5), top=((30, -0.1), (99, -2.5)), path="decode")
    (asked,) = chooser.asked
    assert asked["input_ids"] == [50, 51, 52, 7]  # the engine repeats 8 by itself
    assert (asked["return_logprob"], asked["top_logprobs_num"], asked["token_ids_logprob"]) == (True, 2, [30, 31])
    assert asked["sampling_params"]["temperature"] == 0.0


async def test_an_engine_that_repeats_another_token_is_given_the_whole_prefix(served: Served) -> None:
    chooser = Chooser({4: [9, 30], 5: [31]})
    choice = await (await served(chooser.handle)).choose("1 + 1 =", (7, 8), (30, 31))
    assert (choice.logprobs, choice.path) == ((-2.5, -0.1), "prefill")
    assert [asked["input_ids"] for asked in chooser.asked] == [[50, 51, 52, 7], [50, 51, 52, 7, 8]]


async def test_the_first_token_comes_out_of_a_prefill_and_an_ended_answer_has_none(served: Served) -> None:
    choice = await (await served(Chooser({3: [31]}).handle)).choose("1 + 1 =", (), (None, 31))
    assert (choice.logprobs, choice.path) == ((None, -0.1), "prefill")


async def test_an_engine_without_log_probabilities_fails_the_request(served: Served) -> None:
    client = await served(Chooser({3: []}).handle)
    with pytest.raises(RequestFailed, match="gave no log-probabilities"):
        await client.choose("1 + 1 =", (), (30, 31))


BOS = 128_000
TURNS = (ChatMessage("user", "Question: 1 + 1?\nAnswer:"),)


class Tokenizer:
    """Serves ``/tokenize`` as SGLang does: texts get a BOS in front, a template writes its own."""

    def __init__(self, template: list[int]) -> None:
        self.template = template
        self.generated: list[dict[str, Any]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if request.path == "/generate":
            self.generated.append(body)
            return web.json_response(REAL["generate"]["json"])
        if "messages" in body:
            assert body == {"messages": [{"role": "user", "content": TURNS[0].content}]}
            return web.json_response({"tokens": self.template, "count": 0, "max_model_len": 1})
        ids = [BOS, *(ord(letter) for letter in body["prompt"])]
        return web.json_response({"tokens": ids, "count": len(ids), "max_model_len": 1})


async def test_a2_15_a_prompt_has_exactly_one_bos_in_either_mode(served: Served) -> None:
    tokenizer = Tokenizer([BOS, 7, 8])
    client = await served(tokenizer.handle)
    completion, chat = await client.probe("1 + 1 ="), await client.probe(TURNS)
    assert completion == PromptProbe(tokens=8, head=(BOS, *map(ord, "1 + 1 =")), bos=BOS)
    assert chat == PromptProbe(tokens=3, head=(BOS, 7, 8), bos=BOS)
    assert begins_with_one_bos(completion)
    assert begins_with_one_bos(chat)


async def test_a2_15_rendered_turns_are_sent_as_ids_which_get_no_second_bos(served: Served) -> None:
    tokenizer = Tokenizer([BOS, 7, 8])
    client = await served(tokenizer.handle)
    await client.generate(TURNS, SamplingPlan())
    (sent,) = tokenizer.generated
    assert sent["input_ids"] == [BOS, 7, 8]
    assert "text" not in sent


@pytest.mark.parametrize(
    ("head", "bos", "one"),
    [
        ((BOS, BOS, 7), BOS, False),  # the template's and the tokenizer's
        ((7, 8), BOS, False),
        ((), BOS, False),
        ((BOS,), BOS, True),
        ((7, 7), None, True),  # this tokenizer puts none
    ],
)
def test_a2_15_two_or_none_are_found(head: tuple[int, ...], bos: int | None, one: bool) -> None:
    assert begins_with_one_bos(PromptProbe(tokens=len(head), head=head, bos=bos)) is one


async def test_nobody_listening_is_unreachable() -> None:
    async with EngineClient(1, request_s=2) as client:
        with pytest.raises(EngineUnreachable):
            await client.model_info()


async def test_a_connection_that_breaks_is_unreachable(served: Served) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    with pytest.raises(EngineUnreachable):
        await (await served(handler)).model_info()


async def test_a_request_has_a_limit(served: Served) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await request.read()
        await asyncio.sleep(30)
        return response

    client = await served(handler)

    with pytest.raises(RequestFailed, match="did not answer within 2 s"):
        await client.model_info()


async def test_an_abort_is_asked_for_by_name_and_the_engine_says_how_it_ended(served: Served) -> None:
    named: dict[str, asyncio.Event] = {}

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if request.path == "/abort_request":
            named[body["rid"]].set()
            return web.Response()
        assert body["sampling_params"]["ignore_eos"]
        asked = named[body["rid"]] = asyncio.Event()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"data: {chunk(1)}\n\ndata: {chunk(2)}\n\n".encode())
        await asked.wait()
        # What SGLang's `_handle_abort_req` sends for a request that waits: no count of prompt tokens.
        end = {"meta_info": {"finish_reason": {"type": "abort", "message": "Abort"}, "completion_tokens": 2}}
        await response.write(f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode())
        return response

    assert await (await served(handler)).stream_one([1, 2], 8, 2) == "abort"


async def test_a_request_that_was_faster_than_its_abort_has_finished(served: Served) -> None:
    end = chunk(3, finish={"type": "length"})
    assert await (await served(streaming(chunk(1), end, "[DONE]"))).stream_one([1], 3, 2) == "length"
    assert await (await served(streaming(chunk(1), end, "[DONE]"))).stream_one([1], 3, None) == "length"


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ((chunk(1),), "ended before its request did"),
        ((chunk(1, finish={"type": "abort", "message": "out of pages"}), "[DONE]"), "aborted a stream: out of pages"),
        ((json.dumps({"error": {"message": "too long"}}), "[DONE]"), "too long"),
    ],
)
async def test_a_single_stream_that_fails(served: Served, events: tuple[str, ...], says: str) -> None:
    client = await served(streaming(*events))
    with pytest.raises(RequestFailed, match=says):
        await client.stream_one([1], 4, None)
