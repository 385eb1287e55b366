"""Line charts as inline SVG, for training curves in reports."""

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
