"""Painters of locations: town panoramas, town maps, landscapes."""

from __future__ import annotations

import math
import random

from opensearch_vl.wiki.miniature.pictures.buildings import GLASS, clock_face
from opensearch_vl.wiki.miniature.pictures.canvas import INK, PALETTES, PAPER, SKIES, Canvas, Colour, Point, mix, rgb
from opensearch_vl.wiki.miniature.pictures.ornament import band, coat_of_arms, motif, star
from opensearch_vl.wiki.miniature.pictures.scenery import cloud, hills, tree
from opensearch_vl.wiki.miniature.pictures.waterside import boat


def town(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A town seen from across the water: rows of houses, towers, a hill, the coat of arms in a corner."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    base = h * rng.uniform(0.8, 0.86)
    canvas.sky(*rng.choice(SKIES), base)
    canvas.disc(w * rng.uniform(0.3, 0.9), h * rng.uniform(0.1, 0.22), h * 0.06, mix(palette[2], PAPER, 0.45))
    for _ in range(3):
        cloud(canvas, rng.uniform(0, w), h * rng.uniform(0.06, 0.25), w * rng.uniform(0.05, 0.1), rng)
    hills(canvas, base, h * 0.5, mix(palette[0], (200, 212, 205), 0.65), rng)
    hills(canvas, base, h * 0.38, mix(palette[1], (170, 190, 175), 0.55), rng)
    for row in range(3):
        floor = base - h * (0.2 - 0.1 * row)
        x = -rng.uniform(0, 30)
        while x < w:
            width = w * rng.uniform(0.05, 0.1)
            if rng.random() < 0.12:
                _tower(canvas, x + width / 2, floor, width * 0.55, h * rng.uniform(0.28, 0.42), palette, rng)
            else:
                _house(canvas, x, floor, width, h * rng.uniform(0.11, 0.22), palette, rng, fade=0.45 - 0.2 * row)
            x += width * rng.uniform(0.9, 1.1)
        for _ in range(4):
            tree(canvas, rng.uniform(0, w), floor + 4, h * rng.uniform(0.07, 0.13), rng)
    wall = mix(palette[3], INK, 0.35)
    canvas.rect(0, base - 4, w, base + h * 0.035, wall)
    for nth in range(30):
        canvas.rect(
            w * nth / 30 + 2, base + 2, w * (nth + 1) / 30 - 2, base + h * 0.03, mix(wall, PAPER, rng.uniform(0.1, 0.3))
        )
    water = mix(rgb("5b97ad"), palette[rng.randrange(5)], 0.22)
    canvas.rect(0, base + h * 0.035, w, h, water)
    for _ in range(50):
        y, x = rng.uniform(base + h * 0.05, h), rng.uniform(-20, w)
        canvas.line([(x, y), (x + rng.uniform(10, 46), y)], mix(water, PAPER, rng.uniform(0.15, 0.5)), 2)
    for _ in range(rng.randint(1, 3)):
        boat(
            canvas,
            rng.uniform(w * 0.1, w * 0.9),
            h * rng.uniform(0.93, 0.96),
            h * rng.uniform(0.05, 0.08),
            palette,
            rng,
        )
    coat_of_arms(canvas, w * (0.09 if view == 0 else 0.91), h * 0.16, w * 0.11, rng, palette)


def _house(canvas: Canvas, x: float, floor: float, width: float, height: float, palette: tuple[Colour, ...],
           rng: random.Random, fade: float) -> None:  # fmt: skip
    wall = mix(rng.choice(palette), PAPER, 0.3 + fade * 0.5)
    roof = mix(mix(rng.choice(palette), rgb("9c4a34"), 0.5), PAPER, fade * 0.5)
    top = floor - height
    canvas.rect(x, top, x + width, floor, wall)
    if rng.random() < 0.6:
        canvas.poly([(x - 3, top), (x + width / 2, top - height * rng.uniform(0.3, 0.6)), (x + width + 3, top)], roof)
    else:
        canvas.poly(
            [
                (x - 3, top),
                (x + width * 0.2, top - height * 0.3),
                (x + width * 0.8, top - height * 0.3),
                (x + width + 3, top),
            ],
            roof,
        )
        canvas.rect(x + width * 0.6, top - height * 0.45, x + width * 0.75, top - height * 0.1, mix(roof, INK, 0.3))
    columns, rows = rng.randint(2, 4), max(1, round(height / 26))
    for row in range(rows):
        for column in range(columns):
            if rng.random() < 0.85:
                wx = x + width * (column + 0.25) / columns
                wy = top + height * (row + 0.2) / rows
                canvas.rect(
                    wx,
                    wy,
                    wx + width * 0.5 / columns,
                    wy + height * 0.5 / rows,
                    mix(rng.choice(GLASS), PAPER, fade * 0.4),
                )


def _tower(canvas: Canvas, x: float, floor: float, width: float, height: float, palette: tuple[Colour, ...],
           rng: random.Random) -> None:  # fmt: skip
    wall = mix(rng.choice(palette), PAPER, 0.5)
    top = floor - height
    canvas.rect(x - width / 2, top, x + width / 2, floor, wall)
    band(canvas, x - width / 2, top + height * 0.3, x + width / 2, top + height * 0.3 + width * 0.4, rng, palette, wall)
    if rng.random() < 0.5:
        clock_face(canvas, x, top + height * 0.14, width * 0.36, rng)
    else:
        canvas.rect(x - width * 0.15, top + height * 0.06, x + width * 0.15, top + height * 0.22, INK)
    roof = mix(rng.choice(palette), INK, 0.3)
    if rng.random() < 0.5:
        canvas.poly([(x - width * 0.65, top), (x, top - height * 0.45), (x + width * 0.65, top)], roof)
    else:
        canvas.disc(x, top - width * 0.3, width * 0.55, roof, width * 0.6)
        canvas.rect(x - width * 0.5, top - width * 0.15, x + width * 0.5, top + 2, wall)
        canvas.line([(x, top - width * 1.5), (x, top - width * 0.8)], INK, 2)


def town_map(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A street map on paper: blocks, a river, parks, a compass rose and the coat of arms."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    paper = mix(PAPER, palette[2], 0.15)
    canvas.rect(0, 0, w, h, paper)
    step = rng.uniform(46, 62)
    columns, rows = int(w / step) + 3, int(h / step) + 3
    lattice: list[list[Point]] = [
        [((c - 1 + rng.uniform(-0.3, 0.3)) * step, (r - 1 + rng.uniform(-0.3, 0.3)) * step) for c in range(columns)]
        for r in range(rows)
    ]
    for r in range(rows - 1):
        for c in range(columns - 1):
            corners = [lattice[r][c], lattice[r][c + 1], lattice[r + 1][c + 1], lattice[r + 1][c]]
            mx, my = sum(x for x, _ in corners) / 4, sum(y for _, y in corners) / 4
            block = [(mx + (x - mx) * 0.86, my + (y - my) * 0.86) for x, y in corners]
            luck = rng.random()
            if luck < 0.14:
                canvas.poly(block, mix(rgb("8fb573"), paper, 0.2))
                for _ in range(5):
                    canvas.disc(mx + rng.uniform(-12, 12), my + rng.uniform(-12, 12), 3.5, rgb("4f7a4a"))
            elif luck < 0.2:
                canvas.poly(block, mix(palette[3], paper, 0.4))
                motif(canvas, mx, my, step * 0.55, rng, palette)
            else:
                colour = mix(rng.choice(palette), paper, 0.5)
                canvas.poly(block, colour)
                for _ in range(rng.randint(1, 4)):
                    bx, by = mx + rng.uniform(-0.25, 0.2) * step, my + rng.uniform(-0.25, 0.2) * step
                    canvas.rect(
                        bx,
                        by,
                        bx + rng.uniform(6, 16),
                        by + rng.uniform(6, 14),
                        mix(colour, INK, rng.uniform(0.15, 0.45)),
                    )
    phase, lean = rng.uniform(0, 6), rng.uniform(-0.5, 0.5)
    across = rng.random() < 0.5
    course = []
    for nth in range(-1, 32):
        t = nth / 30
        drift = 0.5 + lean * (t - 0.5) + 0.1 * math.sin(phase + 7 * t)
        course.append((w * t, h * drift) if across else (w * drift, h * t))
    canvas.line(course, paper, 40)
    canvas.line(course, mix(rgb("6fa8c4"), palette[1], 0.15), 30)
    for nth in rng.sample(range(4, 28), 3):
        (x, y), (x2, y2) = course[nth], course[nth + 1]
        length = math.hypot(x2 - x, y2 - y)
        nx, ny = -(y2 - y) / length, (x2 - x) / length
        canvas.line([(x - nx * 24, y - ny * 24), (x + nx * 24, y + ny * 24)], INK, 11)
        canvas.line([(x - nx * 24, y - ny * 24), (x + nx * 24, y + ny * 24)], PAPER, 7)
    corner = rng.randrange(2)
    cx, cy = (w * 0.88, h * 0.85) if corner else (w * 0.12, h * 0.85)
    canvas.disc(cx, cy, w * 0.075, PAPER, outline=INK, width=2)
    canvas.poly(star(cx, cy, w * 0.068, w * 0.02, 4), palette[4])
    canvas.poly(star(cx, cy, w * 0.045, w * 0.015, 4, -45), mix(palette[1], INK, 0.2))
    canvas.rect(w * 0.02, h * 0.02, w * 0.98, h * 0.98, None, INK, 3)
    ax = w * (0.12 if view == 0 else 0.88)
    canvas.rect(ax - w * 0.085, h * 0.05, ax + w * 0.085, h * 0.05 + w * 0.19, PAPER, INK, 2, 6)
    coat_of_arms(canvas, ax, h * 0.05 + w * 0.095, w * 0.12, rng, palette)


def landscape(canvas: Canvas, rng: random.Random, view: int) -> None:
    """Mountains, fields, water and woods in layers."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    sky = rng.choice(SKIES)
    horizon = h * rng.uniform(0.52, 0.6)
    canvas.sky(*sky, horizon + 4)
    canvas.disc(
        w * rng.uniform(0.15, 0.85),
        h * rng.uniform(0.1, 0.28),
        h * rng.uniform(0.05, 0.08),
        mix(palette[2], rgb("fff1c9"), 0.5),
    )
    for _ in range(rng.randint(2, 5)):
        cloud(canvas, rng.uniform(0, w), h * rng.uniform(0.06, 0.3), w * rng.uniform(0.05, 0.12), rng)
    for layer in range(3):
        _ridge(
            canvas,
            horizon + h * 0.03 * layer,
            h * (0.42 - 0.11 * layer),
            mix(mix(palette[layer], INK, 0.15), sky[1], 0.55 - 0.22 * layer),
            rng,
        )
    field = mix(rgb("8aa35a"), palette[rng.randrange(6)], 0.3)
    canvas.rect(0, horizon, w, h, field)
    _patchwork(canvas, horizon, palette, field, rng)
    if rng.random() < 0.65:
        water = mix(rgb("5b97ad"), palette[1], 0.15)
        y, wide = h * rng.uniform(0.7, 0.8), h * rng.uniform(0.05, 0.11)
        phase = rng.uniform(0, 6)
        upper = [(w * t / 20, y + 14 * math.sin(phase + t * 0.7)) for t in range(21)]
        lower = [(x, py + wide + 12 * math.sin(phase + 2 + x / 60)) for x, py in reversed(upper)]
        canvas.poly([*upper, *lower], water)
        for _ in range(16):
            x, py = rng.uniform(0, w), y + rng.uniform(10, wide)
            canvas.line([(x, py), (x + rng.uniform(14, 46), py)], mix(water, PAPER, 0.5), 2)
    for _ in range(rng.randint(10, 18)):
        y = rng.uniform(horizon + h * 0.05, h * 0.97)
        tree(
            canvas, rng.uniform(0, w), y, h * (0.06 + 0.2 * (y - horizon) / (h - horizon)) * rng.uniform(0.8, 1.2), rng
        )
    for _ in range(rng.randint(2, 4)):
        x, y, size = (
            rng.uniform(w * 0.05, w * 0.9),
            rng.uniform(horizon + h * 0.06, h * 0.86),
            h * rng.uniform(0.05, 0.08),
        )
        canvas.rect(x, y - size, x + size * 1.4, y, mix(rng.choice(palette), PAPER, 0.6))
        canvas.poly(
            [(x - 4, y - size), (x + size * 0.7, y - size * 1.7), (x + size * 1.4 + 4, y - size)],
            mix(rng.choice(palette), rgb("9c4a34"), 0.5),
        )
        canvas.rect(x + size * 0.2, y - size * 0.75, x + size * 0.5, y - size * 0.4, INK)
        canvas.rect(x + size * 0.85, y - size * 0.6, x + size * 1.15, y, INK)
    for _ in range(26):
        x, y = rng.uniform(0, w), rng.uniform(h * 0.88, h)
        canvas.line([(x, y), (x + rng.uniform(-4, 4), y - rng.uniform(8, 18))], mix(field, INK, 0.45), 2)
        if rng.random() < 0.6:
            canvas.disc(x, y - 18, 4, rng.choice(palette))
    if view == 1:
        for nth in range(5):
            gx, gy = w * rng.uniform(0.1, 0.9), h * rng.uniform(0.08, 0.3)
            canvas.line([(gx - 12, gy - 5), (gx, gy), (gx + 12, gy - 6 - nth)], INK, 2.5)


def _ridge(canvas: Canvas, base: float, height: float, colour: Colour, rng: random.Random) -> None:
    """A mountain chain with lit and shaded faces and snow on its tops."""
    w = canvas.width
    x = -w * 0.1
    while x < w * 1.05:
        half, tall = w * rng.uniform(0.12, 0.24), height * rng.uniform(0.55, 1.0)
        top = (x + half + rng.uniform(-0.2, 0.2) * half, base - tall)
        left, right = (x, base), (x + 2 * half, base)
        bend = (top[0] + rng.uniform(-0.15, 0.25) * half, base)
        canvas.poly([left, top, right], colour)
        canvas.poly([top, right, bend], mix(colour, INK, 0.2))
        snow = rng.uniform(0.15, 0.35)
        a = (top[0] + (left[0] - top[0]) * snow, top[1] + (left[1] - top[1]) * snow)
        b = (top[0] + (right[0] - top[0]) * snow, top[1] + (right[1] - top[1]) * snow)
        teeth = [
            (a[0] + (b[0] - a[0]) * t, a[1] + tall * (0.09 if nth % 2 else -0.02))
            for nth, t in enumerate((0.2, 0.4, 0.6, 0.8))
        ]
        canvas.poly([top, a, *teeth, b], mix((250, 250, 252), colour, 0.15))
        for _ in range(3):
            t, s = rng.uniform(0.45, 0.9), rng.uniform(-0.6, 0.5)
            px, py = top[0] + s * half * t, top[1] + tall * t
            canvas.poly(
                [(px, py), (px + half * 0.12, py + tall * 0.08), (px - half * 0.05, py + tall * 0.1)],
                mix(colour, INK, 0.3),
            )
        x += half * rng.uniform(0.8, 1.5)


def _patchwork(canvas: Canvas, top: float, palette: tuple[Colour, ...], field: Colour, rng: random.Random) -> None:
    w, h = canvas.width, canvas.height
    rows = 5
    for row in range(rows):
        y0 = top + (h - top) * (row / rows) ** 1.4
        y1 = top + (h - top) * ((row + 1) / rows) ** 1.4
        x, slant = -w * 0.2, rng.uniform(-40, 40)
        while x < w * 1.1:
            wide = w * rng.uniform(0.12, 0.3) * (0.6 + row * 0.15)
            colour = mix(mix(rng.choice(palette), field, 0.65), PAPER, rng.uniform(0, 0.2))
            canvas.poly([(x, y0), (x + wide, y0), (x + wide + slant, y1), (x + slant, y1)], colour)
            if rng.random() < 0.5:
                for nth in range(1, 6):
                    t = nth / 6
                    canvas.line([(x + wide * t, y0), (x + wide * t + slant, y1)], mix(colour, INK, 0.18), 2)
            x += wide
