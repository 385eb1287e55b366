"""Where a page could be: edges in several channels and at several thresholds, and quadrilaterals from them.

Closed outlines are simplified to four sides; where clutter touches or hides an outline, areas of light and dark and
straight lines give further candidates. Which of them is a page is decided in `quadrilateral`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.tools.plane import Points, angle_deg, area_of, direction, intersection, offsets_from

Rgb = NDArray[np.uint8]

MIN_CORNER_DEG, MAX_CORNER_DEG = 35.0, 145.0
"""A page seen at an angle at which text can still be read."""
MIN_AREA = 0.02
"""Smallest part of the frame that a quadrilateral may cover."""
SUPPORT_CLOSED, SUPPORT_LINES = 0.6, 0.85
"""Part of each side along which an edge must run: for closed outlines, and for sides put together from lines."""

_MAX_OUTLINE = 10
"""Corners of an outline that may still be a page with some corners cut, rounded or hidden."""
_MAX_LINES, _MAX_SEGMENTS = 12, 200
_AREA_LEVELS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.88, 0.95)
_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Edges:
    """What outlines are taken from, how far each pixel is from an edge, the gradient, and straight pieces.

    All are ``[h, w]`` but the pieces, which are ``[N, 4]``: x1, y1, x2, y2.
    """

    masks: tuple[NDArray[np.uint8], ...]
    distance: NDArray[np.float32]
    gradient: tuple[NDArray[np.float32], NDArray[np.float32]]
    segments: Points | None

    def support(self, quad: Points, reach_px: float) -> Points:
        """For each side, the part of it along which an edge of its direction runs within `reach_px`; ``[4]``.

        What lies outside the frame is left out; a side with less than half of its length inside has no support.
        """
        height, width = self.distance.shape
        found = np.zeros(4)
        for i, (start, end) in enumerate(zip(quad, np.roll(quad, -1, axis=0), strict=True)):
            along = np.linspace(0.02, 0.98, _SAMPLES)[:, None]
            points = np.rint(start + along * (end - start)).astype(int)
            x, y = points.T
            inside = (x >= 1) & (y >= 1) & (x < width - 1) & (y < height - 1)
            if inside.sum() < _SAMPLES / 2:
                continue
            x, y = x[inside], y[inside]
            side = (end - start) / max(float(np.linalg.norm(end - start)), 1e-6)
            across = np.abs(self.gradient[0][y, x] * -side[1] + self.gradient[1][y, x] * side[0])
            strength = np.hypot(self.gradient[0][y, x], self.gradient[1][y, x])
            found[i] = np.mean((self.distance[y, x] <= reach_px) & (across >= 0.8 * strength))
        return found


def edge_maps(rgb: Rgb) -> Iterator[Edges]:
    """Edges of lightness, colour and saturation, from strict to lax thresholds."""
    import cv2

    lab = cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB)
    channels = [lab[:, :, 0], lab[:, :, 1], lab[:, :, 2]]
    for index, channel in enumerate(channels):
        smooth = cv2.GaussianBlur(cv2.medianBlur(channel, 5), (0, 0), 1.2)
        otsu, _ = cv2.threshold(smooth, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
        dx = cv2.GaussianBlur(cv2.Sobel(smooth, cv2.CV_32F, 1, 0), (0, 0), 1.5)
        dy = cv2.GaussianBlur(cv2.Sobel(smooth, cv2.CV_32F, 0, 1), (0, 0), 1.5)
        levels = (max(otsu, 60.5), 60.0, 24.0) if index == 0 else (40.0, 18.0)
        for high in levels:
            canny = cv2.Canny(smooth, high / 2, high, L2gradient=True)
            binary = cv2.morphologyEx(canny, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
            distance = cv2.distanceTransform(255 - canny, cv2.DIST_L2, 3)
            last = high == levels[-1]  # areas and straight lines do not depend on the threshold: once per channel
            masks = (binary, *(_areas(smooth) if last else ()))
            yield Edges(masks, distance, (dx, dy), _straight(smooth) if last else None)


def _areas(channel: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Light against dark areas at several levels, cleared of thin lines, for pages whose outline clutter touches."""
    import cv2

    kernel = np.ones((9, 9), np.uint8)
    for level in np.unique(np.quantile(channel, _AREA_LEVELS).astype(int)):
        light = (channel > level).astype(np.uint8)
        for mask in (light, 1 - light):
            yield cv2.morphologyEx(cv2.morphologyEx(mask, cv2.MORPH_CLOSE, kernel[:5, :5]), cv2.MORPH_OPEN, kernel)


def _straight(channel: NDArray[np.uint8]) -> Points | None:
    import cv2

    found = cv2.createLineSegmentDetector().detect(channel)[0]
    if found is None:
        return None
    segments = found.reshape(-1, 4).astype(np.float64)
    long = np.hypot(segments[:, 2] - segments[:, 0], segments[:, 3] - segments[:, 1]) >= 0.06 * min(channel.shape)
    return segments[long] if long.any() else None


