"""``docs/presets.md`` out of the model: ``python -m equipoise_service.engines.presets.document FILE`` writes it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from equipoise_evals.model import AttributeEvidence, FillsEvidence, Frozen, KernelEvidence, VersionEvidence
from equipoise_service.engines.presets.load import shipped_presets
from equipoise_service.engines.presets.model import Defaults, Devices, Options, Preset, PresetArm

SECTIONS: tuple[tuple[type[Frozen], str], ...] = (
    (Preset, "A preset"),
    (PresetArm, "`baseline` and `candidate`"),
    (Devices, "`both` and `options`"),
    (Options, "`any`, `cuda` and `cpu`"),
    (Defaults, "`defaults`"),
)
EVIDENCE: tuple[type[Frozen], ...] = (FillsEvidence, KernelEvidence, AttributeEvidence, VersionEvidence)
HEAD = """# Presets

<!-- Written by `make schemas` out of the model; a test holds this page against it. -->

A preset is a pair of arms under a name: a YAML file `NAME.yaml`. Those below come with Equipoise; an operator's own
lie in the folder that `EQUIPOISE_PRESETS` names. `equipoise presets` lists them, `equipoise presets FILE` checks one;
a mistake is refused with file, line and reason, and stops the service at its start. A request may change either arm
and may give `evidence` of its own. [own-branch.md](own-branch.md) leads from a branch of SGLang to a verdict.

| preset | compares | a request must give |
|---|---|---|
"""


def document() -> str:
    """The whole page."""
    rows = [
        f"| `{preset.name}` | {preset.summary} | {', '.join(f'`{ask}`' for ask in preset.asks) or 'nothing'} |"
        for preset in shipped_presets().values()
    ]
    parts = [HEAD + "\n".join(rows)]
    for model, title in SECTIONS:
        parts.append(f"## {title}\n\n" + "\n".join(_fields(model)))
    parts.append(
        "## `evidence`\n\nA list. Attributes and versions are those that the running engines state themselves; "
        "kernels are counted per decode step, or per whole prefill, in a profiler trace of each arm."
    )
    for model in EVIDENCE:
        said = str(model.__doc__).split("Attributes:")[0]
        parts.append(f"### `kind: {_kind(model)}`\n\n{' '.join(said.split())}\n\n" + "\n".join(_fields(model)))
    return "\n\n".join(parts) + "\n"


def _kind(model: type[Frozen]) -> str:
    return str(model.model_fields["kind"].default)


def _fields(model: type[Frozen]) -> Iterator[str]:
    """One line a field: its name, its form, its default, what it means."""
    schema = model.model_json_schema()
    said = _attributes(model)
    yield "| field | form | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in model.model_fields.items():
        shape = schema["properties"][name]
        default = "required" if field.is_required() else f"`{_default(field.get_default(call_default_factory=True))}`"
        meaning = field.description or said.get(name) or "Which kind of evidence this is."
        yield f"| `{name}` | {_form(shape)} | {default} | {meaning} |"


def _attributes(model: type[Frozen]) -> dict[str, str]:
    """What a docstring says of each attribute."""
    found: dict[str, str] = {}
    name = ""
    for line in str(model.__doc__).partition("Attributes:")[2].splitlines():
        head, colon, text = line.strip().partition(": ")
        if colon and head in model.model_fields:
            name, found[head] = head, text
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return {name: text.replace("``", "`") for name, text in found.items()}


def _default(value: object) -> str:
    if isinstance(value, Frozen):
        return "{}"
    if isinstance(value, dict | tuple) and not value:
        return "{}" if isinstance(value, dict) else "[]"
    return "null" if value is None else str(value)


def _form(shape: dict[str, Any]) -> str:
    if "enum" in shape:
        return " or ".join(f"`{one}`" for one in shape["enum"])
    if "const" in shape:
        return f"`{shape['const']}`"
    if "anyOf" in shape:
        return " or ".join(_form(one) for one in shape["anyOf"])
    if shape.get("type") == "array":
        return f"list of {_form(shape.get('items', {}))}"
    return {"string": "text", "integer": "whole number", "object": "text by name", "null": "null"}.get(
        shape.get("type", ""), "see below"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document())
