"""Progress as server-sent events. They come from the database, so a client that returns misses and repeats none."""

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from equipoise_service.api.dependencies import TheComparison, TheService
from equipoise_service.api.problems import document
from equipoise_service.bell import heard
from equipoise_service.service import Service
from equipoise_service.store import FINAL, Event

router = APIRouter(tags=["events"], responses=document(422))
POLL_S = 10.0
"""The bell wakes a stream after every write of this process; this is for writes of another one."""
SHARED_POLL_S = 2.0
"""The same where comparisons run in services on other machines."""
LARGEST_SEQ = 2**63 - 1
"""Beyond it databases have no integers."""


@router.get(
    "/comparisons/{comparison_id}/events",
    response_class=EventSourceResponse,
    responses={204: {"description": "Nothing more will come"}, **document(404)},
)
async def stream_events(
    stored: TheComparison,
    service: TheService,
    last_event_id: Annotated[int, Header(ge=0, le=LARGEST_SEQ)] = 0,
) -> Response:
    """Every event after ``Last-Event-ID``, past and future, until the comparison has ended.

    Each event has its number as ``id`` and is named ``status``, ``progress``, or ``look``: what is known after a launch
    pair. When nothing more will come, the answer is 204, which tells a browser to stop asking.
    """
    if stored.status in FINAL and not await run_in_threadpool(
        service.store.events.after, stored.id, last_event_id, limit=1
    ):
        return Response(status_code=204)
    return EventSourceResponse(_events(service, stored.id, last_event_id), headers={"Cache-Control": "no-store"})


async def _events(service: Service, comparison_id: str, after: int) -> AsyncIterator[ServerSentEvent]:
    poll_s = SHARED_POLL_S if service.store.database.shared else POLL_S
    while True:
        ticket = service.bell.ticket()  # before the look, so that whatever is written meanwhile rings it
        look = await service.looks.after(ticket, comparison_id, after)
        for event in look.events:
            after = event.seq
            yield _on_the_wire(event)
        if look.more:
            continue
        if look.status is None or look.status in FINAL:
            return  # a final status has no later events, and those before it are told
        await heard(ticket, poll_s)


def _on_the_wire(event: Event) -> ServerSentEvent:
    data = {"at": event.at.isoformat().replace("+00:00", "Z"), **json.loads(event.payload)}
    return ServerSentEvent(id=str(event.seq), event=event.kind, data=json.dumps(data, separators=(",", ":")))
