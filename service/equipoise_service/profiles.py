"""What a kind of machine can do in reasonable time: the defaults that a request leaves to the device."""

from equipoise_evals.model import Frozen
from equipoise_service.engines.environment import Device


class DeviceProfile(Frozen):
    """Defaults of one kind of device.

    Attributes:
        question_set: ``hub`` or ``shipped``, where EQUIPOISE_GSM8K names nothing.
        max_new_tokens: Longest answer to a question, in tokens.
        concurrency: Questions in flight.
        prompt_tokens: Context at which each request of a block starts.
        steps_per_block: Decode steps, or prefills, of one block, warm-up steps included.
        warmup_steps: Steps at the head of each block that its mean leaves out.
        quads: ABBA quads per batch size in one launch pair.
        start_s: Seconds of one engine start.
        step_ms: Milliseconds of a decode step at batch 1, and what each further request adds; of a small model.
        prefill_token_ms: Milliseconds that each token of a prompt adds to its prefill.
    """

    question_set: str
    max_new_tokens: int
    concurrency: int
    prompt_tokens: int
    steps_per_block: int
    warmup_steps: int
    quads: int
    start_s: float
    step_ms: tuple[float, float]
    prefill_token_ms: float

    def step_s(self, batch: int) -> float:
        """Seconds of a typical decode step of so many requests."""
        first, further = self.step_ms
        return (first + further * (batch - 1)) / 1000

    def prefill_s(self, tokens: int) -> float:
        """Seconds of a typical prefill of so many tokens."""
        return self.prefill_token_ms * tokens / 1000


PROFILES: dict[Device, DeviceProfile] = {
    # 256 steps of about 5 ms: one block is 1.3 s, and a launch pair measures for about 20 s beside its 70 s of starts.
    "cuda": DeviceProfile(
        question_set="hub", max_new_tokens=256, concurrency=128,
        prompt_tokens=512, steps_per_block=256, warmup_steps=16, quads=2,
        start_s=70.0, step_ms=(5.0, 0.02), prefill_token_ms=0.05,
    ),
    # A step takes 75 ms at batch 1 and 150 to 270 ms at 16, a pass of 16 questions 20 to 26 s: with two starts a launch
    # pair takes about 2.5 minutes on 2 idle cores, and a second quad would add one.
    # A prompt of 256 tokens took 580 ms at the least, on two cores that were busy otherwise.
    "cpu": DeviceProfile(
        question_set="shipped", max_new_tokens=96, concurrency=16,
        prompt_tokens=32, steps_per_block=32, warmup_steps=8, quads=1,
        start_s=30.0, step_ms=(75.0, 8.0), prefill_token_ms=2.5,
    ),
    # Simulated steps take about 2 ms.
    "simulated": DeviceProfile(
        question_set="shipped", max_new_tokens=96, concurrency=16,
        prompt_tokens=64, steps_per_block=40, warmup_steps=8, quads=2,
        start_s=2.0, step_ms=(2.0, 0.0), prefill_token_ms=0.02,
    ),
}  # fmt: skip
"""By device. Figures behind them: DESIGN, "Facts measured"."""
