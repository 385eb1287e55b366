"""Ornament: motifs, bands, mosaics and coats of arms. Every draw differs, which gives each picture its own corners."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from opensearch_vl.wiki.miniature.pictures.canvas import INK, Canvas, Colour, Point, mix


def star(x: float, y: float, outer: float, inner: float, points: int, turn: float = -90) -> list[Point]:
    """Corners of a star."""
    return [
        (x + (outer if nth % 2 == 0 else inner) * math.cos(math.radians(turn + nth * 180 / points)),
         y + (outer if nth % 2 == 0 else inner) * math.sin(math.radians(turn + nth * 180 / points)))
        for nth in range(points * 2)
    ]  # fmt: skip


def ring(x: float, y: float, r: float, points: int, turn: float = -90) -> list[Point]:
    """Corners of a regular polygon."""
    steps = [math.radians(turn + nth * 360 / points) for nth in range(points)]
    return [(x + r * math.cos(step), y + r * math.sin(step)) for step in steps]


def motif(canvas: Canvas, x: float, y: float, size: float, rng: random.Random, colours: Sequence[Colour]) -> None:
    """A small figure in a square of side `size` around (x, y)."""
    r = size * 0.42
    first, second = rng.sample(list(colours), 2)
    match rng.randrange(11):
        case 0:
            canvas.poly(star(x, y, r, r * 0.45, rng.choice((4, 5, 6, 8))), first)
            canvas.disc(x, y, r * 0.25, second)
        case 1:
            canvas.poly(ring(x, y, r, 4), first)
            canvas.poly(ring(x, y, r * 0.5, 4), second)
        case 2:
            canvas.disc(x, y, r, first)
            canvas.disc(x, y, r * 0.62, second)
            canvas.disc(x, y, r * 0.28, first)
        case 3:
            canvas.rect(x - r, y - r * 0.3, x + r, y + r * 0.3, first)
            canvas.rect(x - r * 0.3, y - r, x + r * 0.3, y + r, first)
        case 4:
            for cx, cy in ring(x, y, r * 0.6, rng.choice((4, 5, 6))):
                canvas.disc(cx, cy, r * 0.36, first)
            canvas.disc(x, y, r * 0.32, second)
        case 5:
            canvas.poly([(x - r, y + r), (x, y - r), (x + r, y + r)], first)
            canvas.poly([(x - r * 0.5, y + r), (x, y), (x + r * 0.5, y + r)], second)
        case 6:
            for row in range(2):
                for column in range(2):
                    colour = first if (row + column) % 2 else second
                    canvas.rect(x - r + column * r, y - r + row * r, x + column * r, y + row * r, colour)
        case 7:
            canvas.poly(
                [(x - r, y), (x, y - r), (x + r, y), (x + r * 0.4, y), (x, y - r * 0.4), (x - r * 0.4, y)], first
            )
            canvas.poly(
                [(x - r, y + r), (x, y), (x + r, y + r), (x + r * 0.4, y + r), (x, y + r * 0.6), (x - r * 0.4, y + r)],
                second,
            )
        case 8:
            canvas.pie(x - r * 0.5, y + r, r * 1.1, 270, 360, first)
            canvas.pie(x + r * 0.5, y + r, r * 1.1, 180, 270, second)
        case 9:
            canvas.rect(x - r, y - r, x + r, y + r, first)
            canvas.rect(x - r * 0.7, y - r * 0.7, x + r * 0.7, y + r * 0.7, second)
            canvas.rect(x - r * 0.3, y - r * 0.3, x + r * 0.7, y + r * 0.7, first)
        case _:
            canvas.poly([(x, y - r), (x + r * 0.5, y - r * 0.1), (x, y + r), (x - r * 0.5, y - r * 0.1)], first)
            canvas.line([(x, y - r * 0.6), (x, y + r * 0.7)], second, max(1.0, size / 22))


def band(canvas: Canvas, x0: float, y0: float, x1: float, y1: float, rng: random.Random, colours: Sequence[Colour],
         ground: Colour) -> None:  # fmt: skip
    """A frieze: a row of motifs between two fillets."""
    height = y1 - y0
    canvas.rect(x0, y0, x1, y1, ground)
    number = max(1, round((x1 - x0) / height))
    step = (x1 - x0) / number
    figures = [colour for colour in colours if colour != ground]
    for nth in range(number):
        motif(canvas, x0 + step * (nth + 0.5), (y0 + y1) / 2, min(step, height) * 0.95, rng, figures)
    canvas.rect(x0, y0, x1, y0 + max(1.0, height * 0.07), figures[0])
    canvas.rect(x0, y1 - max(1.0, height * 0.07), x1, y1, figures[0])


def mosaic(canvas: Canvas, x0: float, y0: float, x1: float, y1: float, size: float, rng: random.Random,
           colours: Sequence[Colour]) -> None:  # fmt: skip
    """Tiles cut by random diagonals and quarter discs."""
    columns, rows = max(1, round((x1 - x0) / size)), max(1, round((y1 - y0) / size))
    w, h = (x1 - x0) / columns, (y1 - y0) / rows
    for row in range(rows):
        for column in range(columns):
            x, y = x0 + column * w, y0 + row * h
            first, second = rng.sample(list(colours), 2)
            canvas.rect(x, y, x + w, y + h, first)
            corners = [(x, y), (x + w, y), (x + w, y + h), (x, y + h)]
            turn = rng.randrange(4)
            match rng.randrange(4):
                case 0:
                    canvas.poly([corners[turn], corners[(turn + 1) % 4], corners[(turn + 2) % 4]], second)
                case 1:
                    canvas.pie(*corners[turn], min(w, h), 90 * turn, 90 * turn + 90, second)
                case 2:
                    canvas.disc(x + w / 2, y + h / 2, min(w, h) * 0.32, second)
                case _:
                    canvas.poly(ring(x + w / 2, y + h / 2, min(w, h) / 2, 4), second)


def coat_of_arms(
    canvas: Canvas, x: float, y: float, size: float, rng: random.Random, colours: Sequence[Colour]
) -> None:
    """A shield of width `size` centred on (x, y), with a division and charges."""
    w, h = size / 2, size * 0.6
    outline = [
        (x - w, y - h),
        (x + w, y - h),
        (x + w, y),
        (x + w * 0.8, y + h * 0.5),
        (x, y + h),
        (x - w * 0.8, y + h * 0.5),
        (x - w, y),
    ]
    first, second, third = rng.sample(list(colours), 3)
    division, charge = rng.randrange(6), rng.getrandbits(32)

    def field(layer: Canvas) -> None:
        layer.rect(x - w, y - h, x + w, y + h, first)
        match division:
            case 0:
                layer.rect(x, y - h, x + w, y + h, second)
            case 1:
                layer.rect(x - w, y - h * 0.15, x + w, y + h, second)
            case 2:
                layer.poly(
                    [(x - w, y - h), (x - w * 0.4, y - h), (x + w, y + h * 0.7), (x + w, y + h), (x + w * 0.4, y + h)],
                    second,
                )
            case 3:
                layer.poly([(x - w, y + h), (x, y - h * 0.2), (x + w, y + h)], second)
            case 4:
                layer.rect(x - w, y - h, x, y - h * 0.05, second)
                layer.rect(x, y - h * 0.05, x + w, y + h, second)
            case _:
                for nth in range(0, 6, 2):
                    layer.rect(x - w + nth * w / 3, y - h, x - w + (nth + 1) * w / 3, y + h, second)
        private = random.Random(charge)
        spots = private.sample(
            [(-0.48, -0.5), (0.48, -0.5), (0, -0.5), (0, 0.1), (-0.45, 0.1), (0.45, 0.1)], private.randint(2, 4)
        )
        for dx, dy in spots:
            motif(layer, x + dx * w, y + dy * h, size * 0.34, private, (third, mix(third, INK, 0.35)))

    canvas.poly([(px + (px - x) * 0.1, py + (py - y) * 0.08) for px, py in outline], (255, 255, 255))
    canvas.through(lambda mask: mask.poly(outline, (255, 255, 255)), field)
    canvas.line([*outline, outline[0]], INK, max(1.5, size / 40))
