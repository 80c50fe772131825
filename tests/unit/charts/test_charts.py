"""Charts as drawings: where things stand follows from the values, hostile texts stay texts, and bytes repeat.

Expected places are computed by hand from the scale's two ends.
"""

from xml.etree import ElementTree as ET

import pytest

from equipoise_service.charts import (
    Block,
    ForestRow,
    Histogram,
    PairSeries,
    TrendPoint,
    blocks_chart,
    distribution_chart,
    forest_chart,
    pairs_chart,
    sparkline,
    trend_chart,
)
from equipoise_service.charts.canvas import Canvas
from equipoise_service.charts.scale import Scale, tick_text

HOSTILE = '"><img src=x onerror=alert(1)>'


def drawn(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own drawing


def forest(label: str = "busy", margin: tuple[float | None, float | None] = (-0.5, 0.5)) -> str:
    rows = [ForestRow(label, -1.64, (-1.7, -1.5), decides=True), ForestRow("client", -1.0, None, decides=False)]
    return forest_chart("latency", "Effects", rows, unit="%", margin=margin, sides=("faster", "slower"))


def test_values_are_drawn_between_the_ends_and_held_at_them() -> None:
    scale = Scale(0.0, 10.0, 100.0, 200.0)
    assert [scale(value) for value in (0, 2.5, 10, -5, 99)] == [100, 125, 200, 100, 200]
    assert Scale(0.0, 10.0, 200.0, 100.0)(2.5) == 175  # upwards, as drawings have it


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (-0.55, 0.55, [-0.4, -0.2, 0, 0.2, 0.4]),
        (1262, 1411, [1275, 1300, 1325, 1350, 1375, 1400]),
    ],
)
def test_ticks_are_round_and_inside(low: float, high: float, expected: list[float]) -> None:
    assert Scale(low, high, 0, 1).ticks() == pytest.approx(expected)


def test_ticks_have_as_many_digits_as_tell_them_apart() -> None:
    assert [tick_text(tick, [-0.25, 0, 0.25]) for tick in (-0.25, 0, 0.25)] == ["−0.25", "0", "0.25"]
    assert tick_text(1400, [1300, 1400]) == "1,400"
    assert tick_text(2.0, [2.0]) == "2"


def test_equal_values_still_have_a_scale() -> None:
    assert Scale.around([5.0, 5.0], 0, 1) == (4.7, 5.3, 0, 1)
    assert Scale.around([0.0], 0, 1) == (-1, 1, 0, 1)


def test_a_chart_names_and_describes_itself() -> None:
    root = drawn(forest())
    assert root.get("role") == "img"
    named = {child.get("id"): child.text for child in root if child.tag in {"title", "desc"}}
    assert list(named) == str(root.get("aria-labelledby")).split()
    assert named["latency-title"] == "Effects"
    assert "busy: -1.64 % (-1.70 to -1.50)" in str(named["latency-desc"])
    assert "client: -1.00 % (no interval)" in str(named["latency-desc"])
    assert "Margin: -0.5 to +0.5 %." in str(named["latency-desc"])


def test_hostile_texts_stay_texts() -> None:
    svg = forest(HOSTILE)
    assert "<img" not in svg
    assert HOSTILE in "".join(drawn(svg).itertext())
    canvas = Canvas("a", HOSTILE, HOSTILE, width=1, height=1)
    canvas.text((0, 0), HOSTILE, css=HOSTILE)
    assert drawn(canvas.svg())[2].get("class") == HOSTILE


def test_no_chart_needs_a_style_or_a_script() -> None:
    for svg in (forest(), pairs(), distribution(), blocks(), spark()):
        root = drawn(svg)
        assert {element.tag for element in root.iter()} <= {
            "svg", "title", "desc", "line", "rect", "circle", "text", "polyline", "polygon",
        }  # fmt: skip
        assert not any("style" in element.attrib for element in root.iter())


def test_the_interval_and_the_margin_are_where_they_belong() -> None:
    root = drawn(forest())
    # Values from -1.7 to 0.5 and 6 % of that to each side, drawn from 210 to 700.
    low, high = -1.7 - 0.132, 0.5 + 0.132
    place = [210 + (value - low) / (high - low) * 490 for value in (-1.7, -1.5, -0.5, 0.5, -1.64)]
    whisker = next(line for line in root.iter("line") if line.get("class") == "estimate whisker")
    band = next(rect for rect in root.iter("rect"))
    assert [float(str(whisker.get(end))) for end in ("x1", "x2")] == pytest.approx(place[:2], abs=0.06)
    assert float(str(band.get("x"))) == pytest.approx(place[2], abs=0.06)
    assert float(str(band.get("width"))) == pytest.approx(place[3] - place[2], abs=0.06)
    dot = next(circle for circle in root.iter("circle") if circle.get("class") == "estimate")
    assert float(str(dot.get("cx"))) == pytest.approx(place[4], abs=0.06)


