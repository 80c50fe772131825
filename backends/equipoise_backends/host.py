"""What the plugin reads from SGLang's objects, as types.

Owns nothing at run time: `seam` checks that the names exist. SGLang itself is not imported here, so that the types hold
for whichever version is installed.
"""

from typing import Any, Protocol

import torch


class ForwardMode(Protocol):
    """Kind of a batch."""

    name: str

    def is_decode(self) -> bool:
        """Whether every request gets one new token, without speculation."""


class Batch(Protocol):
    """``ScheduleBatch``: what the scheduler runs next."""

    forward_mode: ForwardMode


class ForwardBatch(Batch, Protocol):
    """What the model runner gets. Tensors are of one entry per request.

    ``seq_lens_sum`` is None where the host does not know the lengths.
    """

    batch_size: int
    seq_lens: torch.Tensor
    seq_lens_sum: int | None
    extend_num_tokens: int | None
    req_pool_indices: torch.Tensor
    out_cache_loc: torch.Tensor


class ModelConfig(Protocol):
    """The model's shape."""

    num_attention_heads: int


class ServerArgs(Protocol):
    """SGLang's resolved command line."""

    speculative_num_draft_tokens: int | None


class ModelRunner(Protocol):
    """Owner of the model and the attention backend of one worker."""

    attn_backend: object
    device: str
    is_draft_worker: bool
    max_running_requests: int
    model_config: ModelConfig
    server_args: ServerArgs


class Runner(Protocol):
    """``EagerRunner``: runs batches without graphs."""

    model_runner: ModelRunner


class GraphKey(Protocol):
    """Which captured graph is replayed."""

    size: int


class GraphRunner(Runner, Protocol):
    """``DecodeCudaGraphRunner``; the key is that of the latest replay."""

    _replay_graph_key: GraphKey


class TpWorker(Protocol):
    """Worker of one tensor-parallel rank."""

    model_runner: ModelRunner


class Scheduler(Protocol):
    """SGLang's scheduler. ``forward_ct`` counts the batches it has run."""

    tp_worker: TpWorker
    forward_ct: int


class InternalState(Protocol):
    """``GetInternalStateReqOutput``: what ``/server_info`` gets from one scheduler."""

    internal_state: dict[str, object]


class Layer(Protocol):
    """``RadixAttention``: one attention layer. A scale is None when the checkpoint brings none."""

    tp_q_head_num: int
    qk_head_dim: int
    scaling: float
    layer_id: int
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None
    sliding_window_size: int | None
    is_cross_attention: bool


class TrtllmBackend(Protocol):
    """``TRTLLMHAAttnBackend``. The two tensors exist from 0.5.18 on; in 0.5.17 only we set and read them.

    ``equipoise`` and ``scratch`` are ours.
    """

    device: str
    is_xqa_impl: bool
    speculative_num_draft_tokens: int | None
    workspace_buffer: torch.Tensor
    _multi_ctas_kv_counter_buffer: torch.Tensor | None
    _default_kv_scale: torch.Tensor | None
    equipoise: Any
    scratch: object
