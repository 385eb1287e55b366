"""Does one plane map carry the features of a query onto those of a stored picture? The check behind "exact".

Every tentative match knows position, scale and angle on both sides and so proposes a similarity map by itself; the map
that most matches agree with wins (as in Philbin et al., 2007, section 4), is loosened to an affine map, then to a
homography by RANSAC, and must be a map that a camera could make: no mirror, no fold, no collapse. Deterministic, and
works when nine of ten tentative matches are wrong, which repeated windows and letters make common.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.backends.features import Features

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]

MIN_INLIERS = 8
_MIN_SIMILARITY = 0.80  # cosine of RootSIFT vectors; below it matches are mostly wrong
_NEIGHBOURS = 2
_MAX_PAIRS = 6_000  # similar pairs looked at; only pictures of one texture have more
_MAX_PROPOSALS = 100
_LOOSE = 0.06  # of the longest side: drift of a similarity map under ±20° of perspective
_MEDIUM = 0.03
_TIGHT_PX = 5.0
_MAX_LOG_SCALE = 0.6  # disagreement of a match's own scale with the map, as a natural logarithm
_MAX_ANGLE_RAD = 0.6
_MAX_ZOOM = 8.0


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a map explains the matches.

    Attributes:
        inliers: One-to-one matches that the map explains within 5 working pixels.
        expected: Features of the query that lie where the stored picture is visible.
        coverage: Area of the convex hull of the inliers as a share of the query's area, in [0, 1].
        homography: ``[3, 3]`` from working pixels of the query to those of the stored picture.
    """

    inliers: int
    expected: int
    coverage: float
    homography: NDArray[np.float64]


def tentative(similarity: Floats) -> tuple[Ints, Ints]:
    """Matches worth trying: pairs that are among each other's two most similar, and similar at all.

    Args:
        similarity: ``[Q, S]`` cosines of the query's features with those of a stored picture.

    Returns:
        Row and column indices, ``[M]`` each, most similar first.
    """
    rows, columns = np.nonzero(similarity >= _MIN_SIMILARITY)
    values = similarity[rows, columns]
    if len(values) > _MAX_PAIRS:
        best = np.sort(np.argpartition(-values, _MAX_PAIRS)[:_MAX_PAIRS])
        rows, columns, values = rows[best], columns[best], values[best]
    kept = (_rank_within(rows, values) < _NEIGHBOURS) & (_rank_within(columns, values) < _NEIGHBOURS)
    rows, columns, values = rows[kept], columns[kept], values[kept]
    order = np.argsort(-values, kind="stable")
    return rows[order], columns[order]


def _rank_within(groups: Ints, values: Floats) -> Ints:
    """Place of each value among those of its group, the greatest first, ``[M]``."""
    order = np.argsort(2.0 * groups - values, kind="stable")  # similarities lie within [-1, 1]
    first = np.ones(len(order), np.bool_)
    first[1:] = groups[order][1:] != groups[order][:-1]
    position = np.arange(len(order))
    ranks = np.empty(len(order), np.intp)
    ranks[order] = position - np.maximum.accumulate(np.where(first, position, 0))
    return ranks


def fit(query: Features, stored: Features, rows: Ints, columns: Ints) -> Fit | None:
    """The best plane map for tentative matches, or None when there is none a camera could make."""
    if len(rows) < MIN_INLIERS:
        return None
    points_q, points_s = query.points[rows], stored.points[columns]
    span = float(max(stored.width_px, stored.height_px))
    agreeing = _best_similarity(points_q, points_s, _LOOSE * span)
    for tolerance in (_LOOSE * span, _MEDIUM * span):
        if agreeing.sum() < MIN_INLIERS:
            return None
        affine = _affine(points_q[agreeing, :2], points_s[agreeing, :2])
        moved = points_q[:, :2] @ affine[:2] + affine[2]
        agreeing = np.hypot(*(moved - points_s[:, :2]).T) < tolerance
        agreeing &= _same_zoom(points_q, points_s, affine)
    if agreeing.sum() < MIN_INLIERS:
        return None
    return _homography(query, points_q, points_s, rows, columns, np.flatnonzero(agreeing))


def _best_similarity(points_q: Floats, points_s: Floats, tolerance_px: float) -> NDArray[np.bool_]:
    """Matches that agree with the similarity map proposed by the best single match, ``[M]``."""
    at_q = points_q[:, 0] + 1j * points_q[:, 1]
    at_s = points_s[:, 0] + 1j * points_s[:, 1]
    log_zoom = np.log(points_s[:, 2] / points_q[:, 2])
    turn = np.deg2rad(points_s[:, 3] - points_q[:, 3])
    proposals = np.flatnonzero(np.abs(log_zoom) < np.log(_MAX_ZOOM))[:_MAX_PROPOSALS]
    if len(proposals) == 0:
        return np.zeros(len(at_q), np.bool_)
    rotor = np.exp(log_zoom[proposals] + 1j * turn[proposals])
    shift = at_s[proposals] - rotor * at_q[proposals]
    residual = np.abs(rotor[:, None] * at_q + shift[:, None] - at_s)
    # cos of the difference: angles wrap round
    same_turn = np.cos(turn[proposals, None] - turn) > np.cos(_MAX_ANGLE_RAD)
    same_zoom = np.abs(log_zoom[proposals, None] - log_zoom) < _MAX_LOG_SCALE
    agree: NDArray[np.bool_] = (residual < tolerance_px) & same_turn & same_zoom
    return np.asarray(agree[int(np.argmax(agree.sum(axis=1)))])


