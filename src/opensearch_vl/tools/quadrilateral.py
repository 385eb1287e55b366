"""Perspective correction: Canny edges → the largest convex quadrilateral → four-point warp (paper, section 2).

Candidates come from `outlines`, on a reduced copy. One counts only if edges of the right direction run along each of
its sides, and the largest wins. Its corners are then refined on the full-size picture by fitting a line to each side.
The result is never mirrored and never turned by more than 45 degrees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.tools.outlines import (
    MAX_CORNER_DEG,
    MIN_AREA,
    MIN_CORNER_DEG,
    Edges,
    Rgb,
    candidates,
    edge_maps,
)
from opensearch_vl.tools.plane import Points, area_of, direction, intersection

_WORK_SIDE_PX = 800
"""Longest side of the copy that candidates are looked for in."""
_MAX_AREA = 0.98
"""Largest part of the frame that a quadrilateral may cover; above, there is nothing to correct."""
_OUTSIDE = 0.25
"""How far a corner may lie outside the frame, in parts of its size (a page that is cut off by the frame)."""
_CUT_OFF_VALUE, _MIN_AREA_CUT_OFF = 0.5, 0.15
"""A page cut off by the frame, one side of which is the frame itself: it counts as half as large as a whole one, and
must be large, or any three lines at the frame would do."""
_NEAR_PX = 8.0
"""How far the sides of a candidate may lie from edges before they are moved onto them, on the reduced copy."""


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
    for edges in edge_maps(small):
        for quad, needed in candidates(edges):
            if area_of(quad) <= best_value or _value(quad, edges, 0.5 * needed, size, _NEAR_PX) == 0.0:
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


def _value(quad: Points, edges: Edges, needed: float, size: tuple[int, int], reach_px: float) -> float:
    """Area weighted by how well edges within `reach_px` support the sides; 0 for what is no page."""
    on_frame = _on_frame(quad, size)
    if on_frame.sum() > 1 or not _plausible(quad, size, _MIN_AREA_CUT_OFF if on_frame.any() else MIN_AREA):
        return 0.0
    support = edges.support(quad, reach_px)[~on_frame]
    if support.min() < needed:
        return 0.0
    return area_of(quad) * float(support.mean()) * (_CUT_OFF_VALUE if on_frame.any() else 1.0)


def _plausible(quad: Points, size: tuple[int, int], min_area: float) -> bool:
    """Whether a quadrilateral is convex, large enough, inside the frame, and could be a page seen at an angle."""
    frame = np.array(size, np.float64)
    if not min_area <= area_of(quad) / (size[0] * size[1]) <= _MAX_AREA:
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
    return bool(corners.min() >= MIN_CORNER_DEG and corners.max() <= MAX_CORNER_DEG and lengths.min() >= 8)


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
        corner = intersection(*before.reshape(2, 2), *after.reshape(2, 2))
        if corner is not None and np.hypot(*(corner - quad[i])) <= 3 * reach_px:
            refined[i] = corner
    return refined


def _fitted(rgb: Rgb, start: Points, end: Points, reach_px: float) -> Points:
    """A line (x1, y1, x2, y2) along the strongest edge within `reach_px` of the segment from `start` to `end`."""
    import cv2

    first = np.concatenate([start, end])
    along_x, along_y = direction(first)
    normal = np.array([-along_y, along_x])
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
