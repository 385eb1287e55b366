"""Writes `verl_values.npz`: what verl's own functions make of perturbed log-probabilities and rewards.

Run it in an environment with verl (it excludes TRL's transformers, so not in the one that the tests run in):

    pip install 'verl==0.9.1' && python tests/rl/make_verl_values.py
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from verl.trainer.ppo import core_algos


class ActorConfig(SimpleNamespace):
    """The part of verl's actor configuration that its loss reads."""

    def get(self, name: str, default: object) -> object:
        return getattr(self, name, default)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(6, 9, generator=generator, dtype=torch.float64) * 3
    new = old + torch.randn(6, 9, generator=generator, dtype=torch.float64) * 0.5
    new[0, 0] = old[0, 0] + 1.6  # a ratio of 5 with a negative advantage: where dual clip differs
    mask = torch.rand(6, 9, generator=generator) > 0.3
    mask[0, 0] = True
    mask[5] = False  # a sequence without a token: where the denominators differ
    advantages = torch.tensor([-1.2, 0.7, 0.1, -0.4, 1.5, 0.9], dtype=torch.float64)
    rewards = torch.tensor([0.0, 0.2, 0.9, 1.0, 0.3, 0.3], dtype=torch.float64)
    groups = np.array([0, 0, 0, 0, 1, 1])
    values = {
        "old": old, "new": new, "mask": mask, "advantages": advantages, "rewards": rewards,
        "groups": torch.from_numpy(groups),
    }  # fmt: skip

    config = ActorConfig(clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.28, global_batch_info={})
    for name, clip_c in (("dual_clip", 3.0), ("plain", 1e9)):
        config.clip_ratio_c = clip_c
        for mode in ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean"):
            leaf = new.clone().requires_grad_()
            loss, _ = core_algos.compute_policy_loss_vanilla(
                old, leaf, advantages[:, None].expand_as(old), mask.double(), mode, config
            )
            loss.backward()
            values[f"{name}/{mode}/loss"] = loss.detach()
            values[f"{name}/{mode}/gradient"] = leaf.grad
    values["kl/low_var_kl"] = core_algos.kl_penalty(new, old, "low_var_kl").detach()

    token_rewards = torch.zeros(6, 9, dtype=torch.float64)
    token_rewards[:, 0] = rewards
    ones = torch.ones(6, 9, dtype=torch.float64)
    grpo, _ = core_algos.compute_grpo_outcome_advantage(token_rewards.clone(), ones, groups)
    rloo, _ = core_algos.compute_rloo_outcome_advantage(token_rewards.clone(), ones, groups)
    values |= {"advantage/grpo": grpo[:, 0], "advantage/rloo": rloo[:, 0]}
    target = Path(__file__).with_name("verl_values.npz")
    np.savez(target, **{name: value.numpy() for name, value in values.items()})


if __name__ == "__main__":
    main()
