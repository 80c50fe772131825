"""Reads preset files. A mistake is refused with file, line and reason, before anything is served or started."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import ValidationError

from equipoise_service.access.engine_options import Kind, flag_faults, variable_faults
from equipoise_service.engines.presets.model import PLACEHOLDERS, Devices, Options, Preset
from equipoise_service.errors import PresetError
from equipoise_service.repeated_keys import Place, repeated_keys


def load_presets(
    folder: Path | None, flags: Mapping[str, Kind] | None = None, variables: Mapping[str, Kind] | None = None
) -> dict[str, Preset]:
    """Every preset by name: those shipped, and those of an operator's folder.

    Args:
        folder: Folder of further ``NAME.yaml``; None has none.
        flags: Flags that the operator allows beside the built-in list.
        variables: Variables likewise.

    Raises:
        PresetError: The folder or a file in it cannot be used, or takes a shipped preset's name.
    """
    presets = dict(shipped_presets())
    if folder is None:
        return presets
    try:
        if not folder.is_dir():
            raise PresetError(folder, None, "is no folder")
        for file in sorted(folder.glob("*.yaml")):
            preset = read_preset(file, flags, variables)
            if preset.name in presets:
                raise PresetError(file, 1, f"there is a shipped preset {preset.name!r} already; choose another name")
            presets[preset.name] = preset
    except PresetError as wrong:
        raise PresetError(wrong.file, wrong.line, wrong.why, "EQUIPOISE_PRESETS") from wrong
    return presets


@cache
def shipped_presets() -> Mapping[str, Preset]:
    """The presets that come with Equipoise, by name."""
    folder = Path(str(files("equipoise_service.engines.presets") / "files"))
    presets = [read_preset(file) for file in sorted(folder.glob("*.yaml"))]
    return {preset.name: preset for preset in presets}


def read_preset(
    file: Path, flags: Mapping[str, Kind] | None = None, variables: Mapping[str, Kind] | None = None
) -> Preset:
    """The preset in one file.

    Raises:
        PresetError: With file, line and reason.
    """
    try:
        text = file.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except OSError as unreadable:
        raise PresetError(file, None, f"cannot be read: {unreadable.strerror}") from unreadable
    except (UnicodeDecodeError, yaml.YAMLError) as broken:
        mark = getattr(broken, "problem_mark", None)
        reason = getattr(broken, "problem", None) or str(broken)
        raise PresetError(file, mark.line + 1 if mark else None, f"is not YAML: {reason}") from broken
    for place, name in repeated_keys(root):
        raise PresetError(file, _line(root, (*place, name)), f"{name} stands there twice")
    try:
        preset = Preset.model_validate(content)
    except ValidationError as wrong:
        # A misspelt field is also a missing one; the misspelling is what has to be mended.
        first = min(wrong.errors(), key=lambda error: error["type"] != "extra_forbidden")
        name = ".".join(str(step) for step in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise PresetError(file, _line(root, first["loc"]), f"{name}: {said}" if name else said) from wrong
    if preset.name != file.stem:
        raise PresetError(file, _line(root, ("name",)), f"name: {preset.name} belongs into {preset.name}.yaml")
    for place, reason in _refused(preset, flags or {}, variables or {}):
        raise PresetError(file, _line(root, place), reason)
    return preset


def _refused(preset: Preset, flags: Mapping[str, Kind], variables: Mapping[str, Kind]) -> Iterator[tuple[Place, str]]:
    """Options that a preset may not set, by place."""
    owners: dict[tuple[str, ...], Devices] = {("both",): preset.both, ("baseline", "options"): preset.baseline.options,
              ("candidate", "options"): preset.candidate.options}  # fmt: skip
    for owner, devices in owners.items():
        for device in ("any", "cuda", "cpu"):
            options: Options = getattr(devices, device)
            # What a placeholder becomes is whole numbers.
            words = ["1" if word in PLACEHOLDERS else word for word in options.flags]
            for fault in flag_faults(words, "", flags):
                yield (*owner, device, "flags", int(fault.pointer.strip("/"))), fault.detail
            for fault in variable_faults(options.environment, "", variables):
                yield (*owner, device, "environment", fault.pointer.strip("/")), fault.detail


def _line(root: yaml.Node | None, place: Place) -> int | None:
    """The 1-based line of a value, or of the last step towards it that is there."""
    if root is None:
        return None
    node, line = root, root.start_mark.line
    for step in place:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in reversed(node.value) if key.value == str(step)), None)
            if found is not None:
                line, node = found[0].start_mark.line, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line
    return line + 1
