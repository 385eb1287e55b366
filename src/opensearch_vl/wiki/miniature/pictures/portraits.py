"""Painter of people: head and shoulders before a wallpaper."""

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
    mix,
    rgb,
)
from opensearch_vl.wiki.miniature.pictures.ornament import band, coat_of_arms, mosaic, motif

_SKIN = (rgb("f1c9a5"), rgb("e0ac69"), rgb("c68642"), rgb("8d5524"), rgb("5c3a21"), rgb("f5d6bd"))


_HAIR = (rgb("2b2118"), rgb("5a3825"), rgb("a0522d"), rgb("d8b26e"), rgb("8c8c8c"), rgb("e8e4dc"), rgb("7a1f1f"))


def portrait(canvas: Canvas, rng: random.Random, view: int) -> None:
    """Head and shoulders before a wallpaper, with hair, clothes and things of one's own."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    wall = mix(rng.choice(palette), PAPER, rng.uniform(0.2, 0.6))
    canvas.rect(0, 0, w, h, wall)
    step = rng.uniform(44, 70)
    for row in range(int(h / step) + 2):
        for column in range(int(w / step) + 2):
            motif(
                canvas,
                (column + 0.5 * (row % 2)) * step,
                row * step,
                step * 0.62,
                rng,
                [mix(wall, colour, 0.4) for colour in palette],
            )
    skin, hair = rng.choice(_SKIN), rng.choice(_HAIR)
    iris = rng.choice((rgb("4a3222"), rgb("3f6b7a"), rgb("4f6d46")))
    cx, cy, head = w / 2 + rng.uniform(-0.03, 0.03) * w, h * 0.4, min(w, h) * rng.uniform(0.17, 0.2)
    long_hair, coat = rng.random() < 0.5, mix(rng.choice(palette), INK, rng.uniform(0.1, 0.45))
    if long_hair:
        canvas.rect(
            cx - head * 1.12,
            cy - head * 0.5,
            cx + head * 1.12,
            cy + head * rng.uniform(1.2, 2),
            hair,
            radius=head * 0.5,
        )
    shoulder = [
        (cx - head * 2.2, h),
        (cx - head * 2.0, cy + head * 2.0),
        (cx - head * 0.7, cy + head * 1.45),
        (cx + head * 0.7, cy + head * 1.45),
        (cx + head * 2.0, cy + head * 2.0),
        (cx + head * 2.2, h),
    ]
    pattern = rng.randrange(3)

    def cloth(layer: Canvas) -> None:
        layer.rect(0, 0, w, h, coat)
        if pattern == 0:
            for nth in range(16):
                layer.line(
                    [(cx - head * 2.3 + nth * head * 0.3, cy), (cx - head * 2.5 + nth * head * 0.3, h)],
                    mix(coat, PAPER, 0.3),
                    3,
                )
        elif pattern == 1:
            mosaic(
                layer,
                cx - head * 2.2,
                cy + head,
                cx + head * 2.2,
                h,
                head * 0.42,
                rng,
                [mix(coat, colour, 0.45) for colour in palette],
            )
        layer.poly(
            [(cx - head * 0.75, cy + head), (cx, h * 0.98), (cx + head * 0.75, cy + head)],
            mix(PAPER, rng.choice(palette), 0.15),
        )

    canvas.rect(cx - head * 0.42, cy + head * 0.5, cx + head * 0.42, cy + head * 1.6, mix(skin, INK, 0.15))
    canvas.through(lambda layer: layer.poly(shoulder, WHITE), cloth)
    canvas.poly(
        [(cx - head * 0.42, cy + head * 1.3), (cx, cy + head * 2.0), (cx + head * 0.42, cy + head * 1.3)],
        mix(skin, INK, 0.15),
    )
    for side in (-1, 1):
        canvas.poly(
            [
                (cx + side * head * 0.3, cy + head * 1.35),
                (cx + side * head * 1.15, cy + head * 1.6),
                (cx + side * head * 0.25, cy + head * 2.6),
            ],
            mix(coat, INK, 0.3),
        )
        canvas.disc(cx + side * head * 0.98, cy + head * 0.1, head * 0.16, mix(skin, INK, 0.1), head * 0.24)
    _neckwear(canvas, cx, cy, head, palette, rng)
    canvas.disc(cx, cy, head, skin, head * 1.18)
    for side in (-1, 1):
        canvas.disc(cx + side * head * 0.5, cy + head * 0.42, head * 0.2, mix(skin, rgb("d9745b"), 0.35), head * 0.15)
        canvas.disc(cx + side * head * 0.38, cy - head * 0.05, head * 0.16, WHITE, head * 0.11)
        canvas.disc(
            cx + side * head * 0.38,
            cy - head * 0.05,
            head * 0.09,
            iris,
        )
        canvas.line(
            [
                (cx + side * head * 0.2, cy - head * 0.28),
                (cx + side * head * 0.58, cy - head * rng.uniform(0.26, 0.36)),
            ],
            mix(hair, INK, 0.3),
            5,
        )
    canvas.line(
        [(cx, cy - head * 0.02), (cx + head * 0.12, cy + head * 0.32), (cx - head * 0.04, cy + head * 0.36)],
        mix(skin, INK, 0.4),
        3.5,
    )
    canvas.arc(cx, cy + head * 0.42, head * 0.34, 25, 155, mix(rgb("a5473d"), INK, 0.15), 5)
    _hair(canvas, cx, cy, head, hair, long_hair, palette, rng)
    if rng.random() < 0.4:
        for side in (-1, 1):
            canvas.disc(cx + side * head * 0.38, cy - head * 0.04, head * 0.27, None, outline=INK, width=4)
        canvas.line([(cx - head * 0.12, cy - head * 0.06), (cx + head * 0.12, cy - head * 0.06)], INK, 4)
    canvas.rect(4, 4, w - 4, h - 4, None, mix(rng.choice(palette), INK, 0.4), 8)
    if view:
        coat_of_arms(canvas, w * 0.86, h * 0.14, w * 0.13, rng, palette)


def _neckwear(
    canvas: Canvas, cx: float, cy: float, head: float, palette: tuple[Colour, ...], rng: random.Random
) -> None:
    colour = rng.choice(palette)
    match rng.randrange(4):
        case 0:
            for side in (-1, 1):
                canvas.poly(
                    [
                        (cx, cy + head * 1.6),
                        (cx + side * head * 0.5, cy + head * 1.4),
                        (cx + side * head * 0.5, cy + head * 1.85),
                    ],
                    colour,
                    INK,
                    1.5,
                )
        case 1:
            canvas.poly(
                [
                    (cx - head * 0.14, cy + head * 1.5),
                    (cx + head * 0.14, cy + head * 1.5),
                    (cx + head * 0.24, cy + head * 2.7),
                    (cx, cy + head * 3),
                    (cx - head * 0.24, cy + head * 2.7),
                ],
                colour,
            )
            for nth in range(3):
                motif(canvas, cx, cy + head * (1.85 + nth * 0.33), head * 0.3, rng, palette)
        case 2:
            for nth in range(9):
                turn = math.radians(20 + nth * 17.5)
                canvas.disc(
                    cx + head * 0.75 * math.cos(turn),
                    cy + head * 1.25 + head * 0.6 * math.sin(turn),
                    head * 0.09,
                    colour,
                    outline=INK,
                )
        case _:
            motif(canvas, cx + head * 1.05, cy + head * 2.1, head * 0.55, rng, palette)
            motif(canvas, cx + head * 1.05, cy + head * 2.6, head * 0.45, rng, palette)


def _hair(canvas: Canvas, cx: float, cy: float, head: float, hair: Colour, long_hair: bool, palette: tuple[Colour, ...],
          rng: random.Random) -> None:  # fmt: skip
    style = rng.randrange(5)
    if style == 0:
        hat = mix(rng.choice(palette), INK, 0.3)
        canvas.disc(cx, cy - head * 0.78, head * 1.5, hat, head * 0.22)
        canvas.rect(
            cx - head * 0.85,
            cy - head * rng.uniform(1.6, 2),
            cx + head * 0.85,
            cy - head * 0.75,
            hat,
            radius=head * 0.2,
        )
        band(
            canvas,
            cx - head * 0.85,
            cy - head * 1.12,
            cx + head * 0.85,
            cy - head * 0.84,
            rng,
            palette,
            mix(hat, PAPER, 0.5),
        )
    elif style == 1:
        canvas.pie(cx, cy - head * 0.42, head * 1.04, 180, 360, hair)
        for nth in range(7):
            canvas.disc(
                cx - head + nth * head / 3,
                cy - head * (0.75 + 0.5 * math.sin(math.pi * nth / 6)),
                head * 0.28,
                mix(hair, PAPER, 0.08 * (nth % 2)),
            )
    elif style == 2:
        part = rng.uniform(-0.4, 0.4)
        canvas.poly(
            [
                (cx + part * head, cy - head * 1.2),
                (cx - head * 1.08, cy - head * 0.7),
                (cx - head * 1.05, cy - head * 0.05),
                (cx - head * 0.75, cy - head * 0.5),
            ],
            hair,
        )
        canvas.poly(
            [
                (cx + part * head, cy - head * 1.2),
                (cx + head * 1.08, cy - head * 0.7),
                (cx + head * 1.05, cy - head * 0.05),
                (cx + head * 0.75, cy - head * 0.5),
            ],
            hair,
        )
        canvas.pie(cx, cy - head * 0.35, head * 0.98, 195, 345, hair)
    elif style == 3:
        canvas.pie(cx, cy - head * 0.4, head * 1.0, 180, 360, hair)
        canvas.disc(cx, cy - head * 1.5, head * 0.4, hair)
        motif(canvas, cx + head * 0.5, cy - head * 1.1, head * 0.4, rng, palette)
    else:
        canvas.pie(cx, cy - head * 0.45, head * 0.98, 200, 340, hair)
    if not long_hair and rng.random() < 0.55:
        canvas.pie(cx, cy + head * 0.5, head * 0.78, 0, 180, hair)
        canvas.arc(cx, cy + head * 0.62, head * 0.22, 20, 160, mix(rgb("a5473d"), INK, 0.2), 5)
        for nth in range(-3, 4):
            canvas.line(
                [(cx + nth * head * 0.18, cy + head * 0.85), (cx + nth * head * 0.15, cy + head * 1.15)],
                mix(hair, INK, 0.3),
                2,
            )
    elif not long_hair and rng.random() < 0.5:
        for side in (-1, 1):
            canvas.poly(
                [
                    (cx, cy + head * 0.48),
                    (cx + side * head * 0.55, cy + head * rng.uniform(0.4, 0.6)),
                    (cx + side * head * 0.1, cy + head * 0.64),
                ],
                hair,
            )
