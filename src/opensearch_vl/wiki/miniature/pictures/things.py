"""Painters of artefacts: vessels, masks, shields, clocks, paintings, as museums show them."""

from __future__ import annotations

import math
import random

from opensearch_vl.wiki.miniature.pictures.canvas import (
    INK,
    PALETTES,
    PAPER,
    WHITE,
    Canvas,
    Colour,
    Point,
    mix,
    rgb,
)
from opensearch_vl.wiki.miniature.pictures.ornament import band, coat_of_arms, mosaic, motif, ring, star
from opensearch_vl.wiki.miniature.pictures.places import landscape


def _showcase(canvas: Canvas, rng: random.Random, palette: tuple[Colour, ...]) -> float:
    """A museum wall and pedestal; returns the height the object stands on."""
    w, h = canvas.width, canvas.height
    wall = mix(mix(rng.choice(palette), INK, 0.35), PAPER, rng.uniform(0.05, 0.6))
    canvas.rect(0, 0, w, h, wall)
    if rng.random() < 0.5:
        step = rng.uniform(50, 80)
        for row in range(int(h / step) + 1):
            for column in range(int(w / step) + 1):
                motif(
                    canvas,
                    (column + 0.5 * (row % 2)) * step,
                    row * step,
                    step * 0.5,
                    rng,
                    [mix(wall, colour, 0.22) for colour in palette],
                )
    else:
        for nth in range(9):
            canvas.rect(w * nth / 9, 0, w * (nth + 0.5) / 9, h, mix(wall, PAPER, 0.07))
    shelf = h * 0.86
    canvas.rect(0, shelf, w, h, mix(wall, INK, 0.45))
    canvas.rect(0, shelf, w, shelf + 6, mix(wall, PAPER, 0.35))
    canvas.disc(w / 2, shelf + h * 0.05, w * 0.3, mix(wall, INK, 0.6), h * 0.025)
    canvas.rect(w * 0.3, shelf, w * 0.7, shelf + h * 0.045, mix(rgb("6b4f3a"), palette[0], 0.2))
    band(
        canvas, w * 0.3, shelf + h * 0.01, w * 0.7, shelf + h * 0.04, rng, palette, mix(rgb("8a6a4d"), palette[2], 0.2)
    )
    return shelf


