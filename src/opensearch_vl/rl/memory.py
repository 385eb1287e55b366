"""What a model holds of conversations while they are decoded: keys, values, and where the next token stands.

`Memory` belongs to one conversation and lasts from turn to turn; `RaggedCache` lines the memories of a batch up in
buffers and stands in for transformers' cache while they are run through the model together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

GROW = 64
"""Places by which a buffer grows when decoding reaches its end."""


@dataclass(slots=True)
class Memory:
    """What the model holds of one conversation.

    Attributes:
        ids: Tokens whose keys and values are held.
        num_images: Pictures among them.
        position: Rotary position of the next token; below ``len(ids)`` once there are pictures.
        keys, values: Per layer ``[H, len(ids), D]``.
    """

    ids: list[int] = field(default_factory=list)
    num_images: int = 0
    position: int = 0
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def holds_prefix_of(self, ids: Sequence[int]) -> bool:
        """Whether all of it, and not the whole of `ids`, is the beginning of `ids`."""
        return len(self.ids) < len(ids) and self.ids == list(ids[: len(self.ids)])

    def shared(self) -> Memory:
        """Another conversation's memory of the same beginning; the tensors are never written to, so they are shared."""
        return Memory(list(self.ids), self.num_images, self.position, self.keys, self.values)


def rope_positions(
    ids: Sequence[int], image_pad: int, grids: Sequence[tuple[int, int]], start: int
) -> tuple[NDArray[np.int64], int]:
    """Qwen3-VL's rotary positions (time, height, width) of tokens that continue a conversation.

    Text advances all three by one; a picture of ``h × w`` tokens stands at one time, its tokens at their row and
    column, and what follows begins after its longer side.

    Args:
        ids: ``[n]`` new tokens.
        image_pad: The placeholder.
        grids: Height and width in tokens of each picture whose placeholders are among `ids`.
        start: Position of the first.

    Returns:
        Positions ``[3, n]`` and the position of what comes next.
    """
    places = np.empty((3, len(ids)), dtype=np.int64)
    token = np.asarray(ids, dtype=np.int64)
    pads = np.flatnonzero(token == image_pad)
    at = 0
    used = 0
    for height, width in grids:
        first = int(pads[used])
        places[:, at:first] = np.arange(start, start + first - at)
        start += first - at
        size = height * width
        rows, columns = np.divmod(np.arange(size), width)
        places[:, first : first + size] = start + np.stack([np.zeros(size, dtype=np.int64), rows, columns])
        start += max(height, width)
        at, used = first + size, used + size
    places[:, at:] = np.arange(start, start + len(token) - at)
    return places, start + len(token) - at


class RaggedCache:
    """Keys and values of a batch of conversations of different lengths, left-aligned in one buffer per layer.

    It stands in for transformers' cache: attention asks `update` to add the new tokens and gets all of them back.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor], lengths: Tensor) -> None:
        self.keys = keys
        self.values = values
        self.lengths = lengths
        self._end = 0

    @classmethod
    def of(cls, memories: Sequence[Memory], capacity: int, lengths: Tensor, device: Any) -> RaggedCache:
        """A buffer with room for `capacity` tokens a row, filled with what the memories hold."""
        filled = [memory for memory in memories if memory.keys]
        cache = cls([], [], lengths.to(device))
        if not filled:
            return cache
        for source, target in (("keys", cache.keys), ("values", cache.values)):
            for layer, example in enumerate(getattr(filled[0], source)):
                buffer = example.new_zeros(len(memories), example.shape[0], capacity, example.shape[2])
                for row, memory in enumerate(memories):
                    if memory.keys:
                        buffer[row, :, : len(memory.ids)] = getattr(memory, source)[layer]
                target.append(buffer)
        return cache

    def mask(self, num_new: int, dtype: Any) -> Tensor:
        """What is added to attention scores ``[B, 1, num_new, K]``: 0 up to a token's own place in its row, then −∞."""
        import torch

        device = self.lengths.device
        self._end = int(self.lengths.max()) + num_new
        query = self.lengths[:, None] + torch.arange(num_new, device=device)
        seen = torch.arange(self._end, device=device) <= query[:, :, None]
        hidden = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)
        return hidden[:, None]

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write new keys and values ``[B, H, Q, D]`` after each row's own end; returns the whole buffers up to the end.

        Rows with fewer than Q new tokens carry padding at their end; it is never seen, and overwritten later.
        """
        import torch

        key = key.to(value.dtype)  # under autocast positions leave keys in fp32, and attention casts them
        if layer == len(self.keys):  # nothing was held so far
            self.keys.append(key.new_zeros(key.shape[0], key.shape[1], self._end, key.shape[3]))
            self.values.append(torch.zeros_like(self.keys[-1]))
        self._reserve(layer)
        rows = torch.arange(key.shape[0], device=key.device)[:, None]
        places = self.lengths[:, None] + torch.arange(key.shape[2], device=key.device)
        self.keys[layer][rows, :, places] = key.transpose(1, 2)
        self.values[layer][rows, :, places] = value.transpose(1, 2)
        return self.keys[layer][:, :, : self._end], self.values[layer][:, :, : self._end]

    def memory(self, row: int, ids: list[int], num_images: int, position: int) -> Memory:
        """A row as a conversation's memory of its own."""
        length = len(ids)
        return Memory(
            ids=ids,
            num_images=num_images,
            position=position,
            keys=[layer[row, :, :length].clone() for layer in self.keys],
            values=[layer[row, :, :length].clone() for layer in self.values],
        )

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.lengths = self.lengths[rows]
        self.keys = [layer[rows] for layer in self.keys]
        self.values = [layer[rows] for layer in self.values]

    def _reserve(self, layer: int) -> None:
        import torch

        if self._end <= self.keys[layer].shape[2]:
            return
        more = self._end - self.keys[layer].shape[2] + GROW
        for buffers in (self.keys, self.values):
            buffers[layer] = torch.nn.functional.pad(buffers[layer], (0, 0, 0, more))
