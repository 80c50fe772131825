"""Webhooks over HTTP, for who has scope admin: addresses that are told of every comparison that ends."""

from datetime import datetime
from typing import Self

from fastapi import APIRouter, Response
from pydantic import Field

from equipoise_evals.model import Frozen
from equipoise_service.api.dependencies import TheService
from equipoise_service.api.problems import document
from equipoise_service.errors import WebhookNotFound
from equipoise_service.service import Service
from equipoise_service.store import Delivery, Webhook
from equipoise_service.webhooks import new_secret, usable_url

router = APIRouter(tags=["webhooks"], responses=document(422))


class WebhookRequest(Frozen):
    """An address to tell: HTTPS, or HTTP on the service's own machine."""

    url: str = Field(min_length=1, max_length=2_000)


class DeliveryView(Frozen):
    """How the newest message for a webhook fares; ``next_at`` is null once it was delivered or given up."""

    message_id: str
    comparison_id: str
    attempts_failed: int
    next_at: datetime | None
    delivered_at: datetime | None
    last_error: str | None

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        """The view of a stored delivery."""
        return cls(
            message_id=delivery.id,
            comparison_id=delivery.comparison_id,
            attempts_failed=delivery.attempts,
            next_at=delivery.next_at,
            delivered_at=delivery.delivered_at,
            last_error=delivery.last_error,
        )


class WebhookView(Frozen):
    """A webhook without its secret."""

    id: str
    url: str
    created_at: datetime
    last_delivery: DeliveryView | None

    @classmethod
    def of(cls, webhook: Webhook, last: Delivery | None) -> Self:
        """The view of a stored webhook."""
        shown = None if last is None else DeliveryView.of(last)
        return cls(id=webhook.id, url=webhook.url, created_at=webhook.created_at, last_delivery=shown)


class MadeWebhook(Frozen):
    """A webhook and the secret with which its receiver verifies signatures, which nobody is shown a second time."""

    webhook: WebhookView
    secret: str


class WebhookList(Frozen):
    """Every webhook, oldest first."""

    items: tuple[WebhookView, ...]


@router.post("/webhooks", status_code=201, responses=document(400, 408, 413))
def add_webhook(body: WebhookRequest, service: TheService) -> MadeWebhook:
    """Tell an address of every comparison that ends from now on, signed as Standard Webhooks says."""
    webhook = service.store.webhooks.add(usable_url(body.url), new_secret())
    return MadeWebhook(webhook=WebhookView.of(webhook, None), secret=webhook.secret)


@router.get("/webhooks")
def list_webhooks(service: TheService) -> WebhookList:
    """Every webhook and how its newest message fares."""
    return WebhookList(items=tuple(_view(service, webhook) for webhook in service.store.webhooks.every()))


@router.delete("/webhooks/{webhook_id}", status_code=204, responses=document(404, 408, 413))
def remove_webhook(webhook_id: str, service: TheService) -> Response:
    """Tell an address no more."""
    if not service.store.webhooks.remove(webhook_id):
        raise WebhookNotFound(webhook_id)
    return Response(status_code=204)


def _view(service: Service, webhook: Webhook) -> WebhookView:
    return WebhookView.of(webhook, service.store.webhooks.last_delivery(webhook.id))
