"""The order of examples is complete, depends on seed and epoch alone, and puts like lengths together."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.sft.order import EpochOrder, StagedOrder, epoch_order


@given(st.lists(st.integers(1, 500), max_size=80), st.integers(1, 9), st.booleans())
def test_every_example_comes_once(lengths: list[int], batch: int, by_length: bool) -> None:
    order = epoch_order(lengths, batch, seed=1, epoch=2, by_length=by_length)
    assert sorted(order) == list(range(len(lengths)))
    assert order == epoch_order(lengths, batch, seed=1, epoch=2, by_length=by_length)


def test_epochs_and_seeds_differ() -> None:
    lengths = list(range(1, 65))
    orders = [epoch_order(lengths, 4, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_like_lengths_share_a_batch_and_batches_are_shuffled() -> None:
    lengths = [n % 97 for n in range(400)]
    order = epoch_order(lengths, 8, 0, 0)
    spread = [
        max(lengths[i] for i in order[s : s + 8]) - min(lengths[i] for i in order[s : s + 8]) for s in range(0, 400, 8)
    ]
    assert max(spread) <= 4
    tops = [lengths[order[s]] for s in range(0, 400, 8)]
    assert tops != sorted(tops) and tops != sorted(tops, reverse=True)


def test_the_sampler_follows_the_epoch_it_is_told() -> None:
    sampler = EpochOrder([1, 2, 3, 4, 5, 6], 2, seed=3, by_length=False)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) == epoch_order(sampler.lengths, 2, 3, 1, by_length=False) != first
    assert len(sampler) == 6


def test_a_first_stage_draws_from_its_own_examples_in_epochs_and_then_from_the_others() -> None:
    lengths = [5, 6, 7, 9, 8, 7, 6, 5, 4, 3]
    order = StagedOrder(lengths, num_first=3, draws=(8, 9), batch_size=2, seed=1, by_length=True)
    drawn = list(order)
    assert len(drawn) == len(order) == 17 and drawn == list(order)
    assert Counter(drawn[:6]) == {0: 2, 1: 2, 2: 2} and set(drawn[6:8]) < {0, 1, 2}
    assert Counter(drawn[8:15]) == dict.fromkeys(range(3, 10), 1) and set(drawn[15:]) < set(range(3, 10))
