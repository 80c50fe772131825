"""What pipelines read of a gate: ``gate.json``, JUnit XML, GitHub annotations and a Markdown summary."""

import json
import re
from typing import Literal
from xml.etree import ElementTree

from equipoise_evals.model import Frozen
from equipoise_service.gate.decide import GateResult
from equipoise_service.gate.policy import Policy
from equipoise_service.report.markup import code, escaped, table

SUITE = "equipoise gate"
NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MARKS = {"pass": "passes", "fail": "**fails**", "undecided": "**is not decided**", "waived": "is waived"}


class GateDocument(Frozen):
    """The content of ``gate.json``.

    Attributes:
        exit_code: 0 pass, 1 block, 2 undecided, 3 error, 64 usage: what ``equipoise gate`` ended with, which ``make``
            cannot carry.
        comparison_id: None where none was made.
        result: None where there is no verdict; ``error`` then says why.
        policy: The policy in force, waivers included; None where it could not be read.
    """

    schema_version: Literal[1] = 1
    exit_code: int
    at: str
    model: str
    comparison_id: str | None
    report: str | None
    policy: Policy | None
    result: GateResult | None
    error: str | None


def gate_json(document: GateDocument) -> str:
    """The document as JSON, keys sorted, one final newline."""
    return json.dumps(document.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"


def junit(document: GateDocument) -> str:
    """One test case per check; what is undecided or failed and required is a failure, an error is an error."""
    suite = ElementTree.Element("testsuite", name=SUITE, timestamp=document.at)
    if document.result is None:
        case = ElementTree.SubElement(suite, "testcase", classname=SUITE, name="comparison")
        ElementTree.SubElement(case, "error", message=_xml_text(document.error or "no verdict"))
    for check in document.result.checks if document.result else ():
        case = ElementTree.SubElement(suite, "testcase", classname=SUITE, name=check.name)
        said = _xml_text(f"{check.word or check.state}: {check.detail}")
        stops = check.state == "fail" or (check.state == "undecided" and document.exit_code != 0)
        if check.required and stops:
            ElementTree.SubElement(case, "failure", message=said, type=check.state)
        elif check.state != "pass":
            ElementTree.SubElement(case, "skipped", message=said)
    cases = suite.findall("testcase")
    for name, path in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(path) is not None for case in cases)))
    suite.set("tests", str(len(cases)))
    xml: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return xml.decode() + "\n"


def _xml_text(text: str) -> str:
    """The text without characters that XML 1.0 cannot hold."""
    return NOT_XML.sub("\ufffd", text)


def summary(document: GateDocument) -> str:
    """Markdown for a job's summary or a comment."""
    result = document.result
    if result is None:
        return f"## Gate: error\n\n{escaped(document.error or 'no verdict')}\n"
    rows = [
        (code(check.name), MARKS[check.state], code(check.word) if check.word else "", escaped(check.detail))
        for check in result.checks
    ]
    lines = [
        f"## Gate: {result.decision} ({escaped(document.model)})",
        "",
        escaped(result.headline),
        "",
        *table(["check", "", "word", ""], rows),
        "",
        *(f"* {escaped(warning)}" for warning in result.warnings),
    ]
    return "\n".join(lines).rstrip() + "\n"


def annotations(document: GateDocument) -> tuple[str, ...]:
    """GitHub workflow commands: an error where the gate does not pass, and a warning for everything let through."""
    if document.result is None:
        return (_command("error", document.error or "no verdict"),)
    result = document.result
    first = () if result.decision == "pass" else (_command("error", result.headline),)
    return (*first, *(_command("warning", warning) for warning in result.warnings))


def _command(kind: str, text: str) -> str:
    """Data of a workflow command, escaped as GitHub's runner asks."""
    return f"::{kind} title=equipoise gate::{text.replace('%', '%25').replace(chr(13), '%0D').replace(chr(10), '%0A')}"
