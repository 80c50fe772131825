"""CPU reference attention backend: split-KV decode as an executable specification of the multi-CTA contract.

The contract of TRTLLM-GEN's multi-CTA decode kernel, in tensor logic:

1. K and V are multiplied by their scale tensors when written to the cache.
2. The keys of a request are cut into splits. Each split writes a partial result (m, l, acc): the running maximum of its
   scores, the sum of exp(score - m), and the values weighted by exp(score - m).
3. When a split has written its partial it increments the counter of its row and head. The value before the increment
   is its ticket. The split whose ticket is (number of splits - 1) takes itself for the last one: it merges the partials
   that have been written by then, and resets the counter.
4. So the counters must be zero at the start of a launch, and are zero at its end. A counter that starts at d > 0 makes
   an early split the merger, which misses the d splits after it; with d >= number of splits nobody merges (the result
   here is NaN; a kernel leaves its output unwritten). The counter ends at a value that is not zero, so the damage stays
   for later launches and a guard can see it.

Owns the arithmetic and the plan of a step. Where counters and scales come from is `scratch`'s business. Prefill stays
SGLang's ``torch_native``. Refused, not approximated: cross attention, sliding windows, checkpoint KV scales.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from equipoise_backends.host import ForwardBatch, Layer, ModelRunner
from equipoise_backends.scratch import Scratch, Sizing

SPLIT_TOKENS = 64
# Finite, so that a split without live tokens has m = -1e30 and weight exp(-1e30 - M) = 0 instead of NaN.
MASKED = -1.0e30
# Ticket offset of a split that has no live tokens: it never arrives.
NEVER = 1 << 30


class UnsupportedLayerError(Exception):
    """The layer needs something that the reference does not specify."""


class DecodePlan(NamedTuple):
    """What all layers of one decode step share. B requests, K key/value heads, S splits, L = S * split tokens.

    Attributes:
        batch: B.
        splits: S, of the longest request.
        slots: Int64 ``[B * K * L]``, rows of a cache seen as ``[tokens * K, head size]``. Positions after the end of a
            request repeat its last token, whose values are finite, and are masked.
        bias: ``[B * K, 1, L]`` in float32, 0 for live positions and `MASKED` for the others.
        arrival: Int32 ``[B, 1, 1, S]``, splits of the request that arrive before this one; `NEVER` without live tokens.
        expected: Int32 ``[B, 1, 1]``, number of splits that arrive.
        last_ticket: Int32 ``[B, 1, 1, 1]``, ticket of the merger: `expected` - 1.
    """

    batch: int
    splits: int
    slots: torch.Tensor
    bias: torch.Tensor
    arrival: torch.Tensor
    expected: torch.Tensor
    last_ticket: torch.Tensor


def plan_decode(
    req_to_token: torch.Tensor, req_pool_indices: torch.Tensor, seq_lens: torch.Tensor, kv_heads: int, split_tokens: int
) -> DecodePlan:
    """Lay out one decode step.

    Args:
        req_to_token: ``[requests, context]``, cache slot of each token of each request.
        req_pool_indices: ``[B]``, rows of `req_to_token`.
        seq_lens: ``[B]``, number of tokens to attend to, the new one included; each at least 1.
        kv_heads: K.
        split_tokens: Tokens per split.
    """
    lens = seq_lens.to(torch.int64).unsqueeze(1)
    splits = -(-int(lens.max()) // split_tokens)
    positions = torch.arange(splits * split_tokens).unsqueeze(0)
    tokens = req_to_token[req_pool_indices.unsqueeze(1), torch.minimum(positions, lens - 1)].to(torch.int64)
    slots = tokens.unsqueeze(1) * kv_heads + torch.arange(kv_heads).view(1, -1, 1)
    bias = torch.where(positions < lens, 0.0, MASKED).unsqueeze(1).expand(-1, kv_heads, -1)
    expected = ((lens + split_tokens - 1) // split_tokens).to(torch.int32)
    order = torch.arange(splits, dtype=torch.int32).unsqueeze(0)
    return DecodePlan(
        batch=lens.shape[0],
        splits=splits,
        slots=slots.reshape(-1),
        bias=bias.reshape(-1, 1, positions.shape[1]),
        arrival=torch.where(order < expected, order, NEVER).view(-1, 1, 1, splits),
        expected=expected.view(-1, 1, 1),
        last_ticket=(expected - 1).view(-1, 1, 1, 1),
    )


class Partials(NamedTuple):
    """What the splits of a launch have computed. G query heads share each of K key/value heads.

    Attributes:
        m: ``[B, K, G, S]``, maximum of the scores.
        l: ``[B, K, G, S]``, sum of exp(score - m).
        acc: ``[B, K, G, S, D]``, values weighted by exp(score - m).
    """

    m: torch.Tensor
    l: torch.Tensor  # noqa: E741  (the letter of the formula)
    acc: torch.Tensor


def arrive_and_merge(partials: Partials, counters: torch.Tensor, plan: DecodePlan) -> torch.Tensor:
    """Let all splits of a launch arrive at their counters; the merger of each row and head writes its result.

    Splits arrive in order of position. `counters` is changed in place: incremented by every arrival, reset by the
    merger. Arrivals after a reset (only possible with dirty counters) count again, which leaves the initial value.

    Args:
        partials: What the splits have computed.
        counters: Int32 ``[B, K * G]``.
        plan: The step's plan.

    Returns:
        ``[B, K, G, D]``; NaN where no split took itself for the last one.
    """
    # A view, never a copy: the increments must reach the buffer.
    counted = counters.view(partials.m.shape[:3])
    tickets = counted.unsqueeze(3) + plan.arrival
    merged = (tickets == plan.last_ticket).any(3)
    written = (tickets <= plan.last_ticket) & merged.unsqueeze(3)
    counted += plan.expected
    counted -= plan.expected * merged
    m = torch.where(written, partials.m, -torch.inf)
    weight = (m - m.amax(3, keepdim=True)).exp_()
    total = (partials.l * weight).sum(3, keepdim=True)
    return (partials.acc * weight.unsqueeze(4)).sum(3) / total


class Workspace:
    """Memory for the gathered K and V and the scores, kept between calls.

    Why: a step at batch 16 gathers megabytes per layer, and memory fresh from the system costs more in page faults than
    the arithmetic does. Its contents never outlive a call, so it may grow at any time.
    """

    def __init__(self) -> None:
        self._memory: dict[str, torch.Tensor] = {}
        self._views: dict[str, torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised memory of this shape; it is valid until `name` is taken again."""
        view = self._views.get(name)
        if view is None or view.shape != shape or view.dtype != dtype:
            # All layers of a step want the same shape: the view is made once per step.
            view = self._views[name] = self._held(name, math.prod(shape), dtype).view(shape)
        return view

    def _held(self, name: str, needed: int, dtype: torch.dtype) -> torch.Tensor:
        held = self._memory.get(name)
        if held is None or held.numel() < needed or held.dtype != dtype:
            # The next power of two: contexts grow by one token per step, the memory must not.
            held = self._memory[name] = torch.empty(1 << (needed - 1).bit_length(), dtype=dtype)
        return held[:needed]


