"""Reads result files of other tools into runs. Which tool wrote a file is told by the fields that it has.

Formats, from the tools' own sources: ``sglang/benchmark/serving.py`` of SGLang 0.5.23, a JSON line a run, appended;
``vllm/benchmarks/serve.py``, by ``vllm bench serve --save-result``; ``aiperf/exporters/metrics_json_exporter.py`` with
``common/models/export_models.py``, as ``profile_export_aiperf.json``; ``lm_eval/evaluator.py``, by ``--log_samples`` as
``samples_TASK_DATE.jsonl``.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from equipoise_evals.model.imported import ImportedRun

SGLANG_SETUP = (
    "backend", "dataset_name", "request_rate", "max_concurrency", "sharegpt_output_len", "random_input_len",
    "random_output_len", "random_range_ratio", "total_input_tokens",
)  # fmt: skip
VLLM_SETUP = (
    "backend", "endpoint_type", "tokenizer_id", "num_prompts", "request_rate", "burstiness", "max_concurrency",
    "total_input_tokens",
)  # fmt: skip
ELSEWHERE = frozenset({"output", "artifacts", "cli_command", "url", "urls", "benchmark_id", "artifact_directory"})
"""Of AIPerf's configuration: where a run went and what it was called, which two arms may differ in."""
GRADES = ("exact_match", "acc")
"""Metrics of lm-evaluation-harness that say right or wrong of one question."""


class ResultFileError(ValueError):
    """A file that holds no runs of a known tool; names the file."""


def read_runs(file: Path, answer_filter: str | None = None) -> list[ImportedRun]:
    """The runs in a file, in order.

    Args:
        file: The file.
        answer_filter: Which of lm-evaluation-harness's filters counts, as ``strict-match``; the first in the file if
            None.

    Raises:
        ResultFileError: It cannot be read, or its format is none that is known.
    """
    try:
        documents = _documents(file.read_text(encoding="utf-8"))
    except OSError as unreadable:
        raise ResultFileError(f"{file} cannot be read: {unreadable.strerror}") from unreadable
    except ValueError as broken:
        raise ResultFileError(f"{file} is neither JSON nor JSON lines: {broken}") from broken
    if not documents or not all(isinstance(one, dict) for one in documents):
        raise ResultFileError(f"{file} holds no JSON objects")
    try:
        if all("doc_id" in one and "filtered_resps" in one for one in documents):
            return [_harness(documents, str(file), answer_filter)]
        numbered = enumerate(documents, start=1)
        return [_run(one, str(file) if len(documents) == 1 else f"{file}:{line}") for line, one in numbered]
    except ValidationError as odd:
        first = odd.errors()[0]
        raise ResultFileError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from odd
    except (KeyError, TypeError, AttributeError) as odd:
        raise ResultFileError(f"{file}: not as its tool writes it: {type(odd).__name__}: {odd}") from odd


