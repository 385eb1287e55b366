"""Group-relative advantages with the one-sided clamp for fatal trajectories (paper, section 5).

For the ``G`` rollouts of one prompt, ``r̃_i = (r_i − mean)/(std + δ)`` over *all* scored rewards of the group, fatal
ones included. A fatal trajectory keeps only the positive part, ``Â_i = max(r̃_i, 0)``: its prefix may be praised, but
is never blamed for an accident that came later. Pure numpy; the loss in `rl.loss` and the token mask in `rl.batch` use
what is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Mode = Literal["vanilla", "hard_mask", "fatal_mask", "fatal_clamp"]
"""What is done with fatal trajectories (the four rows of the paper's ablation table):

* `vanilla`: nothing; every sampled token is trained with the plain advantage;
* `hard_mask`: the whole trajectory is left out of the loss, its reward stays in the baseline;
* `fatal_mask`: tokens from the fatal step on are left out;
* `fatal_clamp`: `fatal_mask`, and a negative advantage becomes zero (the paper's method).
"""

Estimator = Literal["grpo", "rloo"]
"""Baseline: `grpo` subtracts the group mean and divides by the population standard deviation (the paper's text);
`rloo` subtracts the mean of the other members and does not divide (the paper's scripts)."""

DELTA = 1e-4
"""δ in the denominator. The paper leaves it open; this is the value of common GRPO implementations."""


@dataclass(frozen=True, slots=True)
class Relative:
    """Rewards relative to their group, before any clamp.

    Attributes:
        values: ``[B]`` float64; 0 for unscored members and for groups without a baseline.
        scored: ``[B]`` bool; whether the member had a reward.
        num_unscored: Members left out of every baseline because they have no reward.
        num_small_groups: Groups with one scored member or none; all their values are 0.
        num_flat_groups: Groups of two or more scored members whose rewards are all equal; their values are 0 too.
        num_groups: Groups in the batch.
    """

    values: NDArray[np.float64]
    scored: NDArray[np.bool_]
    num_unscored: int
    num_small_groups: int
    num_flat_groups: int
    num_groups: int


def relative_rewards(
    rewards: Sequence[float | None] | NDArray[np.float64],
    groups: Sequence[int] | NDArray[np.int64],
    estimator: Estimator = "grpo",
) -> Relative:
    """Rewards relative to their group's baseline.

    Args:
        rewards: ``[B]``; None or NaN means unscored (a judge failed, or the infrastructure did) and is excluded.
        groups: ``[B]`` which prompt each rollout belongs to, any integers in any order.
        estimator: The baseline.

    Raises:
        ValueError: On shapes that differ, or an infinite reward.
    """
    reward_B = np.array([np.nan if reward is None else float(reward) for reward in rewards], dtype=np.float64)
    group_B = np.asarray(groups, dtype=np.int64)
    if reward_B.shape != group_B.shape or reward_B.ndim != 1:
        raise ValueError(f"rewards {reward_B.shape} and groups {group_B.shape} must both be of shape [B]")
    if np.isinf(reward_B).any():
        raise ValueError(f"rewards must be finite or unscored; member {int(np.isinf(reward_B).argmax())} is infinite")
    scored = ~np.isnan(reward_B)
    values = np.zeros_like(reward_B)
    num_small = num_flat = 0
    unique = np.unique(group_B)
    for group in unique:
        members = (group_B == group) & scored
        reward_G = reward_B[members]
        if reward_G.size < 2:
            num_small += 1
        elif reward_G.min() == reward_G.max():
            num_flat += 1  # exactly zero, not a rounding error divided by δ
        else:
            values[members] = _relative_to_group(reward_G, estimator)
    return Relative(values, scored, int((~scored).sum()), num_small, num_flat, len(unique))


def clamp_fatal(
    values: NDArray[np.float64], fatal: Sequence[bool] | NDArray[np.bool_], mode: Mode
) -> NDArray[np.float64]:
    """Apply a mode's treatment of fatal trajectories to relative rewards ``[B]``; returns ``[B]``.

    Raises:
        ValueError: On shapes that differ.
    """
    fatal_B = np.asarray(fatal, dtype=np.bool_)
    if fatal_B.shape != values.shape:
        raise ValueError(f"values {values.shape} and fatal {fatal_B.shape} must have the same shape [B]")
    if mode == "fatal_clamp":
        return np.where(fatal_B, np.maximum(values, 0.0), values)
    if mode == "hard_mask":
        return np.where(fatal_B, 0.0, values)
    return values.copy()


def group_advantages(
    rewards: Sequence[float | None] | NDArray[np.float64],
    groups: Sequence[int] | NDArray[np.int64],
    fatal: Sequence[bool] | NDArray[np.bool_],
    mode: Mode = "fatal_clamp",
    estimator: Estimator = "grpo",
) -> NDArray[np.float64]:
    """``Â`` of every rollout, ``[B]``: `relative_rewards`, then `clamp_fatal`.

    Raises:
        ValueError: On shapes that differ, or an infinite reward.
    """
    return clamp_fatal(relative_rewards(rewards, groups, estimator).values, fatal, mode)


def _relative_to_group(reward_G: NDArray[np.float64], estimator: Estimator) -> NDArray[np.float64]:
    centred: NDArray[np.float64] = reward_G - reward_G.mean()
    size = reward_G.size
    if estimator == "rloo":  # r_i − mean of the others = G/(G−1) · (r_i − mean)
        centred *= size / (size - 1)
    else:
        centred /= reward_G.std() + DELTA
    return centred
