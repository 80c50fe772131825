"""The gate over comparisons as a service shows them: without a verdict that can be relied on it is an error."""

import json
from pathlib import Path
from typing import Any

import pytest

from equipoise_evals.model import Verdict
from equipoise_service.cli import gating
from equipoise_service.cli.gating import Gate
from tests.support import records as make
from tests.unit.gate.test_decide import WORLDS

ERROR = {"arm": None, "stage": "launch", "reason": "somebody cancelled it", "log_tail": ""}


def view(verdict: Any, status: str = "succeeded", error: Any = None) -> dict[str, Any]:
    plan = make.plan()
    return {
        "id": "c", "status": status, "model": "m", "model_name": "simulated", "request": {"model": "m"},
        "plan": plan.model_dump(mode="json"), "verdict": verdict, "error": error,
    }  # fmt: skip


def shown(verdict: Verdict, **changes: Any) -> dict[str, Any]:
    return verdict.model_dump(mode="json") | changes


SHIP = WORLDS["ship"][0]
BLOCKED = shown(WORLDS["slower"][0])

VIEWS: dict[str, tuple[dict[str, Any], int, str]] = {
    "ship": (view(shown(SHIP)), 0, ""),
    "running": (view(None, "running"), 3, "comparison c is running and has no verdict yet: wait for its end"),
    "queued": (view(None, "queued"), 3, "is queued and has no verdict yet"),
    "cancelled": (view(None, "cancelled", ERROR), 3, "is cancelled: stage launch: somebody cancelled it"),
    "resumed over an old verdict": (view(shown(SHIP), "running"), 3, "is running"),
    "cancelled with a verdict": (view(shown(SHIP), "cancelled", ERROR), 3, "is cancelled"),
    "a word that nothing beside it justifies": (
        view(BLOCKED | {"overall": {"word": "ship"}}), 3, "the comparison cannot be read",
    ),
    "a half taken out": (view(shown(SHIP, latency=None)), 3, "ship is not justified"),
    "a field from elsewhere": (view(shown(SHIP, approved=True)), 3, "approved: Extra inputs are not permitted"),
    "a version to come": (view(shown(SHIP, schema_version=2)), 3, "schema_version: Input should be 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_only_a_finished_comparison_with_a_sound_verdict_passes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, code, said = VIEWS[name]

    async def fetched(_comparison_id: str, _url: str | None) -> dict[str, Any]:
        return found

    monkeypatch.setattr(gating, "fetched", fetched)
    for variable in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(variable, raising=False)
    assert Gate(None, None, tmp_path, None).run("c") == code
    document = json.loads((tmp_path / "gate.json").read_text())
    assert document["exit_code"] == code
    assert said in (document["error"] or "")
