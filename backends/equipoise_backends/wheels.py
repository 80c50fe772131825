"""Holds requirements against wheels by reading their source: nothing is installed, imported or run.

So one interpreter can check every version of SGLang, on a machine without a GPU. What `requirement.unmet` asks of the
imported object is asked here of its syntax tree: that it is there, how its parameters begin, what its source contains.
"""

import ast
import sys
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from equipoise_backends.requirement import Requirement
from equipoise_backends.seam import COMMON, CPU, CUDA

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Found = Definition | ast.Assign | ast.AnnAssign

CPU_SINCE = "0.5.23"
"""First version with the base class of the CPU platform in the form that `cpu_platform` needs."""


class Sources:
    """Modules of some wheels, by dotted name.

    Args:
        wheels: Wheel files; the first that has a module wins.
    """

    def __init__(self, wheels: Sequence[Path]) -> None:
        self._archives = [zipfile.ZipFile(wheel) for wheel in wheels]
        self._places = {
            name: archive for archive in reversed(self._archives) for name in archive.namelist() if name.endswith(".py")
        }
        self.text = cache(self._text)
        self.tree = cache(self._tree)

    def distributions(self) -> set[str]:
        """Top-level names that these wheels bring."""
        return {name.split("/")[0] for name in self._places}

    def _text(self, module: str) -> str | None:
        path = module.replace(".", "/")
        for name in (f"{path}.py", f"{path}/__init__.py"):
            if name in self._places:
                return self._places[name].read(name).decode("utf-8")
        return None

    def _tree(self, module: str) -> ast.Module | None:
        text = self.text(module)
        return None if text is None else ast.parse(text)


def unmet_in(sources: Sources, requirement: Requirement) -> str | None:
    """Why a requirement does not hold in these wheels, None when it does."""
    target, why = requirement.target, requirement.why
    place = _locate(sources, target, follow_bases=not requirement.own)
    if place is None:
        return f"{target}: gone ({why})"
    module, found = place
    if requirement.parameters:
        names = _parameters(found)
        if names[: len(requirement.parameters)] != requirement.parameters:
            wanted = ", ".join(requirement.parameters)
            return f"{target}: takes ({', '.join(names)}), not ({wanted}, …) ({why})"
    source = ast.get_source_segment(sources.text(module) or "", found) or ""
    missing = [name for name in requirement.attributes if name not in source]
    return f"{target}: {', '.join(missing)} not in its source ({why})" if missing else None


def check_wheels(wheels: Sequence[Path], sglang: str) -> list[str]:
    """All unmet requirements of one version of SGLang, as far as the wheels bring the packages concerned.

    Args:
        wheels: SGLang's wheel, and FlashInfer's where its internals are to be checked too.
        sglang: SGLang's version.
    """
    sources = Sources(wheels)
    brought = sources.distributions()
    needed = COMMON + CUDA + (CPU if sglang == CPU_SINCE else ())
    asked = [one for one in needed if one.applies_to(sglang) and one.target.split(".")[0] in brought]
    return [reason for reason in (unmet_in(sources, one) for one in asked) if reason is not None]


def _locate(sources: Sources, target: str, *, follow_bases: bool) -> tuple[str, Found] | None:
    """The module and the definition of a dotted name; of a class's member also in its bases, if they are followed."""
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:length])
        if sources.text(module) is not None:
            return _descend(sources, module, parts[length:], follow_bases=follow_bases)
    return None


def _descend(sources: Sources, module: str, names: Sequence[str], *, follow_bases: bool) -> tuple[str, Found] | None:
    """Follow names into a module: to a definition, a member of a class or its bases, or what was imported there."""
    tree = sources.tree(module)
    if tree is None:
        return None
    head, rest = names[0], names[1:]
    found = next((node for node in _members(tree) if head in _bound(node)), None)
    if found is None:
        place = _imported(tree, head)
        return None if place is None else _descend(sources, place[0], [place[1], *rest], follow_bases=follow_bases)
    if not rest:
        return module, found
    if not isinstance(found, ast.ClassDef):
        return None
    inner = next((node for node in _members(found) if rest[0] in _bound(node)), None)
    if inner is not None:
        return module, inner
    bases = [base.id for base in found.bases if isinstance(base, ast.Name) and follow_bases]
    places = (_descend(sources, module, [base, *rest], follow_bases=True) for base in bases)
    return next((place for place in places if place is not None), None)


def _imported(tree: ast.Module, name: str) -> tuple[str, str] | None:
    """The module that a name is imported from, and what it is called there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return node.module, alias.name
    return None


def _members(scope: ast.Module | ast.ClassDef) -> Iterator[Found]:
    """Definitions and assignments of a scope, also those below a condition or a try."""
    pending: list[ast.AST] = list(scope.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, Found):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            pending += ast.iter_child_nodes(node)


def _bound(node: Found) -> set[str]:
    if isinstance(node, Definition):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _parameters(found: Found) -> tuple[str, ...]:
    if isinstance(found, ast.ClassDef):
        init = next((node for node in _members(found) if "__init__" in _bound(node)), None)
        if init is not None:
            return _parameters(init)[1:]
        # A dataclass takes its annotated fields.
        return tuple(name for node in found.body if isinstance(node, ast.AnnAssign) for name in _bound(node))
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return ()
    return tuple(argument.arg for argument in (*found.args.posonlyargs, *found.args.args, *found.args.kwonlyargs))


def main() -> int:
    """Check wheels given as VERSION WHEEL…; 0 when the seam holds, 1 when not."""
    problems = check_wheels([Path(name) for name in sys.argv[2:]], sys.argv[1])
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
