"""The order of training examples: a function of seed and position alone, so that a resumed run meets the same ones.

A run is one long pass over a list of examples that is laid down beforehand: epoch after epoch, in one or two stages.
Samplers that are told the epoch do not survive a resume on several devices, where accelerate wraps them too deeply to
be told; and transformers' own sampler for examples of like length draws from the global generator, so that a run that
was killed within an epoch would go on with other examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count, islice

from opensearch_vl.seeds import generator

POOL = 50
"""Batches that are shuffled and then sorted by length together: large enough for even batches, small enough that every
epoch mixes anew (the value of transformers' sampler)."""


def draw_order(
    lengths: Sequence[int], draws: int, batch_size: int, seed: int, *, stage: int = 0, by_length: bool = True
) -> list[int]:
    """Indices of the examples of a stage in the order they are drawn in; each epoch has every example once.

    Args:
        lengths: Tokens of each example.
        draws: How many are drawn.
        batch_size: Examples per optimiser step.
        seed: Of the run.
        stage: Number of the stage, so that stages do not repeat each other's order.
        by_length: Put examples of like length into a batch; otherwise the order is a plain shuffle.
    """
    drawn = list(islice(chain.from_iterable(_epoch(len(lengths), seed, stage, epoch) for epoch in count()), draws))
    if not by_length:
        return drawn
    batches: list[list[int]] = []
    for start in range(0, draws, batch_size * POOL):
        pool = sorted(drawn[start : start + batch_size * POOL], key=lambda i: -lengths[i])
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    rest = batches.pop() if batches and len(batches[-1]) < batch_size else []
    for start in range(0, len(batches), POOL):
        few = batches[start : start + POOL]
        generator("batches", seed, stage, start).shuffle(few)
        batches[start : start + POOL] = few
    return [index for batch in batches for index in batch] + rest


def _epoch(num: int, seed: int, stage: int, epoch: int) -> list[int]:
    indices = list(range(num))
    generator("order", seed, stage, epoch).shuffle(indices)
    return indices


class Order:
    """`draw_order` of one stage after another, as a sampler.

    Args:
        lengths: Tokens of each example, those of the first stage before the others.
        stages: Examples and draws of each stage.
        batch_size: Examples per optimiser step.
        seed: Of the run.
        by_length: Put examples of like length into a batch.
    """

    def __init__(
        self, lengths: Sequence[int], stages: Sequence[tuple[int, int]], batch_size: int, seed: int, by_length: bool
    ) -> None:
        self.indices: list[int] = []
        start = 0
        for stage, (num, draws) in enumerate(stages):
            some = lengths[start : start + num]
            drawn = draw_order(some, draws, batch_size, seed, stage=stage, by_length=by_length)
            self.indices += [start + index for index in drawn]
            start += num

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)
