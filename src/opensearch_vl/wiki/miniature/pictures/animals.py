"""Painters of mammals, birds and fish: each individual has its own markings, as naturalists photograph them."""

from __future__ import annotations

import math
import random

from opensearch_vl.wiki.miniature.pictures.canvas import (
    INK,
    PALETTES,
    PAPER,
    SKIES,
    WHITE,
    Canvas,
    Colour,
    mix,
    rgb,
)
from opensearch_vl.wiki.miniature.pictures.ornament import motif
from opensearch_vl.wiki.miniature.pictures.scenery import cloud, hills, tree

_FUR = (rgb("b5651d"), rgb("8d6b4f"), rgb("c9a26b"), rgb("6f5b4c"), rgb("d9c2a0"), rgb("7a4a32"), rgb("a89f91"))


def _markings(layer: Canvas, box: tuple[float, float, float, float], base: Colour, colours: list[Colour],
              rng: random.Random, size: float) -> None:  # fmt: skip
    """Spots, stripes, rings or patches all over a box; the silhouette cuts them."""
    x0, y0, x1, y1 = box
    style = rng.randrange(5)
    for _ in range(rng.randint(26, 44)):
        x, y = rng.uniform(x0, x1), rng.uniform(y0, y1)
        colour = rng.choice(colours)
        r = size * rng.uniform(0.35, 1.0)
        match style:
            case 0:
                layer.disc(x, y, r, colour, r * rng.uniform(0.6, 1))
            case 1:
                layer.disc(x, y, r, colour)
                layer.disc(x, y, r * 0.55, base)
                layer.disc(x + r * 0.1, y, r * 0.25, colour)
            case 2:
                lean = rng.uniform(-0.5, 0.5)
                layer.poly(
                    [(x, y - r * 2.2), (x + r * 0.45, y), (x + lean * r, y + r * 2.2), (x - r * 0.35, y)], colour
                )
            case 3:
                layer.poly(
                    [
                        (x + r * math.cos(a) * rng.uniform(0.6, 1.2), y + r * math.sin(a) * rng.uniform(0.6, 1.2))
                        for a in (0, 1, 2.1, 3.1, 4.2, 5.2)
                    ],
                    colour,
                )
            case _:
                layer.line(
                    [(x - r, y), (x - r * 0.3, y - r * 0.7), (x + r * 0.3, y), (x + r, y - r * 0.7)], colour, r * 0.35
                )


def _meadow(canvas: Canvas, rng: random.Random, palette: tuple[Colour, ...]) -> float:
    """Sky, hills, trees and grass; returns the ground line."""
    w, h = canvas.width, canvas.height
    ground = h * rng.uniform(0.62, 0.7)
    canvas.sky(*rng.choice(SKIES), ground)
    for _ in range(3):
        cloud(canvas, rng.uniform(0, w), h * rng.uniform(0.06, 0.25), w * rng.uniform(0.06, 0.12), rng)
    hills(canvas, ground, h * 0.25, mix(palette[0], (195, 208, 195), 0.6), rng)
    for _ in range(rng.randint(3, 7)):
        tree(canvas, rng.uniform(0, w), ground + h * rng.uniform(0, 0.05), h * rng.uniform(0.16, 0.36), rng)
    grass = mix(rgb("8aa35a"), palette[rng.randrange(6)], 0.25)
    canvas.rect(0, ground, w, h, grass)
    for _ in range(70):
        x, y = rng.uniform(0, w), rng.uniform(ground, h)
        canvas.line(
            [(x, y), (x + rng.uniform(-5, 5), y - rng.uniform(8, 20))], mix(grass, INK, rng.uniform(0.15, 0.4)), 2
        )
        if rng.random() < 0.25:
            motif(canvas, x, y - 14, 13, rng, palette)
    return ground


