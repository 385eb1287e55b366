"""Painters of butterflies and flowers."""

from __future__ import annotations

import math
import random

from opensearch_vl.wiki.miniature.pictures.canvas import (
    INK,
    PALETTES,
    PAPER,
    WHITE,
    Canvas,
    Point,
    mix,
    rgb,
)
from opensearch_vl.wiki.miniature.pictures.ornament import motif


def butterfly(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A butterfly with spread wings; left and right mirror each other."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    ground = mix(rng.choice(palette), PAPER, 0.72)
    canvas.rect(0, 0, w, h, ground)
    for _ in range(rng.randint(12, 20)):
        x, y, size = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(30, 80)
        leaf = mix(mix(rgb("6a8f5a"), rng.choice(palette), 0.4), ground, 0.35)
        turn = rng.uniform(0, 2 * math.pi)
        dx, dy = math.cos(turn) * size, math.sin(turn) * size
        canvas.poly(
            [
                (x, y),
                (x + dx * 0.5 - dy * 0.3, y + dy * 0.5 + dx * 0.3),
                (x + dx, y + dy),
                (x + dx * 0.5 + dy * 0.3, y + dy * 0.5 - dx * 0.3),
            ],
            leaf,
        )
        canvas.line([(x, y), (x + dx * 0.9, y + dy * 0.9)], mix(leaf, INK, 0.3), 2)
    cx, cy, unit = w / 2, h * 0.5, min(w, h) * 0.42
    wing, edge = rng.choice(palette), mix(rng.choice(palette), INK, 0.55)
    marks = [rng.choice(palette), PAPER, mix(rng.choice(palette), PAPER, 0.4), edge]
    upper = _outline(rng, [(0.06, -0.12), (0.45, -0.85), (0.98, -0.82), (1.02, -0.3), (0.7, 0.06), (0.08, 0.06)])
    lower = _outline(rng, [(0.06, 0.02), (0.62, 0.05), (0.86, 0.42), (0.6, 0.86), (0.28, 0.8), (0.07, 0.3)])
    spots = [
        (rng.uniform(0.12, 0.9), rng.uniform(-0.75, 0.75), rng.uniform(0.04, 0.13), rng.randrange(4), rng.randrange(3))
        for _ in range(26)
    ]
    veins = [(rng.uniform(0.5, 1.0), rng.uniform(-0.8, 0.8)) for _ in range(7)]

    def half(side: int) -> None:
        def place(points: list[Point], scale: float = 1.0) -> list[Point]:
            mx, my = sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)
            return [
                (cx + side * (mx + (x - mx) * scale) * unit, cy + (my + (y - my) * scale) * unit) for x, y in points
            ]

        for outline in (lower, upper):
            canvas.poly(place(outline), edge)
        inner = [place(outline, 0.86) for outline in (lower, upper)]

        def shape(mask: Canvas) -> None:
            for outline in inner:
                mask.poly(outline, WHITE)

        def paint(layer: Canvas) -> None:
            layer.rect(0, 0, w, h, wing)
            layer.disc(cx, cy, unit * 0.45, mix(wing, marks[0], 0.6))
            for vx, vy in veins:
                layer.line([(cx, cy), (cx + side * vx * unit, cy + vy * unit)], edge, 3)
            for x, y, r, colour, style in spots:
                px, py, pr = cx + side * x * unit, cy + y * unit, r * unit
                layer.disc(px, py, pr, marks[colour], pr * (0.7 if style == 1 else 1))
                if style != 1:
                    layer.disc(px, py, pr * 0.5, marks[(colour + 1) % 4])
                if style == 2:
                    layer.poly([(px - pr, py), (px, py - pr * 1.3), (px + pr, py)], marks[(colour + 2) % 4])

        canvas.through(shape, paint)

    half(-1)
    half(1)
    canvas.disc(cx, cy + unit * 0.1, unit * 0.055, INK, unit * 0.42)
    for nth in range(5):
        canvas.line(
            [(cx - unit * 0.05, cy + unit * (0.02 + nth * 0.1)), (cx + unit * 0.05, cy + unit * (0.02 + nth * 0.1))],
            marks[0],
            3,
        )
    canvas.disc(cx, cy - unit * 0.33, unit * 0.075, INK)
    for side in (-1, 1):
        canvas.line(
            [
                (cx, cy - unit * 0.36),
                (cx + side * unit * 0.12, cy - unit * 0.68),
                (cx + side * unit * 0.22, cy - unit * 0.85),
            ],
            INK,
            3,
        )
        canvas.disc(cx + side * unit * 0.22, cy - unit * 0.85, 6, marks[0], outline=INK)
    if view:
        motif(canvas, w * 0.9, h * 0.9, 50, rng, palette)


