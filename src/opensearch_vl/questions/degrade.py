"""The enhancement subset: pictures damaged so that one known tool repairs them (paper, section 3.7).

Only pictures whose *lettering* identifies the anchor qualify: there a damage provably takes the information away, since
OCR can no longer read the name, and a repair provably gives it back. Each damage is seeded, as weak as suffices,
and accepted only when the lettering is unreadable before the repair and readable after it, with the repair tool run
exactly as the agent runs it by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from opensearch_vl.images import decode, encode_png
from opensearch_vl.protocols import OcrEngine, Upscaler
from opensearch_vl.questions.anchor import reads_name
from opensearch_vl.questions.repairs import REPAIR, Kind, repair
from opensearch_vl.questions.settings import DegradeSettings
from opensearch_vl.seeds import generator
from opensearch_vl.types import Degradation

_GROUND = (24, 24, 28)
"""Dark surroundings of a skewed picture."""


@dataclass(frozen=True, slots=True)
class Degraded:
    """An accepted damage."""

    png: bytes
    degradation: Degradation


@dataclass(frozen=True, slots=True)
class Trial:
    """One damage tried on one picture, and how it came out."""

    kind: Kind
    strength: float
    readable_before: bool
    readable_after: bool

    def as_dict(self) -> dict[str, str | float | bool]:
        """Plain data for a record."""
        return {
            "kind": self.kind,
            "strength": self.strength,
            "readable_before": self.readable_before,
            "readable_after": self.readable_after,
        }

    @property
    def accepted(self) -> bool:
        """Unreadable as it is, readable after repair."""
        return self.readable_after and not self.readable_before


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
    rng = generator(seed, "skew")
    width, height = image.size
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
    target = corners * [width, height]
    source = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=float)
    return image.transform(
        image.size,
        Image.Transform.PERSPECTIVE,
        _homography(target, source),
        Image.Resampling.BICUBIC,
        fillcolor=_GROUND,
    )


def _homography(points: npt.NDArray[np.float64], images: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """The eight coefficients of the projective map that takes four points to four images."""
    rows, values = [], []
    for (x, y), (u, v) in zip(points, images, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return tuple(float(c) for c in np.linalg.solve(np.array(rows), np.array(values)))


async def degrade(
    data: bytes,
    names: Sequence[str],
    kinds: Sequence[Kind],
    *,
    settings: DegradeSettings,
    ocr: OcrEngine,
    upscaler: Upscaler | None,
    ratio: float,
    seed: int,
) -> tuple[Degraded | None, tuple[Trial, ...]]:
    """Find a damage that takes the lettering away and that its tool gives back.

    Args:
        data: The picture, whose lettering OCR reads.
        names: Title and aliases of the anchor.
        kinds: Damages to try, the preferred first.
        settings: Strengths, weak to strong.
        ocr: Decides what is readable.
        upscaler: Repairs down-sampling; without one that damage is not tried.
        ratio: Share of a name's letters that must be read.
        seed: Seed of the damage.

    Returns:
        The accepted picture, if any, and every trial made.
    """
    image = decode(data)
    trials: list[Trial] = []

    async def readable(png: bytes) -> bool:
        return await reads_name(ocr, png, names, ratio)

    for kind in kinds:
        if kind == "downsample" and upscaler is None:
            continue
        for strength, png in await _unreadable(image, kind, _strengths(settings, kind), readable, seed):
            mended = await asyncio.to_thread(repair, decode(png), kind, upscaler)
            after = mended is not None and await readable(encode_png(mended))
            trials.append(Trial(kind, strength, False, after))
            if after:
                found = Degradation(
                    kind=kind, repair_tool=REPAIR[kind], strength=strength, readable_before=False, readable_after=True
                )
                return Degraded(png, found), tuple(trials)
    return None, tuple(trials)


async def _unreadable(
    image: Image.Image, kind: Kind, strengths: Sequence[float], readable: Callable[[bytes], Awaitable[bool]], seed: int
) -> list[tuple[float, bytes]]:
    """Damages that take the lettering away, the likeliest to be repaired first.

    Blur and down-sampling lose more the stronger they are, so only the weakest that suffices is worth repairing; it is
    found by halving. How well a tilted sheet is found does not depend on its tilt, so every tilt that suffices counts.
    """

    def damaged(strength: float) -> bytes:
        return encode_png(damage(image, kind, strength, seed))

    if kind == "perspective":
        tilted = [(strength, await asyncio.to_thread(damaged, strength)) for strength in strengths]
        return [(strength, png) for strength, png in tilted if not await readable(png)]
    weakest: list[tuple[float, bytes]] = []
    low, high = 0, len(strengths)
    while low < high:
        middle = (low + high) // 2
        png = await asyncio.to_thread(damaged, strengths[middle])
        if await readable(png):
            low = middle + 1
        else:
            high, weakest = middle, [(strengths[middle], png)]
    return weakest


def _strengths(settings: DegradeSettings, kind: Kind) -> tuple[float, ...]:
    if kind == "blur":
        return settings.blur_sigma_px
    return settings.downsample if kind == "downsample" else settings.perspective
