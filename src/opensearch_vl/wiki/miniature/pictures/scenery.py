"""What stands around a subject: clouds, hills, trees, paving, passers-by."""

from __future__ import annotations

import math
import random

from opensearch_vl.wiki.miniature.pictures.canvas import INK, PAPER, Canvas, Colour, mix, rgb

_LEAVES = (rgb("588157"), rgb("6a994e"), rgb("3a5a40"), rgb("a3b18a"), rgb("bc8a3c"), rgb("8a9a5b"))


def cloud(canvas: Canvas, x: float, y: float, size: float, rng: random.Random) -> None:
    """A cloud of a few discs on a flat base."""
    colour = mix((255, 255, 255), (225, 232, 238), rng.random())
    for nth in range(rng.randint(3, 5)):
        canvas.disc(
            x + size * (nth - 1.5) * 0.5, y - size * rng.uniform(0.05, 0.25), size * rng.uniform(0.28, 0.42), colour
        )
    canvas.rect(x - size, y - size * 0.12, x + size * 1.1, y + size * 0.14, colour, radius=size * 0.13)


def hills(canvas: Canvas, base: float, height: float, colour: Colour, rng: random.Random) -> None:
    """A soft skyline of hills standing on `base`."""
    first, second = rng.uniform(0, 6), rng.uniform(0, 6)
    points = [(0.0, base)]
    for nth in range(41):
        t = nth / 40
        rise = 0.5 + 0.3 * math.sin(first + t * 5) + 0.2 * math.sin(second + t * 13)
        points.append((canvas.width * t, base - height * rise))
    canvas.poly([*points, (float(canvas.width), base)], colour)


def tree(canvas: Canvas, x: float, y: float, size: float, rng: random.Random) -> None:
    """A tree of total height `size` standing at (x, y): round, conical or tall."""
    leaf = rng.choice(_LEAVES)
    canvas.rect(x - size * 0.035, y - size * 0.4, x + size * 0.035, y, rgb("6b4f3a"))
    match rng.randrange(3):
        case 0:
            for _ in range(7):
                canvas.disc(
                    x + rng.uniform(-0.2, 0.2) * size,
                    y - size * rng.uniform(0.45, 0.85),
                    size * rng.uniform(0.12, 0.2),
                    mix(leaf, INK, rng.uniform(0, 0.25)),
                )
            for _ in range(6):
                canvas.disc(
                    x + rng.uniform(-0.24, 0.24) * size,
                    y - size * rng.uniform(0.45, 0.9),
                    size * 0.025,
                    mix(leaf, PAPER, 0.5),
                )
        case 1:
            for nth in range(4):
                top, half = y - size * (1 - nth * 0.17), size * (0.1 + nth * 0.06)
                canvas.poly(
                    [(x, top), (x + half, top + size * 0.3), (x - half, top + size * 0.3)], mix(leaf, INK, 0.08 * nth)
                )
        case _:
            canvas.disc(x, y - size * 0.6, size * 0.13, leaf, size * 0.4)
            for nth in range(4):
                canvas.line(
                    [
                        (x, y - size * (0.3 + nth * 0.14)),
                        (x + size * 0.09 * (-1) ** nth, y - size * (0.38 + nth * 0.14)),
                    ],
                    mix(leaf, INK, 0.4),
                    2,
                )


def pavement(canvas: Canvas, top: float, palette: tuple[Colour, ...], rng: random.Random) -> None:
    """Paving in perspective below `top`, with some stones in colour."""
    w, h = canvas.width, canvas.height
    base = mix(rgb("b8b2a7"), palette[rng.randrange(5)], 0.18)
    canvas.rect(0, top, w, h, base)
    rows = 4
    for row in range(rows):
        y0 = top + (h - top) * (row / rows) ** 1.3
        y1 = top + (h - top) * ((row + 1) / rows) ** 1.3
        size = 18 + 14 * row
        x = -rng.uniform(0, size)
        while x < w:
            shade = (
                mix(base, INK, rng.uniform(0.0, 0.16)) if rng.random() < 0.85 else mix(base, rng.choice(palette), 0.6)
            )
            canvas.rect(x + 1, y0 + 1, x + size - 1, y1 - 1, shade)
            x += size


def person(canvas: Canvas, x: float, y: float, size: float, palette: tuple[Colour, ...], rng: random.Random) -> None:
    """A passer-by of height `size`, seen from far."""
    coat = rng.choice(palette)
    canvas.rect(x - size * 0.1, y - size * 0.36, x - size * 0.02, y, INK)
    canvas.rect(x + size * 0.02, y - size * 0.36, x + size * 0.1, y, INK)
    canvas.poly(
        [
            (x - size * 0.12, y - size * 0.76),
            (x + size * 0.12, y - size * 0.76),
            (x + size * 0.18, y - size * 0.26),
            (x - size * 0.18, y - size * 0.26),
        ],
        coat,
    )
    canvas.disc(
        x, y - size * 0.87, size * 0.11, rng.choice((rgb("f1c9a5"), rgb("c68642"), rgb("8d5524"), rgb("e0ac69")))
    )
    if rng.random() < 0.5:
        canvas.rect(x - size * 0.15, y - size * 0.97, x + size * 0.15, y - size * 0.92, mix(coat, INK, 0.5))
        canvas.rect(x - size * 0.08, y - size * 1.07, x + size * 0.08, y - size * 0.94, mix(coat, INK, 0.5))
    if rng.random() < 0.3:
        canvas.pie(x + size * 0.2, y - size * 0.95, size * 0.32, 180, 360, rng.choice(palette))
        canvas.line([(x + size * 0.2, y - size * 0.95), (x + size * 0.2, y - size * 0.4)], INK, 1.5)