def as_float32(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float32; itself without a call to torch when it is (a decode step is many small calls)."""
    return tensor if tensor.dtype == torch.float32 else tensor.to(torch.float32)


def scaled(tensor: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`tensor` times the float32 ``[1]`` tensor `scale`, in the dtype of `tensor`."""
    product = tensor * scale
    return product if product.dtype == tensor.dtype else product.to(tensor.dtype)


def split_kv_decode(
    query: torch.Tensor,
    cache: tuple[torch.Tensor, torch.Tensor],
    counters: torch.Tensor,
    plan: DecodePlan,
    workspace: Workspace,
    *,
    scaling: float,
) -> torch.Tensor:
    """Attention of one new token per request over its cached tokens.

    Args:
        query: ``[B, H, Dk]``.
        cache: Key cache ``[tokens, K, Dk]`` and value cache ``[tokens, K, Dv]``, contiguous. H is a multiple of K.
        counters: Int32 ``[B, H]``, zero.
        plan: The step's plan.
        workspace: Memory to use.
        scaling: Factor of the scores.

    Returns:
        ``[B, H, Dv]`` in float32.
    """
    keys, values = cache
    kv_heads = keys.shape[1]
    pairs, splits, length = plan.batch * kv_heads, plan.splits, plan.bias.shape[2]
    group = query.shape[1] // kv_heads

    def gather(name: str, rows: torch.Tensor) -> torch.Tensor:
        flat = rows.view(-1, rows.shape[2])
        out = workspace.take(name, (plan.slots.shape[0], rows.shape[2]), rows.dtype)
        return as_float32(torch.index_select(flat, 0, plan.slots, out=out))

    k = gather("k", keys).view(pairs, length, -1)
    v = gather("v", values).view(pairs, splits, length // splits, -1)
    scores = torch.baddbmm(
        plan.bias,
        as_float32(query).view(pairs, group, -1),
        k.transpose(1, 2),
        alpha=scaling,
        out=workspace.take("scores", (pairs, group, length), torch.float32),
    ).view(pairs, group, splits, -1)
    m = scores.amax(3)
    p = torch.sub(scores, m.unsqueeze(3), out=workspace.take("p", tuple(scores.shape), torch.float32)).exp_()
    acc = torch.matmul(p.transpose(1, 2), v)
    per_head = (plan.batch, kv_heads, group, splits)
    partials = Partials(
        m.view(per_head), p.sum(3).view(per_head), acc.view(plan.batch, kv_heads, splits, group, -1).transpose(2, 3)
    )
    return arrive_and_merge(partials, counters, plan).view(plan.batch, kv_heads * group, -1)


class ReferenceAttnBackend(TorchNativeAttnBackend):
    """``torch_native`` with the decode step replaced by the reference.

    Attributes:
        scratch: Source of counters and default scales.
    """

    def __init__(self, model_runner: ModelRunner, scratch: Scratch) -> None:
        super().__init__(model_runner)
        if self.use_sliding_window_kv_pool:
            raise UnsupportedLayerError("the reference backend does not serve models with a sliding-window KV pool")
        self.scratch = scratch
        self._plan: DecodePlan | None = None
        self._workspace = Workspace()

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        """Plan a decode step; everything else is ``torch_native``'s."""
        super().init_forward_metadata(forward_batch)
        self._plan = None
        if forward_batch.forward_mode.is_decode():
            pool = self.token_to_kv_pool
            self._plan = plan_decode(
                self.req_to_token_pool.req_to_token,
                forward_batch.req_pool_indices,
                forward_batch.seq_lens,
                pool.get_key_buffer(pool.start_layer).shape[1],
                SPLIT_TOKENS,
            )

    def forward_decode(  # noqa: PLR0917  (SGLang's signature)
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: Layer,
        forward_batch: ForwardBatch,
        save_kv_cache: bool = True,
    ) -> torch.Tensor:
        """Decode one layer.

        Args:
            q: ``[B, H * Dk]``.
            k: ``[B, K, Dk]``, or None when the cache is already written.
            v: ``[B, K, Dv]``, or None.
            layer: The attention layer.
            forward_batch: The step, planned by `init_forward_metadata`.
            save_kv_cache: Whether `k` and `v` go into the cache.

        Returns:
            ``[B, H * Dv]`` in the dtype of `q`.

        Raises:
            UnsupportedLayerError: The layer is not a plain causal one, or the step was not planned.
            scratch.CapacityError: The batch is larger than the counters.
        """
        self._refuse_unsupported(layer)
        plan = self._plan
        if plan is None or plan.batch * layer.tp_q_head_num * layer.qk_head_dim != q.numel():
            raise UnsupportedLayerError("forward_decode without init_forward_metadata for this batch")
        counters = self.scratch.counters(Sizing(plan.batch, layer.tp_q_head_num))
        k_scale, v_scale = self.scratch.default_scale(), self.scratch.default_scale()
        self.scratch.observation.note(counters, k_scale, v_scale)
        if save_kv_cache and k is not None and v is not None:
            self.token_to_kv_pool.set_kv_buffer(
                layer, KVWriteLoc(forward_batch.out_cache_loc), scaled(k, k_scale), scaled(v, v_scale)
            )
        cache = self.token_to_kv_pool.get_kv_buffer(layer.layer_id)
        query = q.view(plan.batch, layer.tp_q_head_num, layer.qk_head_dim)
        out = split_kv_decode(query, cache, counters, plan, self._workspace, scaling=layer.scaling)
        return out.view(plan.batch, -1).to(q.dtype)

    @staticmethod
    def _refuse_unsupported(layer: Layer) -> None:
        if layer.is_cross_attention:
            raise UnsupportedLayerError("the reference backend does not specify cross attention")
        if layer.sliding_window_size is not None and layer.sliding_window_size > -1:
            raise UnsupportedLayerError("the reference backend does not specify sliding windows")
        if layer.k_scale is not None or layer.v_scale is not None:
            raise UnsupportedLayerError("the reference backend does not specify checkpoint KV scales")


def make_reference_factory(
    make_scratch: Callable[[ModelRunner], Scratch],
) -> Callable[[ModelRunner], ReferenceAttnBackend]:
    """A factory for SGLang's ``ATTENTION_BACKENDS``: `make_scratch` gets the model runner and gives the policy."""

    def create(model_runner: ModelRunner) -> ReferenceAttnBackend:
        return ReferenceAttnBackend(model_runner, make_scratch(model_runner))

    return create
