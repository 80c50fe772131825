"""Pages over many comparisons: the trend of a model, and the noise of each machine."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup
from pydantic import Field, field_validator

from equipoise_evals.model import Frozen
from equipoise_service.api.dependencies import TheService
from equipoise_service.api.halves import HALVES, UNITS, Half, shown
from equipoise_service.api.html import page
from equipoise_service.api.problems import document
from equipoise_service.charts import ForestRow, TrendPoint, forest_chart, trend_chart
from equipoise_service.report.history import Noise, Past, noise_of, past_of
from equipoise_service.store import UNJUDGED, ListFilter, Status

router = APIRouter(tags=["pages"], include_in_schema=False)
TITLES: dict[Half, str] = {
    "latency": "Effect on busy time at the primary batch",
    "accuracy": "Difference of right answers",
}


class TrendQuery(Frozen):
    """Of which model, and of which pair of arms if only one is wanted."""

    model: str | None = Field(default=None, max_length=1_000)
    arms: str | None = Field(default=None, max_length=1_000)

    @field_validator("model", "arms", mode="before")
    @classmethod
    def _empty_is_any(cls, value: object) -> object:
        return None if value == "" else value


@router.get("/trend", responses=document(422))
def trend(request: Request, query: Annotated[TrendQuery, Query()], service: TheService) -> Response:
    """One model's effects over time; of the newest comparison's that has a verdict unless another is asked for."""
    facets = service.store.comparisons.facets()
    newest = service.store.comparisons.page(ListFilter(status=Status.SUCCEEDED), 1).items
    model = query.model or (newest[0].model_name if newest else None)
    past = past_of(service.store, model, query.arms) if model else []
    return page(request, "trend.html", model=model, query=query, facets=facets, past=past, charts=trend_charts(past))


@router.get("/noise")
def noise(request: Request, service: TheService) -> Response:
    """How far launches differ on each machine where nothing else does."""
    machines = [(one, noise_chart(place, one)) for place, one in enumerate(noise_of(service.store))]
    return page(request, "noise.html", machines=machines)


def trend_charts(past: Sequence[Past]) -> list[tuple[str, Markup]]:
    """A chart of each half that was measured, with its title; the margin is the newest comparison's."""
    marks = {one.id: mark for mark, one in enumerate((one for one in past if one.changes), 1)}
    charts = []
    for half in HALVES:
        found = [(one, shown(half, one.intervals[half])) for one in past if half in one.intervals]
        known = [(one, effect) for one, effect in found if effect is not None]
        if known:
            points = [
                TrendPoint(
                    one.created_at.strftime("%Y-%m-%d"),
                    effect.effect,
                    effect.interval,
                    marks.get(one.id),
                    one.verdict not in UNJUDGED,
                )
                for one, effect in known
            ]
            title, newest = TITLES[half], known[-1][1]
            chart = trend_chart(f"trend-{half}", title, points, unit=UNITS[half][1], margin=newest.bounds)
            charts.append((title, chart))
    return charts


def noise_chart(place: int, noise: Noise) -> Markup:
    """The effects of A/A comparisons, which should all hold 0."""
    rows = [
        ForestRow(
            control.created_at.strftime("%Y-%m-%d %H:%M"),
            100 * control.busy.effect,
            (100 * control.busy.interval.low, 100 * control.busy.interval.high) if control.busy.interval else None,
            decides=True,
        )
        for control in noise.controls
    ]
    return forest_chart(
        f"noise-{place}", f"Effects where nothing differs, {noise.machine}", rows,
        unit="%", margin=(None, None), sides=("faster", "slower"),
    )  # fmt: skip
