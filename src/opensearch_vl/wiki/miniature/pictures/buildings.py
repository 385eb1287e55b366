"""Painters of buildings: facades, bridges, lighthouses."""

from __future__ import annotations

import math
import random
from itertools import pairwise

from opensearch_vl.wiki.miniature.pictures.canvas import INK, PALETTES, PAPER, SKIES, Canvas, Colour, mix, rgb
from opensearch_vl.wiki.miniature.pictures.ornament import band, coat_of_arms, mosaic, motif, star
from opensearch_vl.wiki.miniature.pictures.scenery import cloud, hills, pavement, person, tree

_GLASS = (rgb("41576b"), rgb("6c8ca3"), rgb("f2d48a"), rgb("30425a"), rgb("8fb3c4"))
_STONE = (
    rgb("e9dcc3"),
    rgb("d9b99b"),
    rgb("c97b63"),
    rgb("b7c4bf"),
    rgb("e6cfa3"),
    rgb("a8b5a2"),
    rgb("d8c3c0"),
    rgb("f0e6d6"),
)


def facade(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A house front with irregular windows, friezes, a roof of its own, and a street before it."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    ground = h * rng.uniform(0.83, 0.89)
    canvas.sky(*rng.choice(SKIES), ground)
    for _ in range(rng.randint(2, 4)):
        cloud(canvas, rng.uniform(0, w), rng.uniform(h * 0.05, h * 0.3), rng.uniform(w * 0.06, w * 0.14), rng)
    hills(canvas, ground, h * 0.16, mix(palette[0], (200, 215, 205), 0.6), rng)
    wall, trim = rng.choice(_STONE), rng.choice((PAPER, palette[5], mix(palette[0], PAPER, 0.55)))
    dark = mix(palette[rng.randrange(5)], INK, 0.45)
    bays, storeys = rng.randint(3, 7), rng.randint(2, 4)
    left, right = w * rng.uniform(0.08, 0.17), w * rng.uniform(0.82, 0.92)
    top = h * rng.uniform(0.27, 0.36)
    _roof(canvas, left, right, top, palette, dark, trim, rng)
    canvas.rect(left, top, right, ground, wall)
    for _ in range(rng.randint(30, 60)):
        bx, by = rng.uniform(left, right - 16), rng.uniform(top, ground - 8)
        canvas.rect(bx, by, bx + rng.uniform(8, 16), by + 5, mix(wall, INK, rng.uniform(0.05, 0.12)))
    storey = (ground - top) / storeys
    pitch = (right - left) / bays
    door = rng.randrange(bays)
    for floor in range(storeys):
        y = top + floor * storey
        frieze = storey * rng.uniform(0.16, 0.24)
        if floor == 0 or rng.random() < 0.7:
            band(canvas, left, y, right, y + frieze, rng, palette, trim)
        else:
            canvas.rect(left, y + 2, right, y + frieze * 0.4, trim)
        for bay in range(bays):
            x = left + bay * pitch
            if floor == storeys - 1 and bay == door:
                _door(
                    canvas,
                    x + pitch * 0.14,
                    y + frieze + storey * 0.08,
                    x + pitch * 0.86,
                    ground,
                    palette,
                    dark,
                    trim,
                    rng,
                )
            else:
                _window(
                    canvas,
                    x + pitch * 0.2,
                    y + frieze + storey * 0.12,
                    x + pitch * 0.8,
                    y + storey * 0.88,
                    palette,
                    dark,
                    trim,
                    rng,
                )
    if rng.random() < 0.5:
        for bay in range(bays + 1):
            x = left + bay * pitch
            canvas.rect(x - 5, top, x + 5, ground, trim, mix(trim, INK, 0.3), 1)
    canvas.rect(left - 6, ground - 8, right + 6, ground, mix(wall, INK, 0.3))
    pavement(canvas, ground, palette, rng)
    for _ in range(rng.randint(1, 3)):
        x = rng.choice((rng.uniform(0, left), rng.uniform(right, w)))
        tree(canvas, x, h * rng.uniform(0.9, 0.97), h * rng.uniform(0.2, 0.36), rng)
    for _ in range(rng.randint(2, 5)):
        person(canvas, rng.uniform(w * 0.05, w * 0.95), h * rng.uniform(0.91, 0.97), h * 0.1, palette, rng)
    if view == 1:
        coat_of_arms(canvas, w * 0.9, h * 0.14, w * 0.12, rng, palette)


def _roof(canvas: Canvas, left: float, right: float, top: float, palette: tuple[Colour, ...], dark: Colour,
          trim: Colour, rng: random.Random) -> None:  # fmt: skip
    w, h = right - left, top
    middle = left + w * rng.uniform(0.35, 0.65)
    roof = mix(palette[rng.randrange(5)], INK, 0.15)
    match rng.randrange(6):
        case 0:
            canvas.poly([(left - 14, top), (middle, top - h * 0.55), (right + 14, top)], roof)
            canvas.poly([(left + w * 0.12, top), (middle, top - h * 0.42), (right - w * 0.12, top)], trim)
            motif(canvas, middle, top - h * 0.17, h * 0.28, rng, palette[:5])
        case 1:
            canvas.poly(
                [
                    (left - 10, top),
                    (left + w * 0.08, top - h * 0.32),
                    (right - w * 0.08, top - h * 0.32),
                    (right + 10, top),
                ],
                roof,
            )
            for nth in range(rng.randint(2, 5)):
                x = left + w * (0.16 + 0.17 * nth)
                canvas.poly(
                    [
                        (x - 17, top - 4),
                        (x - 17, top - h * 0.18),
                        (x, top - h * 0.3),
                        (x + 17, top - h * 0.18),
                        (x + 17, top - 4),
                    ],
                    trim,
                )
                canvas.rect(x - 9, top - h * 0.17, x + 9, top - 6, rng.choice(_GLASS))
        case 2:
            canvas.rect(middle - w * 0.2, top - h * 0.2, middle + w * 0.2, top, trim)
            canvas.disc(middle, top - h * 0.2, w * 0.19, roof, h * 0.42)
            for nth in range(-2, 3):
                canvas.line(
                    [(middle, top - h * 0.62), (middle + nth * w * 0.085, top - h * 0.2)], mix(roof, INK, 0.35), 2
                )
            band(canvas, middle - w * 0.2, top - h * 0.2, middle + w * 0.2, top - h * 0.06, rng, palette, trim)
            canvas.line([(middle, top - h * 0.78), (middle, top - h * 0.6)], dark, 3)
        case 3:
            tower = w * rng.uniform(0.08, 0.12)
            canvas.rect(middle - tower, top - h * 0.5, middle + tower, top, mix(trim, palette[1], 0.25))
            canvas.poly(
                [(middle - tower - 8, top - h * 0.5), (middle, top - h * 0.95), (middle + tower + 8, top - h * 0.5)],
                roof,
            )
            clock_face(canvas, middle, top - h * 0.27, tower * 0.72, rng)
            canvas.rect(left - 8, top - h * 0.1, right + 8, top, roof)
        case 4:
            steps = rng.randint(4, 7)
            for nth in range(steps):
                inset = w * 0.46 * nth / steps
                canvas.rect(
                    left + inset,
                    top - h * 0.6 * (nth + 1) / steps,
                    right - inset,
                    top - h * 0.6 * nth / steps + 1,
                    mix(trim, palette[2], 0.3),
                )
            motif(canvas, (left + right) / 2, top - h * 0.2, h * 0.26, rng, palette[:5])
        case _:
            canvas.rect(left - 8, top - h * 0.08, right + 8, top, trim)
            for nth in range(24):
                x = left + w * nth / 24
                canvas.rect(x, top - h * 0.18, x + w / 48, top - h * 0.08, trim)
            for share in (0.08, 0.5, 0.92):
                x = left + w * share
                canvas.line([(x, top - h * 0.55), (x, top - h * 0.08)], dark, 3)
                flag = palette[rng.randrange(5)]
                canvas.poly(
                    [(x, top - h * 0.55), (x + 34, top - h * rng.uniform(0.42, 0.5)), (x, top - h * 0.34)], flag
                )
    for _ in range(rng.randint(1, 3)):
        x = rng.uniform(left + 20, right - 20)
        canvas.rect(x - 8, top - h * rng.uniform(0.25, 0.4), x + 8, top - h * 0.06, mix(dark, PAPER, 0.2))


def _window(canvas: Canvas, x0: float, y0: float, x1: float, y1: float, palette: tuple[Colour, ...], dark: Colour,
            trim: Colour, rng: random.Random) -> None:  # fmt: skip
    glass = rng.choice(_GLASS)
    middle, w, h = (x0 + x1) / 2, x1 - x0, y1 - y0
    shape = rng.randrange(4)
    canvas.rect(x0 - 3, y0 - 3, x1 + 3, y1 + 4, trim)
    if shape == 1:
        canvas.disc(middle, y0, w / 2 + 3, trim)
        canvas.disc(middle, y0, w / 2, glass)
    elif shape == 2:
        canvas.poly([(x0 - 5, y0 - 3), (middle, y0 - h * 0.25), (x1 + 5, y0 - 3)], trim)
    canvas.rect(x0, y0, x1, y1, glass)
    match rng.randrange(5):
        case 0:
            canvas.rect(x0, y0, x0 + w * 0.3, y1, palette[rng.randrange(6)])
        case 1:
            canvas.poly([(x0, y0), (x1, y0), (x0, y0 + h * 0.7)], palette[rng.randrange(6)])
        case 2:
            canvas.rect(x0, y0, x1, y0 + h * rng.uniform(0.2, 0.6), palette[rng.randrange(6)])
        case 3:
            mosaic(canvas, x0, y0, x1, y1, max(7.0, w / 3), rng, palette)
        case _:
            pass
    canvas.rect(middle - 1.2, y0, middle + 1.2, y1, trim)
    for nth in range(1, rng.randint(2, 4)):
        canvas.rect(x0, y0 + h * nth / 4, x1, y0 + h * nth / 4 + 2, trim)
    if rng.random() < 0.3:
        colour = palette[rng.randrange(5)]
        canvas.rect(x0 - w * 0.22, y0, x0 - 3, y1, colour)
        canvas.rect(x1 + 3, y0, x1 + w * 0.22, y1, colour)
    if rng.random() < 0.3:
        canvas.rect(x0 - 5, y1 + 1, x1 + 5, y1 + 8, dark)
        for nth in range(5):
            canvas.disc(x0 + w * nth / 4, y1, 4, rng.choice(palette))


def _door(canvas: Canvas, x0: float, y0: float, x1: float, ground: float, palette: tuple[Colour, ...], dark: Colour,
          trim: Colour, rng: random.Random) -> None:  # fmt: skip
    middle, w = (x0 + x1) / 2, x1 - x0
    canvas.disc(middle, y0 + w * 0.35, w / 2 + 6, trim)
    canvas.rect(x0 - 6, y0 + w * 0.35, x1 + 6, ground, trim)
    canvas.disc(middle, y0 + w * 0.35, w / 2, rng.choice(_GLASS))
    canvas.rect(x0, y0 + w * 0.35, x1, ground, dark)
    for nth in range(6):
        canvas.line(
            [
                (middle, y0 + w * 0.35),
                (
                    middle + w / 2 * math.cos(math.pi * (1 + nth / 5)),
                    y0 + w * 0.35 + w / 2 * math.sin(math.pi * (1 + nth / 5)),
                ),
            ],
            trim,
            2,
        )
    for side in (0, 1):
        left = x0 + side * w / 2
        for nth in range(2):
            y = y0 + w * 0.42 + (ground - y0 - w * 0.42) * nth / 2
            canvas.rect(
                left + 4,
                y + 4,
                left + w / 2 - 4,
                y + (ground - y0 - w * 0.42) / 2 - 4,
                mix(dark, palette[rng.randrange(6)], 0.5),
            )
    for nth in range(3):
        canvas.rect(
            x0 - 12 - nth * 6,
            ground + nth * 5,
            x1 + 12 + nth * 6,
            ground + nth * 5 + 5,
            mix(trim, INK, 0.1 + 0.12 * nth),
        )


def clock_face(canvas: Canvas, x: float, y: float, r: float, rng: random.Random) -> None:
    """A dial with its own time."""
    canvas.disc(x, y, r, PAPER, outline=INK, width=max(1.5, r / 9))
    for nth in range(12):
        angle = math.radians(nth * 30)
        canvas.disc(
            x + r * 0.74 * math.cos(angle), y + r * 0.74 * math.sin(angle), r * (0.08 if nth % 3 else 0.12), INK
        )
    hour, minute = rng.uniform(0, 2 * math.pi), rng.uniform(0, 2 * math.pi)
    canvas.line([(x, y), (x + r * 0.42 * math.cos(hour), y + r * 0.42 * math.sin(hour))], INK, max(2.0, r / 8))
    canvas.line(
        [(x, y), (x + r * 0.66 * math.cos(minute), y + r * 0.66 * math.sin(minute))], rgb("9a031e"), max(1.5, r / 12)
    )


def bridge(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A bridge over water: arches, truss or cables, with a town behind and boats below."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    water = h * rng.uniform(0.68, 0.74)
    canvas.sky(*rng.choice(SKIES), water)
    canvas.disc(rng.uniform(w * 0.1, w * 0.9), h * rng.uniform(0.08, 0.2), h * 0.05, mix(palette[2], PAPER, 0.5))
    for _ in range(3):
        cloud(canvas, rng.uniform(0, w), rng.uniform(h * 0.04, h * 0.22), rng.uniform(w * 0.05, w * 0.11), rng)
    hills(canvas, water, h * 0.22, mix(palette[0], (190, 205, 200), 0.6), rng)
    hills(canvas, water, h * 0.12, mix(palette[1], (150, 175, 160), 0.5), rng)
    x = 0.0
    while x < w:
        width = rng.uniform(w * 0.03, w * 0.07)
        top = water - h * rng.uniform(0.05, 0.15)
        body = mix(rng.choice(palette), PAPER, 0.35)
        canvas.rect(x, top, x + width, water, body)
        canvas.poly(
            [(x - 2, top), (x + width / 2, top - h * rng.uniform(0.02, 0.07)), (x + width + 2, top)],
            mix(rng.choice(palette), INK, 0.2),
        )
        for nth in range(3):
            canvas.rect(
                x + width * (0.14 + nth * 0.3), top + 6, x + width * (0.28 + nth * 0.3), top + 14, rng.choice(_GLASS)
            )
        x += width
    sea = mix(rgb("4f8fa8"), palette[rng.randrange(5)], 0.25)
    canvas.rect(0, water, w, h, sea)
    for _ in range(46):
        y = rng.uniform(water + 6, h - 4)
        x = rng.uniform(-20, w)
        canvas.line([(x, y), (x + rng.uniform(12, 60), y)], mix(sea, PAPER, rng.uniform(0.15, 0.5)), 2)
    deck = h * rng.uniform(0.46, 0.52)
    steel, stone = mix(palette[rng.randrange(5)], INK, 0.2), rng.choice(_STONE)
    style = rng.randrange(3)
    spans = rng.randint(2, 5)
    edges = sorted(w * ((nth + rng.uniform(-0.14, 0.14)) / spans) for nth in range(1, spans))
    edges = [-w * 0.05, *edges, w * 1.05]
    if style == 0:
        canvas.rect(0, deck, w, water + h * 0.03, stone)
        for _ in range(120):
            bx, by = rng.uniform(0, w), rng.uniform(deck, water)
            canvas.rect(bx, by, bx + rng.uniform(8, 20), by + 6, mix(stone, INK, rng.uniform(0.04, 0.15)))
        for start, end in pairwise(edges):
            middle, half = (start + end) / 2, (end - start) / 2 - 12
            reach = min(water - deck - h * 0.05, half * 1.1)
            canvas.disc(middle, water + h * 0.03, half + 7, mix(stone, INK, 0.25), reach + 7)
            canvas.disc(middle, water + h * 0.03, half, mix(sea, PAPER, 0.25), reach)
        canvas.rect(0, water + h * 0.03, w, water + h * 0.3, sea)
        for _ in range(20):
            y, x = rng.uniform(water + h * 0.04, h - 4), rng.uniform(-20, w)
            canvas.line([(x, y), (x + rng.uniform(12, 60), y)], mix(sea, PAPER, rng.uniform(0.2, 0.5)), 2)
    else:
        for edge in edges[1:-1]:
            canvas.rect(edge - 11, deck, edge + 11, water + h * 0.05, stone, mix(stone, INK, 0.4), 2)
        for start, end in pairwise(edges):
            rise = h * rng.uniform(0.12, 0.24)
            count = max(5, round((end - start) / 26))
            previous = (start, deck)
            for nth in range(count + 1):
                t = nth / count
                curve = (1 - (2 * t - 1) ** 2) if style == 1 else (2 * t - 1) ** 2
                point = (start + (end - start) * t, deck - rise * curve - (6 if style == 2 else 0))
                canvas.line([previous, point], steel, 5)
                canvas.line([point, (point[0], deck)], steel, 2.5)
                if style == 1:
                    canvas.line([point, (start + (end - start) * min(1, t + 1 / count), deck)], steel, 2)
                previous = point
        if style == 2:
            for edge in edges[1:-1]:
                canvas.rect(edge - 8, deck - h * 0.27, edge + 8, deck, steel)
                motif(canvas, edge, deck - h * 0.28, 30, rng, palette[:5])
    band(canvas, 0, deck - 2, w, deck + h * 0.035, rng, palette, mix(steel, PAPER, 0.75))
    for edge in edges[1:-1]:
        motif(canvas, edge, deck + h * 0.09, h * 0.08, rng, palette)
    for _ in range(rng.randint(2, 5)):
        lamp = rng.uniform(10, w - 10)
        canvas.line([(lamp, deck), (lamp, deck - h * 0.07)], INK, 2.5)
        canvas.disc(lamp, deck - h * 0.075, 5, rgb("f9c74f"), outline=INK)
    for _ in range(rng.randint(1, 3)):
        boat(
            canvas,
            rng.uniform(w * 0.1, w * 0.9),
            rng.uniform(water + h * 0.09, h * 0.94),
            h * rng.uniform(0.07, 0.12),
            palette,
            rng,
        )
    if view == 1:
        coat_of_arms(canvas, w * 0.1, h * 0.16, w * 0.11, rng, palette)


def boat(canvas: Canvas, x: float, y: float, size: float, palette: tuple[Colour, ...], rng: random.Random) -> None:
    """A sailing boat with a figure on its sail."""
    hull, sail = mix(rng.choice(palette), INK, 0.3), mix(rng.choice(palette), PAPER, 0.6)
    canvas.line([(x, y), (x, y - size * 1.5)], INK, 2)
    canvas.poly([(x + 3, y - size * 0.15), (x + 3, y - size * 1.45), (x + size * 0.8, y - size * 0.25)], sail)
    canvas.poly(
        [(x - 3, y - size * 0.15), (x - 3, y - size * 1.2), (x - size * 0.6, y - size * 0.25)], mix(sail, INK, 0.12)
    )
    motif(canvas, x + size * 0.27, y - size * 0.5, size * 0.4, rng, palette[:5])
    canvas.poly(
        [(x - size, y), (x + size, y), (x + size * 0.7, y + size * 0.35), (x - size * 0.7, y + size * 0.35)], hull
    )
    canvas.rect(x - size * 0.9, y + 2, x + size * 0.9, y + 5, rng.choice(palette))


def lighthouse(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A lighthouse on rocks, with bands of its own pattern."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    sea_top = h * rng.uniform(0.6, 0.7)
    night = rng.random() < 0.35
    sky = (rgb("1b2a49"), rgb("5c7a99")) if night else rng.choice(SKIES)
    canvas.sky(*sky, sea_top)
    sea = mix(rgb("3f7d8c"), palette[0], 0.25)
    x = w * rng.uniform(0.38, 0.62)
    lamp = h * rng.uniform(0.17, 0.22)
    if night:
        for _ in range(60):
            canvas.disc(rng.uniform(0, w), rng.uniform(0, sea_top), rng.uniform(0.7, 1.8), PAPER)
        for side in (-1, 1):
            canvas.poly(
                [(x, lamp), (x + side * w, lamp - h * 0.12), (x + side * w, lamp + h * 0.12)],
                mix(sky[0], rgb("f9e7a1"), 0.45),
            )
    else:
        for _ in range(4):
            cloud(canvas, rng.uniform(0, w), rng.uniform(h * 0.05, h * 0.35), rng.uniform(w * 0.07, w * 0.15), rng)
    canvas.rect(0, sea_top, w, h, sea)
    for _ in range(60):
        y = rng.uniform(sea_top + 4, h)
        sx = rng.uniform(-20, w)
        canvas.line([(sx, y), (sx + rng.uniform(14, 50), y)], mix(sea, PAPER, rng.uniform(0.1, 0.45)), 2)
    base = h * rng.uniform(0.8, 0.86)
    for _ in range(26):
        rx, ry = x + rng.gauss(0, w * 0.17), rng.uniform(base, h)
        size = rng.uniform(w * 0.05, w * 0.13)
        rock = mix(rgb("6b6459"), palette[rng.randrange(5)], rng.uniform(0.05, 0.3))
        corners = [
            (rx + size * dx, ry + size * dy)
            for dx, dy in ((-1, 0.5), (-0.7, -0.3), (-0.1, -rng.uniform(0.4, 0.8)), (0.6, -0.3), (1, 0.5))
        ]
        canvas.poly(corners, rock)
        canvas.poly([corners[2], corners[3], corners[4], (rx, ry + size * 0.4)], mix(rock, INK, 0.25))
    bottom, top = w * rng.uniform(0.1, 0.13), w * rng.uniform(0.055, 0.075)
    first, second = mix(palette[1], rgb("b02a30"), 0.4), PAPER
    number = rng.randint(4, 7)
    tower_top = lamp + h * 0.05
    tilted = rng.random() < 0.35

    def shape(mask: Canvas) -> None:
        mask.poly(
            [(x - bottom, base + 10), (x - top, tower_top), (x + top, tower_top), (x + bottom, base + 10)],
            (255, 255, 255),
        )

    def paint(layer: Canvas) -> None:
        tall = (base + 10 - tower_top) / number
        for nth in range(number):
            y = tower_top + nth * tall
            if tilted:
                layer.poly(
                    [
                        (x - w / 4, y + tall * 0.4),
                        (x + w / 4, y - tall * 0.4),
                        (x + w / 4, y + tall * 0.6),
                        (x - w / 4, y + tall * 1.4),
                    ],
                    first if nth % 2 else second,
                )
            else:
                layer.rect(x - w / 4, y, x + w / 4, y + tall, first if nth % 2 else second)
            if rng.random() < 0.6:
                motif(layer, x + rng.uniform(-0.3, 0.3) * top, y + tall / 2, tall * 0.5, rng, palette)
        layer.rect(
            x + top * 0.35, tower_top, x + w / 4, base + 10, mix(first, INK, 0.3)
        ) if rng.random() < 0.2 else None

    canvas.through(shape, paint)
    canvas.rect(x - top * 1.5, tower_top - 7, x + top * 1.5, tower_top + 3, INK)
    canvas.rect(
        x - top * 0.8, lamp - h * 0.045, x + top * 0.8, tower_top - 7, rgb("f9e7a1") if night else rgb("bcd8df"), INK, 2
    )
    for nth in range(1, 4):
        lx = x - top * 0.8 + top * 1.6 * nth / 4
        canvas.line([(lx, lamp - h * 0.045), (lx, tower_top - 7)], INK, 2)
    canvas.poly(
        [(x - top * 1.1, lamp - h * 0.045), (x, lamp - h * 0.11), (x + top * 1.1, lamp - h * 0.045)],
        mix(palette[rng.randrange(5)], INK, 0.3),
    )
    side = rng.choice((-1, 1))
    hx = x + side * w * 0.2
    canvas.rect(hx - w * 0.1, base - h * 0.06, hx + w * 0.1, base + h * 0.02, rng.choice(_STONE))
    canvas.poly(
        [
            (hx - w * 0.12, base - h * 0.06),
            (hx - w * 0.04, base - h * 0.13),
            (hx + w * 0.06, base - h * 0.13),
            (hx + w * 0.12, base - h * 0.06),
        ],
        mix(palette[rng.randrange(5)], INK, 0.2),
    )
    for nth in range(3):
        canvas.rect(
            hx - w * 0.08 + nth * w * 0.06,
            base - h * 0.045,
            hx - w * 0.05 + nth * w * 0.06,
            base - h * 0.015,
            rng.choice(_GLASS),
        )
    for _ in range(rng.randint(1, 3)):
        boat(canvas, rng.uniform(0, w), rng.uniform(sea_top + 20, h * 0.8), h * rng.uniform(0.03, 0.06), palette, rng)
    for _ in range(5):
        gx, gy = rng.uniform(0, w), rng.uniform(h * 0.1, sea_top)
        canvas.line([(gx - 9, gy - 4), (gx, gy), (gx + 9, gy - 5)], INK if not night else PAPER, 2)
    if view == 1:
        canvas.poly(star(w * 0.88, h * 0.1, w * 0.05, w * 0.02, 8), palette[2])
