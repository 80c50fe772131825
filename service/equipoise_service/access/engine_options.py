"""What a request may ask of an engine: flags and variables from a list, each with a type. Everything else is refused.

Values reach the engine as one word of an argument list or as one variable, never through a shell; the types keep out
what SGLang itself would act on. Not in the list, on purpose: flags that name a model, a file, a host, a port or a
module, that pass JSON, or that let an engine run somebody else's code. An operator may add to both lists.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from equipoise_service.errors import FieldError

Kind = Literal["switch", "whole", "number", "word", "words", "wholes"]
"""``switch`` takes no value; ``words`` and ``wholes`` take one or more of them."""

REMOTE_CODE_FLAG = "--trust-remote-code"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
_WHOLE = re.compile(r"-?[0-9]{1,12}")
_NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,12})?")


def _listed(kind: Kind, names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


FLAGS: Mapping[str, Kind] = {
    **_listed("word", """
        --attention-backend --prefill-attention-backend --decode-attention-backend --mm-attention-backend
        --sampling-backend --grammar-backend --kv-cache-dtype --dtype --quantization --device --load-format
        --model-impl --schedule-policy --moe-runner-backend --moe-a2a-backend --fp8-gemm-backend --fp4-gemm-backend
        --speculative-algorithm --speculative-attention-mode --speculative-draft-attention-backend
        --cuda-graph-backend-decode --cuda-graph-backend-prefill --mamba-ssm-dtype --linear-attn-backend
        --sampling-defaults --tokenizer-mode"""),
    **_listed("whole", """
        --page-size --max-running-requests --max-total-tokens --max-prefill-tokens --chunked-prefill-size
        --context-length --random-seed --cuda-graph-max-bs --cuda-graph-max-bs-decode --cuda-graph-max-bs-prefill
        --num-continuous-decode-steps --stream-interval --tp-size --tensor-parallel-size --dp-size --data-parallel-size
        --ep-size --expert-parallel-size --pp-size --pipeline-parallel-size --max-mamba-cache-size
        --speculative-num-steps --speculative-eagle-topk --speculative-num-draft-tokens
        --triton-attention-num-kv-splits --watchdog-timeout --prefill-max-requests"""),
    **_listed("number", """
        --mem-fraction-static --schedule-conservativeness --swa-full-tokens-ratio --mamba-full-memory-ratio
        --speculative-accept-threshold-single --speculative-accept-threshold-acc"""),
    **_listed("wholes", "--cuda-graph-bs --cuda-graph-bs-decode --cuda-graph-bs-prefill --piecewise-cuda-graph-tokens"),
    **_listed("switch", """
        --disable-radix-cache --disable-cuda-graph --disable-cuda-graph-padding --disable-overlap-schedule
        --disable-custom-all-reduce --disable-chunked-prefix-cache --disable-piecewise-cuda-graph
        --disable-outlines-disk-cache --disable-flashinfer-autotune --sleep-on-idle --skip-server-warmup
        --enable-mixed-chunk --enable-deterministic-inference --enable-torch-compile --enable-fp32-lm-head
        --enable-dp-attention --enable-nan-detection --enable-symm-mem --enable-flashinfer-allreduce-fusion
        --enable-two-batch-overlap --enable-single-batch-overlap --enable-attn-tp-input-scattered
        --disable-shared-experts-fusion --enable-cache-report --triton-attention-reduce-in-fp32
        --flashinfer-mla-disable-ragged --enable-multi-layer-eagle --speculative-adaptive"""),
}  # fmt: skip
"""SGLang's flags that shape how a model is computed, by their type."""

