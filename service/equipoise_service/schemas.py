"""The published JSON schemas, by document. ``python -m equipoise_service.schemas FOLDER`` writes them."""

import json
import sys
from pathlib import Path
from typing import Any

from equipoise_evals.model import Frozen, Plan, Verdict
from equipoise_service.difference import Difference
from equipoise_service.interchange import RecordsDocument
from equipoise_service.report import Report

PUBLISHED: dict[str, type[Frozen]] = {
    "records": RecordsDocument,
    "plan": Plan,
    "verdict": Verdict,
    "report": Report,
    "difference": Difference,
}
"""By name; ``GET /schemas/{name}.json`` serves the same."""


def schema_of(name: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a published document, as it is written."""
    return PUBLISHED[name].model_json_schema(mode="serialization")


def write_all(folder: Path) -> None:
    """Write every schema into a folder, so that a change of one shows in a review."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PUBLISHED:
        text = json.dumps(schema_of(name), indent=2, sort_keys=True, ensure_ascii=False)
        (folder / f"{name}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
