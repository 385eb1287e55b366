"""A drawing surface with smooth edges, palettes, and the open font the package ships."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import as_file, files
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
Point = tuple[float, float]
Paint = Callable[["Canvas"], None]

SCALE = 2
"""Everything is drawn twice as large and then averaged: smooth edges from Pillow's hard ones."""


def rgb(code: str) -> Colour:
    """``"e8c170"`` as a colour."""
    return int(code[0:2], 16), int(code[2:4], 16), int(code[4:6], 16)


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """`share` of `second` in `first`."""
    r, g, b = (round(a + (z - a) * share) for a, z in zip(first, second, strict=True))
    return r, g, b


INK = rgb("2b2d42")
PAPER = rgb("f6efe0")

PALETTES: tuple[tuple[Colour, ...], ...] = tuple(
    tuple(rgb(code) for code in line.split())
    for line in (
        "f4d58d bf0603 708d81 001427 8d0801 f2e8cf",
        "264653 2a9d8f e9c46a f4a261 e76f51 fefae0",
        "6d597a b56576 e56b6f eaac8b 355070 fbeee6",
        "3d5a80 98c1d9 e0fbfc ee6c4d 293241 f7e1ae",
        "606c38 283618 fefae0 dda15e bc6c25 a3b18a",
        "5f0f40 9a031e fb8b24 e36414 0f4c5c fff1d0",
        "386641 6a994e a7c957 f2e8cf bc4749 1d3b2a",
        "22577a 38a3a5 57cc99 c7f9cc f9c74f f3722c",
        "4a4e69 9a8c98 c9ada7 f2e9e4 22223b d4a373",
        "7f5539 b08968 ddb892 ede0d4 9c6644 588157",
        "003049 d62828 f77f00 fcbf49 eae2b7 4d908e",
        "2d3142 4f5d75 bfc0c0 ef8354 f5f5f0 84a98c",
    )
)
"""Six colours each: they go together in any pairing."""

SKIES: tuple[tuple[Colour, Colour], ...] = tuple(
    (rgb(top), rgb(bottom))
    for top, bottom in (
        ("8ecae6", "e6f4f1"), ("a9d6e5", "fdf0d5"), ("f6bd60", "f7ede2"), ("cdb4db", "ffe5d9"), ("90b8c8", "f1e3d3"),
        ("5e8ca8", "f2d0a4"), ("b8c0ff", "fff3e0"), ("2f4858", "86a3b8"), ("f4a698", "fde8cd"), ("bfd7ea", "ffffff"),
    )
)  # fmt: skip


