"""Charts: numbers in, static SVG out. They know no store, no request and no verdict, and need no script.

Colours and fonts are classes of ``static/style.css``, so one stylesheet decides light, dark and print, and a content
security policy without inline styles shows them. The same numbers give the same bytes.
"""

from equipoise_service.charts.blocks import Block, blocks_chart
from equipoise_service.charts.distribution import Histogram, distribution_chart
from equipoise_service.charts.forest import ForestRow, forest_chart
from equipoise_service.charts.pairs import PairSeries, pairs_chart
from equipoise_service.charts.sparkline import sparkline
from equipoise_service.charts.trend import TrendPoint, trend_chart

__all__ = [
    "Block",
    "ForestRow",
    "Histogram",
    "PairSeries",
    "TrendPoint",
    "blocks_chart",
    "distribution_chart",
    "forest_chart",
    "pairs_chart",
    "sparkline",
    "trend_chart",
]
