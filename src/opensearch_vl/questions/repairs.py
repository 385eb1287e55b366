"""The damages of the enhancement subset and the tools that undo them, run as the agent runs them by default."""

from __future__ import annotations

from typing import Literal

import numpy as np
from PIL import Image

from opensearch_vl.protocols import Upscaler
from opensearch_vl.tools.pixels import sharpen
from opensearch_vl.tools.quadrilateral import correct_perspective

Kind = Literal["blur", "downsample", "perspective"]
RepairTool = Literal["sharpen", "super_resolution", "perspective_correct"]

REPAIR: dict[Kind, RepairTool] = {
    "blur": "sharpen",
    "downsample": "super_resolution",
    "perspective": "perspective_correct",
}
"""Which tool undoes which damage (paper, section 3.7)."""

_SHARPEN_AMOUNT = 1.5
_SCALE = 4
"""Defaults of the tools (paper, appendix on tools)."""


def repair(image: Image.Image, kind: Kind, upscaler: Upscaler | None) -> Image.Image | None:
    """Apply the repair tool with its default arguments; None where it finds nothing to do or is not there."""
    if kind == "blur":
        return Image.fromarray(sharpen(np.asarray(image), _SHARPEN_AMOUNT))
    if kind == "downsample":
        return upscaler.upscale(image, _SCALE) if upscaler is not None else None
    flat, found = correct_perspective(np.asarray(image))
    return Image.fromarray(flat) if found else None
