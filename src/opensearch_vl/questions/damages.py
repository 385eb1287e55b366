"""The damages of the enhancement subset (paper, section 3.7)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from opensearch_vl.questions.repairs import Kind
from opensearch_vl.seeds import generator

_GROUND = (24, 24, 28)
"""Dark surroundings of a skewed picture."""

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels."""


def damage(image: Image.Image, kind: Kind, strength: float, seed: int) -> Image.Image:
    """Damage a picture.

    Args:
        image: RGB.
        kind: Which damage.
        strength: For `blur` the σ of a Gaussian in pixels; for `downsample` the factor by which both sides shrink; for
            `perspective` how far corners move inwards, as a share of the sides.
        seed: Settles which corners move.
    """
    if kind == "blur":
        return image.filter(ImageFilter.GaussianBlur(strength))
    if kind == "downsample":
        size = max(8, round(image.width / strength)), max(8, round(image.height / strength))
        return image.resize(size, Image.Resampling.BOX)
    return _skew(image, strength, seed)


def _skew(image: Image.Image, strength: float, seed: int) -> Image.Image:
    """Lay the picture as a tilted sheet on a dark ground; the frame keeps its size."""
    width, height = image.size
    return image.transform(
        image.size,
        Image.Transform.PERSPECTIVE,
        _homography(_tilted(width, height, strength, seed), _corners(width, height)),
        Image.Resampling.BICUBIC,
        fillcolor=_GROUND,
    )


def _corners(width: int, height: int) -> npt.NDArray[np.float64]:
    return np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=float)


def _tilted(width: int, height: int, strength: float, seed: int) -> npt.NDArray[np.float64]:
    """``[4, 2]`` where the corners of the sheet come to lie, in pixels."""
    rng = generator(seed, "skew")
    margin = 0.04
    corners = np.array([[margin, margin], [1 - margin, margin], [1 - margin, 1 - margin], [margin, 1 - margin]])
    far = rng.randrange(4)  # one side recedes: its two corners move towards each other, and inwards
    a, b = far, (far + 1) % 4
    along = corners[b] - corners[a]
    inward = np.array([-along[1], along[0]])
    shift = strength * (0.9 + 0.2 * rng.random())
    lean = rng.uniform(-0.3, 0.3) * strength
    corners[a] = corners[a] + along * (shift + lean) / 2 + inward * shift
    corners[b] = corners[b] - along * (shift - lean) / 2 + inward * shift * rng.uniform(0.5, 1.0)
    return np.asarray(corners * [width, height], dtype=np.float64)


def _homography(points: npt.NDArray[np.float64], images: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """The eight coefficients of the projective map that takes four points to four images."""
    rows, values = [], []
    for (x, y), (u, v) in zip(points, images, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return tuple(float(c) for c in np.linalg.solve(np.array(rows), np.array(values)))


def scaled(box: Box, size: tuple[int, int], to: tuple[int, int]) -> Box:
    """A box of a picture in the pixels of its copy of another size, both as (width, height)."""
    across, down = to[0] / size[0], to[1] / size[1]
    return (
        math.floor(box[0] * across), math.floor(box[1] * down), math.ceil(box[2] * across), math.ceil(box[3] * down),
    )  # fmt: skip