def mammal(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A four-legged animal from the side."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    _meadow(canvas, rng, palette)
    fur, mark = rng.choice(_FUR), [mix(rng.choice(_FUR), INK, 0.45), mix(rng.choice(palette), PAPER, 0.3)]
    face = -1 if rng.random() < 0.5 else 1
    if view:
        face = -face
    cx, cy = w * 0.5, h * rng.uniform(0.54, 0.6)
    length, depth = min(w, h) * rng.uniform(0.26, 0.32), min(w, h) * rng.uniform(0.12, 0.16)
    leg, thick = h * rng.uniform(0.17, 0.26), depth * rng.uniform(0.26, 0.36)
    neck = h * rng.uniform(0.06, 0.2)
    head_x, head_y, head = cx + face * (length + depth * 0.35), cy - depth * 0.4 - neck, depth * rng.uniform(0.58, 0.72)
    for nth, spot in enumerate((-0.78, -0.5, 0.5, 0.76)):
        x = cx + spot * length
        foot = cy + depth * 0.5 + leg
        shade = mix(fur, INK, 0.25 if nth % 2 else 0.05)
        canvas.poly([(x - thick, cy), (x + thick, cy), (x + thick * 0.6, foot), (x - thick * 0.6, foot)], shade)
        canvas.rect(x - thick * 0.75, foot - 10, x + thick * 0.75, foot, INK, radius=4)
    tail_kind = rng.randrange(3)
    tx = cx - face * length * 0.93
    if tail_kind == 0:
        canvas.line(
            [
                (tx, cy - depth * 0.3),
                (tx - face * depth, cy + depth * 0.4),
                (tx - face * depth * 1.1, cy + depth * 1.4),
            ],
            fur,
            thick * 0.5,
        )
        canvas.disc(tx - face * depth * 1.1, cy + depth * 1.5, thick * 0.7, mark[0])
    elif tail_kind == 1:
        canvas.poly(
            [
                (tx, cy - depth * 0.5),
                (tx - face * depth * 1.6, cy - depth * 1.3),
                (tx - face * depth * 1.9, cy - depth * 0.3),
                (tx, cy + depth * 0.2),
            ],
            mix(fur, mark[0], 0.4),
        )
        canvas.poly(
            [
                (tx - face * depth * 1.35, cy - depth * 1.15),
                (tx - face * depth * 1.9, cy - depth * 0.3),
                (tx - face * depth * 1.4, cy - depth * 0.15),
            ],
            PAPER,
        )
    else:
        canvas.disc(tx, cy - depth * 0.4, thick * 0.9, mix(fur, PAPER, 0.6))

    def shape(mask: Canvas) -> None:
        mask.disc(cx, cy, length, WHITE, depth)
        mask.disc(cx + face * length * 0.6, cy - depth * 0.1, depth * 1.05, WHITE)
        mask.poly(
            [
                (cx + face * length * 0.55, cy - depth * 0.9),
                (head_x - face * head * 0.7, head_y - head * 0.2),
                (head_x + face * head * 0.5, head_y + head * 0.6),
                (cx + face * (length * 0.98), cy + depth * 0.3),
            ],
            WHITE,
        )

    def paint(layer: Canvas) -> None:
        layer.rect(0, 0, w, h, fur)
        layer.disc(cx, cy + depth * 0.8, length, mix(fur, PAPER, 0.5), depth * 0.55)
        _markings(layer, (cx - length, cy - depth - neck, cx + length * 1.3, cy + depth), fur, mark, rng, depth * 0.24)

    canvas.through(shape, paint)
    ear = rng.randrange(3)
    for side in (-0.45, 0.35):
        ex, ey = head_x + side * head, head_y - head * 0.75
        tall = head * (0.7, 1.5, 0.5)[ear]
        canvas.poly(
            [
                (ex - head * 0.26, ey + head * 0.25),
                (ex - face * head * 0.1, ey - tall),
                (ex + head * 0.28, ey + head * 0.2),
            ],
            mix(fur, INK, 0.2),
        )
        canvas.poly(
            [
                (ex - head * 0.12, ey + head * 0.15),
                (ex - face * head * 0.08, ey - tall * 0.6),
                (ex + head * 0.14, ey + head * 0.1),
            ],
            rgb("e5b8a5"),
        )
    canvas.disc(head_x, head_y, head, fur)
    canvas.disc(head_x + face * head * 0.75, head_y + head * 0.3, head * 0.55, mix(fur, PAPER, 0.45), head * 0.42)
    canvas.disc(head_x + face * head * 1.2, head_y + head * 0.18, head * 0.17, INK)
    canvas.disc(head_x + face * head * 0.3, head_y - head * 0.2, head * 0.19, PAPER)
    canvas.disc(head_x + face * head * 0.34, head_y - head * 0.2, head * 0.12, INK)
    if rng.random() < 0.4:
        for side in (-0.1, 0.2):
            x = head_x + side * head
            canvas.line(
                [
                    (x, head_y - head * 0.8),
                    (x - face * head * 0.3, head_y - head * 1.7),
                    (x - face * head * rng.uniform(0.5, 1), head_y - head * 2.2),
                ],
                mix(PAPER, INK, 0.35),
                head * 0.16,
            )
            canvas.line(
                [(x - face * head * 0.2, head_y - head * 1.4), (x + face * head * 0.3, head_y - head * 1.9)],
                mix(PAPER, INK, 0.35),
                head * 0.12,
            )


def bird(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A bird on a branch or in reeds."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    canvas.sky(*rng.choice(SKIES), h)
    for _ in range(rng.randint(14, 26)):
        x = rng.uniform(0, w)
        top = h * rng.uniform(0.2, 0.75)
        green = mix(rgb("6a8f5a"), rng.choice(palette), 0.35)
        canvas.line([(x, h), (x + rng.uniform(-30, 30), top)], mix(green, PAPER, 0.25), rng.uniform(2, 5))
        canvas.disc(x, top, rng.uniform(3, 6), mix(green, INK, 0.3), rng.uniform(12, 24))
    branch = h * rng.uniform(0.76, 0.82)
    canvas.line([(-5, branch + 14), (w * 0.4, branch), (w + 5, branch + rng.uniform(-30, 22))], rgb("5d4634"), 15)
    for _ in range(rng.randint(8, 14)):
        x = rng.uniform(0, w)
        leaf = mix(rgb("588157"), rng.choice(palette), 0.3)
        y = branch + rng.uniform(-16, 26)
        canvas.poly([(x, y), (x + 15, y - 10), (x + 38, y - 2), (x + 15, y + 10)], leaf)
        canvas.line([(x, y), (x + 34, y - 1)], mix(leaf, INK, 0.4), 1.5)
    body = mix(rng.choice(palette), PAPER, rng.uniform(0, 0.25))
    wing, marks = mix(rng.choice(palette), INK, 0.25), [rng.choice(palette), mix(rng.choice(palette), INK, 0.4), PAPER]
    face = -1 if (rng.random() < 0.5) != bool(view) else 1
    size = min(w, h) * rng.uniform(0.2, 0.25)
    cx, cy = w * 0.5, branch - size * rng.uniform(1.0, 1.2)
    neck = size * rng.uniform(0.1, 0.8)
    hx, hy, head = cx + face * size * 0.75, cy - size * 0.75 - neck, size * rng.uniform(0.36, 0.46)
    for nth in range(rng.randint(2, 5)):
        spread = (nth - 1.5) * 0.16
        canvas.poly(
            [
                (cx - face * size * 0.8, cy + size * 0.1),
                (cx - face * size * 2.1, cy + size * (0.75 + spread)),
                (cx - face * size * 2.0, cy + size * (0.98 + spread)),
            ],
            marks[nth % 3],
        )
    for side in (-0.15, 0.2):
        x = cx + side * size
        canvas.line([(x, cy + size * 0.7), (x + 3, branch)], rgb("c98b2b"), 5)
        canvas.line([(x - 12, branch + 2), (x + 14, branch + 2)], rgb("c98b2b"), 5)

    def shape(mask: Canvas) -> None:
        mask.disc(cx, cy, size * 1.15, WHITE, size * 0.85)
        mask.poly(
            [
                (cx + face * size * 0.1, cy - size * 0.7),
                (hx - face * head * 0.8, hy),
                (hx + face * head * 0.6, hy + head * 0.5),
                (cx + face * size * 1.05, cy + size * 0.1),
            ],
            WHITE,
        )

    def paint(layer: Canvas) -> None:
        layer.rect(0, 0, w, h, body)
        layer.disc(cx + face * size * 0.4, cy + size * 0.55, size * 0.9, mix(body, PAPER, 0.6), size * 0.6)
        _markings(layer, (cx - size * 1.1, cy - size - neck, cx + size * 1.1, cy + size), body, marks, rng, size * 0.13)

    canvas.through(shape, paint)
    feathers = rng.randint(4, 7)
    for nth in range(feathers):
        t = nth / feathers
        canvas.poly(
            [
                (cx + face * size * (0.35 - 0.2 * t), cy - size * (0.35 - 0.5 * t)),
                (cx - face * size * (1.35 - 0.35 * t), cy + size * (0.1 + 0.42 * t)),
                (cx - face * size * (1.0 - 0.35 * t), cy + size * (0.3 + 0.36 * t)),
            ],
            mix(wing, PAPER, 0.5 * t),
            mix(wing, INK, 0.4),
            1.5,
        )
    motif(canvas, cx - face * size * 0.1, cy, size * 0.36, rng, marks)
    beak, bill = mix(rgb("d98324"), palette[1], 0.2), rng.uniform(0.7, 2.0)
    canvas.poly(
        [
            (hx + face * head * 0.6, hy - head * 0.22),
            (hx + face * head * (0.9 + bill), hy + head * rng.uniform(0, 0.4)),
            (hx + face * head * 0.6, hy + head * 0.35),
        ],
        beak,
    )
    canvas.disc(hx, hy, head, rng.choice((body, wing, marks[0])))
    if rng.random() < 0.6:
        for nth in range(rng.randint(2, 5)):
            canvas.line(
                [
                    (hx - face * head * 0.2, hy - head * 0.7),
                    (hx - face * head * (0.5 + nth * 0.3), hy - head * (1.7 - nth * 0.2)),
                ],
                marks[nth % 3],
                5,
            )
    canvas.disc(hx + face * head * 0.3, hy - head * 0.15, head * 0.28, rgb("f4c542"))
    canvas.disc(hx + face * head * 0.33, hy - head * 0.15, head * 0.16, INK)


def fish(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A fish among water plants."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    deep = mix(rgb("2f6f8f"), palette[rng.randrange(5)], 0.2)
    canvas.sky(mix(deep, PAPER, 0.45), deep, h)
    for _ in range(rng.randint(10, 16)):
        x, tall = rng.uniform(0, w), h * rng.uniform(0.2, 0.6)
        green = mix(rgb("4f7a4a"), rng.choice(palette), 0.35)
        points = [(x + 12 * math.sin(nth * 1.1 + x), h - tall * nth / 8) for nth in range(9)]
        canvas.line(points, green, rng.uniform(4, 9))
        for px, py in points[2::2]:
            canvas.poly([(px, py), (px + 16, py - 12), (px + 5, py - 2)], mix(green, PAPER, 0.2))
    canvas.rect(0, h * 0.93, w, h, rgb("cdb88a"))
    for _ in range(36):
        canvas.disc(
            rng.uniform(0, w),
            rng.uniform(h * 0.92, h),
            rng.uniform(4, 14),
            mix(rgb("b39b72"), rng.choice(palette), 0.3),
            rng.uniform(4, 8),
        )
    face = -1 if (rng.random() < 0.5) != bool(view) else 1
    body, marks = (
        mix(rng.choice(palette), PAPER, 0.3),
        [rng.choice(palette), mix(rng.choice(palette), INK, 0.35), PAPER],
    )
    cx, cy, length = w * 0.5, h * rng.uniform(0.42, 0.52), w * rng.uniform(0.29, 0.34)
    depth = length * rng.uniform(0.4, 0.62)
    fork = rng.uniform(0.0, 0.35)
    canvas.poly(
        [
            (cx - face * length * 0.8, cy),
            (cx - face * length * 1.35, cy - depth * 0.8),
            (cx - face * length * (1.35 - fork), cy),
            (cx - face * length * 1.35, cy + depth * 0.8),
        ],
        marks[0],
        mix(marks[0], INK, 0.4),
        2,
    )
    spikes = rng.randint(4, 9)
    fin = [(cx + face * length * 0.45, cy - depth * 0.8)]
    for nth in range(spikes):
        t = nth / spikes
        fin += [
            (cx + face * length * (0.4 - 0.8 * t), cy - depth * rng.uniform(1.15, 1.55)),
            (cx + face * length * (0.34 - 0.8 * t), cy - depth * 0.95),
        ]
    canvas.poly([*fin, (cx - face * length * 0.5, cy - depth * 0.6)], marks[1])

    def shape(mask: Canvas) -> None:
        mask.disc(cx, cy, length, WHITE, depth)

    def paint(layer: Canvas) -> None:
        layer.rect(0, 0, w, h, body)
        layer.disc(cx, cy + depth * 0.75, length, mix(body, PAPER, 0.55), depth * 0.6)
        for row in range(9):
            for column in range(14):
                x, y = cx - length + column * length / 7 + (row % 2) * length / 14, cy - depth + row * depth / 4
                layer.arc(x, y, length / 14, 100, 260, mix(body, INK, 0.25), 1.5)
        _markings(layer, (cx - length, cy - depth, cx + length, cy + depth), body, marks, rng, depth * 0.16)

    canvas.through(shape, paint)
    canvas.arc(
        cx + face * length * 0.28,
        cy,
        depth * 0.72,
        300 if face > 0 else 120,
        420 if face > 0 else 240,
        mix(body, INK, 0.4),
        4,
    )
    canvas.poly(
        [
            (cx + face * length * 0.2, cy + depth * 0.15),
            (cx - face * length * 0.25, cy + depth * 0.75),
            (cx - face * length * 0.02, cy + depth * 0.1),
        ],
        marks[1],
    )
    ex, ey = cx + face * length * 0.68, cy - depth * 0.2
    canvas.disc(ex, ey, depth * 0.17, PAPER, outline=INK, width=2)
    canvas.disc(ex + face * 2, ey, depth * 0.09, INK)
    canvas.line(
        [(cx + face * length * 0.97, cy + depth * 0.12), (cx + face * length * 0.76, cy + depth * 0.22)],
        mix(body, INK, 0.6),
        3,
    )
    for nth in range(rng.randint(4, 8)):
        canvas.disc(
            cx + face * length * (1.1 + 0.05 * nth),
            cy - depth * (0.2 + 0.3 * nth),
            3 + rng.uniform(0, 6),
            None,
            outline=PAPER,
            width=2,
        )
