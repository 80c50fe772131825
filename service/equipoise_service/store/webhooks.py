"""Webhooks, and what is still to be delivered to them: an outbox, written with the end of a comparison or not at all.

A secret is kept as it is, since every delivery is signed with it; the data folder is its owner's alone.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, RowMapping, delete, insert, select, update

from equipoise_service.ids import new_id
from equipoise_service.store.database import Database
from equipoise_service.store.tables import comparisons, deliveries, webhooks

LARGEST_BATCH = 50
HOLD_S = 60.0
"""Longer than one attempt takes; a message of a service that dies over it goes out again after that."""


class Webhook(NamedTuple):
    """One endpoint that is told of every comparison that ends."""

    id: str
    url: str
    secret: str
    created_at: datetime


class Delivery(NamedTuple):
    """One message for one endpoint; ``next_at`` is None once it was delivered or given up."""

    id: str
    comparison_id: str
    url: str
    secret: str
    body: str
    attempts: int
    next_at: datetime | None
    delivered_at: datetime | None
    last_error: str | None


def add_deliveries(connection: Connection, comparison_id: str) -> None:
    """Note, inside the transaction that ends a comparison, what every webhook is to be told.

    The bytes are kept: a comparison may be resumed before its message was taken, and what had happened had happened.
    """
    webhook_ids = connection.scalars(select(webhooks.c.id)).all()
    if not webhook_ids:
        return
    names = ("id", "status", "model", "verdict_word", "finished_at")
    query = select(*(comparisons.c[name] for name in names)).where(comparisons.c.id == comparison_id)
    body = message_of(connection.execute(query).mappings().one())
    now = datetime.now(UTC)
    for webhook_id in webhook_ids:
        connection.execute(
            insert(deliveries).values(
                id=new_id(), webhook_id=webhook_id, comparison_id=comparison_id, body=body, attempts=0, next_at=now
            )
        )


def message_of(ended: RowMapping) -> str:
    """What is told of a comparison that ended, as Standard Webhooks lays a payload out."""
    payload = {
        "type": f"comparison.{ended['status']}",
        "timestamp": ended["finished_at"].isoformat().replace("+00:00", "Z"),
        "data": {
            "id": ended["id"],
            "status": ended["status"],
            "verdict": ended["verdict_word"],
            "model": ended["model"],
            "path": f"/comparisons/{ended['id']}",
        },
    }
    return json.dumps(payload, separators=(",", ":"))


class Webhooks:
    """The webhooks of one database and their deliveries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, url: str, secret: str) -> Webhook:
        """Tell this address of every comparison that ends from now on."""
        webhook = Webhook(new_id(), url, secret, datetime.now(UTC))
        with self._database.write() as connection:
            connection.execute(insert(webhooks).values(**webhook._asdict()))
        return webhook

    def every(self) -> list[Webhook]:
        """All webhooks, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(webhooks).order_by(webhooks.c.id)).mappings()
            return [Webhook(**row) for row in rows]

    def remove(self, webhook_id: str) -> bool:
        """Forget a webhook and what was still to be delivered to it; False if there is none with this id."""
        with self._database.write() as connection:
            return connection.execute(delete(webhooks).where(webhooks.c.id == webhook_id)).rowcount > 0

    def last_delivery(self, webhook_id: str) -> Delivery | None:
        """The newest message for a webhook."""
        found = self._deliveries(deliveries.c.webhook_id == webhook_id, newest=True)
        return found[0] if found else None

    def take_due(self, now: datetime) -> list[Delivery]:
        """Messages whose time has come, those that wait longest first, and not more than can be sent in a while.

        They are the caller's to send for ``HOLD_S``: no other service that shares the database gets them meanwhile.
        """
        ready = deliveries.c.next_at <= now
        if not self._deliveries(ready):
            return []  # a write, of nothing too, rings the bell
        oldest = select(deliveries.c.id).where(ready).order_by(deliveries.c.next_at).limit(LARGEST_BATCH)
        with self._database.write() as connection:
            ids = connection.scalars(oldest.with_for_update(skip_locked=True)).all()
            held_until = now + timedelta(seconds=HOLD_S)
            connection.execute(update(deliveries).where(deliveries.c.id.in_(ids)).values(next_at=held_until))
        return self._deliveries(deliveries.c.id.in_(ids))

    def let_go(self, taken: list[Delivery]) -> None:
        """Whoever comes next sends those of which nothing has been noted since they were taken."""
        for delivery in taken:
            still_held = (deliveries.c.id == delivery.id) & (deliveries.c.next_at == delivery.next_at)
            self._change(still_held, next_at=datetime.now(UTC))

    def next_at(self) -> datetime | None:
        """When the next message is due; None if none waits."""
        query = select(deliveries.c.next_at).where(deliveries.c.next_at.is_not(None))
        with self._database.read() as connection:
            found: datetime | None = connection.scalar(query.order_by(deliveries.c.next_at).limit(1))
        return found

    def delivered(self, delivery_id: str) -> None:
        """It arrived."""
        self._change(deliveries.c.id == delivery_id, delivered_at=datetime.now(UTC), next_at=None, last_error=None)

    def failed(self, delivery_id: str, attempts: int, error: str, next_at: datetime | None) -> None:
        """It did not arrive; None for ``next_at`` gives it up."""
        self._change(deliveries.c.id == delivery_id, attempts=attempts, last_error=error, next_at=next_at)

    def _change(self, which: ColumnElement[bool], **values: datetime | str | int | None) -> None:
        with self._database.write() as connection:
            connection.execute(update(deliveries).where(which).values(**values))

    def _deliveries(self, condition: ColumnElement[bool], newest: bool = False) -> list[Delivery]:
        order = deliveries.c.id.desc() if newest else deliveries.c.next_at
        query = (
            select(
                deliveries.c.id,
                deliveries.c.comparison_id,
                webhooks.c.url,
                webhooks.c.secret,
                deliveries.c.body,
                deliveries.c.attempts,
                deliveries.c.next_at,
                deliveries.c.delivered_at,
                deliveries.c.last_error,
            )
            .join(webhooks, webhooks.c.id == deliveries.c.webhook_id)
            .where(condition)
            .order_by(order)
            .limit(LARGEST_BATCH)
        )
        with self._database.read() as connection:
            return [Delivery(*row) for row in connection.execute(query)]
