"""The difference of two comparisons as Markdown, for a terminal or a comment."""

import json
from collections.abc import Iterable

from equipoise_service.difference.changes import Change
from equipoise_service.difference.compare import Difference, Number, NumberChange, Side
from equipoise_service.report.markup import code, escaped, table
from equipoise_service.report.tables import clocks_of

LONGEST_VALUE = 200


def to_markdown(difference: Difference) -> str:
    """What differs, in GitHub's Markdown; a section in which nothing does says so."""
    refused = [
        f"* {half}: not compared, {escaped(reason)}"
        for half, reasons in difference.not_compared.items()
        for reason in reasons
    ]
    blocks = [
        ["# What differs"],
        [_side("first", difference.first), _side("second", difference.second)],
        *([refused] if refused else []),
        ["## Set-up"],
        _changes(difference.setup),
        ["## Engines"],
        _changes(difference.engines),
        ["## Verdict"],
        _changes(difference.words),
        *([["## Effects"], _effects(difference)] if difference.effects else []),
        ["## Numbers"],
        _numbers(difference.numbers),
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _side(name: str, side: Side) -> str:
    made = f"{side.created_at:%Y-%m-%d %H:%M}"
    return f"* {name}: {code(side.comparison_id)} of {made}, {escaped(side.model)}: {escaped(side.headline)}"


def _changes(found: Iterable[Change]) -> list[str]:
    body = [(code(one.pointer), code(_value(one.first)), code(_value(one.second))) for one in found]
    return table(["", "first", "second"], body) if body else ["Nothing differs."]


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _effects(difference: Difference) -> list[str]:
    body = [
        (
            str(one.batch),
            clocks_of(difference.phase)[one.metric],
            f"{one.first:+.2%}",
            f"{one.second:+.2%}",
            f"{one.shift:+.2%}",
            f"{one.interval.low:+.2%} to {one.interval.high:+.2%}" if one.interval else "none from fewer than 2 pairs",
        )
        for one in difference.effects
    ]
    return [
        "Candidate against baseline in each, and how far the second is from the first, with its 95 % interval over "
        "launch pairs, not adjusted for looks.",
        "",
        *table(["batch", "clock", "first", "second", "shift", "interval"], body),
    ]


def _numbers(found: Iterable[NumberChange]) -> list[str]:
    body = [
        (
            escaped(one.section),
            code(one.name) if one.section == "treatment" else escaped(one.name),
            "" if one.batch is None else str(one.batch),
            _number(one.first),
            _number(one.second),
            escaped(one.unit),
        )
        for one in found
    ]
    return table(["", "", "batch", "first", "second", "unit"], body) if body else ["Nothing differs."]


def _number(number: Number | None) -> str:
    if number is None or number.value is None:
        return "none"
    interval = "" if number.low is None or number.high is None else f" ({number.low:.4g} to {number.high:.4g})"
    return f"{number.value:.6g}{interval}"