VARIABLES: Mapping[str, Kind] = {
    **_listed("whole", """
        OMP_NUM_THREADS MKL_NUM_THREADS CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS
        SGLANG_TRTLLM_MHA_DECODE_SEQ_LEN_SPLITS SGLANG_ENABLE_SPEC_V2 SGLANG_DISABLE_M3_FP8_ATTN_GEMM
        EQUIPOISE_STEP_CLOCK_EVERY EQUIPOISE_STEP_CLOCK_ALTERNATING EQUIPOISE_STEP_CLOCK_PREFILL EQUIPOISE_TEST_DELAY_US
        EQUIPOISE_UNCHECKED_SGLANG FLASHINFER_DISABLE_VERSION_CHECK TORCH_ALLOW_TF32_CUBLAS_OVERRIDE
        NCCL_NVLS_ENABLE NCCL_CUMEM_ENABLE NVIDIA_TF32_OVERRIDE"""),
    **_listed("word", "NCCL_ALGO NCCL_PROTO TORCHINDUCTOR_MAX_AUTOTUNE"),
}  # fmt: skip
"""Variables that shape it likewise, by their type."""

_FORMS: Mapping[Kind, tuple[re.Pattern[str], str]] = {
    "word": (_WORD, "one word of letters, digits, '.', '_', '+' and '-'"),
    "words": (_WORD, "words of letters, digits, '.', '_', '+' and '-'"),
    "whole": (_WHOLE, "a whole number"),
    "wholes": (_WHOLE, "whole numbers"),
    "number": (_NUMBER, "a number"),
}


def flag_faults(flags: Sequence[str], pointer: str, added: Mapping[str, Kind]) -> list[FieldError]:
    """What is wrong with an arm's flags; nothing if they may be passed on.

    Args:
        flags: The words as they would stand on the command line: ``--flag value`` in two, or ``--flag=value`` in one.
        pointer: JSON pointer of the list, for the findings.
        added: The operator's own flags and types.
    """
    known = {**FLAGS, **added}
    faults: list[FieldError] = []
    place = 0
    while place < len(flags):
        name, equals, value = flags[place].partition("=")
        following = [value] if equals else _values(flags, place + 1)
        why = _refusal(name, bool(equals), following, known)
        if why is not None:
            faults.append(FieldError(f"{pointer}/{place}", why))
        place += 1 if equals else 1 + len(following)
    return faults


def variable_faults(variables: Mapping[str, str], pointer: str, added: Mapping[str, Kind]) -> list[FieldError]:
    """What is wrong with an arm's variables; nothing if they may be set."""
    known = {**VARIABLES, **added}
    faults = []
    for name, value in variables.items():
        kind = known.get(name)
        if kind is None:
            why: str | None = f"{name} is not among the variables that a request may set; {_how('VARIABLES')}"
        else:
            why = _fault_of_values(name, kind, [value])
        if why is not None:
            faults.append(FieldError(f"{pointer}/{name}", why))
    return faults


def _values(flags: Sequence[str], start: int) -> list[str]:
    """The words up to the next flag. A negative number is a value."""
    end = start
    while end < len(flags) and (not flags[end].startswith("-") or _NUMBER.fullmatch(flags[end])):
        end += 1
    return list(flags[start:end])


def _refusal(name: str, equals: bool, values: Sequence[str], known: Mapping[str, Kind]) -> str | None:
    if name == REMOTE_CODE_FLAG:
        return "no request may run a model repository's code; the operator lists such models in EQUIPOISE_REMOTE_CODE"
    kind = known.get(name)
    if kind is None:
        return f"{name[:100]!r} is not among the flags that a request may set; {_how('FLAGS')}"
    if kind == "switch":
        return f"{name} takes no value" if values or equals else None
    if not values:
        return f"{name} needs {_FORMS[kind][1]}"
    if len(values) > 1 and kind not in ("words", "wholes"):
        return f"{name} takes one value, not {len(values)}"
    return _fault_of_values(name, kind, values)


def _fault_of_values(name: str, kind: Kind, values: Sequence[str]) -> str | None:
    if kind == "switch":
        return f"{name} is a switch, and a variable needs a value"
    form, words = _FORMS[kind]
    wrong = next((value for value in values if not form.fullmatch(value)), None)
    return None if wrong is None else f"{name} needs {words}, not {wrong[:100]!r}"


def _how(which: str) -> str:
    return f"the operator adds to them with EQUIPOISE_ALLOW_{which}"
