"""Where a start's seconds go, read from a log that grows."""

from pathlib import Path

import pytest

from equipoise_service.engines.stages import StartStages

LINES = {
    0.5: "launch_server.py:71: UserWarning: still supported",
    8.0: "[2026-11-30 08:47:56] server_args={'model_path': '/m'}",
    10.0: "[2026-11-30 08:47:58] Using default HuggingFace chat template with detected content format: string",
    17.0: "[2026-11-30 08:48:07] equipoise: at the start gate",
    20.0: "[2026-11-30 08:48:10] equipoise: through the start gate after 3.00 s\n[…] Init parallel begin.",
    22.5: "[2026-11-30 08:48:10] Load weight begin. avail mem=16.94 GB",
    24.0: "[2026-11-30 08:48:11] Load weight end. elapsed=1.26 s, type=LlamaForCausalLM",
    28.0: "[2026-11-30 08:48:15] Memory pool end. avail mem=15.71 GB",
    33.0: "[2026-11-30 08:48:20] Capture target decode CUDA graph end. Time elapsed: 4.98 s",
    34.0: "[2026-11-30 08:48:21] INFO:     Application startup complete.",
}
"""By seconds since the start; texts of SGLang 0.5.23 and of the plugin."""


def test_each_stage_ends_with_its_line_and_they_add_up(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    stages = StartStages(log)
    stages.look(0.1)  # before there is a log
    for at_s, line in LINES.items():
        with log.open("a") as file:
            file.write(line + "\n")
        stages.look(at_s)
        stages.look(at_s + 0.1)  # nothing new
    found = stages.durations_s(36.0)
    assert found == pytest.approx(
        {
            "imports": 8.0, "spawn": 9.0, "gate": 3.0, "distributed": 2.5, "weights": 1.5, "kv_pool": 4.0,
            "graph_capture": 5.0, "http": 1.0, "warm_up": 2.0, "tokenizer": 2.0,
        }
    )  # fmt: skip
    assert sum(seconds for stage, seconds in found.items() if stage != "tokenizer") == pytest.approx(36.0)


def test_a_line_may_come_in_two_pieces_and_a_stage_may_be_missing(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    stages = StartStages(log)
    log.write_text("server_args={}\nLoad wei")
    stages.look(1.0)
    with log.open("a") as file:
        file.write("ght end. elapsed=1 s\n")
    stages.look(5.0)
    assert stages.durations_s(6.0) == {"imports": 1.0, "weights": 4.0, "warm_up": 1.0}


def test_a_log_without_any_known_line_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text("The server is fired up and ready to roll!\n")
    stages = StartStages(tmp_path / "engine.log")
    stages.look(1.0)
    assert stages.durations_s(2.0) == {}
