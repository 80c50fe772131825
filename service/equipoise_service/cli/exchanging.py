"""What ``equipoise export`` and ``equipoise import`` do."""

from collections.abc import Sequence
from pathlib import Path

import typer

from equipoise_service.cli.documents import comparison_in, local_store, own_store
from equipoise_service.exchange.archive import COMPARISONS, new_export, sha256_of
from equipoise_service.exchange.contents import write_comparison
from equipoise_service.exchange.importing import import_export
from equipoise_service.exchange.samples import write_samples
from equipoise_service.settings import Settings
from equipoise_service.store import Store, Stored
from equipoise_service.store.keeping import ended


def export_comparisons(target: Path, ids: Sequence[str], logs: bool) -> int:
    """Write whole comparisons; every one that has ended if none is named."""
    store, chosen = _chosen(ids)
    engines = Settings.from_env().engine_logs
    with new_export(target) as root:
        for stored in chosen:
            write_comparison(store, stored, root / COMPARISONS / stored.id, engines / stored.id if logs else None)
    digest = f"SHA-256 {sha256_of(target)}" if target.is_file() else "digests in its manifest.json"
    typer.echo(f"{target}: {len(chosen)} comparisons, {digest}", err=True)
    return 0


def export_samples(target: Path, ids: Sequence[str]) -> int:
    """Write samples as Parquet tables."""
    store, chosen = _chosen(ids)
    rows = write_samples(store, chosen, target)
    typer.echo(f"{target}: " + ", ".join(f"{count} {name}" for name, count in rows.items()), err=True)
    return 0


def _chosen(ids: Sequence[str]) -> tuple[Store, list[Stored]]:
    store = local_store()
    if ids:
        return store, [comparison_in(store, comparison_id) for comparison_id in sorted(set(ids))]
    return store, [stored for one in ended(store.database) if (stored := store.comparisons.get(one.id)) is not None]


def import_comparisons(source: Path, *, check: bool) -> int:
    """Store what an export brings and say what that was."""
    brought = import_export(source, own_store(), Settings.from_env().engine_logs, check=check)
    for comparison_id in brought.new:
        typer.echo(comparison_id)
    known = f"; {len(brought.known)} were here already, unchanged" if brought.known else ""
    typer.echo(f"imported {len(brought.new)} comparisons{known}", err=True)
    return 0
