"""Log tails and known reasons. The lines are those that SGLang, uvicorn, argparse and Python write."""

from pathlib import Path

import pytest

from equipoise_service.engines import logs


def test_the_tail_of_a_long_log_is_read_without_reading_the_log(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)  # sparse: 10 GiB that take no space
        file.seek(0, 2)
        file.write(b"\nlast but one\nlast \xff line\n")

    tail = logs.tail(path, lines=2)

    assert tail == "last but one\nlast \N{REPLACEMENT CHARACTER} line"


def test_a_log_that_is_not_there_yet_has_no_tail(tmp_path: Path) -> None:
    assert logs.tail(tmp_path / "engine.log") == ""
    assert logs.size(tmp_path / "engine.log") == 0


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "oom_at_graph_capture",
        ),
        ("RuntimeError: Loaded weights leave no GPU memory for the KV cache", "no_memory_for_kv_cache"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "no_memory_for_kv_cache"),
        (
            "[Errno 98] error while attempting to bind on address: address already in use",
            "address_in_use",
        ),
        ("torch.distributed.DistNetworkError: ... port: 2, useIpv6: 0, code: -98, name: EADDRINUSE", "address_in_use"),
        ("launch_server.py: error: unrecognized arguments: --cuda-graph-bs 1", "unknown_flag"),
        ("launch_server.py: error: argument --dtype: invalid choice: 'x' (choose from 'auto')", "unknown_flag"),
        ("/usr/bin/python3: No module named sglang", "module_missing"),
        ("[2026-11-30 00:11:51] Subprocess scheduler_0 (pid=24080) crashed with exit code -9.", "scheduler_crashed"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", "out_of_memory"),
    ],
)
def test_known_lines_are_named(line: str, name: str) -> None:
    reason = logs.known_reason(f"some line\n{line}\nanother line")

    assert reason is not None
    assert reason.name == name
    assert reason.remedy


def test_an_unknown_line_has_no_name() -> None:
    assert logs.known_reason("Segmentation fault (core dumped)") is None


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [redacted]"),
        ("using hf_AbCdEfGhIjKlMnOpQrSt for the hub", "using hf_[redacted] for the hub"),
        (
            "File hf_transformers_utils.py, hf_quant_config.json of task-abcdefghijklmnopq",
            "File hf_transformers_utils.py, hf_quant_config.json of task-abcdefghijklmnopq",
        ),
        ("password=correct horse", "password=[removed]"),
        ("the tokenizer made 7 tokens", "the tokenizer made 7 tokens"),
    ],
)
def test_secrets_are_taken_out_of_texts(line: str, clean: str) -> None:
    secrets = logs.secrets_of({"DB_PASSWORD": "correct horse", "USE_TOKEN": "1", "PATH": "/usr/bin:/bin"})
    assert secrets == ("correct horse",)
    assert logs.without_secrets(line, secrets) == clean


def test_secrets_are_taken_out_of_logs_and_other_bytes_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes("gehört: schlüssel\n".encode() + b"\xff\x00\n")
    (tmp_path / "engine.log.1").write_bytes(b"older schl\xc3\xbcssel")
    logs.remove_secrets(log, ("schlüssel",))
    assert log.read_bytes() == "gehört: [removed]\n".encode() + b"\xff\x00\n"
    assert (tmp_path / "engine.log.1").read_bytes() == b"older [removed]"
    logs.remove_secrets(tmp_path / "none.log", ("schlüssel",))
