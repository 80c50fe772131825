"""The report as HTML: the same templates make the body of a page and a file of its own, which needs no server.

The file holds its stylesheet and its charts, has no script, and forbids by its own policy that anything is loaded or
run. The same report gives the same bytes.
"""

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from equipoise_evals.model import FULL_STEPS, ROLE_NAMES, STEPS
from equipoise_service.report import figures
from equipoise_service.report.details import Details
from equipoise_service.report.document import Report
from equipoise_service.report.markdown import interval_text, title
from equipoise_service.report.markdown_outputs import PAIRS, PARTED, PASSES, pair_cells, parted_cells, pass_cells
from equipoise_service.report.sides import side_by_side
from equipoise_service.report.tables import (
    claims,
    clocks_of,
    contrasts,
    goodput_sentence,
    is_judged,
    nothing_counted,
    pdl_sentence,
    primary_contrasts,
    treatment_counts,
    treatment_state,
    word_of,
)

TEMPLATES = Path(__file__).parent / "templates"
STYLESHEET = Path(__file__).parents[1] / "static" / "style.css"
GLOBALS: dict[str, Any] = {
    "accuracy_chart": figures.accuracy_chart,
    "blocks_figures": figures.blocks_figures,
    "claims": claims,
    "clocks_of": clocks_of,
    "contrasts": contrasts,
    "distribution_figures": figures.distribution_figures,
    "full_steps": FULL_STEPS,
    "goodput_sentence": goodput_sentence,
    "interval_text": interval_text,
    "is_judged": is_judged,
    "latency_chart": figures.latency_chart,
    "launch_pairs_chart": figures.launch_pairs_chart,
    "nothing_counted": nothing_counted,
    "pair_cells": pair_cells,
    "pairs_header": PAIRS,
    "parted_cells": parted_cells,
    "parted_header": PARTED,
    "pass_cells": pass_cells,
    "passes_header": PASSES,
    "pdl_sentence": pdl_sentence,
    "primary_contrasts": primary_contrasts,
    "pretty": lambda value: json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False),
    "role_names": ROLE_NAMES,
    "side_by_side": side_by_side,
    "steps": STEPS,
    "title_of": title,
    "treatment_counts": treatment_counts,
    "treatment_state": treatment_state,
    "word_of": word_of,
}
"""What the templates call."""


def to_html(report: Report, details: Details) -> str:
    """The report in one file that opens without a server."""
    style = stylesheet()
    values = {"report": report, "details": details, "style": Markup(style), "policy": content_policy()}  # noqa: S704
    return _environment().get_template("report.html").render(values)


def content_policy() -> str:
    """What the file may load and run: its own stylesheet, by digest, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(stylesheet().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


@cache
def stylesheet() -> str:
    """The stylesheet of every page, as the file holds it."""
    text = STYLESHEET.read_text(encoding="utf-8")
    assert "</" not in text  # noqa: S101 - it would end the element that it stands in
    return text


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(GLOBALS)
    return environment
