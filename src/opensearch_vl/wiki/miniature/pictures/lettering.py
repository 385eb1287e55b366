"""Scenes whose entity can be told by the lettering alone: stations, road signs, plaques, museum labels.

All members of a series share the drawing; the sign differs. The sign comes clean, natively small, slightly blurred, or
as a bright plaque seen at an angle on a dark ground, where four-point correction finds it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from PIL import Image, ImageFilter

from opensearch_vl.wiki.miniature.pictures.buildings import clock_face
from opensearch_vl.wiki.miniature.pictures.canvas import (
    INK,
    PALETTES,
    PAPER,
    SCALE,
    SKIES,
    Canvas,
    Colour,
    Point,
    fit,
    mix,
    rgb,
)
from opensearch_vl.wiki.miniature.pictures.ornament import band, mosaic, motif, star
from opensearch_vl.wiki.miniature.pictures.plan import Lettering
from opensearch_vl.wiki.miniature.pictures.scenery import cloud, hills, pavement, person, tree

SMALL_PX = 15.0
"""Type size of natively small lettering: capitals of about 11 px (DejaVu's are 0.73 of the type size)."""
BLUR_PX = 1.6
"""Standard deviation of the blur of slightly blurred lettering."""


def lettered(
    scene: str, rng: random.Random, width_px: int, height_px: int, text: str, lettering: Lettering
) -> Image.Image:
    """The series' scene with `text` on its sign.

    Args:
        scene: One of `SCENES`.
        rng: Seeded by the series, so that the scene is the same for all its members.
        width_px: Width of the picture.
        height_px: Height of the picture.
        text: What the sign says.
        lettering: How it can be read.
    """
    canvas = Canvas(width_px, height_px)
    if lettering == "skewed":
        return _plaque_at_an_angle(canvas, rng, text)
    sign = SCENES[scene](canvas, rng)
    _write(canvas, sign, text, SMALL_PX if lettering == "small" else 0.0)
    image = canvas.finish()
    return image.filter(ImageFilter.GaussianBlur(BLUR_PX)) if lettering == "blurred" else image


Sign = tuple[float, float, float, float, Colour]
"""Where the words go: x0, y0, x1, y1 and the colour of the type."""


def _write(canvas: Canvas, sign: Sign, text: str, size_px: float) -> None:
    x0, y0, x1, y1, colour = sign
    rows, size = fit(text, (x1 - x0) * 0.92, (y1 - y0) * 0.86)
    size = min(size, size_px) if size_px else size
    middle = (y0 + y1) / 2
    for nth, row in enumerate(rows):
        canvas.text((x0 + x1) / 2, middle + (nth - (len(rows) - 1) / 2) * size * 1.25, row, size, colour)


def _station_sign(canvas: Canvas, rng: random.Random) -> Sign:
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    ground = h * 0.84
    canvas.sky(*rng.choice(SKIES), ground)
    for _ in range(3):
        cloud(canvas, rng.uniform(0, w), h * rng.uniform(0.05, 0.16), w * 0.09, rng)
    wall = mix(rng.choice(palette), PAPER, 0.55)
    canvas.rect(w * 0.06, h * 0.3, w * 0.94, ground, wall)
    canvas.poly(
        [(w * 0.02, h * 0.3), (w * 0.12, h * 0.16), (w * 0.88, h * 0.16), (w * 0.98, h * 0.3)],
        mix(palette[1], INK, 0.3),
    )
    canvas.rect(w * 0.44, h * 0.06, w * 0.56, h * 0.28, wall, INK, 2)
    clock_face(canvas, w * 0.5, h * 0.15, w * 0.042, rng)
    band(canvas, w * 0.06, h * 0.3, w * 0.94, h * 0.345, rng, palette, mix(wall, PAPER, 0.5))
    for nth in range(6):
        x = w * (0.1 + nth * 0.139)
        canvas.disc(x + w * 0.05, h * 0.64, w * 0.05, mix(palette[3], PAPER, 0.4))
        canvas.rect(x, h * 0.64, x + w * 0.1, ground, rng.choice((rgb("41576b"), rgb("6c8ca3"))))
        canvas.line([(x + w * 0.05, h * 0.6), (x + w * 0.05, ground)], PAPER, 3)
    canvas.rect(w * 0.1, h * 0.375, w * 0.9, h * 0.545, INK, radius=6)
    canvas.rect(w * 0.108, h * 0.386, w * 0.892, h * 0.534, PAPER, radius=4)
    pavement(canvas, ground, palette, rng)
    for _ in range(4):
        person(canvas, rng.uniform(w * 0.08, w * 0.92), h * rng.uniform(0.93, 0.98), h * 0.13, palette, rng)
    return w * 0.12, h * 0.39, w * 0.88, h * 0.53, INK


def _road_sign(canvas: Canvas, rng: random.Random) -> Sign:
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    horizon = h * 0.62
    canvas.sky(*rng.choice(SKIES), horizon + 2)
    hills(canvas, horizon, h * 0.26, mix(palette[0], PAPER, 0.5), rng)
    hills(canvas, horizon, h * 0.13, mix(palette[1], rgb("8aa35a"), 0.5), rng)
    canvas.rect(0, horizon, w, h, mix(rgb("8aa35a"), palette[2], 0.3))
    canvas.poly([(w * 0.5, horizon), (w * 0.54, horizon), (w * 0.95, h), (w * 0.5, h)], rgb("6e6a66"))
    for nth in range(5):
        t = 0.1 + nth * 0.2
        canvas.poly(
            [
                (w * (0.52 + 0.19 * t), horizon + (h - horizon) * t),
                (w * (0.525 + 0.2 * t), horizon + (h - horizon) * t),
                (w * (0.54 + 0.22 * t), horizon + (h - horizon) * (t + 0.1)),
                (w * (0.53 + 0.2 * t), horizon + (h - horizon) * (t + 0.1)),
            ],
            PAPER,
        )
    for _ in range(7):
        tree(
            canvas,
            rng.choice((rng.uniform(0, w * 0.4), rng.uniform(w * 0.85, w))),
            h * rng.uniform(0.66, 0.95),
            h * rng.uniform(0.14, 0.3),
            rng,
        )
    for x in (w * 0.18, w * 0.8):
        canvas.rect(x - 6, h * 0.3, x + 6, h * 0.86, rgb("8b8f94"), INK, 1)
    blue = rng.choice((rgb("1d4e89"), rgb("1b6b4a"), rgb("f3d34a"), rgb("f7f3e8")))
    ink = PAPER if sum(blue) < 420 else INK
    canvas.rect(w * 0.08, h * 0.2, w * 0.9, h * 0.5, blue, ink, 5, 14)
    motif(canvas, w * 0.145, h * 0.35, h * 0.13, rng, palette)
    canvas.rect(w * 0.3, h * 0.52, w * 0.68, h * 0.58, PAPER, INK, 2, 4)
    canvas.poly(star(w * 0.35, h * 0.55, 9, 4, 5), INK)
    return w * 0.2, h * 0.22, w * 0.88, h * 0.48, ink


def _plaque(canvas: Canvas, rng: random.Random) -> Sign:
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    brick = mix(rgb("a9563c"), rng.choice(palette), 0.25)
    canvas.rect(0, 0, w, h, mix(brick, PAPER, 0.45))
    rows = 14
    for row in range(rows):
        x = -rng.uniform(10, 40) - (row % 2) * 20
        while x < w:
            wide = rng.uniform(44, 62)
            canvas.rect(
                x + 2, h * row / rows + 2, x + wide - 2, h * (row + 1) / rows - 2, mix(brick, INK, rng.uniform(0, 0.25))
            )
            x += wide
    for side in (0.03, 0.88):
        for _ in range(14):
            canvas.disc(
                w * (side + rng.uniform(0, 0.09)),
                h * rng.uniform(0, 1),
                rng.uniform(7, 15),
                mix(rgb("588157"), rng.choice(palette), 0.2),
            )
    brass = mix(rgb("e3cf9c"), rng.choice(palette), 0.12)
    canvas.rect(w * 0.13, h * 0.2, w * 0.87, h * 0.8, mix(brass, INK, 0.6), radius=16)
    canvas.rect(w * 0.14, h * 0.21, w * 0.86, h * 0.79, brass, mix(brass, INK, 0.4), 3, 14)
    band(canvas, w * 0.18, h * 0.25, w * 0.82, h * 0.33, rng, palette, mix(brass, PAPER, 0.3))
    band(canvas, w * 0.18, h * 0.68, w * 0.82, h * 0.75, rng, palette, mix(brass, PAPER, 0.3))
    for x in (0.165, 0.835):
        for y in (0.245, 0.755):
            canvas.disc(w * x, h * y, 6, mix(brass, INK, 0.5), outline=INK)
    return w * 0.17, h * 0.36, w * 0.83, h * 0.65, INK


def _museum_label(canvas: Canvas, rng: random.Random) -> Sign:
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    wall = mix(rng.choice(palette), PAPER, 0.6)
    canvas.rect(0, 0, w, h, wall)
    for nth in range(11):
        canvas.rect(w * nth / 11, 0, w * (nth + 0.5) / 11, h * 0.66, mix(wall, INK, 0.06))
    canvas.rect(0, h * 0.64, w, h, mix(rgb("6b4f3a"), palette[0], 0.3))
    canvas.rect(0, h * 0.64, w, h * 0.66, mix(rgb("6b4f3a"), PAPER, 0.4))
    cx, cy, r = w * 0.5, h * 0.34, h * 0.25
    stone = mix(rgb("b08d57"), rng.choice(palette), 0.3)
    canvas.rect(cx - r * 0.5, h * 0.56, cx + r * 0.5, h * 0.645, INK)
    canvas.disc(cx, cy, r, stone, outline=INK, width=4)
    for nth in range(14):
        turn = 2 * math.pi * nth / 14
        motif(canvas, cx + r * 0.75 * math.cos(turn), cy + r * 0.75 * math.sin(turn), r * 0.3, rng, palette)
    mosaic(canvas, cx - r * 0.38, cy - r * 0.38, cx + r * 0.38, cy + r * 0.38, r * 0.25, rng, palette)
    for side in (0.14, 0.86):
        canvas.rect(w * side - w * 0.08, h * 0.14, w * side + w * 0.08, h * 0.46, INK)
        mosaic(canvas, w * side - w * 0.07, h * 0.16, w * side + w * 0.07, h * 0.44, w * 0.047, rng, palette)
    canvas.rect(w * 0.08, h * 0.7, w * 0.92, h * 0.95, mix(INK, wall, 0.2), radius=5)
    canvas.rect(w * 0.09, h * 0.712, w * 0.91, h * 0.938, (252, 250, 244), radius=3)
    return w * 0.11, h * 0.72, w * 0.89, h * 0.93, INK


SCENES = {
    "station_sign": _station_sign,
    "road_sign": _road_sign,
    "plaque": _plaque,
    "museum_label": _museum_label,
}


def _plaque_at_an_angle(canvas: Canvas, rng: random.Random, text: str) -> Image.Image:
    """A bright plaque, turned away from the viewer, on a dark and quiet ground."""
    w, h = canvas.width, canvas.height
    palette = rng.choice(PALETTES)
    dark = mix(rgb("1e222b"), palette[4], 0.12)
    canvas.rect(0, 0, w, h, dark)
    plate = Canvas(round(w * 0.86), round(h * 0.62), (250, 247, 238))
    pw, ph = plate.width, plate.height
    band(plate, pw * 0.03, ph * 0.05, pw * 0.97, ph * 0.2, rng, palette, mix(PAPER, palette[2], 0.2))
    band(plate, pw * 0.03, ph * 0.8, pw * 0.97, ph * 0.95, rng, palette, mix(PAPER, palette[3], 0.2))
    _write(plate, (pw * 0.05, ph * 0.23, pw * 0.95, ph * 0.77, INK), text, 0.0)
    near, far = rng.uniform(0.0, 0.05), rng.uniform(0.16, 0.24)
    left, right = (near, far) if rng.random() < 0.5 else (far, near)
    lift = rng.uniform(-0.05, 0.05)
    corners = [
        (w * 0.08, h * (0.14 + left + lift)),
        (w * 0.92, h * (0.14 + right - lift)),
        (w * 0.94, h * (0.86 - right)),
        (w * 0.06, h * (0.86 - left)),
    ]
    source = [(0, 0), (pw * SCALE, 0), (pw * SCALE, ph * SCALE), (0, ph * SCALE)]
    target = [(x * SCALE, y * SCALE) for x, y in corners]
    flat = plate.image.transform(
        canvas.image.size, Image.Transform.PERSPECTIVE, _coefficients(target, source), Image.Resampling.BICUBIC
    )
    shape = Canvas(w, h, (0, 0, 0))
    shape.poly(corners, (255, 255, 255))
    canvas.image.paste(flat, (0, 0), shape.image.convert("L"))
    return canvas.finish()


def _coefficients(target: Sequence[Point], source: Sequence[Point]) -> list[float]:
    """The eight numbers of the homography that takes picture points to plate points, as Pillow wants them."""
    import numpy as np

    rows = []
    for (x, y), (u, v) in zip(target, source, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    wanted = np.array([number for point in source for number in point], dtype=float)
    return [float(number) for number in np.linalg.solve(np.array(rows, dtype=float), wanted)]
