"""Painters of what stands by the water: bridges and lighthouses, with boats before them."""

from __future__ import annotations

import random
from itertools import pairwise

from opensearch_vl.wiki.miniature.pictures.buildings import GLASS, STONE
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
from opensearch_vl.wiki.miniature.pictures.ornament import band, coat_of_arms, motif, star
from opensearch_vl.wiki.miniature.pictures.scenery import cloud, hills


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
                x + width * (0.14 + nth * 0.3), top + 6, x + width * (0.28 + nth * 0.3), top + 14, rng.choice(GLASS)
            )
        x += width
    sea = mix(rgb("4f8fa8"), palette[rng.randrange(5)], 0.25)
    canvas.rect(0, water, w, h, sea)
    for _ in range(46):
        y = rng.uniform(water + 6, h - 4)
        x = rng.uniform(-20, w)
        canvas.line([(x, y), (x + rng.uniform(12, 60), y)], mix(sea, PAPER, rng.uniform(0.15, 0.5)), 2)
    deck = h * rng.uniform(0.46, 0.52)
    steel, stone = mix(palette[rng.randrange(5)], INK, 0.2), rng.choice(STONE)
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
        layer.rect(0, 0, w, h, second)
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
    canvas.rect(hx - w * 0.1, base - h * 0.06, hx + w * 0.1, base + h * 0.02, rng.choice(STONE))
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
            rng.choice(GLASS),
        )
    for _ in range(rng.randint(1, 3)):
        boat(canvas, rng.uniform(0, w), rng.uniform(sea_top + 20, h * 0.8), h * rng.uniform(0.03, 0.06), palette, rng)
    for _ in range(5):
        gx, gy = rng.uniform(0, w), rng.uniform(h * 0.1, sea_top)
        canvas.line([(gx - 9, gy - 4), (gx, gy), (gx + 9, gy - 5)], INK if not night else PAPER, 2)
    if view == 1:
        canvas.poly(star(w * 0.88, h * 0.1, w * 0.05, w * 0.02, 8), palette[2])
