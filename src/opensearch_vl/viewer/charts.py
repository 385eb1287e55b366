"""Line charts for training curves and bar charts for histograms, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from opensearch_vl.viewer.html import esc

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 24, 34
_COLOURS = ("var(--accent)", "var(--good)", "var(--thought)", "var(--bad)", "var(--wait)")
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4")
MAX_POINTS = 1_000
"""Longer series are thinned to every n-th point."""


def line_chart(title: str, x_label: str, x: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """A chart with one line per series; values that are not finite leave a gap.

    Raises:
        ValueError: If a series is not as long as `x`.
    """
    for name, values in series.items():
        if len(values) != len(x):
            raise ValueError(f"Series {name!r} has {len(values)} values for {len(x)} points.")
    finite = [value for values in series.values() for value in values if math.isfinite(value)]
    if not x or not finite:
        return f'<p class="soft">{esc(title)}: nothing measured.</p>'
    across, up = _Scale(min(x), max(x), _LEFT, WIDTH - _RIGHT), _Scale(min(finite), max(finite), HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="{esc(title)}">'
    ]
    for tick in up.ticks():
        place = up(tick)
        parts.append(f'<path d="M{_LEFT} {place:.1f}H{WIDTH - _RIGHT}" stroke="var(--line)"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{tick:.4g}</text>')
    for tick in across.ticks():
        parts.append(f'<text x="{across(tick):.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{tick:.4g}</text>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{esc(x_label)}</text>')
    for n, (name, values) in enumerate(series.items()):
        colour, dash = _COLOURS[n % len(_COLOURS)], _DASHES[n // len(_COLOURS) % len(_DASHES)]
        path = _path([(across(a), up(b) if math.isfinite(b) else math.nan) for a, b in zip(x, values, strict=True)])
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"/>')
        parts.append(f'<text x="{_LEFT + 130 * n}" y="14" style="fill:{colour}">{esc(name)}</text>')
    return "".join([*parts, f"</svg><figcaption>{esc(title)}</figcaption></figure>"])


MOST_BARS = 14
"""What comes after is added up under one last bar."""
_ROW_PX, _LABEL_PX, _BARS_PX = 18, 170, 250


def bar_chart(title: str, counts: Mapping[str, int]) -> str:
    """A histogram: one horizontal bar per value, in the order given; the total stands in the caption."""
    total = sum(counts.values())
    if not total:
        return f'<p class="soft">{esc(title)}: nothing counted.</p>'
    rows = list(counts.items())
    if len(rows) > MOST_BARS:
        rest = rows[MOST_BARS - 1 :]
        rows = [*rows[: MOST_BARS - 1], (f"{len(rest)} others", sum(count for _, count in rest))]
    most, height = max(count for _, count in rows), _ROW_PX * len(rows)
    width = _LABEL_PX + _BARS_PX + 60
    parts = [
        f'<figure class="bars"><svg viewBox="0 0 {width} {height}" width="{width}" style="max-width:100%;height:auto" '
        f'role="img" aria-label="{esc(title)}">'
    ]
    for n, (name, count) in enumerate(rows):
        middle, long = n * _ROW_PX + 9, count / most * _BARS_PX
        shown = name or "(none)"
        shown = shown if len(shown) <= 26 else f"{shown[:25]}…"
        parts.append(f'<text x="{_LABEL_PX - 6}" y="{middle + 4}" text-anchor="end">{esc(shown)}</text>')
        parts.append(f'<rect x="{_LABEL_PX}" y="{middle - 6}" width="{long:.1f}" height="12" fill="var(--accent)"/>')
        parts.append(f'<text x="{_LABEL_PX + long + 5:.1f}" y="{middle + 4}">{count:,} ({count / total:.0%})</text>')
    return "".join([*parts, f"</svg><figcaption>{esc(title)}: {total:,} in all</figcaption></figure>"])


class _Scale:
    """Linear map of values onto pixels."""

    def __init__(self, low: float, high: float, start_px: float, end_px: float) -> None:
        flat = high - low <= 1e-9 * max(abs(low), abs(high))
        pad = max(0.5, 0.05 * abs(high)) if flat else 0.0
        self.low, self.high = low - pad, high + pad
        self.start_px, self.end_px = start_px, end_px

    def __call__(self, value: float) -> float:
        return self.start_px + (value - self.low) / (self.high - self.low) * (self.end_px - self.start_px)

    def ticks(self) -> list[float]:
        """Three to six round values within the range."""
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        first = math.ceil(self.low / step)
        return [round(n * step, 12) for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _path(points: Sequence[tuple[float, float]]) -> str:
    thinned = points[:: max(1, len(points) // MAX_POINTS)]
    commands = []
    pen = "M"
    for across, up in thinned:
        if math.isnan(up):
            pen = "M"
            continue
        commands.append(f"{pen}{across:.1f} {up:.1f}")
        pen = "L"
    return "".join(commands)