def _outline(rng: random.Random, points: list[Point]) -> list[Point]:
    """A wing's corners moved a little and rounded by corner cutting (Chaikin, two passes)."""
    moved = [(x * rng.uniform(0.88, 1.1), y * rng.uniform(0.88, 1.1)) for x, y in points]
    for _ in range(2):
        cut: list[Point] = []
        for (ax, ay), (bx, by) in zip(moved, moved[1:] + moved[:1], strict=True):
            cut += [(ax * 0.75 + bx * 0.25, ay * 0.75 + by * 0.25), (ax * 0.25 + bx * 0.75, ay * 0.25 + by * 0.75)]
        moved = cut
    return moved


def flower(canvas: Canvas, rng: random.Random, view: int) -> None:
    """A plant with one to three flowers, as in a herbal."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    paper = mix(PAPER, rng.choice(palette), 0.12)
    canvas.rect(0, 0, w, h, paper)
    canvas.rect(w * 0.03, h * 0.03, w * 0.97, h * 0.97, None, mix(palette[4], paper, 0.4), 3)
    for _ in range(14):
        motif(
            canvas,
            rng.uniform(w * 0.06, w * 0.94),
            rng.uniform(h * 0.06, h * 0.94),
            rng.uniform(10, 22),
            rng,
            [mix(colour, paper, 0.6) for colour in palette],
        )
    green = mix(rgb("4f7a4a"), rng.choice(palette), 0.25)
    heads = [(w * 0.5 + rng.uniform(-0.06, 0.06) * w, h * rng.uniform(0.28, 0.34), min(w, h) * rng.uniform(0.2, 0.25))]
    for side in rng.sample((-1, 1), rng.randint(0, 2)):
        heads.append(
            (
                w * (0.5 + side * rng.uniform(0.24, 0.3)),
                h * rng.uniform(0.42, 0.58),
                min(w, h) * rng.uniform(0.09, 0.14),
            )
        )
    for x, y, _ in heads:
        canvas.line([(w * 0.5, h * 0.95), (w * 0.5 + (x - w * 0.5) * 0.3, h * 0.7), (x, y)], green, 8)
    for _ in range(rng.randint(4, 7)):
        side, y = rng.choice((-1, 1)), h * rng.uniform(0.6, 0.9)
        reach, tall = w * rng.uniform(0.14, 0.28), h * rng.uniform(0.06, 0.14)
        tip = (w * 0.5 + side * reach, y - tall)
        leaf = mix(green, rng.choice((INK, PAPER)), rng.uniform(0.05, 0.3))
        canvas.poly(
            [
                (w * 0.5, y),
                (w * 0.5 + side * reach * 0.45, y - tall * 1.1),
                tip,
                (w * 0.5 + side * reach * 0.55, y - tall * 0.1),
            ],
            leaf,
        )
        canvas.line([(w * 0.5, y), tip], mix(leaf, INK, 0.4), 2)
        for nth in (0.35, 0.55, 0.75):
            px, py = w * 0.5 + side * reach * nth, y - tall * nth
            canvas.line([(px, py), (px + side * 10, py - 14)], mix(leaf, INK, 0.35), 1.5)
    petals, layers = rng.randint(4, 9), rng.randint(1, 3)
    colours = rng.sample(list(palette), 3)
    pointed, freckles = rng.random() < 0.5, rng.randint(2, 6)
    for x, y, r in heads:
        for layer in range(layers):
            reach = r * (1 - 0.28 * layer)
            for nth in range(petals):
                turn = 2 * math.pi * (nth + 0.5 * layer) / petals + 0.3
                dx, dy = math.cos(turn), math.sin(turn)
                wide = reach * 2.2 / petals
                tip = (x + dx * reach, y + dy * reach)
                side_a = (x + dx * reach * 0.6 - dy * wide, y + dy * reach * 0.6 + dx * wide)
                side_b = (x + dx * reach * 0.6 + dy * wide, y + dy * reach * 0.6 - dx * wide)
                colour = mix(colours[layer % 3], PAPER, 0.1 * (nth % 3))
                canvas.poly([(x, y), side_a, tip, side_b], colour, mix(colour, INK, 0.35), 1.5)
                if not pointed:
                    canvas.disc(x + dx * reach * 0.78, y + dy * reach * 0.78, wide * 0.85, colour)
                canvas.line([(x, y), (x + dx * reach * 0.8, y + dy * reach * 0.8)], mix(colour, INK, 0.25), 2)
                for dot in range(freckles):
                    t = 0.3 + 0.1 * dot
                    canvas.disc(
                        x + dx * reach * t - dy * wide * 0.3 * (-1) ** dot,
                        y + dy * reach * t + dx * wide * 0.3 * (-1) ** dot,
                        max(2.0, r * 0.025),
                        colours[(layer + 1) % 3],
                    )
        canvas.disc(x, y, r * 0.22, colours[2], outline=INK, width=2)
        for nth in range(9):
            canvas.disc(
                x + r * 0.14 * math.cos(nth * 0.7),
                y + r * 0.14 * math.sin(nth * 0.7),
                r * 0.03,
                INK if nth % 2 else PAPER,
            )
    if view:
        canvas.rect(w * 0.08, h * 0.88, w * 0.26, h * 0.93, INK)
        canvas.rect(w * 0.08, h * 0.88, w * 0.17, h * 0.93, PAPER)
