"""Continuous batching in pretended time: prefills first, then one token per running sequence and step.

It writes the step log in the plugin's form and, when asked, hands the steps it ran to the trace writer.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from tests.fakes.knobs import Identity
from tests.fakes.world import World

HEADER = {"schema": 1, "columns": [
    "monotonic_ns", "graph_batch", "real_batch", "context_tokens", "busy_us", "period_us",
]}  # fmt: skip


@dataclass
class Sequence:
    """One request being decoded. ``emitted`` gets the number of tokens after each step."""

    prompt_tokens: int
    new_tokens: int
    from_text: bool
    emitted: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    done: int = 0
    aborted: bool = False

    def emit(self) -> None:
        """One more token."""
        self.done += 1
        self.emitted.put_nowait(self.done)

    @property
    def finished(self) -> bool:
        """Whether all tokens are out."""
        return self.done >= self.new_tokens

    @property
    def tokens(self) -> int:
        """Tokens that it takes of the KV pool at its end."""
        return self.prompt_tokens + self.new_tokens


@dataclass
class Profile:
    """A trace in the making; without a number of steps it ends when it is stopped."""

    steps_left: int | None
    steps: list[tuple[str, int]]
    finish: Callable[[list[tuple[str, int]]], None]


class Scheduler:
    """The engine's loop. Sequences wait while the batch or the KV pool is full; nothing running is displaced."""

    def __init__(
        self,
        world: World,
        identity: Identity,
        *,
        max_running: int,
        pool_tokens: int,
        time_scale: float,
        chunk_tokens: int,
    ) -> None:
        self._world = world
        self._max_running = max_running
        self._pool_tokens = pool_tokens
        self._time_scale = time_scale
        self._chunk_tokens = chunk_tokens
        self._clocks_prefills = identity.clocks_prefills
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._wake = asyncio.Event()
        self._log: TextIO = identity.step_log.open("w")
        self._log.write(json.dumps({**HEADER, "arm": identity.arm, "launch_id": identity.launch_id}) + "\n")
        self._now_ns = time.monotonic_ns()
        self._after_decode = False
        self.decode_steps = 0
        self.id_prompt_steps = 0
        self.profile: Profile | None = None
        self.on_step: Callable[[], None] = lambda: None

    def submit(self, sequences: list[Sequence]) -> None:
        """Queue sequences; those of one call are prefilled together if there is room."""
        self._waiting += sequences
        self._wake.set()

    def abort(self, sequence: Sequence) -> None:
        """End a sequence, waiting or running; it emits its count of tokens once more. Finished ones stay finished."""
        if sequence.finished:
            return
        self._waiting = [other for other in self._waiting if other is not sequence]
        self._running = [other for other in self._running if other is not sequence]
        sequence.aborted = True
        sequence.emitted.put_nowait(sequence.done)

    @property
    def decoding(self) -> bool:
        """Whether anything is being decoded or waits for it."""
        return bool(self._running or self._waiting)

    def flush(self) -> None:
        """Write out the step log; as in the plugin, the next step has no period."""
        self._log.flush()
        self._after_decode = False

    async def run(self) -> None:
        """Serve for ever."""
        while True:
            if not self._waiting and not self._running:
                self._wake.clear()
                self._after_decode = False
                await self._wake.wait()
            if fitting := self._fitting():
                await self._prefill(fitting)
            else:
                await self._decode()

    def _fitting(self) -> int:
        """How many of those that wait the batch and the pool have room for, the first come first; one always runs."""
        free = self._pool_tokens - sum(sequence.tokens for sequence in self._running)
        room = self._max_running - len(self._running)
        fitting = 0
        for sequence in self._waiting[:room]:
            free -= sequence.tokens
            if free < 0 and (fitting or self._running):
                break
            fitting += 1
        return fitting

    async def _prefill(self, number: int) -> None:
        admitted, self._waiting = self._waiting[:number], self._waiting[number:]
        self._after_decode = False
        tokens = sum(sequence.prompt_tokens for sequence in admitted)
        for begun in range(0, max(tokens, 1), self._chunk_tokens):
            await self._extend(number, min(self._chunk_tokens, tokens - begun))
        for sequence in admitted:
            sequence.emit()
        self._running += [sequence for sequence in admitted if not sequence.finished]

    async def _extend(self, number: int, tokens: int) -> None:
        """One forward pass over a chunk of the prompts."""
        began_ns, busy_us = self._now_ns, self._world.prefill_us(tokens) if self._clocks_prefills else 200.0 * number
        await self._pass_time(busy_us)
        if self._clocks_prefills:
            row = [began_ns, -1, number, tokens, round(busy_us, 3), None]
            self._log.write(json.dumps(row) + "\n")
        self._count("EXTEND", number)

    async def _decode(self) -> None:
        batch = len(self._running)
        context = sum(sequence.prompt_tokens + sequence.done for sequence in self._running)
        began_ns = self._now_ns
        busy_us = self._world.busy_us(batch, context)
        period_us = self._world.period_us(busy_us)
        await self._pass_time(period_us)
        row = [began_ns, batch, batch, context, round(busy_us, 3), round(period_us, 3) if self._after_decode else None]
        self._log.write(json.dumps(row) + "\n")
        self._after_decode = True
        self.decode_steps += 1
        self.id_prompt_steps += any(not sequence.from_text for sequence in self._running)
        self.on_step()
        self._count("DECODE", batch)
        for sequence in self._running:
            sequence.emit()
        self._running = [sequence for sequence in self._running if not sequence.finished]

    def _count(self, kind: str, batch: int) -> None:
        """As SGLang's profiler does, count forward passes of any kind."""
        if self.profile is not None:
            self.profile.steps.append((kind, batch))
            if self.profile.steps_left is None:
                return
            self.profile.steps_left -= 1
            if self.profile.steps_left == 0:
                self.profile.finish(self.profile.steps)
                self.profile = None

    async def _pass_time(self, pretended_us: float) -> None:
        """Let pretended time pass; the clock of the step log is the pretended one."""
        self._now_ns += int(pretended_us * 1000)
        await asyncio.sleep(pretended_us * 1e-6 * self._time_scale)
