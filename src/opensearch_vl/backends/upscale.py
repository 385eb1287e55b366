"""Enlarging pictures: plain interpolation that says so, or a network the user brings as an ONNX file.

The paper's `super_resolution` is an EDSR-class network. The project ships no weights, so the default is Lanczos, and
its description tells the model that no detail is added.
"""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL.Image import Image

from opensearch_vl.errors import BackendDown, BadInput, DataError, TooLarge

MAX_OUTPUT_PIXELS = 64_000_000
"""Largest enlarged picture: 8,000 by 8,000."""
MAX_SCALE = 8
TILE_PX = 192
OVERLAP_PX = 16
"""Border of a tile that is computed and thrown away; an EDSR baseline sees little further than this."""

Floats = NDArray[np.float32]


def _check(image: Image, scale: int) -> None:
    if not 1 <= scale <= MAX_SCALE:
        raise BadInput(f"The scale must lie between 1 and {MAX_SCALE}, not {scale}.")
    pixels = image.width * scale * image.height * scale
    if pixels > MAX_OUTPUT_PIXELS:
        raise TooLarge(
            f"{image.width}×{image.height} pixels at scale {scale} make {pixels:,}; at most {MAX_OUTPUT_PIXELS:,} are "
            "allowed. Crop the part you need first."
        )


class LanczosUpscaler:
    """Lanczos interpolation."""

    name = "lanczos"
    describes = "Lanczos interpolation, adds no detail"

    def upscale(self, image: Image, scale: int) -> Image:
        """The picture `scale` times as wide and high.

        Raises:
            BadInput: `scale` is not within 1 to 8.
            TooLarge: The result would be over `MAX_OUTPUT_PIXELS`.
        """
        _check(image, scale)
        return image.convert("RGB").resize((image.width * scale, image.height * scale), PillowImage.Resampling.LANCZOS)


class OnnxUpscaler:
    """A super-resolution network in an ONNX file: RGB ``[1, 3, H, W]`` in, ``[1, 3, S·H, S·W]`` out.

    The scale S is measured on a small picture when the file is loaded. A call for another scale is answered by
    running the network until it is reached and resampling down. Values are taken to lie in [0, 1] unless `value_range`
    says otherwise (EDSR's own weights use 255).

    Args:
        path: The file.
        value_range: What white is for the network.
        threads: Threads of its inference.

    Raises:
        DataError: Not an ONNX model of this shape.
    """

    def __init__(self, path: Path | str, *, value_range: float = 1.0, threads: int | None = None) -> None:
        import onnxruntime

        self.path = Path(path)
        try:
            weights = self.path.read_bytes()
        except OSError as error:
            raise DataError(f"Cannot read the network {self.path}: {error.strerror}.") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = max(1, threads if threads is not None else min(4, os.cpu_count() or 1))
        options.log_severity_level = 4
        try:
            self._session: Any = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the boundary to a library whose exceptions have no common base
            raise DataError(f"{self.path} is not an ONNX model that can be run: {error}.") from error
        self.sha256 = hashlib.sha256(weights).hexdigest()
        self._range = value_range
        self._lock = threading.Lock()
        self.scale = self._measure()
        self.name = f"onnx:{self.path.stem}"
        self.describes = f"super-resolution network {self.path.stem} ({self.scale}×, sha256 {self.sha256[:12]})"

    def _measure(self) -> int:
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(self._session.get_outputs()) != 1 or len(inputs[0].shape) != 4:
            raise DataError(f"{self.path} must take one picture [1, 3, H, W] and return one.")
        self._input = inputs[0].name
        fixed = [side if isinstance(side, int) else None for side in inputs[0].shape]
        if fixed[1] not in (3, None):
            raise DataError(f"{self.path} takes {fixed[1]} channels; an RGB network is needed.")
        if fixed[2] is not None or fixed[3] is not None:
            raise DataError(f"{self.path} takes pictures of one size only; export it with free height and width.")
        height, width = 24, 32
        try:
            out = self._infer(np.zeros((height, width, 3), np.float32))
        except BackendDown as error:
            raise DataError(f"{self.path} does not run on a {width}×{height} RGB picture.") from error
        scale = int(out.shape[0]) // height
        if out.shape != (height * scale, width * scale, 3) or not 2 <= scale <= MAX_SCALE:
            raise DataError(f"{self.path} turns {width}×{height} pixels into shape {out.shape}; no whole enlargement.")
        return scale

    def upscale(self, image: Image, scale: int) -> Image:
        """The picture `scale` times as wide and high; computed in tiles.

        Raises:
            BadInput: `scale` is not within 1 to 8.
            TooLarge: The result, or the picture the network must make on the way, would be over `MAX_OUTPUT_PIXELS`.
            BackendDown: The network failed.
        """
        _check(image, scale)
        passes, reached = 0, 1
        while reached < scale:
            passes, reached = passes + 1, reached * self.scale
        if image.width * reached * image.height * reached > MAX_OUTPUT_PIXELS:
            raise TooLarge(f"At {image.width}×{image.height} pixels the network's {reached}× is too large. Crop first.")
        pixels = np.asarray(image.convert("RGB"), np.float32) / 255.0
        for _ in range(passes):
            pixels = self._tiled(pixels)
        grown = PillowImage.fromarray(np.rint(pixels * 255.0).astype(np.uint8))
        size = (image.width * scale, image.height * scale)
        return grown if grown.size == size else grown.resize(size, PillowImage.Resampling.LANCZOS)

    def _tiled(self, pixels: Floats) -> Floats:
        height, width = pixels.shape[:2]
        scale = self.scale
        out = np.empty((height * scale, width * scale, 3), np.float32)
        for top in range(0, height, TILE_PX):
            for left in range(0, width, TILE_PX):
                bottom, right = min(top + TILE_PX, height), min(left + TILE_PX, width)
                above, before = max(0, top - OVERLAP_PX), max(0, left - OVERLAP_PX)
                below, beyond = min(height, bottom + OVERLAP_PX), min(width, right + OVERLAP_PX)
                tile = self._infer(pixels[above:below, before:beyond])
                y, x = (top - above) * scale, (left - before) * scale
                out[top * scale : bottom * scale, left * scale : right * scale] = tile[
                    y : y + (bottom - top) * scale, x : x + (right - left) * scale
                ]
        return out

    def _infer(self, pixels: Floats) -> Floats:
        batch = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None] * self._range)
        try:
            with self._lock:
                (result,) = self._session.run(None, {self._input: batch})
        except Exception as error:  # the boundary to a library whose exceptions have no common base
            raise BackendDown(f"The super-resolution network failed: {type(error).__name__}.") from error
        if result.ndim != 4 or result.shape[:2] != (1, 3):
            raise BackendDown(f"The super-resolution network returned shape {result.shape}.")
        return np.asarray(np.clip(result[0].transpose(1, 2, 0) / self._range, 0.0, 1.0), np.float32)