def _documents(text: str) -> list[Any]:
    """One JSON document, or one a line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def _run(one: Mapping[str, Any], source: str) -> ImportedRun:
    if "time_to_first_token" in one and "input_config" in one:
        return _aiperf(one, source)
    if "mean_tpot_ms" in one and "dataset_name" in one and "completed" in one:
        return _sglang(one, source)
    if "mean_tpot_ms" in one and "model_id" in one:
        return _vllm(one, source)
    if "results" in one and "n-samples" in one:
        raise ResultFileError(
            f"{source} holds scores alone; give the samples_….jsonl beside it, which --log_samples of "
            "lm-evaluation-harness writes"
        )
    raise ResultFileError(
        f"{source} is of no known format: sglang.bench_serving, vllm bench, AIPerf and lm-evaluation-harness are read"
    )


def _sglang(one: Mapping[str, Any], source: str) -> ImportedRun:
    server = one.get("server_info") or {}
    errors = one.get("errors")
    failed = None if errors is None else sum(bool(error) for error in errors)
    return ImportedRun(
        tool="sglang.bench_serving",
        source=source,
        setup={name: _finite(one.get(name)) for name in SGLANG_SETUP} | {"model": server.get("model_path")},
        requests=None if errors is None else len(errors),
        failed=failed,
        concurrency=one.get("max_concurrency"),
        tpot_ms=one["mean_tpot_ms"],
        ttft_ms=one.get("mean_ttft_ms"),
        e2e_ms=one.get("mean_e2e_latency_ms"),
    )


def _finite(value: JsonValue) -> JsonValue:
    """No limit on the rate of requests is written as an infinity, which is no JSON."""
    return "inf" if value == float("inf") else value


def _vllm(one: Mapping[str, Any], source: str) -> ImportedRun:
    asked, completed = one.get("num_prompts"), one.get("completed")
    failed = one.get("failed")
    if failed is None and asked is not None and completed is not None:
        failed = asked - completed
    return ImportedRun(
        tool="vllm bench",
        source=source,
        setup={name: one.get(name) for name in VLLM_SETUP} | {"model": one["model_id"]},
        requests=asked,
        failed=failed,
        concurrency=one.get("max_concurrency"),
        tpot_ms=one["mean_tpot_ms"],
        ttft_ms=one.get("mean_ttft_ms"),
        e2e_ms=one.get("mean_e2el_ms"),
    )


def _aiperf(one: Mapping[str, Any], source: str) -> ImportedRun:
    config = _without(one["input_config"])
    errors = sum(error.get("count", 0) for error in one.get("error_summary") or ())
    completed, concurrency = _average(one, "request_count"), _found(config, "concurrency")
    return ImportedRun(
        tool="AIPerf",
        source=source,
        setup={"input_config": config, "aiperf_version": one.get("aiperf_version")} | {"model": _model(config)},
        requests=None if completed is None else round(completed) + errors,
        failed=errors,
        concurrency=concurrency if isinstance(concurrency, int) else None,
        tpot_ms=_milliseconds(one, "inter_token_latency", source),
        ttft_ms=_milliseconds(one, "time_to_first_token", source),
        e2e_ms=_milliseconds(one, "request_latency", source),
    )


def _average(one: Mapping[str, Any], name: str) -> float | None:
    metric = one.get(name)
    return None if metric is None else metric.get("avg")


def _milliseconds(one: Mapping[str, Any], name: str, source: str) -> float | None:
    average = _average(one, name)
    if average is not None and one[name].get("unit") != "ms":
        raise ResultFileError(
            f"{source}: {name} is given in {one[name].get('unit')!r}, where milliseconds are expected"
        )
    return average


def _without(config: JsonValue) -> JsonValue:
    """A configuration without what names places."""
    if isinstance(config, dict):
        return {name: _without(value) for name, value in config.items() if name not in ELSEWHERE}
    return [_without(value) for value in config] if isinstance(config, list) else config


def _found(config: JsonValue, name: str) -> JsonValue:
    """The first value of this name anywhere in a configuration; None where there is none."""
    if not isinstance(config, dict):
        return None
    if name in config:
        return config[name]
    return next((found for value in config.values() if (found := _found(value, name)) is not None), None)


def _model(config: JsonValue) -> JsonValue:
    named = _found(config, "model_names") or _found(config, "models")
    return ", ".join(map(str, named)) if isinstance(named, list) else named


def _harness(samples: Iterable[Mapping[str, Any]], source: str, answer_filter: str | None) -> ImportedRun:
    """The samples of one task: what was asked, by the harness's own digests, and whether each was right."""
    rows = list(samples)
    filters = list(dict.fromkeys(str(row.get("filter", "none")) for row in rows))
    wanted = answer_filter or filters[0]
    chosen = [row for row in rows if str(row.get("filter", "none")) == wanted]
    if not chosen:
        raise ResultFileError(f"{source} has no answers by the filter {wanted!r}; there are: {', '.join(filters)}")
    grade = next((name for name in GRADES if name in chosen[0]), None)
    if grade is None:
        raise ResultFileError(f"{source} says of no question whether it was right; {' or '.join(GRADES)} would")
    asked = sorted((row["doc_id"], row["doc_hash"], row["prompt_hash"], row["target_hash"]) for row in chosen)
    return ImportedRun(
        tool="lm-evaluation-harness",
        source=source,
        setup={
            "questions_sha256": hashlib.sha256(json.dumps(asked).encode()).hexdigest(),
            "questions": len(chosen), "filter": wanted, "metric": grade,
        },
        requests=len(chosen),
        failed=0,
        right={int(row["doc_id"]): float(row[grade]) == 1.0 for row in chosen},
        texts={int(row["doc_id"]): _text(row["resps"]) for row in chosen},
    )  # fmt: skip


def _text(responses: JsonValue) -> str:
    """The first response of the first request; the harness nests them."""
    while isinstance(responses, list):
        responses = responses[0] if responses else ""
    return str(responses)
