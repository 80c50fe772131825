"""An engine of fixed speed: each request gets its tokens at fixed times after its arrival, however many there are.

``python -m tests.fakes.paced --token-s 0.01 --tokens 25``. It prints its port. It computes nothing, so that what a
client makes of it is the client's own. ``/stats`` tells how many requests came and how many were open at most.
"""

import argparse
import asyncio
import json
import time
from typing import Any

from aiohttp import web

ANSWER = (
    " Natalia sold 48 clips in April, and half as many in May, which makes 48 / 2 = <<48/2=24>>24. Each clip brings "
    "her 2 dollars, so April brought 48 * 2 = <<48*2=96>>96 dollars and May brought 24 * 2 = <<24*2=48>>48 dollars. In "
    "both months together she therefore made 96 + 48 = <<96+48=144>>144 dollars. She gives a quarter of that to her "
    "brother, which is 144 / 4 = <<144/4=36>>36 dollars, and keeps 144 - 36 = <<144-36=108>>108 dollars.\n#### 108"
)
"""What every answer says: as long, and as hard to grade, as what a model writes to a question of GSM8K."""


class Paced:
    """The routes of one engine; ``tokens`` is the length of every answer that asks for at least as many."""

    def __init__(self, token_s: float, tokens: int) -> None:
        self._token_s = token_s
        self._tokens = tokens
        self._open = self.requests = self.most_open = 0

    def application(self) -> web.Application:
        """The application with every route that either client asks."""
        app = web.Application(client_max_size=1 << 30)
        for path in ("/health", "/model_info", "/get_model_info", "/v1/models", "/server_info", "/get_server_info"):
            app.router.add_get(path, self.info)
        app.router.add_route("*", "/flush_cache", self.info)
        app.router.add_get("/stats", self.stats)
        app.router.add_post("/generate", self.generate)
        return app

    async def info(self, request: web.Request) -> web.Response:
        """Whatever is asked of the engine itself."""
        return web.json_response({"model_path": "paced", "is_generation": True, "data": [{"id": "paced"}]})

    async def stats(self, request: web.Request) -> web.Response:
        """Counters since the last time they were asked for."""
        counted = {"requests": self.requests, "most_open": self.most_open}
        self.requests = self.most_open = 0
        return web.json_response(counted)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """``POST /generate``; the clock of a request starts when all of it has arrived."""
        body = await request.json()
        began_s = time.monotonic()
        self.requests += 1
        self._open += 1
        self.most_open = max(self.most_open, self._open)
        try:
            tokens = min(self._tokens, body["sampling_params"]["max_new_tokens"])
            if body.get("stream"):
                return await self._stream(request, body, began_s, tokens)
            await self._until(began_s, tokens)
            return web.json_response(_chunk(0, tokens, tokens))
        finally:
            self._open -= 1

    async def _stream(
        self, request: web.Request, body: dict[str, Any], began_s: float, tokens: int
    ) -> web.StreamResponse:
        ids = body.get("input_ids")
        sequences = len(ids) if ids and isinstance(ids[0], list) else 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for done in range(1, tokens + 1):
            await self._until(began_s, done)
            lines = (f"data: {json.dumps(_chunk(index, done, tokens))}\n\n" for index in range(sequences))
            await response.write("".join(lines).encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _until(self, began_s: float, tokens: int) -> None:
        await asyncio.sleep(began_s + tokens * self._token_s - time.monotonic())


def _chunk(index: int, done: int, tokens: int) -> dict[str, Any]:
    finish = {"type": "length", "length": tokens} if done == tokens else None
    return {
        "text": ANSWER[: len(ANSWER) * done // tokens],
        "output_ids": list(range(1000, 1000 + done)),
        "meta_info": {
            "id": "paced",
            "finish_reason": finish,
            "prompt_tokens": 800,
            "completion_tokens": done,
            "cached_tokens": 0,
        },
        "index": index,
    }


async def serve(token_s: float, tokens: int) -> None:
    """Serve on a free port of the loopback until killed."""
    runner = web.AppRunner(Paced(token_s, tokens).application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--token-s", type=float, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.token_s, arguments.tokens))