@cache
def font(size_px: int, bold: bool = True) -> ImageFont.FreeTypeFont:
    """DejaVu Sans from the package's assets, laid out the same way on every machine."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    with as_file(files("opensearch_vl").joinpath("assets", "fonts", name)) as path:
        return ImageFont.truetype(BytesIO(path.read_bytes()), size_px, layout_engine=ImageFont.Layout.BASIC)


class Canvas:
    """A picture in the making; coordinates are final pixels, floats welcome.

    Args:
        width_px: Final width.
        height_px: Final height.
        ground: Colour it starts with.
    """

    def __init__(self, width_px: int, height_px: int, ground: Colour = PAPER) -> None:
        self.width, self.height = width_px, height_px
        self.image = Image.new("RGB", (width_px * SCALE, height_px * SCALE), ground)
        self.pen = ImageDraw.Draw(self.image)

    def rect(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        fill: Colour | None,
        outline: Colour | None = None,
        width: float = 0,
        radius: float = 0,
    ) -> None:
        """A rectangle, rounded by `radius`; nothing when it is empty."""
        if x1 <= x0 or y1 <= y0:
            return
        box = [x0 * SCALE, y0 * SCALE, x1 * SCALE - 1, y1 * SCALE - 1]
        if box[2] <= box[0] or box[3] <= box[1]:
            return
        stroke = max(1, round(width * SCALE)) if outline else 0
        if radius == 0:
            self.pen.rectangle(box, fill, outline, stroke)
            return
        corner = min(radius * SCALE, (box[2] - box[0]) / 2, (box[3] - box[1]) / 2)
        self.pen.rounded_rectangle(box, corner, fill, outline, stroke)

    def poly(self, points: Sequence[Point], fill: Colour, outline: Colour | None = None, width: float = 1) -> None:
        """A filled polygon."""
        scaled = [(x * SCALE, y * SCALE) for x, y in points]
        self.pen.polygon(scaled, fill)
        if outline is not None:
            self.pen.line([*scaled, scaled[0], scaled[1]], outline, max(1, round(width * SCALE)), joint="curve")

    def disc(self, x: float, y: float, rx: float, fill: Colour | None, ry: float | None = None,
             outline: Colour | None = None, width: float = 1) -> None:  # fmt: skip
        """An ellipse around (x, y)."""
        ry = rx if ry is None else ry
        if rx <= 0 or ry <= 0:
            return
        box = [(x - rx) * SCALE, (y - ry) * SCALE, (x + rx) * SCALE, (y + ry) * SCALE]
        self.pen.ellipse(box, fill, outline, max(1, round(width * SCALE)) if outline else 0)

    def line(self, points: Sequence[Point], fill: Colour, width: float = 1) -> None:
        """A polyline."""
        self.pen.line([(x * SCALE, y * SCALE) for x, y in points], fill, max(1, round(width * SCALE)), joint="curve")

    def arc(self, x: float, y: float, r: float, start: float, end: float, fill: Colour, width: float = 1) -> None:
        """A circular arc, degrees clockwise from three o'clock."""
        box = [(x - r) * SCALE, (y - r) * SCALE, (x + r) * SCALE, (y + r) * SCALE]
        self.pen.arc(box, start, end, fill, max(1, round(width * SCALE)))

    def pie(self, x: float, y: float, r: float, start: float, end: float, fill: Colour) -> None:
        """A sector of a disc, degrees clockwise from three o'clock."""
        if r > 0:
            box = [(x - r) * SCALE, (y - r) * SCALE, (x + r) * SCALE, (y + r) * SCALE]
            self.pen.pieslice(box, start, end, fill)

    def text(self, x: float, y: float, text: str, size_px: float, fill: Colour = INK, anchor: str = "mm",
             bold: bool = True) -> None:  # fmt: skip
        """A line of text."""
        self.pen.text((x * SCALE, y * SCALE), text, fill, font(round(size_px * SCALE), bold), anchor)

    def sky(self, top: Colour, bottom: Colour, until: float, bands: int = 22) -> None:
        """A stepped gradient down to `until`: flat areas, small files."""
        for nth in range(bands):
            y0, y1 = until * nth / bands, until * (nth + 1) / bands
            self.rect(0, y0, self.width, y1 + 1, mix(top, bottom, nth / (bands - 1)))

    def through(self, shape: Paint, paint: Paint) -> None:
        """Lay down what `paint` draws (all of it: it starts from black) inside the white of what `shape` draws."""
        mask = Canvas(self.width, self.height, (0, 0, 0))
        shape(mask)
        layer = Canvas(self.width, self.height, (0, 0, 0))
        paint(layer)
        box = mask.image.getbbox()
        if box is not None:
            self.image.paste(layer.image.crop(box), box[:2], mask.image.crop(box).convert("L"))

    def finish(self) -> Image.Image:
        """The picture at its final size."""
        return self.image.reduce(SCALE)


WHITE: Colour = (255, 255, 255)


def fit(text: str, width_px: float, height_px: float, lines: int = 3, largest: float = 64) -> tuple[list[str], float]:
    """Break `text` into lines and find the largest type, in px, at which they fill a box."""
    best: tuple[list[str], float] = ([text], 1.0)
    tokens = text.split(" ")
    for number in range(1, min(lines, len(tokens)) + 1):
        rows = _balance(tokens, number)
        widest = max(font(100).getlength(row) for row in rows)
        size = min(width_px * 100 / widest, height_px / (number * 1.25), largest)
        if size > best[1]:
            best = (rows, size)
    return best


def _balance(tokens: list[str], rows: int) -> list[str]:
    if rows == 1:
        return [" ".join(tokens)]
    cuts = range(1, len(tokens) - rows + 2)
    options = [[" ".join(tokens[:cut]), *_balance(tokens[cut:], rows - 1)] for cut in cuts]
    return min(options, key=lambda option: max(len(row) for row in option))


Painter = Callable[[Canvas, random.Random, int], None]
"""Draws one subject on a canvas; the last argument is the view (0 or 1)."""
