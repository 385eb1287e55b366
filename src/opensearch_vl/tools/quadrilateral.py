"""Perspective correction: Canny edges → the largest convex quadrilateral → four-point warp (paper, section 2).

Edges are looked for in several channels and at several thresholds on a reduced copy, closed outlines are simplified to
four sides, and where no outline is closed the sides are put together from straight lines. A candidate counts only if
edges of the right direction run along each of its sides. The corners of the winner are then refined on the full-size
picture by fitting a line to each side. The result is never mirrored and never turned by more than 45 degrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rgb = NDArray[np.uint8]
Points = NDArray[np.float64]

_WORK_SIDE_PX = 800
"""Longest side of the copy that candidates are looked for in."""
_MIN_AREA = 0.02
_MAX_AREA = 0.98
"""Smallest and largest part of the frame that a quadrilateral may cover; above, there is nothing to correct."""
_MIN_CORNER_DEG, _MAX_CORNER_DEG = 35.0, 145.0
"""A page seen at an angle at which text can still be read."""
_OUTSIDE = 0.25
"""How far a corner may lie outside the frame, in parts of its size (a page that is cut off by the frame)."""
_SUPPORT_CLOSED, _SUPPORT_LINES = 0.6, 0.85
"""Part of each side along which an edge must run: for closed outlines, and for sides put together from lines."""
_CUT_OFF_VALUE, _MIN_AREA_CUT_OFF = 0.5, 0.15
"""A page cut off by the frame, one side of which is the frame itself: it counts as half as large as a whole one, and
must be large, or any three lines at the frame would do."""
_MAX_OUTLINE = 10
"""Corners of an outline that may still be a page with some corners cut, rounded or hidden."""
_MAX_LINES, _MAX_SEGMENTS = 12, 200
_AREA_LEVELS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.88, 0.95)
_NEAR_PX = 8.0
"""How far the sides of a candidate may lie from edges before they are moved onto them, on the reduced copy."""
_SAMPLES = 64


def correct_perspective(rgb: Rgb) -> tuple[Rgb, bool]:
    """Warp the largest quadrilateral of a picture to a rectangle.

    Args:
        rgb: ``[H, W, 3]`` uint8.

    Returns:
        The rectified content and True, or `rgb` itself and False when no quadrilateral was found.
    """
    corners = find_quadrilateral(rgb)
    if corners is None:
        return rgb, False
    return warp(rgb, corners), True


def warp(rgb: Rgb, corners: Points) -> Rgb:
    """Map a quadrilateral to an upright rectangle as wide and high as its longer opposite sides.

    Args:
        rgb: ``[H, W, 3]`` uint8.
        corners: ``[4, 2]`` x, y in pixels: top left, top right, bottom right, bottom left.
    """
    import cv2

    top, right, bottom, left = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
    limit = 2 * max(rgb.shape[:2])
    width = int(np.clip(round(max(top, bottom)), 8, limit))
    height = int(np.clip(round(max(left, right)), 8, limit))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32) - np.float32(0.5)
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), target)
    warped = cv2.warpPerspective(
        rgb, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_CONSTANT, borderValue=(255,) * 3
    )
    return np.asarray(warped, dtype=np.uint8)


def find_quadrilateral(rgb: Rgb) -> Points | None:
    """Corners of the largest convex quadrilateral whose sides are edges of the picture.

    Args:
        rgb: ``[H, W, 3]`` uint8.

    Returns:
        ``[4, 2]`` x, y in pixels (pixel centres at whole numbers): top left, top right, bottom right, bottom left;
        None if there is none.
    """
    import cv2

    height, width = rgb.shape[:2]
    if min(height, width) < 32:
        return None
    scale = min(1.0, _WORK_SIDE_PX / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA) if scale < 1 else rgb
    best: Points | None = None
    best_value = 0.0
    for edges in _edge_maps(small):
        for quad, needed in _candidates(edges):
            if _area(quad) <= best_value or _value(quad, edges, 0.5 * needed, size, _NEAR_PX) == 0.0:
                continue
            snapped = _refine(small, quad, _NEAR_PX)
            value = _value(snapped, edges, needed, size, 2.0)
            if value > best_value:
                best, best_value = snapped, value
    if best is None:
        return None
    factor = np.array([width / size[0], height / size[1]])
    full = (best + 0.5) * factor - 0.5
    return _ordered(_refine(rgb, full, reach_px=2.0 + 3.0 / scale))


def _value(quad: Points, edges: _Edges, needed: float, size: tuple[int, int], reach_px: float) -> float:
    """Area weighted by how well edges within `reach_px` support the sides; 0 for what is no page."""
    on_frame = _on_frame(quad, size)
    if on_frame.sum() > 1 or not _plausible(quad, size, _MIN_AREA_CUT_OFF if on_frame.any() else _MIN_AREA):
        return 0.0
    support = edges.support(quad, reach_px)[~on_frame]
    if support.min() < needed:
        return 0.0
    return _area(quad) * float(support.mean()) * (_CUT_OFF_VALUE if on_frame.any() else 1.0)


# ------------------------------------------------------------------------------------------------ edges


@dataclass(frozen=True, slots=True)
class _Edges:
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


def _edge_maps(rgb: Rgb) -> Iterator[_Edges]:
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
            yield _Edges(masks, distance, (dx, dy), _straight(smooth) if last else None)


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


def _candidates(edges: _Edges) -> Iterator[tuple[Points, float]]:
    """Quadrilaterals with the support that each must have."""
    import cv2

    height, width = edges.distance.shape
    least = _MIN_AREA * height * width
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
                yield quad, _SUPPORT_CLOSED
    if edges.segments is not None:
        for quad in _from_lines(edges.segments, edges.distance.shape):
            yield quad, _SUPPORT_LINES


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
            corner = _intersection(before, start, after, end)
            if corner is None or np.dot(corner - start, start - before) < 0 or np.dot(corner - end, end - after) < 0:
                continue
            added = _area(np.array([start, corner, end]))
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
    facing = (angles[first, second] <= 90 - _MIN_CORNER_DEG) & ~(on_frame[first] & on_frame[second])
    pairs = np.stack([first[facing], second[facing]], axis=1)
    one, other = np.triu_indices(len(pairs), 1)
    sides = np.concatenate([pairs[one], pairs[other]], axis=1)  # [Q, 4]: a, b facing each other, c, d across them
    a, b, c, d = sides.T
    crossing = np.minimum.reduce([angles[a, c], angles[a, d], angles[b, c], angles[b, d]]) >= _MIN_CORNER_DEG
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
            if _angle_deg(line, segment) < 3 and np.abs(_offsets(ends, line)).max() < 3:
                points = np.vstack([line.reshape(2, 2), ends])
                along = points @ _direction(line)
                lines[i] = np.concatenate([points[along.argmin()], points[along.argmax()]])
                break
        else:
            lines.append(segment)
    lines.sort(key=lambda line: -float(np.hypot(*(line[2:] - line[:2]))))
    return lines[:_MAX_LINES]


# --------------------------------------------------------------------------------------------- geometry


def _area(polygon: Points) -> float:
    points: list[list[float]] = polygon.tolist()  # a handful of points: plain numbers are faster than arrays
    return 0.5 * abs(sum(x * v - u * y for (x, y), (u, v) in zip(points, points[1:] + points[:1], strict=True)))


def _direction(line: Points) -> Points:
    step = line[2:] - line[:2]
    return np.asarray(step / max(float(np.hypot(*step)), 1e-9))


def _offsets(points: Points, line: Points) -> Points:
    """Signed distances of points ``[N, 2]`` from a line."""
    dx, dy = _direction(line)
    relative = points - line[:2]
    return np.asarray(relative[:, 1] * dx - relative[:, 0] * dy)


def _angle_deg(a: Points, b: Points) -> float:
    """Angle between two lines, 0 to 90 degrees."""
    return float(np.degrees(np.arccos(min(1.0, abs(float(_direction(a) @ _direction(b)))))))


def _intersection(p: Points, q: Points, r: Points, s: Points) -> Points | None:
    """Where the line through `p` and `q` meets the line through `r` and `s`; None if they are parallel."""
    a, b = q - p, s - r
    cross = float(a[0] * b[1] - a[1] * b[0])
    if abs(cross) < 1e-9 * max(1.0, float(np.hypot(*a) * np.hypot(*b))):
        return None
    t = float((r - p)[0] * b[1] - (r - p)[1] * b[0]) / cross
    return np.asarray(p + t * a)


def _plausible(quad: Points, size: tuple[int, int], min_area: float) -> bool:
    """Whether a quadrilateral is convex, large enough, inside the frame, and could be a page seen at an angle."""
    frame = np.array(size, np.float64)
    if not min_area <= _area(quad) / (size[0] * size[1]) <= _MAX_AREA:
        return False
    if (quad < -_OUTSIDE * frame).any() or (quad > (1 + _OUTSIDE) * frame).any():
        return False
    sides = np.roll(quad, -1, axis=0) - quad
    following = np.roll(sides, -1, axis=0)
    turns = sides[:, 0] * following[:, 1] - sides[:, 1] * following[:, 0]
    if not ((turns > 0).all() or (turns < 0).all()):
        return False
    lengths = np.linalg.norm(sides, axis=1)
    cosines = -(sides * following).sum(axis=1) / (lengths * np.roll(lengths, -1) + 1e-9)
    corners = np.degrees(np.arccos(np.clip(cosines, -1, 1)))
    return bool(corners.min() >= _MIN_CORNER_DEG and corners.max() <= _MAX_CORNER_DEG and lengths.min() >= 8)


def _on_frame(quad: Points, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Which sides run along the frame; ``[4]``."""
    ends = np.stack([quad, np.roll(quad, -1, axis=0)], axis=1)  # [side, end, xy]
    last = np.array(size) - 1.0
    near = np.concatenate([np.abs(ends) <= 3.0, np.abs(ends - last) <= 3.0], axis=2)  # [side, end, edge of the frame]
    return np.asarray(np.any(np.all(near, axis=1), axis=1), dtype=np.bool_)


