"""From recognised lines to blocks in reading order with labels: plain geometry, no model.

Reading order is a recursive cut: where a gutter separates two runs of lines that stand side by side, the left run is
read before the right one. Lines that cross the gutter (headings, full-width paragraphs) divide the page into bands read
one after the other, unless text stands beside them: such insets come between the columns. All else is read by rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from opensearch_vl.protocols import TextBlock

Box = tuple[float, float, float, float]  # left, top, right, bottom

_MIN_COLUMN_LINES = 3
_MIN_COLUMN_WIDTH = 5.0  # in line heights: narrower runs are cells of a table, which are read by rows
_CROSSING_COST = 3
_TITLE_HEIGHT = 1.35  # of the median line height
_FOOTNOTE_HEIGHT = 0.85
_FOOTNOTE_ZONE = 0.8  # of the page's height
_MAX_TITLE_LINES = 3
_MAX_TITLE_CHARS = 160


@dataclass(frozen=True, slots=True)
class Line:
    """A recognised line of text. `box_px` is upright."""

    text: str
    box_px: Box
    confidence: float

    @property
    def height(self) -> float:
        """Height in pixels, at least one."""
        return max(1.0, self.box_px[3] - self.box_px[1])


def blocks(lines: Sequence[Line], page_height_px: int) -> list[TextBlock]:
    """Lines joined to blocks, in reading order, labelled `title`, `text` or `footnote`."""
    if not lines:
        return []
    median = statistics.median(line.height for line in lines)
    grouped: list[list[Line]] = []
    for line in reading_order(lines):
        if grouped and _continues(grouped[-1], line):
            grouped[-1].append(line)
        else:
            grouped.append([line])
    return [_block(group, median, page_height_px) for group in grouped]


def reading_order(lines: Sequence[Line]) -> list[Line]:
    """Lines in the order a person reads them."""
    gutter = _gutter(lines)
    if gutter is None:
        return _by_rows(lines)
    left = [line for line in lines if line.box_px[2] <= gutter]
    right = [line for line in lines if line.box_px[0] >= gutter]
    beside = {id(line) for line in (*left, *right)}
    ordered: list[Line] = []
    insets: list[Line] = []
    for run in _runs(sorted((line for line in lines if id(line) not in beside), key=_middle)):
        top, bottom = run[0].box_px[1], run[-1].box_px[3]
        if any(top <= _middle(line) <= bottom for line in (*left, *right)):
            insets.extend(run)  # a caption or a pull quote that the columns flow round
            continue
        band = [[line for line in part if _middle(line) < top] for part in (left, insets, right)]
        ordered += [*reading_order(band[0]), *_by_rows(band[1]), *reading_order(band[2]), *_by_rows(run)]
        left, insets, right = ([line for line in part if _middle(line) >= top] for part in (left, insets, right))
    return [*ordered, *reading_order(left), *_by_rows(insets), *reading_order(right)]


def _runs(crossing: Sequence[Line]) -> list[list[Line]]:
    """Lines that follow one another closely, together."""
    runs: list[list[Line]] = []
    for line in crossing:
        if runs and line.box_px[1] - runs[-1][-1].box_px[3] < 1.5 * line.height:
            runs[-1].append(line)
        else:
            runs.append([line])
    return runs


def _middle(line: Line) -> float:
    return (line.box_px[1] + line.box_px[3]) / 2


def _gutter(lines: Sequence[Line]) -> float | None:
    """The x that best divides the lines into two columns standing side by side, or None."""
    best: tuple[float, float] | None = None
    for x in sorted({line.box_px[0] for line in lines})[1:]:
        left = [line for line in lines if line.box_px[2] <= x]
        right = [line for line in lines if line.box_px[0] >= x]
        crossing = len(lines) - len(left) - len(right)
        if min(len(left), len(right)) < _MIN_COLUMN_LINES or crossing > 0.34 * len(lines):
            continue
        if not (_is_column(left) and _is_column(right) and _side_by_side(left, right)):
            continue
        score = min(len(left), len(right)) - _CROSSING_COST * crossing
        if best is None or score > best[0]:
            best = (score, x)
    return None if best is None else best[1]


def _is_column(lines: Sequence[Line]) -> bool:
    height = statistics.median(line.height for line in lines)
    return statistics.median(line.box_px[2] - line.box_px[0] for line in lines) >= _MIN_COLUMN_WIDTH * height


def _side_by_side(left: Sequence[Line], right: Sequence[Line]) -> bool:
    top = max(min(line.box_px[1] for line in part) for part in (left, right))
    bottom = min(max(line.box_px[3] for line in part) for part in (left, right))
    shorter = min(max(line.box_px[3] for line in p) - min(line.box_px[1] for line in p) for p in (left, right))
    return bottom - top >= 0.5 * shorter


def _by_rows(lines: Sequence[Line]) -> list[Line]:
    rows: list[list[Line]] = []
    for line in sorted(lines, key=_middle):
        row = rows[-1] if rows else []
        if row and abs(_middle(line) - statistics.fmean(map(_middle, row))) < 0.5 * min(line.height, row[0].height):
            row.append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda line: line.box_px[0])]


def _continues(group: list[Line], line: Line) -> bool:
    """Whether a line belongs to the same paragraph as the lines before it."""
    last = group[-1]
    height = min(last.height, line.height)
    gap = line.box_px[1] - last.box_px[3]
    overlap = min(last.box_px[2], line.box_px[2]) - max(last.box_px[0], line.box_px[0])
    same_size = max(last.height, line.height) < 1.3 * height
    below = -0.5 * height < gap < 0.75 * height and _middle(line) - _middle(last) > 0.5 * height
    return same_size and below and overlap > 0


def _block(group: list[Line], median: float, page_height_px: int) -> TextBlock:
    boxes = [line.box_px for line in group]
    box = (
        round(min(b[0] for b in boxes)),
        round(min(b[1] for b in boxes)),
        round(max(b[2] for b in boxes)),
        round(max(b[3] for b in boxes)),
    )
    text = "\n".join(line.text for line in group)
    height = statistics.median(line.height for line in group)
    label = "text"
    if height >= _TITLE_HEIGHT * median and len(group) <= _MAX_TITLE_LINES and len(text) <= _MAX_TITLE_CHARS:
        label = "title"
    elif height <= _FOOTNOTE_HEIGHT * median and box[1] >= _FOOTNOTE_ZONE * page_height_px:
        label = "footnote"
    return TextBlock(text, label, box, round(statistics.fmean(line.confidence for line in group), 4))
