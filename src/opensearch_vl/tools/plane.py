"""Plane geometry of lines and polygons, in pixels; a line is ``[4]`` x1, y1, x2, y2, a polygon ``[N, 2]`` x, y."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


def area_of(polygon: Points) -> float:
    """Area of a polygon, whichever way round its corners are given."""
    points: list[list[float]] = polygon.tolist()  # a handful of points: plain numbers are faster than arrays
    return 0.5 * abs(sum(x * v - u * y for (x, y), (u, v) in zip(points, points[1:] + points[:1], strict=True)))


def direction(line: Points) -> Points:
    """Unit vector along a line; ``[2]``."""
    step = line[2:] - line[:2]
    return np.asarray(step / max(float(np.hypot(*step)), 1e-9))


def offsets_from(points: Points, line: Points) -> Points:
    """Signed distances of points ``[N, 2]`` from a line."""
    dx, dy = direction(line)
    relative = points - line[:2]
    return np.asarray(relative[:, 1] * dx - relative[:, 0] * dy)


def angle_deg(a: Points, b: Points) -> float:
    """Angle between two lines, 0 to 90 degrees."""
    return float(np.degrees(np.arccos(min(1.0, abs(float(direction(a) @ direction(b)))))))


def intersection(p: Points, q: Points, r: Points, s: Points) -> Points | None:
    """Where the line through `p` and `q` meets the line through `r` and `s`; None if they are parallel."""
    a, b = q - p, s - r
    cross = float(a[0] * b[1] - a[1] * b[0])
    if abs(cross) < 1e-9 * max(1.0, float(np.hypot(*a) * np.hypot(*b))):
        return None
    t = float((r - p)[0] * b[1] - (r - p)[1] * b[0]) / cross
    return np.asarray(p + t * a)
