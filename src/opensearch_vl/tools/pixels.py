"""Pixel arithmetic of the visual tools, pure functions on uint8 RGB arrays ``[H, W, 3]`` (paper, section 2).

Crop and unsharp mask live here; the perspective correction is in `quadrilateral` and re-exported. The same functions
repair what the enhancement subset damages (`questions.degrade`, paper section 3.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.errors import BadInput
from opensearch_vl.tools.quadrilateral import correct_perspective, find_quadrilateral

__all__ = [
    "MIN_CROP_PX",
    "SHARPEN_SIGMA",
    "Box",
    "Coordinates",
    "correct_perspective",
    "crop_box",
    "find_quadrilateral",
    "resolve_box",
    "sharpen",
]

Rgb = NDArray[np.uint8]
Coordinates = Literal["pixels", "grid_1000"]
"""How a model writes boxes: pixels of the stored picture (paper), or the 0-1000 grid of Qwen-VL models."""

SHARPEN_SIGMA = 3.0
"""Standard deviation of the unsharp mask in pixels (paper, section 2)."""
MIN_CROP_PX = 4
"""Shortest side of a crop; smaller ones hold nothing a model or OCR could read."""
_MAX_ASPECT = 100.0  # half of what `images.decode` and Qwen-VL processors accept
_FAR_PX = 1e9  # beyond any picture; keeps absurd numbers finite
_STRIP_PX = 4_000_000  # pixels sharpened at once, so that a 100-megapixel picture needs little memory


@dataclass(frozen=True, slots=True)
class Box:
    """A box in whole pixels, right and bottom exclusive; `clipped` when part of the wish lay outside the picture."""

    left: int
    top: int
    right: int
    bottom: int
    clipped: bool

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.right - self.left, self.bottom - self.top


def resolve_box(
    size_px: tuple[int, int], x: float, y: float, width: float, height: float, coordinates: Coordinates = "pixels"
) -> Box:
    """The pixels of a picture of `size_px` (width, height) that a wished-for box covers.

    Args:
        size_px: Width and height of the picture.
        x: Left edge, in the units of `coordinates`; may lie outside the picture.
        y: Top edge.
        width: Width, above 0.
        height: Height, above 0.
        coordinates: Units of the box.

    Raises:
        BadInput: If the box misses the picture, or what is left of it is too small or too thin to be of use.
    """
    units = size_px if coordinates == "pixels" else (1000, 1000)
    scale_x, scale_y = size_px[0] / units[0], size_px[1] / units[1]
    edges = x * scale_x, y * scale_y, (x + width) * scale_x, (y + height) * scale_y
    wish = tuple(round(min(max(edge, -_FAR_PX), _FAR_PX)) for edge in edges)
    left, top = max(wish[0], 0), max(wish[1], 0)
    right, bottom = min(wish[2], size_px[0]), min(wish[3], size_px[1])
    where = f"The picture is {size_px[0]}×{size_px[1]} pixels"
    if coordinates != "pixels":
        where += ", boxes are given on a grid of 0 to 1000 in both directions"
    if width <= 0 or height <= 0:
        raise BadInput(f"The box has no area: width {width:g}, height {height:g}. {where}.")
    if right <= left or bottom <= top:
        raise BadInput(f"The box x={x:g}, y={y:g}, width={width:g}, height={height:g} misses the picture. {where}.")
    short, long = sorted((right - left, bottom - top))
    if short < min(MIN_CROP_PX, *size_px) or long > short * _MAX_ASPECT:
        raise BadInput(
            f"The box covers only {right - left}×{bottom - top} pixels of the picture; each side needs at least "
            f"{MIN_CROP_PX}, and the longer at most {_MAX_ASPECT:.0f} times the shorter. {where}."
        )
    return Box(left, top, right, bottom, clipped=(left, top, right, bottom) != wish)


def crop_box(rgb: Rgb, box: Box) -> Rgb:
    """The pixels inside `box`, as a contiguous copy."""
    return np.ascontiguousarray(rgb[box.top : box.bottom, box.left : box.right])


def sharpen(rgb: Rgb, amount: float = 1.5, sigma: float = SHARPEN_SIGMA) -> Rgb:
    """Unsharp mask ``(1 + α)·I − α·(G_σ∗I)`` in floating point, rounded and clipped to 0-255 once at the end.

    Args:
        rgb: ``[H, W, 3]`` or ``[H, W]``, uint8.
        amount: α; 0 returns the picture unchanged.
        sigma: Standard deviation of the Gaussian in pixels; borders are mirrored.
    """
    import cv2

    halo = int(np.ceil(4 * sigma)) + 1  # beyond the kernel that OpenCV uses for floating point (radius 4σ)
    height, width = rgb.shape[:2]
    rows = max(1, _STRIP_PX // width)
    out = np.empty_like(rgb)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        first, last = max(0, top - halo), min(height, bottom + halo)
        strip = rgb[first:last].astype(np.float32)
        blurred = cv2.GaussianBlur(strip, (0, 0), sigma, borderType=cv2.BORDER_REFLECT_101)
        sharp = strip + np.float32(amount) * (strip - blurred)
        out[top:bottom] = np.clip(np.rint(sharp), 0, 255).astype(np.uint8)[top - first : bottom - first]
    return out
