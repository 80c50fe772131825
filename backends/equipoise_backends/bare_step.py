"""A decode step of an attention backend without an engine: SGLang's real KV pools and layers around random numbers.

Owns the set-up that the benchmark and the tests share. It measures and judges nothing.
"""

from types import SimpleNamespace
from typing import NamedTuple, Protocol

import torch
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from equipoise_backends.host import ForwardBatch, Layer, ModelRunner


class Shape(NamedTuple):
    """Shape of a model's attention: layers, query heads, key/value heads, size of a head (keys and values)."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    value_size: int


SMOLLM2_135M = Shape(layers=30, heads=9, kv_heads=3, head_size=64, value_size=64)


class BareStep(NamedTuple):
    """What `decode` needs, beside a backend.

    Attributes:
        runner: Stands for the model runner when a backend is constructed.
        kv: Its cache.
        layers: The attention layers.
        batch: The planned batch.
        qkv: Per layer the new q ``[B, H * Dk]``, k ``[B, K, Dk]``, v ``[B, K, Dv]``.
    """

    runner: ModelRunner
    kv: MHATokenToKVPool
    layers: list[RadixAttention]
    batch: ForwardBatch
    qkv: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


class DecodingBackend(Protocol):
    """What a decode step calls of an attention backend."""

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        """Plan the step."""

    def forward_decode(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: Layer, forward_batch: ForwardBatch
    ) -> torch.Tensor:
        """Write k and v, attend with q."""


def make_step(
    shape: Shape, seq_lens: list[int], generator: torch.Generator, *, max_running_requests: int, dtype: torch.dtype
) -> BareStep:
    """Fill caches with normal random numbers, scatter the requests' tokens over the slots, and draw q, k, v.

    Args:
        shape: The model.
        seq_lens: Tokens of each request, the new one included.
        generator: Source of randomness.
        max_running_requests: What the runner claims.
        dtype: Of caches and activations.
    """
    total, context = sum(seq_lens), max(seq_lens) + 7
    req_to_token = ReqToTokenPool(max_running_requests, context, "cpu", False)
    kv = MHATokenToKVPool(
        total, 1, dtype, shape.kv_heads, shape.head_size, shape.layers, "cpu", False, v_head_dim=shape.value_size
    )
    for layer in range(shape.layers):
        for buffer in kv.get_kv_buffer(layer):
            buffer.normal_(generator=generator)
    # Slot 0 is SGLang's padding slot; a poisoned one shows whoever reads it.
    slots = 1 + torch.randperm(total, generator=generator)
    rows = 1 + torch.randperm(max_running_requests, generator=generator)[: len(seq_lens)]
    for row, own in zip(rows.tolist(), slots.split(seq_lens), strict=True):
        req_to_token.req_to_token[row, : len(own)] = own.to(torch.int32)
    lens = torch.tensor(seq_lens)
    batch = SimpleNamespace(
        forward_mode=ForwardMode.DECODE,
        batch_size=len(seq_lens),
        seq_lens=lens,
        seq_lens_sum=total,
        req_pool_indices=rows,
        out_cache_loc=req_to_token.req_to_token[rows, lens - 1].to(torch.int64),
        encoder_lens=None,
    )
    runner = SimpleNamespace(
        device="cpu",
        req_to_token_pool=req_to_token,
        token_to_kv_pool=kv,
        max_running_requests=max_running_requests,
        is_draft_worker=False,
        model_config=SimpleNamespace(num_attention_heads=shape.heads),
        server_args=SimpleNamespace(speculative_num_draft_tokens=None),
    )
    return BareStep(runner, kv, _layers(shape), batch, _draw_qkv(shape, len(seq_lens), generator, dtype))


@torch.inference_mode()
def decode(backend: DecodingBackend, step: BareStep) -> list[torch.Tensor]:
    """Plan and run one decode step in inference mode, as engines do; returns ``[B, H * Dv]`` of every layer."""
    backend.init_forward_metadata(step.batch)
    return [
        backend.forward_decode(q, k, v, layer, step.batch)
        for layer, (q, k, v) in zip(step.layers, step.qkv, strict=True)
    ]


def _layers(shape: Shape) -> list[RadixAttention]:
    return [
        RadixAttention(
            shape.heads, shape.head_size, shape.head_size**-0.5, shape.kv_heads, layer, v_head_dim=shape.value_size
        )
        for layer in range(shape.layers)
    ]


def _draw_qkv(
    shape: Shape, batch: int, generator: torch.Generator, dtype: torch.dtype
) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    def draw(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator).to(dtype)

    return [
        (
            draw(batch, shape.heads * shape.head_size),
            draw(batch, shape.kv_heads, shape.head_size),
            draw(batch, shape.kv_heads, shape.value_size),
        )
        for _ in range(shape.layers)
    ]
