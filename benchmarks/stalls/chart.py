"""Draws the worst round trips as an SVG: two bars per operation on a logarithmic axis."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from penstock.bench.chart import STYLE

if TYPE_CHECKING:
    from collections.abc import Sequence

LABEL_WIDTH = 430
BARS_WIDTH = 430
VALUE_WIDTH = 80
HEAD_HEIGHT = 70
ROW_HEIGHT = 30
BAR_HEIGHT = 10
LOW_MS, HIGH_MS = 0.1, 100_000.0


def render(rows: Sequence[tuple[str, float, float]], bar_ms: float) -> str:
    """Return a complete SVG document of (operation, ours, reference) in milliseconds."""
    height = HEAD_HEIGHT + ROW_HEIGHT * len(rows) + 30
    width = LABEL_WIDTH + BARS_WIDTH + VALUE_WIDTH
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<style>{STYLE}</style>",
        '<text class="title" x="16" y="26">Worst PING of an uninvolved client, milliseconds</text>',
        '<text class="value" x="16" y="48">blue: penstock, green: nats-server; dashed: '
        f"{bar_ms:.0f} ms</text>",
    ]
    parts += _grid(height, bar_ms)
    for i, (name, ours, reference) in enumerate(rows):
        top = HEAD_HEIGHT + i * ROW_HEIGHT
        parts.append(
            f'<text class="value" x="{LABEL_WIDTH - 10}" y="{top + 14}" text-anchor="end">'
            f"{escape(name)}</text>"
        )
        parts += _bar(top, "cpu", ours) + _bar(top + BAR_HEIGHT + 1, "rate", reference)
    return "\n".join([*parts, "</svg>", ""])


def _x(value_ms: float) -> float:
    share = (log10(min(max(value_ms, LOW_MS), HIGH_MS)) - log10(LOW_MS)) / log10(HIGH_MS / LOW_MS)
    return LABEL_WIDTH + share * BARS_WIDTH


def _grid(height: int, bar_ms: float) -> list[str]:
    bottom = height - 24
    parts = [
        f'<line class="double" x1="{_x(bar_ms):.1f}" x2="{_x(bar_ms):.1f}" '
        f'y1="{HEAD_HEIGHT - 8}" y2="{bottom}"/>'
    ]
    value = LOW_MS
    while value <= HIGH_MS:
        x = _x(value)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD_HEIGHT - 8}" y2="{bottom}"/>'
            f'<text class="value" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}'
            "</text>"
        )
        value *= 10
    return parts


def _bar(top: int, kind: str, value_ms: float) -> list[str]:
    width = max(1.0, _x(value_ms) - LABEL_WIDTH)
    return [
        f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top + 4}" width="{width:.1f}" '
        f'height="{BAR_HEIGHT}"/>',
        f'<text class="value" x="{LABEL_WIDTH + width + 5:.1f}" y="{top + 13}">{value_ms:.1f}'
        "</text>",
    ]
