"""Two comparisons beside each other over HTTP and on the command line: the same document, and the same refusals."""

import json
from pathlib import Path

import jsonschema
import pytest

from equipoise_service.cli import main
from equipoise_service.settings import Settings
from tests.contract.service.test_http import problem
from tests.integration.service.conftest import Start

SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "schemas" / "difference.json"
NOBODY = "01890000-0000-7000-8000-000000000000"


async def test_a_difference_is_served_as_published_and_printed_alike(
    start: Start, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with start() as running:
        ids = [await running.submit(), await running.submit(seed=2), await running.submit(model="other")]
        for comparison_id in ids:
            assert (await running.ended(comparison_id))["status"] == "succeeded"
        first, second, other = ids
        answer = await running.client.get(f"/comparisons/{first}/diff/{second}")
        assert answer.status_code == 200, answer.text
        document = answer.json()
        schema = (await running.client.get("/schemas/difference.json")).json()
        assert schema == json.loads(SCHEMA.read_text())
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
        assert [one["pointer"] for one in document["setup"]] == ["/seed"]
        assert (document["first"]["comparison_id"], document["second"]["comparison_id"]) == (first, second)
        assert (await running.client.get(f"/comparisons/{first}/diff/{second}")).content == answer.content

        refused = await running.client.get(f"/comparisons/{first}/diff/{other}")
        assert (refused.status_code, problem(refused)["type"]) == (409, "/problems/not-comparable")
        assert "they measured different models, m and other" in problem(refused)["detail"]
        for pair in ((first, NOBODY), (NOBODY, first)):
            missing = await running.client.get(f"/comparisons/{pair[0]}/diff/{pair[1]}")
            assert (missing.status_code, problem(missing)["type"]) == (404, "/problems/comparison-not-found")
    monkeypatch.setenv("EQUIPOISE_DATA", str(settings.data))
    monkeypatch.setenv("EQUIPOISE_DEVICE", "simulated")
    assert main(["diff", first, second, "--format", "json", "-o", str(tmp_path / "d.json")]) == 0
    assert json.loads((tmp_path / "d.json").read_text()) == document
    assert main(["diff", first, second, "-o", str(tmp_path / "d.md")]) == 0
    assert "| `/seed` | `1` | `2` |" in (tmp_path / "d.md").read_text()
    assert main(["diff", first, other]) == 64
    assert main(["diff", first, NOBODY]) == 64
