"""Drawn pictures with enough corners to be recognised, and the distortions an agent meets."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from importlib import resources

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont


def font(size: int) -> ImageFont.FreeTypeFont:
    file = resources.files("opensearch_vl").joinpath("assets/fonts/DejaVuSans-Bold.ttf")
    return ImageFont.truetype(io.BytesIO(file.read_bytes()), size)


def facade(seed: int, lettering: str = "", size: tuple[int, int] = (640, 560)) -> Image.Image:
    """A street of houses; the same seed with other lettering is a near-identical picture."""
    rng = random.Random(seed)
    width, height = size

    def colour(low: int = 40, high: int = 230) -> tuple[int, int, int]:
        return rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)

    image = Image.new("RGB", size, colour(150))
    draw = ImageDraw.Draw(image)
    ground = height - rng.randint(40, 110)
    draw.rectangle((0, ground, width, height), fill=colour(60, 150))
    left = -20
    while left < width:
        wide, high = rng.randint(90, 220), rng.randint(170, 400)
        draw.rectangle((left, ground - high, left + wide, ground), fill=colour(), outline=colour(0, 80), width=3)
        columns, rows = rng.randint(2, 5), rng.randint(2, 6)
        for column in range(columns):
            for row in range(rows):
                if rng.random() < 0.85:
                    x = left + wide * (2 * column + 1) // (2 * columns + 1)
                    y = ground - high + high * (2 * row + 1) // (2 * rows + 1)
                    box = (x, y, x + wide // (2 * columns + 1), y + high // (2 * rows + 1))
                    draw.rectangle(box, fill=colour(), outline=colour(0, 60), width=rng.randint(0, 2))
        left += wide + rng.randint(0, 30)
    for _ in range(60):
        x, y, r = rng.randint(0, width), rng.randint(0, height), rng.randint(3, 14)
        draw.regular_polygon((x, y, r), rng.randint(3, 6), rotation=rng.randint(0, 90), fill=colour())
    if lettering:
        draw.rectangle((150, 60, 490, 120), fill=(240, 235, 220))
        draw.text((160, 68), lettering, fill=(30, 20, 20), font=font(34))
    return image


def tilt(image: Image.Image, yaw_deg: float, pitch_deg: float, size: tuple[int, int], fill: float = 1.0) -> Image.Image:
    """What a pinhole camera sees of the picture turned about its axes."""
    width, height = image.size
    focal = 1.2 * max(width, height)
    yaw, pitch = np.deg2rad([yaw_deg, pitch_deg])
    about_y = np.array([[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]])
    about_x = np.array([[1, 0, 0], [0, np.cos(pitch), -np.sin(pitch)], [0, np.sin(pitch), np.cos(pitch)]])
    corners = np.array([(-width, -height, 0), (width, -height, 0), (width, height, 0), (-width, height, 0)]) / 2
    seen = corners @ (about_y @ about_x).T + np.array([0, 0, focal])
    flat = seen[:, :2] / seen[:, 2:] * focal
    zoom = fill * min(size[0] / np.ptp(flat[:, 0]), size[1] / np.ptp(flat[:, 1]))
    flat = (flat - (flat.min(0) + flat.max(0)) / 2) * zoom + np.array(size) / 2
    source = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float32)
    matrix = cv2.getPerspectiveTransform(source, flat.astype(np.float32))
    return Image.fromarray(cv2.warpPerspective(np.asarray(image), matrix, size, borderValue=(40, 38, 36)))


def encoded(image: Image.Image, quality: int = 0) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality) if quality else image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def crop(image: Image.Image) -> Image.Image:
    width, height = image.size
    side = 0.3**0.5
    x, y = int(width * 0.3), int(height * 0.35)
    return image.crop((x, y, x + int(width * side), y + int(height * side)))


def screen(image: Image.Image) -> Image.Image:
    """A photograph of a screen: sub-pixel stripes, another gamma, tilt, moiré, glare, noise."""
    pixels = np.asarray(image).astype(np.float32)
    columns = np.arange(pixels.shape[1])
    for channel in range(3):
        pixels[:, :, channel] *= 0.75 + 0.25 * (columns % 3 == channel)
    shot = np.asarray(tilt(Image.fromarray(pixels.astype(np.uint8)), 9, -7, (900, 700), 0.8)) / 255.0
    y, x = np.mgrid[:700, :900]
    shot = shot**1.3 * (1 + 0.06 * np.sin(x / 3.7 + y / 11) + 0.05 * np.sin(y / 2.9))[..., None]
    shot += 0.25 * np.exp(-((x - 600) ** 2 + (y - 180) ** 2) / 16200)[..., None]
    shot += np.random.default_rng(0).normal(0, 0.02, shot.shape)
    return Image.fromarray((shot.clip(0, 1) * 255).astype(np.uint8))


DISTORTIONS: dict[str, Callable[[Image.Image], bytes]] = {
    "clean": encoded,
    "crop": lambda image: encoded(crop(image)),
    "blur": lambda image: encoded(image.filter(ImageFilter.GaussianBlur(4))),
    "down": lambda image: encoded(image.resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC)),
    "perspective": lambda image: encoded(tilt(image, 20, -20, image.size)),
    "jpeg": lambda image: encoded(image, quality=40),
    "grey": lambda image: encoded(image.convert("L").convert("RGB")),
    "screen": lambda image: encoded(screen(image), quality=75),
}
