"""Charts as SVG, made on the server. Every bar has a title, so the numbers are text as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

WIDTH = 960
HEIGHT = 140
FLOOR = 120


@dataclass(frozen=True, slots=True)
class Series:
    """One part of every bar: its name, the class that colours it, and its values."""

    name: str
    tone: str
    values: Sequence[int]


def minutes(series: Sequence[Series], now: datetime, *, label: str) -> Markup:
    """Stacked bars, one per minute; the last one is the present minute."""
    count = len(series[0].values)
    totals = [sum(one.values[at] for one in series) for at in range(count)]
    top = _round_up(max(totals, default=0))
    step = WIDTH / count
    parts = [Markup('<line class="axis" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
        WIDTH, FLOOR + 0.5, FLOOR + 0.5
    )]  # fmt: skip
    for share in (0.5, 1.0):
        y = round(FLOOR - (FLOOR - 14) * share, 1)
        parts.append(
            Markup('<line class="grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, y, y)
        )
        value = top * share
        shown = f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
        # On a phone only the newer half is visible, so the number is there twice.
        for left, names in ((0, "tick"), (WIDTH // 2 + 4, "tick near")):
            parts.append(
                Markup('<text class="{}" x="{}" y="{}">{}</text>').format(names, left, y - 3, shown)
            )
    for at in range(count):
        parts.append(_bar(series, at, step, top, now - timedelta(minutes=count - 1 - at)))
    for ago in (45, 30, 15):
        x = round((count - ago) * step, 1)
        parts.append(
            Markup('<text class="tick" x="{}" y="{}">{} min</text>').format(x + 4, HEIGHT - 4, -ago)
        )
    parts.append(
        Markup('<text class="tick" text-anchor="end" x="{}" y="{}">now</text>').format(
            WIDTH, HEIGHT - 4
        )
    )
    says = ", ".join(f"{sum(one.values):,} {one.name}" for one in series)
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(WIDTH, HEIGHT, f"{label}: {says}", Markup("").join(parts))


def _bar(series: Sequence[Series], at: int, step: float, top: float, moment: datetime) -> Markup:
    says = moment.astimezone(UTC).strftime("%H:%M UTC")
    says += "".join(f", {one.values[at]:,} {one.name}" for one in series)
    x, y = round(at * step + 1, 1), float(FLOOR)
    drawn = []
    for one in series:
        height = (FLOOR - 14) * one.values[at] / top
        if height <= 0:
            continue
        height = max(1.5, height)
        y -= height
        drawn.append(
            Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                one.tone, x, round(y, 1), round(step - 2, 1), round(height, 1)
            )
        )
    hover = Markup('<rect class="hover" x="{}" y="0" width="{}" height="{}"/>').format(
        round(at * step, 1), round(step, 1), FLOOR
    )
    return Markup("<g><title>{}</title>{}{}</g>").format(says, hover, Markup("").join(drawn))


def share(part: float, whole: float, *, tone: str = "ink", label: str = "") -> Markup:
    """A horizontal bar that shows a part of a whole."""
    width = 0.0 if whole <= 0 else min(100.0, max(0.0, 100.0 * part / whole))
    if 0 < width < 1:
        width = 1.0
    says = label or f"{width:.0f} %"
    return Markup(
        '<svg class="share" viewBox="0 0 100 6" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><rect class="track" width="100" height="6"/>'
        '<rect class="{}" width="{}" height="6"/></svg>'
    ).format(says, tone, round(width, 1))


def _round_up(value: int) -> float:
    """The next round number, so that the axis has readable ticks."""
    if value <= 4:
        return 4.0
    size = 10 ** (len(str(value)) - 1)
    for factor in (1, 2, 3, 4, 5, 6, 8, 10):
        if value <= factor * size:
            return float(factor * size)
    return float(10 * size)
