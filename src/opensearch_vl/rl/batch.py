"""Scored transcripts → one padded batch. The fatal mask ``M = M_gen · 1[s(t) < f]`` is applied here and nowhere else.

Everything is numpy and aligned with the tokens: ``mask[b, t]`` says that ``ids[b, t]`` was emitted by the policy before
the fatal step, and is therefore what the loss is taken over (paper, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.agent.transcript import Transcript
from opensearch_vl.rl.advantage import Estimator, Mode, clamp_fatal, relative_rewards
from opensearch_vl.types import ImageRef


@dataclass(frozen=True, slots=True)
class ScoredTranscript:
    """A rollout with what the method needs to know about it.

    Attributes:
        transcript: Its tokens.
        group: Which prompt it answers; rollouts of one group share a baseline.
        reward: In [0, 1]; None if a judge or the infrastructure failed, which takes it out of baseline and loss.
        fatal_index: The fatal step f of `scoring.fatal.fatal_index`; None for a non-fatal trajectory.
        answered: Whether it came to a final response.
    """

    transcript: Transcript
    group: int
    reward: float | None
    fatal_index: int | None = None
    answered: bool = True


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What happened to the rollouts of a batch.

    Attributes:
        num_rollouts: All of them.
        num_unscored: Without a reward.
        num_fatal: Fatal and scored.
        num_clamped: Fatal, below the group mean; `clamped_mean` is their mean relative reward before the clamp.
        num_kept: Fatal, above the group mean; `kept_mean` likewise.
        num_unanswered: Scored and not fatal, but without a final response.
        num_no_tokens: Without a single trained token.
        num_small_groups: Groups with at most one scored member.
        num_flat_groups: Groups whose scored members all have the same reward.
        num_groups: All groups.
        num_trained_tokens: Tokens under the mask.
        num_generated_tokens: Tokens that the policy emitted.
    """

    num_rollouts: int
    num_unscored: int
    num_fatal: int
    num_clamped: int
    clamped_mean: float
    num_kept: int
    kept_mean: float
    num_unanswered: int
    num_no_tokens: int
    num_small_groups: int
    num_flat_groups: int
    num_groups: int
    num_trained_tokens: int
    num_generated_tokens: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One padded batch.

    Attributes:
        ids: ``[B, T]`` int64, padded on the right.
        attention: ``[B, T]`` bool; False on padding.
        mask: ``[B, T]`` bool, M.
        logprobs: ``[B, T]`` float32 under the sampling policy; 0 where there is none (always outside the mask).
        advantages: ``[B]`` float32.
        relative: ``[B]`` float32 rewards relative to the group, before the clamp.
        images: Pictures of each rollout, in order of appearance.
        counts: What happened to the rollouts.
    """

    ids: NDArray[np.int64]
    attention: NDArray[np.bool_]
    mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    advantages: NDArray[np.float32]
    relative: NDArray[np.float32]
    images: tuple[tuple[ImageRef, ...], ...]
    counts: BatchCounts


def loss_mask(
    gen_mask: NDArray[np.bool_], step_ids: NDArray[np.int32], fatal_index: int | None, mode: Mode
) -> NDArray[np.bool_]:
    """M of one trajectory, ``[T]``: which tokens the loss is taken over.

    `vanilla` ignores the fatal step; `hard_mask` drops a fatal trajectory whole; the other modes keep ``s(t) < f``.
    """
    if fatal_index is None or mode == "vanilla":
        return gen_mask.copy()
    if mode == "hard_mask":
        return np.zeros_like(gen_mask)
    return gen_mask & (step_ids < fatal_index)


def make_batch(
    rollouts: Sequence[ScoredTranscript],
    *,
    mode: Mode = "fatal_clamp",
    estimator: Estimator = "grpo",
    clamp_unanswered: bool = False,
    pad_id: int = 0,
) -> Batch:
    """Pad, mask and compute advantages.

    Args:
        rollouts: Of whole groups.
        mode: What is done with fatal trajectories.
        estimator: The baseline.
        clamp_unanswered: In mode `fatal_clamp`, also never blame a trajectory that was cut off before its response, as
            the paper's code does and its text does not.
        pad_id: Token that fills shorter rows up.

    Raises:
        ValueError: Without rollouts, or on an infinite reward.
    """
    if not rollouts:
        raise ValueError("a batch needs at least one rollout")
    relative = relative_rewards([item.reward for item in rollouts], [item.group for item in rollouts], estimator)
    fatal = np.array([item.fatal_index is not None for item in rollouts])
    advantages = clamp_fatal(relative.values, fatal, mode)
    unanswered = np.array([not item.answered for item in rollouts]) & ~fatal & relative.scored
    if clamp_unanswered and mode == "fatal_clamp":
        advantages = np.where(unanswered, np.maximum(advantages, 0.0), advantages)

    shape = (len(rollouts), max(len(item.transcript) for item in rollouts))
    ids = np.full(shape, pad_id, dtype=np.int64)
    attention = np.zeros(shape, dtype=np.bool_)
    mask = np.zeros(shape, dtype=np.bool_)
    logprobs = np.zeros(shape, dtype=np.float32)
    for row, item in enumerate(rollouts):
        transcript = item.transcript
        length = len(transcript)
        ids[row, :length] = transcript.ids
        attention[row, :length] = True
        if relative.scored[row]:
            mask[row, :length] = loss_mask(transcript.gen_mask, transcript.step_ids, item.fatal_index, mode)
        logprobs[row, :length] = np.nan_to_num(transcript.logprobs, nan=0.0)

    below = fatal & relative.scored & (relative.values < 0)
    above = fatal & relative.scored & (relative.values > 0)
    counts = BatchCounts(
        num_rollouts=len(rollouts),
        num_unscored=relative.num_unscored,
        num_fatal=int((fatal & relative.scored).sum()),
        num_clamped=int(below.sum()),
        clamped_mean=float(relative.values[below].mean()) if below.any() else 0.0,
        num_kept=int(above.sum()),
        kept_mean=float(relative.values[above].mean()) if above.any() else 0.0,
        num_unanswered=int(unanswered.sum()),
        num_no_tokens=int((~mask.any(axis=1)).sum()),
        num_small_groups=relative.num_small_groups,
        num_flat_groups=relative.num_flat_groups,
        num_groups=relative.num_groups,
        num_trained_tokens=int(mask.sum()),
        num_generated_tokens=sum(int(item.transcript.gen_mask.sum()) for item in rollouts),
    )
    return Batch(
        ids=ids,
        attention=attention,
        mask=mask,
        logprobs=logprobs,
        advantages=advantages.astype(np.float32),
        relative=relative.values.astype(np.float32),
        images=tuple(item.transcript.images for item in rollouts),
        counts=counts,
    )