def _affine(from_points: Floats, to_points: Floats) -> NDArray[np.float64]:
    """Least-squares affine map, ``[3, 2]``: rows of the linear part, then the shift."""
    design = np.column_stack([from_points, np.ones(len(from_points))])
    solution, *_ = np.linalg.lstsq(design.astype(np.float64), to_points.astype(np.float64), rcond=None)
    return np.asarray(solution)


def _same_zoom(points_q: Floats, points_s: Floats, affine: NDArray[np.float64]) -> NDArray[np.bool_]:
    zoom = np.sqrt(max(abs(float(np.linalg.det(affine[:2]))), 1e-9))
    return np.asarray(np.abs(np.log(points_s[:, 2] / points_q[:, 2]) - np.log(zoom)) < 1.5 * _MAX_LOG_SCALE)


def _homography(
    query: Features, points_q: Floats, points_s: Floats, rows: Ints, columns: Ints, kept: Ints
) -> Fit | None:
    import cv2

    matrix, _ = cv2.findHomography(
        points_q[kept, :2].astype(np.float64), points_s[kept, :2].astype(np.float64), cv2.RANSAC, _TIGHT_PX
    )
    if matrix is None or not _plausible(matrix, query):
        return None
    error = np.hypot(*(_map(matrix, points_q[kept, :2]) - points_s[kept, :2]).T)
    inliers: list[int] = []
    seen_q: set[int] = set()
    seen_s: set[int] = set()
    for place in np.argsort(error, kind="stable"):
        if error[place] >= _TIGHT_PX:
            break
        at = int(kept[place])
        # Repeated orientations of one corner are several features at one point: count the point once.
        key_q, key_s = _cell(points_q[at]), _cell(points_s[at])
        if key_q not in seen_q and key_s not in seen_s:
            seen_q.add(key_q)
            seen_s.add(key_s)
            inliers.append(at)
    if len(inliers) < MIN_INLIERS:
        return None
    hull = cv2.convexHull(points_q[inliers, :2].astype(np.float32))
    coverage = min(1.0, float(cv2.contourArea(hull)) / (query.width_px * query.height_px))
    return Fit(len(inliers), _visible(matrix, query, points_s), coverage, matrix)


def _cell(point: Floats) -> int:
    return int(point[0] * 2) * 100_000 + int(point[1] * 2)


def _map(matrix: NDArray[np.float64], points: Floats) -> NDArray[np.float64]:
    moved = np.column_stack([points, np.ones(len(points))]) @ matrix.T
    return np.asarray(moved[:, :2] / moved[:, 2:])


def _visible(matrix: NDArray[np.float64], query: Features, points_s: Floats) -> int:
    """Features of the query that fall within the box of the stored picture's matched features."""
    moved = _map(matrix, query.points[:, :2])
    low, high = points_s[:, :2].min(axis=0) - _TIGHT_PX, points_s[:, :2].max(axis=0) + _TIGHT_PX
    return int(np.sum(np.all((moved >= low) & (moved <= high), axis=1)))


def _plausible(matrix: NDArray[np.float64], query: Features) -> bool:
    """Whether a camera could make this map: over the whole query no horizon, no mirror, no extreme or uneven zoom."""
    right, bottom = float(query.width_px), float(query.height_px)
    corners = np.array([[0, 0], [right, 0], [right, bottom], [0, bottom], [right / 2, bottom / 2]], np.float64)
    depth = np.column_stack([corners, np.ones(5)]) @ matrix[2]
    if np.any(depth * np.sign(depth[4]) < 0.2 * abs(depth[4])):
        return False
    for x, y in corners:
        jacobian = _jacobian(matrix, x, y)
        stretch = np.linalg.svd(jacobian, compute_uv=False)
        area = float(np.linalg.det(jacobian))
        if area <= 0 or not 1 / _MAX_ZOOM < np.sqrt(area) < _MAX_ZOOM or stretch[0] > 5.0 * stretch[1]:
            return False
    return True


def _jacobian(matrix: NDArray[np.float64], x: float, y: float) -> NDArray[np.float64]:
    top = matrix @ np.array([x, y, 1.0])
    u, v, w = top
    return np.array(
        [
            [(matrix[0, 0] - matrix[2, 0] * u / w) / w, (matrix[0, 1] - matrix[2, 1] * u / w) / w],
            [(matrix[1, 0] - matrix[2, 0] * v / w) / w, (matrix[1, 1] - matrix[2, 1] * v / w) / w],
        ]
    )