def test_a_margin_may_be_open() -> None:
    rect = next(drawn(forest(margin=(-1.0, None))).iter("rect"))
    assert float(str(rect.get("x"))) + float(str(rect.get("width"))) == pytest.approx(700)
    assert "Margin" not in forest(margin=(None, None))


def pairs() -> str:
    series = [PairSeries("busy", [-1.6, -1.7, -1.5], -1.6), PairSeries("period", [-1.4, -1.2, -1.6], -1.4)]
    return pairs_chart("pairs", "Pairs", series, 0.5)


def test_every_launch_pair_is_a_point_of_its_clocks_shape() -> None:
    root = drawn(pairs())
    assert sum(circle.get("class") == "clock-0" for circle in root.iter("circle")) == 3 + 1  # and the legend
    assert sum(rect.get("class") == "clock-1" for rect in root.iter("rect")) == 3 + 1


def distribution(levels: tuple[float, ...] = ()) -> str:
    return distribution_chart("d", "Steps", Histogram(0, 4, [1, 2, 0, 1], [0, 0, 0, 0]), (1.5, 2.0), levels)


def test_the_fullest_bin_of_an_arm_reaches_the_edge_and_an_empty_arm_stays_flat() -> None:
    upper, lower = drawn(distribution()).iter("polygon")
    heights = [float(point.split(",")[1]) for point in str(upper.get("points")).split()]
    assert min(heights) == 30.0
    assert heights[1] == 70.0  # half as many steps
    assert {point.split(",")[1] for point in str(lower.get("points")).split()} == {"110"}


def test_two_levels_are_marked_and_said() -> None:
    svg = distribution((1.0, 3.0))
    assert "jump between about 1 and 3 us" in svg
    assert sum(line.get("class") == "level" for line in drawn(svg).iter("line")) == 2
    assert "jump" not in distribution()


def blocks(count: int = 8, clock: float | None = None) -> str:
    made = [
        Block(1 + place // 4, place % 4 in {0, 3}, 100 + place, 99, 110, clock, 40.0 if clock else None)
        for place in range(count)
    ]
    return blocks_chart("b", "Blocks", made)


def test_blocks_stand_in_the_order_run_with_their_letters_and_pairs() -> None:
    root = drawn(blocks())
    assert "Order run: ABBAABBA." in "".join(root.itertext())
    letters = [text.text for text in root.iter("text") if text.get("class") == "label tiny"]
    assert letters[:8] == list("ABBAABBA")
    assert [text.text for text in root.iter("text") if str(text.text).startswith("pair ")] == ["pair 1", "pair 2"]


def test_clocks_and_temperatures_are_drawn_where_they_were_recorded() -> None:
    assert "clock, MHz" not in blocks()
    assert blocks(clock=1980.0).count('class="telemetry dot"') == 16
    assert len(blocks(80)) > len(blocks(60)) - 60 * 40  # no letters beyond 60 blocks
    assert 'class="label tiny"' not in blocks(80)


def spark(interval: tuple[float, float] | None = (-3.0, 3.0)) -> str:
    return sparkline("s1", -1.64, interval, (-0.5, 0.5), "%")


def test_an_interval_beyond_the_sparkline_ends_in_arrows() -> None:
    assert spark().count("<polygon") == 2
    assert spark((-1.7, -1.5)).count("<polygon") == 0
    assert "no interval" in spark(None)
    beyond = sparkline("s2", 5.0, (4.0, 6.0), (-0.5, 0.5), "%")
    assert (beyond.count("<polygon"), beyond.count("<circle")) == (1, 0)


def test_what_proves_nothing_is_drawn_hollow_and_says_so() -> None:
    unjudged = sparkline("s3", -1.64, (-1.7, -1.5), (-0.5, 0.5), "%", judged=False)
    assert unjudged.count('class="estimate beside') == 2
    assert "not judged" in unjudged
    assert "not judged" not in spark()
    points = [TrendPoint(f"2026-01-0{day}", -1.6, (-1.7, -1.5), None, judged=day != 2) for day in (1, 2, 3)]
    drawn = trend_chart("t", "effect", points, unit="%", margin=(-0.5, 0.5))
    assert (drawn.count("<circle"), drawn.count('class="estimate beside"')) == (3, 1)


def test_a_margin_without_an_upper_end_is_a_band_to_the_edge() -> None:
    one_sided = sparkline("s4", 0.1, (-0.2, 0.4), (-1.0, None), "pp")
    assert "Margin -1 pp." in one_sided
    assert "Margin ±0.5 %." in spark()


def test_the_same_numbers_give_the_same_bytes() -> None:
    assert (forest(), pairs(), distribution(), blocks(), spark()) == (
        forest(),
        pairs(),
        distribution(),
        blocks(),
        spark(),
    )
