"""Draw a comparison as SVG: two horizontal bars per scenario on a logarithmic axis.

Bars start at 1× (equal to the reference): to the right ours is better, to the left it is worse, and
equal lengths mean equal factors. The colours work on white and on dark backgrounds, so the
background is transparent. The drawing depends only on its arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2
from xml.sax.saxutils import escape

BARS_WIDTH = 550
LABEL_WIDTH_MIN = 250
LETTER_WIDTH = 7.0  # wider than the average letter of the font below
LABEL_GAP = 14
MARGIN = 16
VALUE_WIDTH = 60  # room for the figure after the longest bar
HEAD_HEIGHT = 78
ROW_HEIGHT = 40
BAR_HEIGHT = 13
FOOT_HEIGHT = 34
EXPONENT_MIN = -1.0  # the axis shows at least 0.5× to 4×
EXPONENT_MAX = 2.0

STYLE = """
  text { font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif;
         font-size: 13px; fill: #6e7781; }
  .title { font-size: 16px; font-weight: 600; }
  .value { font-size: 12px; font-variant-numeric: tabular-nums; }
  .grid { stroke: #8c959f; stroke-opacity: 0.35; stroke-width: 1; }
  .even { stroke: #8c959f; stroke-width: 2; }
  .double { stroke: #8c959f; stroke-width: 1.5; stroke-dasharray: 5 4; }
  .cpu { fill: #2f81f7; }
  .rate { fill: #2da44e; }
  .loss { fill: #e5534b; }
  @media (prefers-color-scheme: dark) { text { fill: #b1bac4; } }
"""


@dataclass(frozen=True, slots=True)
class ChartRow:
    """One scenario; a factor that was not measured is None and gets no bar."""

    label: str
    cpu_advantage: float | None
    rate_ratio: float | None


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps factors to horizontal positions, starting where the labels end."""

    left: int
    low: float
    high: float

    @property
    def width(self) -> int:
        return self.left + BARS_WIDTH + VALUE_WIDTH

    def x(self, factor: float) -> float:
        share = (log2(factor) - self.low) / (self.high - self.low)
        return self.left + share * BARS_WIDTH

    def ticks(self) -> list[float]:
        return [2.0**power for power in range(ceil(self.low), floor(self.high) + 1)]


def render(title: str, rows: Sequence[ChartRow]) -> str:
    """Return a complete SVG document."""
    axis = _axis(rows)
    height = HEAD_HEIGHT + ROW_HEIGHT * len(rows) + FOOT_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{axis.width}" height="{height}" '
        f'viewBox="0 0 {axis.width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{MARGIN}" y="26">{escape(title)}</text>',
        *_legend(),
        *_grid(axis, height),
    ]
    for number, row in enumerate(rows):
        parts += _row(axis, row, HEAD_HEIGHT + ROW_HEIGHT * number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axis(rows: Sequence[ChartRow]) -> Axis:
    factors = [factor for row in rows for factor in (row.cpu_advantage, row.rate_ratio) if factor]
    exponents = [log2(factor) for factor in factors]
    longest = max((len(row.label) for row in rows), default=0)
    left = max(LABEL_WIDTH_MIN, ceil(longest * LETTER_WIDTH) + LABEL_GAP + MARGIN)
    return Axis(left, min([EXPONENT_MIN, *exponents]), max([EXPONENT_MAX, *exponents]))


def _legend() -> list[str]:
    entries = (
        ("cpu", "CPU advantage (reference ÷ ours)", MARGIN),
        ("rate", "rate (ours ÷ reference)", 270),
        ("loss", "reference is better", 450),
    )
    parts = []
    for kind, text, x in entries:
        parts.append(f'<rect class="{kind}" x="{x}" y="41" width="12" height="12" rx="2"/>')
        parts.append(f'<text x="{x + 18}" y="52">{escape(text)}</text>')
    return parts


def _grid(axis: Axis, height: int) -> list[str]:
    top, bottom = HEAD_HEIGHT - 8, height - FOOT_HEIGHT
    kinds = {1.0: "even", 2.0: "double"}
    parts = []
    for tick in axis.ticks():
        x = axis.x(tick)
        kind = kinds.get(tick, "grid")
        parts.append(f'<line class="{kind}" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{_factor(tick)}</text>'
        )
    return parts


def _row(axis: Axis, row: ChartRow, top: int) -> list[str]:
    right, middle = axis.left - LABEL_GAP, top + BAR_HEIGHT + 5
    parts = [f'<text x="{right}" y="{middle}" text-anchor="end">{escape(row.label)}</text>']
    parts += _bar(axis, "cpu", row.cpu_advantage, top)
    parts += _bar(axis, "rate", row.rate_ratio, top + BAR_HEIGHT + 2)
    return parts


def _bar(axis: Axis, kind: str, factor: float | None, top: int) -> list[str]:
    if not factor:
        return []
    left, right = sorted((axis.x(1.0), axis.x(factor)))
    kind = kind if factor >= 1 else f"{kind} loss"
    return [
        f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{max(1.0, right - left):.1f}" '
        f'height="{BAR_HEIGHT}" rx="2"/>',
        f'<text class="value" x="{right + 5:.1f}" y="{top + BAR_HEIGHT - 2}">'
        f"{_factor(factor)}</text>",
    ]


def _factor(value: float) -> str:
    return f"{value:.0f}×" if value >= 10 or value in (1, 2, 4, 8) else f"{value:.2g}×"