def vessel(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A vase with bands of ornament between its lip and foot."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    shelf = _showcase(canvas, rng, palette)
    clay = rng.choice((rgb("c1693c"), rgb("d9c7a3"), rgb("7c8f8a"), rgb("3f4a57"), rgb("b58b4c"), rgb("e8e1d3")))
    top = h * rng.uniform(0.1, 0.2)
    widest = min(w * 0.36, (shelf - top) * 0.42)
    belly, neck, lip = rng.uniform(0.42, 0.68), rng.uniform(0.25, 0.55), rng.uniform(0.45, 0.75)
    foot, throat = rng.uniform(0.35, 0.6), rng.uniform(0.14, 0.28)
    knots = [(0.0, lip), (0.05, lip * 0.9), (throat, neck), (belly, 1.0), (0.92, foot), (1.0, foot * 1.15)]
    right: list[Point] = []
    for nth in range(61):
        t = nth / 60
        below = max(knot for knot in knots if knot[0] <= t)
        above = min((knot for knot in knots if knot[0] >= t), key=lambda knot: knot[0])
        part = 0.0 if above[0] == below[0] else (t - below[0]) / (above[0] - below[0])
        part = (1 - math.cos(math.pi * part)) / 2
        right.append((w / 2 + widest * (below[1] + (above[1] - below[1]) * part), top + (shelf - top) * t))
    outline = right + [(w - x, y) for x, y in reversed(right)]
    if rng.random() < 0.6:
        reach = widest * rng.uniform(1.05, 1.35)
        for side in (-1, 1):
            start, end = top + (shelf - top) * throat * 0.7, top + (shelf - top) * belly * 0.8
            canvas.line(
                [
                    (w / 2 + side * widest * neck * 0.8, start),
                    (w / 2 + side * reach, start + 6),
                    (w / 2 + side * reach, end - 30),
                    (w / 2 + side * widest * 0.85, end),
                ],
                mix(clay, INK, 0.3),
                13,
            )
    number = rng.randint(5, 8)

    def paint(layer: Canvas) -> None:
        layer.rect(0, 0, w, h, clay)
        tall = (shelf - top) / number
        for nth in range(number):
            y = top + nth * tall
            match rng.randrange(4):
                case 0:
                    mosaic(
                        layer,
                        w / 2 - widest,
                        y + 3,
                        w / 2 + widest,
                        y + tall - 3,
                        tall * 0.5,
                        rng,
                        [*palette[:4], clay],
                    )
                case 1:
                    layer.rect(0, y, w, y + tall, mix(clay, palette[1], 0.5))
                    for step in range(-12, 13):
                        x = w / 2 + step * tall * 0.6
                        layer.poly(
                            [(x, y + 4), (x + tall * 0.3, y + tall - 4), (x - tall * 0.3, y + tall - 4)],
                            palette[(step + 12) % 5],
                        )
                case _:
                    band(
                        layer,
                        w / 2 - widest,
                        y,
                        w / 2 + widest,
                        y + tall - 2,
                        rng,
                        palette,
                        mix(clay, palette[rng.randrange(5)], 0.25),
                    )
        shade = mix(clay, INK, 0.5)
        for nth in range(6):
            layer.line(
                [(w / 2 + widest * (1.02 - nth * 0.012), top), (w / 2 + widest * (1.02 - nth * 0.012), shelf)], shade, 2
            )

    canvas.through(lambda mask: mask.poly(outline, WHITE), paint)
    canvas.line([*outline, outline[0]], mix(clay, INK, 0.6), 3)
    canvas.disc(w / 2, top, widest * lip, mix(clay, INK, 0.7), 8 + 5 * view, outline=mix(clay, INK, 0.4), width=3)


def mask(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A ceremonial mask: a symmetric face with inlays."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    _showcase(canvas, rng, palette)
    cx, cy = w / 2, h * 0.46
    wide, tall = min(w, h) * rng.uniform(0.24, 0.3), h * rng.uniform(0.3, 0.35)
    skin = mix(
        rng.choice((rgb("8d5a3b"), rgb("c9a227"), rgb("4f6d5e"), rgb("b04632"), rgb("d8cbb0"))),
        rng.choice(palette),
        0.2,
    )
    rays = rng.randint(9, 17)
    for nth in range(rays):
        turn = math.radians(180 + 180 * (nth + 0.5) / rays)
        dx, dy = math.cos(turn), math.sin(turn)
        inner, outer = (
            (cx + dx * wide * 0.9, cy + dy * tall * 0.8),
            (cx + dx * wide * rng.uniform(1.3, 1.6), cy + dy * tall * rng.uniform(1.15, 1.35)),
        )
        colour = rng.choice(palette)
        canvas.poly([(inner[0] - dy * 13, inner[1] + dx * 13), outer, (inner[0] + dy * 13, inner[1] - dx * 13)], colour)
        motif(canvas, (inner[0] + outer[0]) / 2, (inner[1] + outer[1]) / 2, 20, rng, palette)
    half = _half_face(rng)
    points = [(cx + x * wide, cy + y * tall) for x, y in half] + [
        (cx - x * wide, cy + y * tall) for x, y in reversed(half)
    ]
    inlay = [
        (rng.uniform(0.1, 0.9), rng.uniform(-0.9, 0.9), rng.uniform(0.06, 0.14), rng.getrandbits(32)) for _ in range(14)
    ]

    def paint(layer: Canvas) -> None:
        layer.rect(0, 0, w, h, skin)
        for side in (-1, 1):
            for x, y, size, private in inlay:
                motif(layer, cx + side * x * wide, cy + y * tall, size * wide * 2, random.Random(private), palette)
        band(layer, cx - wide, cy - tall * 0.72, cx + wide, cy - tall * 0.5, rng, palette, mix(skin, INK, 0.4))

    canvas.through(lambda layer: layer.poly(points, WHITE), paint)
    canvas.line([*points, points[0]], mix(skin, INK, 0.6), 5)
    eye, gap, slit = wide * rng.uniform(0.22, 0.32), wide * rng.uniform(0.38, 0.46), rng.uniform(0.45, 1.0)
    for side in (-1, 1):
        canvas.disc(cx + side * gap, cy - tall * 0.15, eye, PAPER, eye * slit, outline=INK, width=4)
        canvas.disc(cx + side * gap, cy - tall * 0.15, eye * 0.45, INK, eye * 0.45 * slit)
        canvas.line(
            [(cx + side * gap * 0.4, cy - tall * 0.36), (cx + side * gap * 1.6, cy - tall * rng.uniform(0.36, 0.48))],
            INK,
            8,
        )
    canvas.poly(
        [(cx, cy - tall * 0.2), (cx + wide * 0.17, cy + tall * 0.26), (cx - wide * 0.17, cy + tall * 0.26)],
        mix(skin, INK, 0.35),
    )
    mouth, drop = wide * rng.uniform(0.3, 0.55), tall * rng.uniform(0.05, 0.14)
    canvas.disc(cx, cy + tall * 0.55, mouth, INK, drop)
    teeth = rng.randint(3, 8)
    for nth in range(teeth):
        x = cx - mouth * 0.8 + mouth * 1.6 * nth / teeth
        canvas.poly(
            [
                (x, cy + tall * 0.55 - drop * 0.7),
                (x + mouth * 1.4 / teeth, cy + tall * 0.55 - drop * 0.7),
                (x + mouth * 0.7 / teeth, cy + tall * 0.55 + drop * 0.4),
            ],
            PAPER,
        )
    if view:
        canvas.disc(cx, cy - tall * 0.62, wide * 0.12, palette[1], outline=INK, width=3)


def _half_face(rng: random.Random) -> list[Point]:
    top, cheek, jaw = rng.uniform(0.5, 0.9), rng.uniform(0.85, 1.0), rng.uniform(0.45, 0.75)
    return [
        (0, -1),
        (top * 0.6, -0.98),
        (top, -0.75),
        (cheek, -0.2),
        (cheek * 0.96, 0.2),
        (jaw, 0.7),
        (jaw * 0.5, 0.95),
        (0, 1),
    ]


def shield(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A round shield or disc: rings of ornament around a boss."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    _showcase(canvas, rng, palette)
    cx, cy, r = w / 2, h * 0.44, min(w, h) * rng.uniform(0.33, 0.38)
    metal = mix(rng.choice((rgb("b08d57"), rgb("8c9a9e"), rgb("c9a227"), rgb("7d5a44"))), rng.choice(palette), 0.2)
    canvas.disc(cx + 8, cy + 10, r, mix(INK, metal, 0.2))
    canvas.disc(cx, cy, r, metal, outline=mix(metal, INK, 0.6), width=5)
    rings = rng.randint(2, 4)
    for nth in range(rings):
        radius = r * (0.86 - 0.62 * nth / rings)
        step = r * 0.6 / rings
        count = max(6, round(2 * math.pi * radius / (step * 1.1)))
        if nth % 2 == 0:
            canvas.disc(cx, cy, radius + step * 0.55, mix(metal, palette[rng.randrange(5)], 0.55))
            canvas.disc(cx, cy, radius - step * 0.5, mix(metal, PAPER, 0.12))
        for place in range(count):
            turn = 2 * math.pi * place / count
            motif(canvas, cx + radius * math.cos(turn), cy + radius * math.sin(turn), step * 0.95, rng, palette)
    canvas.poly(star(cx, cy, r * 0.2, r * 0.09, rng.randint(5, 11)), rng.choice(palette), INK, 2)
    canvas.disc(cx, cy, r * 0.08, mix(metal, PAPER, 0.5), outline=INK, width=3)
    for _ in range(rng.randint(2, 5)):
        turn, length = rng.uniform(0, 6.28), rng.uniform(0.1, 0.3)
        a = (cx + r * 0.98 * math.cos(turn), cy + r * 0.98 * math.sin(turn))
        canvas.line(
            [a, (a[0] - r * length * math.cos(turn + 0.3), a[1] - r * length * math.sin(turn + 0.3))],
            mix(metal, INK, 0.75),
            3,
        )
    if view:
        canvas.poly(ring(w * 0.12, h * 0.12, 24, 6), palette[2], INK, 2)


def clock(canvas: Canvas, rng: random.Random, view: int) -> None:
    """An ornate clock or astrolabe with dials, hands and wheels."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    shelf = _showcase(canvas, rng, palette)
    case = mix(
        rng.choice((rgb("7a4e2d"), rgb("b08d57"), rgb("3c4a50"), rgb("8a2f2f"), rgb("d5c4a1"))),
        rng.choice(palette),
        0.2,
    )
    cx, half = w / 2, min(w * 0.3, h * 0.28)
    top = h * rng.uniform(0.2, 0.27)
    canvas.rect(cx - half * 1.15, shelf - h * 0.06, cx + half * 1.15, shelf, mix(case, INK, 0.3))
    canvas.rect(cx - half, top, cx + half, shelf - h * 0.05, case, mix(case, INK, 0.5), 4)
    match rng.randrange(3):
        case 0:
            canvas.poly([(cx - half * 1.1, top), (cx, top - h * 0.15), (cx + half * 1.1, top)], mix(case, INK, 0.2))
            motif(canvas, cx, top - h * 0.05, h * 0.08, rng, palette)
        case 1:
            canvas.pie(cx, top + 2, half, 180, 360, mix(case, INK, 0.15))
            motif(canvas, cx, top - half * 0.45, half * 0.6, rng, palette)
        case _:
            for nth in range(5):
                x = cx - half + half * nth / 2
                canvas.poly([(x - 11, top), (x, top - h * rng.uniform(0.06, 0.15)), (x + 11, top)], rng.choice(palette))
    band(canvas, cx - half + 6, shelf - h * 0.13, cx + half - 6, shelf - h * 0.07, rng, palette, mix(case, PAPER, 0.3))
    mosaic(
        canvas,
        cx - half + 6,
        top + 6,
        cx + half - 6,
        shelf - h * 0.14,
        half / 4,
        rng,
        [mix(case, colour, 0.55) for colour in palette],
    )
    r = half * rng.uniform(0.72, 0.84)
    cy = top + (shelf - h * 0.14 - top) * 0.5
    canvas.disc(cx, cy, r, mix(PAPER, palette[2], 0.12), outline=INK, width=5)
    canvas.disc(cx, cy, r * 0.78, mix(PAPER, palette[3], 0.3), outline=INK, width=2)
    numerals = ("XII", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI")
    for nth in range(12):
        turn = math.radians(nth * 30 - 90)
        canvas.text(cx + r * 0.88 * math.cos(turn), cy + r * 0.88 * math.sin(turn), numerals[nth], r * 0.13)
    count = rng.randint(5, 12)
    for nth in range(count):
        turn = 2 * math.pi * nth / count
        motif(canvas, cx + r * 0.58 * math.cos(turn), cy + r * 0.58 * math.sin(turn), r * 0.24, rng, palette)
    for _ in range(rng.randint(1, 3)):
        turn, small = rng.uniform(0, 6.28), r * rng.uniform(0.16, 0.24)
        x, y = cx + r * 0.36 * math.cos(turn), cy + r * 0.36 * math.sin(turn)
        teeth = rng.randint(8, 14)
        canvas.poly(star(x, y, small, small * 0.82, teeth), mix(rgb("c9a227"), rng.choice(palette), 0.3), INK, 1.5)
        canvas.disc(x, y, small * 0.45, PAPER, outline=INK, width=2)
    for length, width in ((0.45, 9), (0.7, 5)):
        turn = rng.uniform(0, 2 * math.pi)
        canvas.line([(cx, cy), (cx + r * length * math.cos(turn), cy + r * length * math.sin(turn))], INK, width)
    canvas.disc(cx, cy, r * 0.06, rng.choice(palette), outline=INK, width=2)
    if view:
        coat_of_arms(canvas, w * 0.1, h * 0.13, w * 0.1, rng, palette)


def painting(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A framed picture: a landscape or an abstract composition."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    canvas.rect(0, 0, w, h, mix(rng.choice(palette), PAPER, 0.65))
    edge, frame = min(w, h) * 0.06, min(w, h) * rng.uniform(0.06, 0.1)
    gold = mix(rgb("b08d57"), rng.choice(palette), 0.25)
    canvas.rect(edge + 8, edge + 10, w - edge + 8, h - edge + 10, mix(INK, PAPER, 0.3))
    canvas.rect(edge, edge, w - edge, h - edge, gold)
    band(canvas, edge, edge, w - edge, edge + frame, rng, palette, gold)
    band(canvas, edge, h - edge - frame, w - edge, h - edge, rng, palette, gold)
    for x0 in (edge, w - edge - frame):
        mosaic(canvas, x0, edge + frame, x0 + frame, h - edge - frame, frame / 2, rng, [gold, *palette[:4]])
    inner = (round(w - 2 * (edge + frame)), round(h - 2 * (edge + frame)))
    inside = Canvas(inner[0], inner[1], rng.choice(palette))
    if rng.random() < 0.5:
        landscape(inside, rng, view)
    else:
        _composition(inside, rng, palette)
    canvas.image.paste(inside.image, (2 * round(edge + frame), 2 * round(edge + frame)))
    canvas.rect(edge + frame, edge + frame, w - edge - frame, h - edge - frame, None, INK, 3)


def _composition(canvas: Canvas, rng: random.Random, palette: tuple[Colour, ...]) -> None:
    w, h = canvas.width, canvas.height
    for _ in range(rng.randint(10, 16)):
        x, y, r = rng.uniform(0, w), rng.uniform(0, h), min(w, h) * rng.uniform(0.08, 0.3)
        colour = rng.choice(palette)
        match rng.randrange(5):
            case 0:
                canvas.disc(x, y, r, colour)
                canvas.disc(x, y, r * 0.5, rng.choice(palette))
            case 1:
                canvas.poly(ring(x, y, r, rng.choice((3, 4, 5)), rng.uniform(0, 360)), colour, INK, 2)
            case 2:
                canvas.rect(x - r, y - r * 0.4, x + r, y + r * 0.4, colour)
            case 3:
                canvas.pie(x, y, r, 90 * rng.randrange(4), 90 * rng.randrange(4) + 180, colour)
            case _:
                mosaic(canvas, x - r, y - r, x + r, y + r, r / 2, rng, palette)
    for _ in range(rng.randint(4, 9)):
        canvas.line(
            [(rng.uniform(0, w), rng.uniform(0, h)) for _ in range(3)], rng.choice((INK, PAPER)), rng.uniform(2, 6)
        )
    for _ in range(8):
        motif(canvas, rng.uniform(0, w), rng.uniform(0, h), min(w, h) * rng.uniform(0.08, 0.16), rng, palette)
