"""Advantages against tables worked out by hand, and their properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.rl.advantage import DELTA, clamp_fatal, group_advantages, relative_rewards

# One group of four, rewards 0, 0, 0.6, 1: mean 0.4, population variance (.16+.16+.04+.36)/4 = 0.18.
REWARDS = [0.0, 0.0, 0.6, 1.0]
SCALE = math.sqrt(0.18) + DELTA
FATAL = [True, False, True, False]  # one fatal below the mean, one above


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("vanilla", [-0.4, -0.4, 0.2, 0.6]),
        ("hard_mask", [0.0, -0.4, 0.0, 0.6]),
        ("fatal_mask", [-0.4, -0.4, 0.2, 0.6]),
        ("fatal_clamp", [0.0, -0.4, 0.2, 0.6]),
    ],
)
def test_grpo_by_hand(mode: str, expected: list[float]) -> None:
    got = group_advantages(REWARDS, [7] * 4, FATAL, mode, "grpo")
    np.testing.assert_allclose(got, np.array(expected) / SCALE, rtol=1e-12)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [  # r_i minus the mean of the other three: 0 − 1.6/3, 0 − 1.6/3, 0.6 − 1/3, 1 − 0.2
        ("vanilla", [-1.6 / 3, -1.6 / 3, 0.8 / 3, 0.8]),
        ("hard_mask", [0.0, -1.6 / 3, 0.0, 0.8]),
        ("fatal_mask", [-1.6 / 3, -1.6 / 3, 0.8 / 3, 0.8]),
        ("fatal_clamp", [0.0, -1.6 / 3, 0.8 / 3, 0.8]),
    ],
)
def test_rloo_by_hand(mode: str, expected: list[float]) -> None:
    np.testing.assert_allclose(group_advantages(REWARDS, [0] * 4, FATAL, mode, "rloo"), expected, rtol=1e-12)


def test_fatal_rewards_stay_in_the_baseline() -> None:
    without = group_advantages([0.0, 1.0], [0, 0], [False, False])
    with_fatal = group_advantages([0.0, 1.0, 0.0, 0.0], [0] * 4, [False, False, True, True])
    assert with_fatal[1] > without[1]  # the fatal zeros lower the mean


def test_groups_are_told_apart_in_any_order() -> None:
    got = group_advantages([0.0, 5.0, 1.0, 7.0], [3, -1, 3, -1], [False] * 4)
    np.testing.assert_allclose(got, [-0.5 / (0.5 + DELTA), -1 / (1 + DELTA), 0.5 / (0.5 + DELTA), 1 / (1 + DELTA)])


def test_unscored_members_are_excluded_and_counted() -> None:
    got = relative_rewards([0.0, None, 1.0, float("nan")], [0] * 4)
    np.testing.assert_allclose(got.values, [-0.5 / (0.5 + DELTA), 0.0, 0.5 / (0.5 + DELTA), 0.0])
    assert got.num_unscored == 2
    assert got.scored.tolist() == [True, False, True, False]


@pytest.mark.parametrize("estimator", ["grpo", "rloo"])
def test_a_group_with_one_scored_member_or_none_is_zero_and_counted(estimator: str) -> None:
    got = relative_rewards([1.0, None, None, 0.0, 1.0], [0, 0, 1, 2, 2], estimator)
    assert got.values[:3].tolist() == [0.0, 0.0, 0.0]
    assert (got.num_small_groups, got.num_groups, got.num_flat_groups) == (2, 3, 0)


def test_equal_rewards_give_exactly_zero() -> None:
    got = relative_rewards([0.1] * 7, [0] * 7)  # the mean of seven 0.1 is not 0.1 in floating point
    assert got.values.tolist() == [0.0] * 7
    assert got.num_flat_groups == 1


def test_shapes_and_infinities_are_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        group_advantages([1.0, 2.0], [0], [False, False])
    with pytest.raises(ValueError, match="same shape"):
        clamp_fatal(np.zeros(2), [True], "fatal_clamp")
    with pytest.raises(ValueError, match="infinite"):
        relative_rewards([1.0, math.inf], [0, 0])


def test_an_empty_batch_is_empty() -> None:
    assert group_advantages([], [], []).shape == (0,)


rewards = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=24)


@given(rewards, st.data())
def test_the_mean_is_zero_and_the_clamp_only_raises(values: list[float | None], data: st.DataObject) -> None:
    fatal = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    groups = data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    plain = group_advantages(values, groups, fatal, "vanilla")
    clamped = group_advantages(values, groups, fatal, "fatal_clamp")
    assert np.isfinite(plain).all()
    for group in set(groups):
        members = np.array(groups) == group
        assert abs(plain[members].sum()) < 1e-6
        assert clamped[members].mean() >= -1e-9  # the bias b ≥ 0 of the paper
    assert (clamped >= plain).all()
    assert (clamped[np.array(fatal)] >= 0).all()
    assert (clamped[~np.array(fatal)] == plain[~np.array(fatal)]).all()


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.floats(0.1, 10), st.floats(-5, 5))
def test_grpo_hardly_depends_on_scale_and_not_on_shift(values: list[float], scale: float, shift: float) -> None:
    if np.std(values) < 0.05:
        return
    base = group_advantages(values, [0] * len(values), [False] * len(values))
    moved = group_advantages([scale * v + shift for v in values], [0] * len(values), [False] * len(values))
    np.testing.assert_allclose(base, moved, rtol=0.05, atol=1e-6)
