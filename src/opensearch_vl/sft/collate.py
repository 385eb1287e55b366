"""Transcripts → padded tensors for a Qwen3-VL model. Supervised and reinforcement learning share this.

The loss of fine-tuning is taken over action tokens alone: a label is the token itself where the policy (or the expert)
emitted it and -100 everywhere else, so observations, prompts and picture placeholders never carry loss (paper,
section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.agent.pixels import Pixels
from opensearch_vl.agent.transcript import Transcript
from opensearch_vl.types import ImageRef

if TYPE_CHECKING:
    from torch import Tensor

IGNORED = -100
"""The label that PyTorch's cross-entropy leaves out."""


def model_inputs(ids: NDArray[np.int64], images: Sequence[Sequence[ImageRef]], pixels: Pixels) -> dict[str, Tensor]:
    """What the model's forward pass takes.

    The attention mask is all ones: padding stands on the right, where causal attention never looks and no loss is
    taken, and without a mask of its own the kernel skips the upper triangle (half of the work of long rows).

    Args:
        ids: ``[B, T]`` padded on the right.
        images: Pictures of each row, in order of appearance.
        pixels: Where their patches come from.

    Returns:
        `input_ids`, `attention_mask` (ones), `mm_token_type_ids` (1 on placeholders; what 3-D positions are made of),
        and, if any row has a picture, `pixel_values` ``[P, D]`` and `image_grid_thw` ``[N, 3]`` of all rows in order.
    """
    import torch

    inputs = {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.ones(ids.shape, dtype=torch.int64),
        "mm_token_type_ids": torch.from_numpy((ids == pixels.format.image_pad).astype(np.int64)),
    }
    loaded = pixels([image for row in images for image in row])
    if loaded is not None:
        inputs["pixel_values"] = torch.from_numpy(np.ascontiguousarray(loaded[0]))
        inputs["image_grid_thw"] = torch.from_numpy(loaded[1])
    return inputs


class Collator:
    """Batches rows ``{"index": i}`` of a dataset into what the trainer feeds the model.

    Args:
        transcripts: The examples that the rows point to.
        pixels: Where pictures come from.
        pad_id: Token that fills shorter rows up.
    """

    def __init__(self, transcripts: Sequence[Transcript], pixels: Pixels, pad_id: int) -> None:
        self.transcripts = transcripts
        self.pixels = pixels
        self.pad_id = pad_id

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """`model_inputs` and `labels` ``[B, T]``."""
        import torch

        chosen = [self.transcripts[row["index"]] for row in rows]
        shape = (len(chosen), max(len(transcript) for transcript in chosen))
        ids = np.full(shape, self.pad_id, dtype=np.int64)
        labels = np.full(shape, IGNORED, dtype=np.int64)
        for row, transcript in enumerate(chosen):
            length = len(transcript)
            ids[row, :length] = transcript.ids
            labels[row, :length] = np.where(transcript.gen_mask, transcript.ids, IGNORED)
        inputs = model_inputs(ids, [transcript.images for transcript in chosen], self.pixels)
        return {**inputs, "labels": torch.from_numpy(labels)}
