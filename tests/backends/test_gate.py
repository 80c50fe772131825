"""The start gate waits for a file, says so, and gives up in the end."""

import logging
import threading
from pathlib import Path

import pytest

from equipoise_backends import gate


def test_what_is_there_is_not_waited_for(tmp_path: Path) -> None:
    assert gate.wait(tmp_path) < 5.0


def test_it_waits_until_the_file_is_there_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    opening = threading.Timer(0.2, (tmp_path / "gate").touch)
    opening.start()
    assert gate.wait(tmp_path / "gate") > 0.1
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "equipoise: at the start gate"
    assert said[-1].startswith("equipoise: through the start gate after")


def test_a_gate_that_never_opens_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(gate, "SAID_EVERY_S", 0.05)
    with pytest.raises(gate.GateError, match=r"did not appear within 0\.3 s"):
        gate.wait(tmp_path / "gate", limit_s=0.3)
    assert any("still at the start gate" in record.getMessage() for record in caplog.records)
