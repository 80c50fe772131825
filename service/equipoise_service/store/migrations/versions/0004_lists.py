"""What lists are filtered and sorted by, and show: arms, machine, effect and intervals, in columns of their own."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and fill them in of the comparisons that are there."""
    for column in (
        sa.Column("arms", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("machine", sa.Text),
        sa.Column("effect", sa.Float),
        sa.Column("intervals", sa.Text),
    ):
        op.add_column("comparisons", column)
    _fill_in()
    for name in ("arms", "machine", "effect"):
        op.create_index(op.f(f"ix_comparisons_{name}_id"), "comparisons", [name, "id"])


def _fill_in() -> None:
    names = ("id", "plan", "verdict", "arms", "machine", "effect", "intervals")
    table = sa.table("comparisons", *(sa.column(name) for name in names))
    connection = op.get_bind()
    for row in connection.execute(sa.select(table)).mappings().all():
        arms = json.loads(row["plan"]).get("arms", {})
        names_of_arms = [arms.get(role, {}).get("name") for role in ("baseline", "candidate")]
        values: dict[str, Any] = {"arms": " → ".join(filter(None, names_of_arms))}
        if row["verdict"]:
            spark = _spark(json.loads(row["verdict"]))
            values["machine"] = _machine(connection, row["id"])
            values["effect"] = spark.get("latency", [None])[0]
            values["intervals"] = json.dumps(spark, separators=(",", ":")) if spark else None
        connection.execute(sa.update(table).where(table.c.id == row["id"]).values(**values))


def _spark(verdict: dict[str, Any]) -> dict[str, list[float | None]]:
    spark: dict[str, list[float | None]] = {}
    for half, estimate, limits, margin in (
        ("latency", ("busy", "effect"), ("busy", "interval"), "margin"),
        ("accuracy", ("difference_pp",), ("interval_pp",), "margin_pp"),
    ):
        if verdict.get(half):
            evidence = verdict[half]["evidence"]
            interval = _at(evidence, limits) or {"low": None, "high": None}
            spark[half] = [_at(evidence, estimate), interval["low"], interval["high"], evidence[margin]]
    return spark


def _at(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    for name in path:
        value = value[name]
    return value


def _machine(connection: sa.Connection, comparison_id: str) -> str | None:
    parts = sa.table("record_parts", *(sa.column(name) for name in ("comparison_id", "seq", "kind", "payload")))
    query = sa.select(parts.c.payload).where(parts.c.comparison_id == comparison_id, parts.c.kind == "launch")
    launch = connection.scalar(query.order_by(parts.c.seq).limit(1))
    device = json.loads(launch)["attestation"].get("device") if launch else None
    if isinstance(device, dict):
        return str(device.get("name") or device.get("type") or "") or None
    return device if isinstance(device, str) else None
