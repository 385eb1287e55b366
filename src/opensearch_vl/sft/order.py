"""The order of training examples: a function of seed and epoch alone, so that a resumed run meets the same ones.

Examples of like length share a batch, which saves padding. transformers' own sampler for this draws from the global
generator, so a run that was killed within an epoch would go on with other examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count, islice

from opensearch_vl.seeds import generator

POOL = 50
"""Batches that are shuffled and then sorted by length together: large enough for even batches, small enough that every
epoch mixes anew (the value of transformers' sampler)."""


def epoch_order(lengths: Sequence[int], batch_size: int, seed: int, epoch: int, by_length: bool = True) -> list[int]:
    """Indices of all examples in the order of an epoch.

    Args:
        lengths: Tokens of each example.
        batch_size: Examples per optimiser step.
        seed: Of the run.
        epoch: From 0.
        by_length: Put examples of like length into a batch; otherwise the order is a plain shuffle.
    """
    rng = generator("order", seed, epoch)
    indices = list(range(len(lengths)))
    rng.shuffle(indices)
    if not by_length:
        return indices
    batches: list[list[int]] = []
    for start in range(0, len(indices), batch_size * POOL):
        pool = sorted(indices[start : start + batch_size * POOL], key=lambda i: -lengths[i])
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    rest = batches.pop() if batches and len(batches[-1]) < batch_size else []
    rng.shuffle(batches)
    return [index for batch in batches for index in batch] + rest


class EpochOrder:
    """`epoch_order` as a sampler; the trainer tells it the epoch."""

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int, by_length: bool) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.by_length = by_length
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer before each epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(epoch_order(self.lengths, self.batch_size, self.seed, self.epoch, self.by_length))

    def __len__(self) -> int:
        return len(self.lengths)


class StagedOrder:
    """The order of a run whose first stage has examples of its own: one long epoch, a stage after the other.

    Args:
        lengths: Tokens of each example, those of the first stage before the others.
        num_first: Examples of the first stage.
        draws: Examples drawn in the first stage and in the second; each stage goes through its own in epochs.
        batch_size: Examples per optimiser step.
        seed: Of the run.
        by_length: Put examples of like length into a batch.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        num_first: int,
        draws: tuple[int, int],
        batch_size: int,
        seed: int,
        by_length: bool,
    ) -> None:
        self.stages = ((0, lengths[:num_first]), (num_first, lengths[num_first:]))
        self.draws = draws
        self.batch_size = batch_size
        self.seed = seed
        self.by_length = by_length

    def __iter__(self) -> Iterator[int]:
        for (start, lengths), num in zip(self.stages, self.draws, strict=True):
            epochs = (epoch_order(lengths, self.batch_size, self.seed, epoch, self.by_length) for epoch in count())
            yield from (start + index for index in islice(chain.from_iterable(epochs), num))

    def __len__(self) -> int:
        return sum(self.draws)
