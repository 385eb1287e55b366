"""The clipped policy-gradient objective over masked tokens (paper, section 5), as one pure function.

Per group, ``1/G Σ_i 1/Σ_t M_it Σ_t M_it · min(ρ Â_i, clip(ρ, 1−ε_low, 1+ε_high) Â_i) − β·KL``. Two other
normalisations in use are offered by name. torch is imported inside, so that the base install can read this module.

Differences from the two trainers that people compare with (each held by a test):

* TRL: same objective for `seq_mean` (its `grpo`); it divides by the *sample* standard deviation where the paper and
  `rl.advantage` use the population's; it does not bound log-ratios.
* verl: bounds log-ratios to ±20 as here; additionally bounds the loss of negative advantages at ``c = 3`` (dual
  clip), which the paper does not use; its `seq-mean-*` norms divide by the number of sequences that have a token,
  ours by all sequences of the batch, as the equation's ``1/G`` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from opensearch_vl.config import Config

if TYPE_CHECKING:
    from torch import Tensor

Norm = Literal["seq_mean", "seq_mean_token_sum", "token_mean"]
"""`seq_mean`: mean over sequences of the mean over their tokens (the paper's equation); `seq_mean_token_sum`: mean over
sequences of the sum over their tokens (the paper's scripts); `token_mean`: mean over all tokens."""

MAX_LOG_RATIO = 20.0
"""Log-ratios are bounded to ±20 before `exp`, so that a diverged policy gives a large finite loss, not an infinity."""


class LossSettings(Config):
    """Settings of the objective.

    Attributes:
        clip_low: ε below 1. The paper leaves it open; 0.2 is PPO's value.
        clip_high: ε above 1; 0.28 in the paper's settings.
        norm: Normalisation.
        kl_coef: β of the low-variance KL estimator against a reference policy; 0 in the paper (KL loss off).
    """

    clip_low: float = 0.2
    clip_high: float = 0.28
    norm: Norm = "seq_mean"
    kl_coef: float = 0.0


@dataclass(frozen=True, slots=True)
class LossParts:
    """The loss and what is worth logging about it (all but `loss` are detached scalars).

    Attributes:
        loss: Scalar to minimise.
        kl: Mean low-variance KL per trained token; 0 without a reference.
        clip_low_fraction: Trained tokens whose ratio fell below ``1−ε_low`` with a negative advantage.
        clip_high_fraction: Trained tokens whose ratio rose above ``1+ε_high`` with a positive advantage.
        ratio_mean: Mean ratio over trained tokens; 1 without any.
        num_tokens: Trained tokens.
    """

    loss: Tensor
    kl: Tensor
    clip_low_fraction: Tensor
    clip_high_fraction: Tensor
    ratio_mean: Tensor
    num_tokens: int


def normaliser(mask: Tensor, norm: Norm) -> float:
    """What the summed loss of a whole optimiser batch is divided by: its sequences, or its trained tokens (≥ 1)."""
    return float(max(int(mask.sum()), 1)) if norm == "token_mean" else float(mask.shape[0])


def policy_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    mask: Tensor,
    settings: LossSettings,
    *,
    ref_logps: Tensor | None = None,
    divide_by: float | None = None,
) -> LossParts:
    """The objective, negated, for one batch or one micro-batch of it.

    Args:
        logps: ``[B, T]`` log-probabilities under the policy that is trained; anything outside the mask is ignored.
        old_logps: ``[B, T]`` under the policy that sampled; no gradient.
        advantages: ``[B]``; no gradient.
        mask: ``[B, T]`` bool; M of `rl.batch.loss_mask`.
        settings: Clip, norm, β.
        ref_logps: ``[B, T]`` under the reference policy; needed iff ``kl_coef > 0``.
        divide_by: `normaliser` of the whole optimiser batch when this is a micro-batch, so that the sum over
            micro-batches equals the loss of the batch. None: this is the whole batch.

    Returns:
        A finite loss whatever the mask: a batch without trained tokens gives 0, with gradient 0.

    Raises:
        ValueError: If ``kl_coef > 0`` and there is no reference.
    """
    import torch

    keep = mask.bool()
    zero = torch.zeros((), dtype=logps.dtype, device=logps.device)
    # Selecting before any arithmetic keeps NaN and −inf of padded or banned tokens out of the gradient too.
    log_ratio = (torch.where(keep, logps, zero) - torch.where(keep, old_logps.detach(), zero)).clamp(
        -MAX_LOG_RATIO, MAX_LOG_RATIO
    )
    ratio = log_ratio.exp()
    advantage = advantages.detach().to(logps.dtype).unsqueeze(1)
    clipped = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high)
    per_token = -torch.minimum(ratio * advantage, clipped * advantage)

    kl_mean = zero
    if settings.kl_coef > 0:
        if ref_logps is None:
            raise ValueError(f"kl_coef is {settings.kl_coef}, so log-probabilities of the reference are needed")
        gap = (torch.where(keep, ref_logps.detach(), zero) - torch.where(keep, logps, zero)).clamp(
            -MAX_LOG_RATIO, MAX_LOG_RATIO
        )
        kl = gap.exp() - gap - 1.0  # k3 of Schulman's note on approximating KL: unbiased, non-negative
        per_token = per_token + settings.kl_coef * kl
        kl_mean = (kl.detach() * keep).sum() / keep.sum().clamp(min=1)

    weights = keep.to(logps.dtype)
    token_sums = (per_token * weights).sum(1)
    per_sequence = token_sums / weights.sum(1).clamp(min=1.0) if settings.norm == "seq_mean" else token_sums
    loss = per_sequence.sum() / (divide_by if divide_by is not None else normaliser(keep, settings.norm))

    with torch.no_grad():
        count = keep.sum()
        tokens = count.clamp(min=1)
        low = keep & (ratio < 1.0 - settings.clip_low) & (advantage < 0)
        high = keep & (ratio > 1.0 + settings.clip_high) & (advantage > 0)
        ratio_mean = (ratio * weights).sum() / tokens if int(count) else zero + 1.0
    return LossParts(loss, kl_mean, low.sum() / tokens, high.sum() / tokens, ratio_mean, int(count))
