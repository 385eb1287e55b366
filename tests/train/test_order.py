"""The order of examples is complete, depends on the seed alone, and puts like lengths together."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.sft.order import Order, draw_order


@given(st.lists(st.integers(1, 500), min_size=1, max_size=80), st.integers(0, 3), st.integers(1, 9), st.booleans())
def test_every_example_comes_once_an_epoch(lengths: list[int], epochs: int, batch: int, by_length: bool) -> None:
    order = draw_order(lengths, epochs * len(lengths), batch, seed=1, by_length=by_length)
    assert Counter(order) == (dict.fromkeys(range(len(lengths)), epochs) if epochs else {})
    assert order == draw_order(lengths, epochs * len(lengths), batch, seed=1, by_length=by_length)


def test_epochs_seeds_and_stages_differ() -> None:
    lengths = [7] * 64
    orders = [draw_order(lengths, 128, 4, seed, stage=stage, by_length=False) for seed in (0, 1) for stage in (0, 1)]
    parts = [tuple(order[start : start + 64]) for order in orders for start in (0, 64)]
    assert len(set(parts)) == 8 and all(sorted(part) == list(range(64)) for part in parts)


@pytest.mark.parametrize("draws", [400, 1203])
def test_like_lengths_share_a_batch_in_every_epoch_and_batches_are_shuffled(draws: int) -> None:
    lengths = [n % 97 for n in range(403)]
    order = draw_order(lengths, draws, 8, 0)
    batches = [order[start : start + 8] for start in range(0, draws, 8)]
    assert [len(batch) for batch in batches[:-1]] == [8] * (len(batches) - 1)
    assert max(max(lengths[i] for i in batch) - min(lengths[i] for i in batch) for batch in batches[:-1]) <= 4
    tops = [max(lengths[i] for i in batch) for batch in batches[:50]]
    assert tops != sorted(tops) and tops != sorted(tops, reverse=True)


def test_a_first_stage_draws_from_its_own_examples_in_epochs_and_then_from_the_others() -> None:
    lengths = [5, 6, 7, 9, 8, 7, 6, 5, 4, 3]
    order = Order(lengths, [(3, 8), (7, 9)], batch_size=2, seed=1, by_length=False)
    drawn = list(order)
    assert len(drawn) == len(order) == 17 and drawn == list(order)
    assert Counter(drawn[:6]) == {0: 2, 1: 2, 2: 2} and set(drawn[6:8]) < {0, 1, 2}
    assert Counter(drawn[8:15]) == dict.fromkeys(range(3, 10), 1) and set(drawn[15:]) < set(range(3, 10))


@pytest.mark.parametrize("skipped", [0, 3])
def test_two_devices_resume_within_the_second_epoch(skipped: int) -> None:
    """As accelerate cuts it up: each process takes every other batch, and a resumed run skips what it has seen."""
    pytest.importorskip("accelerate")
    from accelerate.data_loader import prepare_data_loader, skip_first_batches
    from torch.utils.data import DataLoader

    order = Order([5] * 10, [(10, 24)], batch_size=4, seed=3, by_length=True)

    def shard(process: int) -> list[list[int]]:
        loader: Any = DataLoader(range(10), sampler=order, batch_size=2)  # type: ignore[arg-type]
        loader = prepare_data_loader(loader, num_processes=2, process_index=process, put_on_device=False)
        return [batch.tolist() for batch in (skip_first_batches(loader, skipped) if skipped else loader)]

    whole = [index for pair in zip(shard(0), shard(1), strict=True) for batch in pair for index in batch]
    assert whole == list(order)[skipped * 4 :]