def candidates(edges: Edges) -> Iterator[tuple[Points, float]]:
    """Quadrilaterals with the support that each must have."""
    import cv2

    height, width = edges.distance.shape
    least = MIN_AREA * height * width
    contours = [contour for mask in edges.masks for contour in _outlines(mask)]
    for contour in contours:
        hull = cv2.convexHull(contour)
        if len(contour) < 4 or cv2.contourArea(hull) < least:
            continue
        length = cv2.arcLength(hull, True)
        for tolerance in (0.01, 0.03):
            outline = cv2.approxPolyDP(hull, tolerance * length, True)[:, 0].astype(np.float64)
            quad = _to_four_sides(outline) if len(outline) <= _MAX_OUTLINE else None
            if quad is not None:
                yield quad, SUPPORT_CLOSED
    if edges.segments is not None:
        for quad in _from_lines(edges.segments, edges.distance.shape):
            yield quad, SUPPORT_LINES


def _outlines(mask: NDArray[np.uint8]) -> Sequence[NDArray[np.int32]]:
    import cv2

    contours: Sequence[NDArray[np.int32]] = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]
    return contours


def _to_four_sides(outline: Points) -> Points | None:
    """Remove sides of a convex polygon, prolonging their neighbours, until four are left; smallest added area first.

    A corner that is rounded, torn off or cut by the frame is thereby restored.
    """
    while len(outline) > 4:
        best: tuple[float, int, Points] | None = None
        for i in range(len(outline)):
            before, start, end, after = (outline[(i + k) % len(outline)] for k in (-1, 0, 1, 2))
            corner = intersection(before, start, after, end)
            if corner is None or np.dot(corner - start, start - before) < 0 or np.dot(corner - end, end - after) < 0:
                continue
            added = area_of(np.array([start, corner, end]))
            if best is None or added < best[0]:
                best = added, i, corner
        if best is None:
            return None
        _, i, corner = best
        outline = outline.copy()
        outline[i] = corner
        outline = np.delete(outline, (i + 1) % len(outline), axis=0)
    return outline if len(outline) == 4 else None


def _from_lines(segments: Points, shape: tuple[int, ...]) -> Iterator[Points]:
    """Quadrilaterals between two pairs of the longest straight lines, one of which may be a side of the frame.

    Args:
        segments: ``[N, 4]`` x1, y1, x2, y2.
        shape: Height and width of the frame.
    """
    right, bottom = shape[1] - 1.0, shape[0] - 1.0
    frame = [[0, 0, right, 0], [right, 0, right, bottom], [0, bottom, right, bottom], [0, 0, 0, bottom]]
    merged = _merged(segments)
    lines = np.array([*merged, *frame])
    on_frame = np.arange(len(lines)) >= len(merged)
    steps = lines[:, 2:] - lines[:, :2]
    steps /= np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-9)
    angles = np.degrees(np.arccos(np.clip(np.abs(steps @ steps.T), 0, 1)))
    first, second = np.triu_indices(len(lines), 1)
    facing = (angles[first, second] <= 90 - MIN_CORNER_DEG) & ~(on_frame[first] & on_frame[second])
    pairs = np.stack([first[facing], second[facing]], axis=1)
    one, other = np.triu_indices(len(pairs), 1)
    sides = np.concatenate([pairs[one], pairs[other]], axis=1)  # [Q, 4]: a, b facing each other, c, d across them
    a, b, c, d = sides.T
    crossing = np.minimum.reduce([angles[a, c], angles[a, d], angles[b, c], angles[b, d]]) >= MIN_CORNER_DEG
    sides = sides[crossing & (on_frame[sides].sum(axis=1) <= 1)]
    a, b, c, d = sides.T
    homogeneous = np.cross(
        np.column_stack([lines[:, :2], np.ones(len(lines))]), np.column_stack([lines[:, 2:], np.ones(len(lines))])
    )
    meets = np.stack([np.cross(homogeneous[p], homogeneous[q]) for p, q in ((a, c), (c, b), (b, d), (d, a))], axis=1)
    quads = meets[..., :2] / meets[..., 2:]  # [Q, 4, 2]; sides that cross at 35 degrees or more do meet
    x, y = quads[..., 0], quads[..., 1]
    areas = 0.5 * np.abs((x * np.roll(y, -1, axis=1) - y * np.roll(x, -1, axis=1)).sum(axis=1))
    yield from quads[np.argsort(-areas, kind="stable")]


def _merged(segments: Points) -> list[Points]:
    """The longest straight lines, pieces of one line put together."""
    order = np.argsort(-np.hypot(segments[:, 2] - segments[:, 0], segments[:, 3] - segments[:, 1]), kind="stable")
    lines: list[Points] = []
    for segment in segments[order[:_MAX_SEGMENTS]]:
        for i, line in enumerate(lines):
            ends = segment.reshape(2, 2)
            if angle_deg(line, segment) < 3 and np.abs(offsets_from(ends, line)).max() < 3:
                points = np.vstack([line.reshape(2, 2), ends])
                along = points @ direction(line)
                lines[i] = np.concatenate([points[along.argmin()], points[along.argmax()]])
                break
        else:
            lines.append(segment)
    lines.sort(key=lambda line: -float(np.hypot(*(line[2:] - line[:2]))))
    return lines[:_MAX_LINES]