def _ordered(quad: Points) -> Points:
    """Clockwise on the screen, from the corner that makes the top side point right: never mirrored or turned over."""
    x, y = quad.T
    if float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) < 0:
        quad = quad[::-1]
    turns = [np.roll(quad, -k, axis=0) for k in range(4)]
    return max(turns, key=lambda q: _towards_right(q[1] - q[0]) + _towards_right(q[2] - q[3]))


def _towards_right(side: Points) -> float:
    return float(side[0] / max(float(np.hypot(*side)), 1e-9))


def _refine(rgb: Rgb, quad: Points, reach_px: float) -> Points:
    """Fit a line to the strongest edge near each side at full size, and intersect the lines.

    A side whose edge cannot be followed keeps its first estimate; so does a corner that would move further than
    three times `reach_px`.
    """
    lines = [_fitted(rgb, start, end, reach_px) for start, end in zip(quad, np.roll(quad, -1, axis=0), strict=True)]
    refined = quad.copy()
    for i in range(4):
        before, after = lines[i - 1], lines[i]
        corner = _intersection(*before.reshape(2, 2), *after.reshape(2, 2))
        if corner is not None and np.hypot(*(corner - quad[i])) <= 3 * reach_px:
            refined[i] = corner
    return refined


def _fitted(rgb: Rgb, start: Points, end: Points, reach_px: float) -> Points:
    """A line (x1, y1, x2, y2) along the strongest edge within `reach_px` of the segment from `start` to `end`."""
    import cv2

    first = np.concatenate([start, end])
    direction = _direction(first)
    normal = np.array([-direction[1], direction[0]])
    count = int(np.clip(np.hypot(*(end - start)) / 2, 16, 400))
    along = np.linspace(0.06, 0.94, count)
    offsets = np.arange(-np.ceil(reach_px) - 2, np.ceil(reach_px) + 2.5, 0.5)
    grid = start + along[:, None, None] * (end - start) + offsets[None, :, None] * normal
    grid = grid.astype(np.float32)
    profile = cv2.remap(rgb, grid[..., 0], grid[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    smooth = cv2.GaussianBlur(profile.astype(np.float32), (9, 5), 0)  # across 2 pixels, along a few samples
    change = np.gradient(smooth, axis=1)
    slope = _along_the_common_change(change)
    slope[:, np.abs(offsets) > reach_px] = 0
    height, width = rgb.shape[:2]
    inside = ((grid >= 1) & (grid < np.array([width - 2, height - 2]))).all(axis=(1, 2))
    peak = slope.argmax(axis=1)
    rows = np.arange(count)
    left, mid, right = (slope[rows, np.clip(peak + k, 0, len(offsets) - 1)] for k in (-1, 0, 1))
    curve = left - 2 * mid + right
    shift = np.where(np.abs(curve) > 1e-6, 0.5 * (left - right) / np.where(curve == 0, 1, curve), 0)
    across = offsets[peak] + 0.5 * np.clip(shift, -1, 1)
    keep = inside & (mid > 0.25 * np.median(mid[inside]) if inside.any() else inside)
    if keep.sum() < 8:
        return first
    slant = np.zeros(2)
    for tolerance in (reach_px, 2.0, 1.0):  # trimmed least squares: what lies off the line leaves the fit
        if keep.sum() < 8:
            break
        slant = np.polyfit(along[keep], across[keep], 1)
        keep &= np.abs(across - np.polyval(slant, along)) <= tolerance
    ends = [start + np.polyval(slant, 0.0) * normal, end + np.polyval(slant, 1.0) * normal]
    return np.concatenate(ends)


def _along_the_common_change(change: Points) -> Points:
    """How much colour changes across the side, counted in the direction in which most of the side changes.

    Args:
        change: ``[sample, offset, channel]`` derivative of the colour across the side.

    Returns:
        ``[sample, offset]``, 0 or more; an edge of something beside the page, which differs otherwise, is small.
    """
    strongest = np.abs(change).sum(axis=2).argmax(axis=1)
    common = np.median(change[np.arange(len(change)), strongest], axis=0)
    norm = float(np.linalg.norm(common))
    if norm < 1.0:  # page and ground swap their brightness along the side
        return np.asarray(np.abs(change).sum(axis=2))
    return np.asarray(np.maximum(change @ (common / norm), 0))
