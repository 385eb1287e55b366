"""Pictures → patches for the vision tower, without torchvision, and with a bounded cache of resized pictures.

Training meets the same picture many times (every epoch, every rollout of a group). What is kept is the picture as the
model sees it, in 8 bits: some 30 times smaller than its patches and exactly as good.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from opensearch_vl.agent.transcript import ChatFormat
from opensearch_vl.errors import TranscriptError
from opensearch_vl.images import ImageStore
from opensearch_vl.types import ImageRef


class Pixels:
    """Loads pictures from a store as the patches that a checkpoint's vision tower takes.

    Args:
        chat_format: Of the checkpoint.
        store: Where the pictures are.
        max_bytes: Bound on the cache; 0 keeps nothing.
    """

    def __init__(self, chat_format: ChatFormat, store: ImageStore, max_bytes: int = 256_000_000) -> None:
        self.format = chat_format
        self.store = store
        self.max_bytes = max_bytes
        self.cached_bytes = 0
        self._cache: OrderedDict[str, Image.Image] = OrderedDict()

    def __call__(self, images: Sequence[ImageRef]) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Patches ``[P, D]`` and grids ``[N, 3]`` (time, height, width in patches), in order; None without pictures.

        Raises:
            ImageError: If a picture is not in the store.
            TranscriptError: If a picture makes another number of features than placeholders stand for it.
        """
        if not images:
            return None
        processor = self.format.image_processor
        batch = processor([self._resized(image) for image in images], do_resize=False, return_tensors="np")
        grids: NDArray[np.int64] = batch["image_grid_thw"]
        for image, grid in zip(images, grids, strict=True):
            features = int(grid.prod()) // int(processor.merge_size) ** 2
            promised = self.format.num_image_tokens(image)
            if features != promised:
                raise TranscriptError(
                    f"Picture {image.sha256[:12]}… gives {features} features, but {promised} placeholders stand for it."
                )
        return batch["pixel_values"], grids

    def _resized(self, ref: ImageRef) -> Image.Image:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        if ref.sha256 in self._cache:
            self._cache.move_to_end(ref.sha256)
            return self._cache[ref.sha256]
        processor = self.format.image_processor
        height, width = smart_resize(
            ref.height_px,
            ref.width_px,
            factor=processor.patch_size * processor.merge_size,
            min_pixels=processor.size["shortest_edge"],
            max_pixels=processor.size["longest_edge"],
        )
        image = self.store.open(ref).resize((width, height), Image.Resampling(processor.resample))
        size = width * height * 3
        if size <= self.max_bytes:
            self._cache[ref.sha256] = image
            self.cached_bytes += size
            while self.cached_bytes > self.max_bytes:
                _, old = self._cache.popitem(last=False)
                self.cached_bytes -= old.width * old.height * 3
        return image
