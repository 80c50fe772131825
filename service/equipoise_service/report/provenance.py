"""What was installed in each arm's engine, as the engines attested it, and in what the two differ."""

from collections.abc import Iterable

from pydantic import JsonValue

from equipoise_evals.model import ROLES, Frozen, LaunchRecord, Role


class PackageChange(Frozen):
    """A package whose version differs; None in an arm that does not have it."""

    name: str
    baseline: str | None
    candidate: str | None


class Provenance(Frozen):
    """Every package of both arms' engines.

    Attributes:
        packages: By arm, every package with its version.
        changes: Those that differ, by name.
    """

    packages: dict[Role, dict[str, str]]
    changes: tuple[PackageChange, ...]


def provenance_of(launches: Iterable[LaunchRecord]) -> Provenance | None:
    """The packages that the first launch of each arm attested; None unless both arms did.

    Engines that ran already and lack the plugin, and records of earlier versions, list none.
    """
    listed: dict[Role, dict[str, str]] = {}
    for launch in launches:
        packages = launch.attestation.get("packages")
        if isinstance(packages, dict) and launch.role not in listed:
            listed[launch.role] = {name: _text(version) for name, version in sorted(packages.items())}
    if len(listed) < len(ROLES):
        return None
    baseline, candidate = (listed[role] for role in ROLES)
    changes = [
        PackageChange(name=name, baseline=baseline.get(name), candidate=candidate.get(name))
        for name in sorted(baseline.keys() | candidate.keys())
        if baseline.get(name) != candidate.get(name)
    ]
    return Provenance(packages=listed, changes=tuple(changes))


def _text(version: JsonValue) -> str:
    return str(version)
