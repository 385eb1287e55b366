"""OCR with RapidOCR: the models its wheel carries, by explicit path, so that nothing is ever downloaded.

The library fetches a missing model by itself; naming the three files that come with the wheel, and refusing to start
without them, keeps a run offline and its results the same everywhere. One engine per worker thread, each with a bounded
number of threads of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.backends.caching import Memo
from opensearch_vl.backends.layout import Box, Line, blocks
from opensearch_vl.errors import BackendDown, BadInput, ImageError
from opensearch_vl.images import decode
from opensearch_vl.protocols import TextBlock

MODELS = {
    "Det": "PP-OCRv6_det_small.onnx",
    "Rec": "PP-OCRv6_rec_small.onnx",
    "Cls": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
}
"""Files in the wheel of rapidocr 3.10: detection, recognition, line orientation."""
LEAST_SIDE_PX = 736
MAX_SIDE_PX = 2000
MAX_ASPECT = 6.0
PROBE_SIDE_PX = 960
"""Size at which the four orientations of a page are tried."""
SURE_CONFIDENCE = 0.93
"""Mean confidence from which an upright reading needs no further trial."""
CACHED_PAGES = 4096

Pixels = NDArray[np.uint8]


class RapidOcr:
    """PP-OCRv6 (small) through RapidOCR on the CPU.

    Args:
        workers: Pictures read at the same time; each worker holds the models once (about 150 MB).
        threads: Threads one worker's inference may use.
        min_confidence: Lines below are dropped.
        least_side_px: Pictures whose shorter side is below this are enlarged to it before lettering is looked for.
            RapidOCR's own 736 finds the smallest print; 512 takes half the time where no picture is smaller than that.
    """

    name = "rapidocr"

    def __init__(
        self,
        *,
        workers: int = 1,
        threads: int | None = None,
        min_confidence: float = 0.5,
        least_side_px: int = LEAST_SIDE_PX,
    ) -> None:
        self._least_side_px = least_side_px
        self._threads = max(1, threads if threads is not None else min(4, os.cpu_count() or 1))
        self._min_confidence = min_confidence
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="ocr")
        self._memo: Memo[list[TextBlock]] = Memo(CACHED_PAGES)

    async def read(self, image: bytes, *, orient: bool = False, charts: bool = False) -> list[TextBlock]:
        """Blocks in reading order; boxes are in pixels of the picture as given.

        Args:
            image: Encoded picture.
            orient: Try all four orientations and read the page in the best.
            charts: No model here reads charts; their lettering is read like any other.

        Raises:
            BadInput: `image` cannot be decoded.
            BackendDown: The models are missing or do not run.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.read_now, image, orient)

    async def read_part(self, image: bytes, box_px: tuple[int, int, int, int]) -> list[TextBlock]:
        """See `protocols.PartReader`: the part is enlarged as much as the whole picture would be, and no more."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read_part, image, box_px)

    def _read_part(self, image: bytes, box_px: tuple[int, int, int, int]) -> list[TextBlock]:
        whole = _pixels(image)
        height, width = whole.shape[:2]
        left, top = max(0, box_px[0]), max(0, box_px[1])
        right, bottom = min(width, box_px[2]), min(height, box_px[3])
        if right <= left or bottom <= top:
            return []
        part = np.ascontiguousarray(whole[top:bottom, left:right])
        enlarged = max(1.0, self._least_side_px / min(height, width))
        lines = self._lines(part, use_cls=True, least_side_px=round(enlarged * min(part.shape[:2])))
        return [
            TextBlock(block.text, block.label, _moved(block.box_px, left, top), block.confidence)
            for block in blocks(lines, part.shape[0])
        ]

    def read_now(self, image: bytes, orient: bool = False) -> list[TextBlock]:
        """`read` for callers without an event loop, in the calling thread."""
        key = f"{hashlib.sha256(image).hexdigest()}:{orient}"
        return list(self._memo.get(key, lambda: self._read(image, orient)))

    def _read(self, image: bytes, orient: bool) -> list[TextBlock]:
        pixels = _pixels(image)
        turns, lines = self._best_turn(pixels) if orient else (0, None)
        turned = np.ascontiguousarray(np.rot90(pixels, turns))
        if lines is None:
            lines = self._lines(turned, use_cls=not orient)
        found = blocks(lines, turned.shape[0])
        height, width = pixels.shape[:2]
        return [
            TextBlock(block.text, block.label, unturn(block.box_px, turns, width, height), block.confidence)
            for block in found
        ]

    def _best_turn(self, pixels: Pixels) -> tuple[int, list[Line] | None]:
        """Quarter turns (counter-clockwise) that make the page upright, by which reads most with most confidence.

        The lines that were read on the way come along when they were read at full size.
        """
        import cv2

        scale = min(1.0, PROBE_SIDE_PX / max(pixels.shape[:2]))
        small = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else pixels
        best, best_score, best_lines = 0, -1.0, None
        for turns in (0, 2, 1, 3):
            lines = self._lines(np.ascontiguousarray(np.rot90(small, turns)), use_cls=False)
            wide = [line for line in lines if line.box_px[2] - line.box_px[0] >= line.height]
            chars = sum(len(line.text) for line in lines)
            score = sum(len(line.text) * line.confidence**4 for line in wide)
            if score > best_score:
                best, best_score, best_lines = turns, score, lines
            if turns == 0 and chars and score >= chars * SURE_CONFIDENCE**4:
                break
        return best, best_lines if scale == 1 else None

    def _lines(self, pixels: Pixels, *, use_cls: bool, least_side_px: int | None = None) -> list[Line]:
        result = self._run(pixels, use_cls, self._least_side_px if least_side_px is None else least_side_px)
        if result.boxes is None or result.txts is None:
            return []
        return [
            Line(text.strip(), _upright(box, pixels.shape[1], pixels.shape[0]), float(score))
            for box, text, score in zip(result.boxes, result.txts, result.scores, strict=True)
            if text.strip() and score >= self._min_confidence
        ]

    def _run(self, pixels: Pixels, use_cls: bool, least_side_px: int) -> Any:
        engine = self._engine()
        for detector in (engine.cfg.Det, engine.text_det):  # the second is made of the first at the first reading
            if detector is not None:
                detector.limit_side_len = least_side_px
        try:
            return engine(_padded(pixels), use_det=True, use_cls=use_cls, use_rec=True, text_score=0.0)
        except Exception as error:  # the boundary to a library whose own exceptions have no common base
            raise BackendDown(f"OCR failed on a picture of {pixels.shape[1]}×{pixels.shape[0]} pixels.") from error

    def _engine(self) -> Any:
        engine = getattr(self._local, "engine", None)
        if engine is None:
            engine = self._local.engine = _load(self._threads, self._least_side_px)
        return engine


def _load(threads: int, least_side_px: int) -> Any:
    import rapidocr

    folder = Path(rapidocr.__file__).parent / "models"
    missing = [name for name in MODELS.values() if not (folder / name).is_file()]
    if missing:
        raise BackendDown(
            f"rapidocr is installed without its models ({', '.join(missing)}).",
            "Install the wheel from PyPI again: pip install --force-reinstall 'rapidocr>=3.10,<4'",
        )
    params = {f"{part}.model_path": str(folder / name) for part, name in MODELS.items()}
    engine = rapidocr.RapidOCR(
        params={
            **params,
            "Global.log_level": "error",
            "Global.max_side_len": MAX_SIDE_PX,
            "Det.limit_type": "min",
            "Det.limit_side_len": least_side_px,
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )
    logging.getLogger("RapidOCR").setLevel(logging.ERROR)  # an empty page is no news
    return engine


def _pixels(image: bytes) -> Pixels:
    """Blue, green, red, as the library wants them."""
    try:
        return np.asarray(decode(image))[:, :, ::-1]
    except ImageError as error:
        raise BadInput(error.message) from error


def _moved(box: tuple[int, int, int, int], right_px: int, down_px: int) -> tuple[int, int, int, int]:
    return box[0] + right_px, box[1] + down_px, box[2] + right_px, box[3] + down_px


def _padded(pixels: Pixels) -> Pixels:
    """Widen a sliver to the right or below: the detector enlarges a short side, whatever the long one."""
    import cv2

    height, width = pixels.shape[:2]
    below, right = max(0, int(width / MAX_ASPECT) - height), max(0, int(height / MAX_ASPECT) - width)
    if not below and not right:
        return pixels
    return np.asarray(cv2.copyMakeBorder(pixels, 0, below, 0, right, cv2.BORDER_REPLICATE), np.uint8)


def _upright(corners: Any, width_px: int, height_px: int) -> Box:
    """The upright box round a tilted one, within the picture."""
    points = np.clip(np.asarray(corners, np.float64), 0, (width_px, height_px))
    (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
    return float(left), float(top), float(right), float(bottom)


def unturn(box: tuple[int, int, int, int], turns: int, width_px: int, height_px: int) -> tuple[int, int, int, int]:
    """A box of the turned picture in pixels of the original.

    Args:
        box: Left, top, right, bottom after `turns` counter-clockwise quarter turns (as `numpy.rot90` does).
        turns: 0 to 3.
        width_px: Width of the original.
        height_px: Its height.
    """
    left, top, right, bottom = box
    match turns % 4:
        case 1:
            return width_px - bottom, left, width_px - top, right
        case 2:
            return width_px - right, height_px - bottom, width_px - left, height_px - top
        case 3:
            return top, height_px - right, bottom, height_px - left
        case _:
            return box
