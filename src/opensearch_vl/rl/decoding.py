"""Batched decoding of many conversations, with keys and values kept from turn to turn.

A multi-turn rollout alternates between a few sampled tokens and a longer observation. Running the whole conversation
through the model on every turn would cost a multiple of what is new; here each conversation keeps its keys and values
(`Memory`), a turn runs only its new tokens, and rollouts of one group share the work on their common opening.

The model's own modules do the arithmetic (a Qwen3-VL of transformers, dense or MoE); ours are the ragged cache, the
positions of the new tokens, and a sampler whose draws belong to the rollout and not to the batch it happens to be in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.agent.pixels import Pixels
from opensearch_vl.protocols import Sampling
from opensearch_vl.rl.memory import GROW, Memory, RaggedCache, rope_positions
from opensearch_vl.types import ImageRef, Sampled

if TYPE_CHECKING:
    from torch import Tensor

PREFILL_TOKENS = 8192
"""Tokens, padding included, that are run through the model at once while a context is read."""
COMPACT_BELOW = 0.6
"""Share of unfinished rows under which a decoding batch is made smaller."""


@dataclass(slots=True)
class Request:
    """One turn to decode.

    Attributes:
        ids: The whole context.
        images: Its pictures, in order of appearance.
        sampling: Temperature and limits; temperature 0 takes the likeliest token.
        seed: Of this turn's draws.
        memory: Of the conversation; replaced by one that holds this turn too.
    """

    ids: Sequence[int]
    images: Sequence[ImageRef]
    sampling: Sampling
    seed: int
    memory: Memory


class Decoder:
    """Decodes batches of turns with one model.

    Args:
        model: A `Qwen3VLForConditionalGeneration` or its MoE sibling.
        pixels: Where pictures come from; also names the tokens that must never be sampled.
        stop_ids: Tokens that end a turn.
        autocast: Under which passes run; that of the training whose log-probabilities these are to be.
    """

    def __init__(
        self,
        model: Any,
        pixels: Pixels,
        stop_ids: Sequence[int],
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.model = model
        self.autocast = autocast
        self.pixels = pixels
        self.stop_ids = frozenset(stop_ids)
        self.max_context = int(model.config.get_text_config().max_position_embeddings)
        self._merge = int(pixels.format.image_processor.merge_size)

    def run(self, requests: Sequence[Request], done: Callable[[int, Sampled], None]) -> None:
        """Decode one turn of each request; `done` is called with the index of a request as soon as it is finished."""
        import torch

        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad(), self.autocast():
                first_logits = self._read(requests)
                _Turns(self, requests, first_logits, done).run()
        finally:
            self.model.train(training)

    # ------------------------------------------------------------------------------------- reading contexts

    def _read(self, requests: Sequence[Request]) -> list[Tensor]:
        """Bring every memory up to its request's context; returns the logits ``[V]`` after each."""
        logits: list[Any] = [None] * len(requests)
        leaders: dict[tuple[bytes, tuple[str, ...]], int] = {}
        followers: list[tuple[int, int]] = []
        to_read = []
        for index, request in enumerate(requests):
            if not request.memory.holds_prefix_of(request.ids):
                request.memory = Memory()
            if not request.memory.ids:
                key = (np.asarray(request.ids).tobytes(), tuple(image.sha256 for image in request.images))
                if leaders.setdefault(key, index) != index:
                    followers.append((index, leaders[key]))
                    continue
            to_read.append(index)
        to_read.sort(key=lambda i: (len(requests[i].ids) - len(requests[i].memory.ids), len(requests[i].ids)))
        for part in _within_budget(to_read, [len(r.ids) - len(r.memory.ids) for r in requests]):
            for index, row in zip(part, self._read_part([requests[i] for i in part]), strict=True):
                logits[index] = row
        for index, leader in followers:
            requests[index].memory = requests[leader].memory.shared()
            logits[index] = logits[leader]
        return logits

    def _read_part(self, requests: Sequence[Request]) -> Tensor:
        import torch

        fresh = [list(r.ids[len(r.memory.ids) :]) for r in requests]
        longest = max(map(len, fresh))
        ids = np.zeros((len(requests), longest), dtype=np.int64)
        positions = np.zeros((3, len(requests), longest), dtype=np.int64)
        new_images: list[ImageRef] = []
        for row, (request, chunk) in enumerate(zip(requests, fresh, strict=True)):
            shown = request.images[request.memory.num_images :]
            new_images += shown
            ids[row, : len(chunk)] = chunk
            place, request.memory.position = rope_positions(
                chunk, self.pixels.format.image_pad, self._grids(shown), request.memory.position
            )
            positions[:, row, : len(chunk)] = place
        starts = torch.tensor([len(r.memory.ids) for r in requests])
        cache = RaggedCache.of([r.memory for r in requests], int(starts.max()) + longest, starts, self.device)
        hidden = self.hidden(torch.from_numpy(ids), torch.from_numpy(positions), cache, new_images)
        last = torch.tensor([len(chunk) - 1 for chunk in fresh], device=hidden.device)
        for row, request in enumerate(requests):
            request.memory = cache.memory(row, list(request.ids), len(request.images), request.memory.position)
        return self.logits(hidden[torch.arange(len(requests), device=hidden.device), last])

    def hidden(self, ids: Tensor, positions: Tensor, cache: RaggedCache, images: Sequence[ImageRef] = ()) -> Tensor:
        """Run ``[B, Q]`` new tokens after what `cache` holds; returns the last hidden states ``[B, Q, D]``."""
        import torch

        vision = {}
        loaded = self.pixels(images)
        if loaded is not None:
            vision = {
                "pixel_values": torch.from_numpy(loaded[0]).to(self.device),
                "image_grid_thw": torch.from_numpy(loaded[1]).to(self.device),
            }
        out = self.model.model(
            input_ids=ids.to(self.device),
            attention_mask=cache.mask(ids.shape[1], self.model.dtype),
            position_ids=positions.to(self.device),
            cache=cache,
            use_cache=True,
            **vision,
        )
        hidden: Tensor = out.last_hidden_state
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """``[B, V]`` in float32."""
        out: Tensor = self.model.lm_head(hidden).float()
        return out

    @property
    def device(self) -> Any:
        """Where the model is."""
        return self.model.device

    def _grids(self, images: Sequence[ImageRef]) -> list[tuple[int, int]]:
        """Height and width of each picture in tokens."""
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        processor = self.pixels.format.image_processor
        unit = processor.patch_size * processor.merge_size
        sizes = (
            smart_resize(i.height_px, i.width_px, unit, processor.size["shortest_edge"], processor.size["longest_edge"])
            for i in images
        )
        return [(height // unit, width // unit) for height, width in sizes]


class _Turns:
    """A batch of turns being decoded, one token at a time."""

    def __init__(
        self, decoder: Decoder, requests: Sequence[Request], first: list[Tensor], done: Callable[[int, Sampled], None]
    ) -> None:
        import torch

        self.decoder = decoder
        self.requests = requests
        self.done = done
        self.rows = list(range(len(requests)))  # requests that still have a place in the buffer
        self.draws = [np.random.Generator(np.random.Philox(request.seed)) for request in requests]
        self.tokens: list[list[int]] = [[] for _ in requests]
        self.logprobs: list[list[float]] = [[] for _ in requests]
        self.finished = [False] * len(requests)
        lengths = torch.tensor([len(request.ids) for request in requests])
        self.positions = torch.tensor([request.memory.position for request in requests])
        memories = [request.memory for request in requests]
        self.cache = RaggedCache.of(memories, int(lengths.max()) + GROW, lengths, decoder.device)
        self.logits = torch.stack(first)

    def run(self) -> None:
        import torch

        while True:
            chosen = self._sample()
            alive = [place for place, row in enumerate(self.rows) if not self.finished[row]]
            if not alive:
                return
            if len(alive) < COMPACT_BELOW * len(self.rows):
                keep = torch.tensor(alive, device=self.cache.lengths.device)
                self.cache.keep(keep)
                self.positions = self.positions[torch.tensor(alive)]
                self.rows = [self.rows[place] for place in alive]
                chosen = chosen[alive]
            ids = torch.from_numpy(chosen)[:, None]
            positions = self.positions[None, :, None].expand(3, -1, 1)
            hidden = self.decoder.hidden(ids, positions, self.cache)
            self.cache.lengths = self.cache.lengths + 1
            self.positions = self.positions + 1
            self.logits = self.decoder.logits(hidden[:, 0])

    def _sample(self) -> NDArray[np.int64]:
        """The next token of every row in the buffer; rows that end with it are finished off."""
        import torch

        samplings = [self.requests[row].sampling for row in self.rows]
        heat = torch.tensor([s.temperature if s.temperature > 0 else 1.0 for s in samplings], device=self.logits.device)
        logps = (self.logits / heat[:, None]).log_softmax(-1).cpu().double()
        open_to = logps.clone()
        open_to[:, list(self.decoder.pixels.format.banned)] = -torch.inf
        weights = open_to.exp().numpy()
        mass = weights.cumsum(axis=1)
        chosen = np.zeros(len(self.rows), dtype=np.int64)
        for place, row in enumerate(self.rows):
            if self.finished[row]:
                continue
            chosen[place] = self._choose(weights[place], mass[place], samplings[place], row)
            self._take(place, row, int(chosen[place]), float(logps[place, chosen[place]]))
        return chosen

    def _choose(self, weights: NDArray[np.float64], mass: NDArray[np.float64], sampling: Sampling, row: int) -> int:
        """One draw from weights ``[V]`` (with their running sum `mass`) that need not add up to one."""
        if sampling.temperature <= 0:
            return int(weights.argmax())
        if sampling.top_p < 1.0:
            order = np.argsort(-weights, kind="stable")
            ranked = weights[order].cumsum()
            weights = weights.copy()
            weights[order[np.searchsorted(ranked, sampling.top_p * ranked[-1]) + 1 :]] = 0.0
            mass = weights.cumsum()
        return int(np.searchsorted(mass, self.draws[row].random() * mass[-1], side="right"))

    def _take(self, place: int, row: int, token: int, logprob: float) -> None:
        request = self.requests[row]
        self.tokens[row].append(token)
        self.logprobs[row].append(round(logprob, 6))
        length = len(self.tokens[row])
        full = length >= request.sampling.max_tokens or len(request.ids) + length >= self.decoder.max_context
        if token in self.decoder.stop_ids or self._hit_stop_string(row):
            self._finish(place, row, "stop")
        elif full:
            self._finish(place, row, "length")

    def _hit_stop_string(self, row: int) -> bool:
        stops = self.requests[row].sampling.stop
        if not stops:
            return False
        text = self.decoder.pixels.format.tokenizer.decode(self.tokens[row])
        return any(stop in text for stop in stops)

    def _finish(self, place: int, row: int, reason: str) -> None:
        request = self.requests[row]
        self.finished[row] = True
        held = [*request.ids, *self.tokens[row][:-1]]  # the last token has not been run through the model
        request.memory = self.cache.memory(place, held, len(request.images), int(self.positions[place]))
        sampled = Sampled(
            prompt_len=len(request.ids),
            token_ids=tuple(self.tokens[row]),
            logprobs=tuple(self.logprobs[row]),
            finish_reason=reason,
        )
        self.done(row, sampled)


def _within_budget(order: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Consecutive runs of indices (sizes ascending) whose padded total stays within `PREFILL_TOKENS`."""
    parts: list[list[int]] = []
    for index in order:
        if parts and (len(parts[-1]) + 1) * sizes[index] <= PREFILL_TOKENS:
            parts[-1].append(index)
        else:
            parts.append([index])
    return parts
