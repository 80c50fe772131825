"""Makes the pictures of the README from stored records of real runs: ``python -m tests.browser.readme``.

Each file is the top of a report as Chromium shows it, kept small by its size in points.
"""

import lzma
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from equipoise_service.interchange import RecordsDocument
from equipoise_service.report import report_text
from equipoise_service.store import Store
from tests.browser.conftest import ROOT, chromium_arguments, chromium_path
from tests.support import stored as keep

IMAGES = ROOT / "docs" / "images"
EVIDENCE = ROOT / "docs" / "evidence"
PICTURES = (
    ("report-verdict", "h200/llama-8b-shape.records.json.xz", ".card", 700),
    ("report-blocks", "h200/llama-8b-shape.records.json.xz", "h3:has-text('Blocks')", 430),
)
"""Name, records, first element shown, height."""


def main() -> None:
    """Write every picture."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    path = chromium_path()
    assert path is not None, "Chromium is missing"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        store = Store.open(f"sqlite:///{Path(folder, 'equipoise.db')}")
        browser = playwright.chromium.launch(executable_path=path, args=chromium_arguments())
        for name, records, first, height in PICTURES:
            document = RecordsDocument.model_validate_json(lzma.decompress((EVIDENCE / records).read_bytes()))
            file = Path(folder, f"{name}.html")
            stored = keep.finish(store, document.plan, document.observed)
            file.write_text(report_text("html", stored, store.records), encoding="utf-8")
            page = browser.new_page(viewport={"width": 900, "height": height}, color_scheme="light")
            page.goto(file.as_uri())
            page.locator(first).first.evaluate("element => element.scrollIntoView()")
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()
        store.database.close()


if __name__ == "__main__":
    main()
