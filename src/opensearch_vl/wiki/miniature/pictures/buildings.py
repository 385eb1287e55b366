"""Painter of facades, with the windows, doors, roofs and dials that other painters borrow."""

from __future__ import annotations

import math
import random

from opensearch_vl.wiki.miniature.pictures.canvas import (
    INK,
    PALETTES,
    PAPER,
    SKIES,
    Canvas,
    Colour,
    mix,
    rgb,
)
from opensearch_vl.wiki.miniature.pictures.ornament import band, coat_of_arms, mosaic, motif
from opensearch_vl.wiki.miniature.pictures.scenery import cloud, hills, pavement, person, tree

GLASS = (rgb("41576b"), rgb("6c8ca3"), rgb("f2d48a"), rgb("30425a"), rgb("8fb3c4"))


STONE = (
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
    wall, trim = rng.choice(STONE), rng.choice((PAPER, palette[5], mix(palette[0], PAPER, 0.55)))
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
                canvas.rect(x - 9, top - h * 0.17, x + 9, top - 6, rng.choice(GLASS))
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
    glass = rng.choice(GLASS)
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
    canvas.disc(middle, y0 + w * 0.35, w / 2, rng.choice(GLASS))
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
