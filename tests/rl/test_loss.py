"""The objective by hand, the paper's propositions by autograd, finiteness, and agreement with TRL's own loss."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opensearch_vl.agent.transcript import Transcript  # noqa: E402
from opensearch_vl.rl.advantage import group_advantages  # noqa: E402
from opensearch_vl.rl.batch import ScoredTranscript, make_batch  # noqa: E402
from opensearch_vl.rl.loss import LossSettings, normaliser, policy_loss  # noqa: E402

torch.set_num_threads(1)


def rows(*values: list[float]) -> "torch.Tensor":
    return torch.tensor(values, dtype=torch.float64)


# ----------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("norm", "expected"),
    [  # ratios 2 (clipped to 1.28) and 1 with A = +1; ratio 0.5 (clipped to 0.8) with A = −1, one token padded away
        ("seq_mean", -((1.28 + 1.0) / 2 + -0.8) / 2),
        ("seq_mean_token_sum", -((1.28 + 1.0) + -0.8) / 2),
        ("token_mean", -((1.28 + 1.0) + -0.8) / 3),
    ],
)
def test_three_norms_by_hand(norm: str, expected: float) -> None:
    old = rows([-2.0, -1.0], [-1.0, -1.0])
    new = rows([-2.0 + math.log(2), -1.0], [-1.0 + math.log(0.5), 5.0])
    mask = torch.tensor([[True, True], [True, False]])
    parts = policy_loss(new, old, torch.tensor([1.0, -1.0]), mask, LossSettings(norm=norm))
    assert parts.loss.item() == pytest.approx(expected)
    assert parts.clip_high_fraction.item() == pytest.approx(1 / 3)
    assert parts.clip_low_fraction.item() == pytest.approx(1 / 3)
    assert parts.num_tokens == 3
    assert parts.ratio_mean.item() == pytest.approx((2 + 1 + 0.5) / 3)


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [(1.2, 1.0, False), (1.3, 1.0, True), (0.5, 1.0, False), (0.9, -1.0, False), (0.7, -1.0, True), (3.0, -1.0, False)],
)
def test_where_the_gradient_is_clipped(ratio: float, advantage: float, clipped: bool) -> None:
    new = rows([math.log(ratio)]).requires_grad_()
    policy_loss(new, rows([0.0]), torch.tensor([advantage]), torch.ones(1, 1), LossSettings()).loss.backward()
    assert new.grad is not None
    assert new.grad.item() == pytest.approx(0.0 if clipped else -advantage * ratio)


def test_kl_by_hand_and_its_reference_is_required() -> None:
    new, ref = rows([-1.0, -2.0]), rows([-1.5, -2.0])
    settings = LossSettings(kl_coef=0.1)
    parts = policy_loss(new, new, torch.tensor([0.0]), torch.ones(1, 2), settings, ref_logps=ref)
    kl = math.exp(-0.5) + 0.5 - 1
    assert parts.kl.item() == pytest.approx(kl / 2)
    assert parts.loss.item() == pytest.approx(0.1 * kl / 2)
    with pytest.raises(ValueError, match="reference"):
        policy_loss(new, new, torch.tensor([0.0]), torch.ones(1, 2), settings)


@pytest.mark.parametrize("norm", ["seq_mean", "seq_mean_token_sum", "token_mean"])
def test_micro_batches_add_up(norm: str) -> None:
    generator = torch.Generator().manual_seed(0)
    new, old = (torch.randn(6, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.rand(6, 5, generator=generator) > 0.4
    advantages = torch.randn(6, generator=generator)
    settings = LossSettings(norm=norm)
    whole = policy_loss(new, old, advantages, mask, settings).loss
    total = normaliser(mask, norm)
    parts = [
        policy_loss(new[i : i + 2], old[i : i + 2], advantages[i : i + 2], mask[i : i + 2], settings, divide_by=total)
        for i in (0, 2, 4)
    ]
    assert sum(part.loss for part in parts).item() == pytest.approx(whole.item())


# -------------------------------------------------------------------------- the paper's propositions


class Toy(torch.nn.Module):
    """A policy with one logit table: every token's log-probability depends on shared parameters."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Parameter(torch.randn(8, 8, dtype=torch.float64))

    def forward(self, ids: "torch.Tensor") -> "torch.Tensor":
        logps = self.table.log_softmax(-1)
        return torch.cat([torch.zeros(len(ids), 1, dtype=torch.float64), logps[ids[:, :-1], ids[:, 1:]]], dim=1)


def group(fatal_index: int | None, fatal_reward: float) -> list[ScoredTranscript]:
    """Four rollouts of one prompt; the first may be fatal. Two opening tokens, then three steps of two tokens."""
    rng = np.random.default_rng(3)
    gen = np.array([False, False] + [True] * 6)
    step = np.array([-1, -1, 0, 0, 1, 1, 2, 2], dtype=np.int32)
    rewards = [fatal_reward, 0.2, 0.4, 0.6]
    return [
        ScoredTranscript(
            Transcript(rng.integers(0, 8, 8), gen, step, np.zeros(8, dtype=np.float32), (), (), 3, 0),
            group=0,
            reward=reward,
            fatal_index=fatal_index if number == 0 else None,
        )
        for number, reward in enumerate(rewards)
    ]


def gradient(
    rollouts: list[ScoredTranscript], mode: str, only: int | None = None, norm: str = "seq_mean"
) -> "torch.Tensor":
    """Gradient of the objective; `only` keeps the term of one rollout, with the batch's normalisation."""
    batch = make_batch(rollouts, mode=mode)
    policy = Toy()
    logps = policy(torch.from_numpy(batch.ids))
    advantages = torch.from_numpy(batch.advantages)
    mask = torch.from_numpy(batch.mask)
    if only is not None:
        mask = mask & (torch.arange(len(mask)) == only)[:, None]
    policy_loss(logps, logps.detach(), advantages, mask, LossSettings(norm=norm)).loss.backward()
    assert policy.table.grad is not None
    return policy.table.grad


def test_a_fatal_trajectory_under_the_mean_contributes_exactly_nothing() -> None:
    rollouts = group(fatal_index=2, fatal_reward=0.0)
    assert gradient(rollouts, "fatal_clamp", only=0).abs().max().item() == 0.0
    assert gradient(rollouts, "fatal_mask", only=0).abs().max().item() > 0.0
    # and yet its reward is in the baseline of the others
    without = gradient(rollouts[1:], "fatal_clamp")
    assert not torch.allclose(gradient(rollouts, "fatal_clamp") * 4, without * 3)


def test_a_fatal_trajectory_over_the_mean_contributes_the_plain_gradient_of_its_prefix() -> None:
    rollouts = group(fatal_index=2, fatal_reward=1.0)
    clamped = gradient(rollouts, "fatal_clamp", only=0)
    # plain GRPO on the prefix: the same group, the trajectory ending where its fatal step begins
    full = rollouts[0].transcript
    keep = full.step_ids < 2
    prefix = Transcript(full.ids[keep], full.gen_mask[keep], full.step_ids[keep], full.logprobs[keep], (), (), 2, 1)
    plain = gradient([ScoredTranscript(prefix, 0, 1.0), *rollouts[1:]], "vanilla", only=0)
    assert clamped.abs().max().item() > 0
    torch.testing.assert_close(clamped, plain)


def test_without_fatal_trajectories_all_modes_are_plain_grpo() -> None:
    rollouts = group(fatal_index=None, fatal_reward=0.0)
    plain = gradient(rollouts, "vanilla")
    for mode in ("hard_mask", "fatal_mask", "fatal_clamp"):
        torch.testing.assert_close(gradient(rollouts, mode), plain)


def test_tokens_from_the_fatal_step_on_do_not_matter() -> None:
    rollouts = group(fatal_index=1, fatal_reward=1.0)
    changed = [*rollouts]
    ids = rollouts[0].transcript.ids.copy()
    ids[5:] = (ids[5:] + 3) % 8
    old = rollouts[0].transcript
    changed[0] = ScoredTranscript(Transcript(ids, old.gen_mask, old.step_ids, old.logprobs, (), (), 3, 0), 0, 1.0, 1)
    torch.testing.assert_close(gradient(rollouts, "fatal_clamp"), gradient(changed, "fatal_clamp"))
    assert not torch.allclose(gradient(rollouts, "vanilla"), gradient(changed, "vanilla"))


# ------------------------------------------------------------------------------------------ finiteness


@pytest.mark.parametrize("norm", ["seq_mean", "seq_mean_token_sum", "token_mean"])
@pytest.mark.parametrize(
    "rollouts",
    [
        group(fatal_index=0, fatal_reward=0.0),
        [ScoredTranscript(item.transcript, 0, item.reward, 0) for item in group(None, 0.0)],  # all masked
        [ScoredTranscript(item.transcript, 0, None if number else 0.5) for number, item in enumerate(group(None, 0.0))],
        [ScoredTranscript(item.transcript, 0, None) for item in group(None, 0.0)],
    ],
    ids=["fatal at step 0", "all masked", "one scored", "none scored"],
)
def test_the_loss_stays_finite(rollouts: list[ScoredTranscript], norm: str) -> None:
    grad = gradient(rollouts, "fatal_clamp", norm=norm)
    assert torch.isfinite(grad).all()


def test_nan_and_infinite_log_probabilities_outside_the_mask_do_not_leak() -> None:
    new = rows([math.nan, -1.0, -math.inf, -2.0]).requires_grad_()
    old = rows([math.nan, -1.0, math.nan, -math.inf])
    mask = torch.tensor([[False, True, False, False]])
    parts = policy_loss(
        new, old, torch.tensor([1.0]), mask, LossSettings(kl_coef=0.1), ref_logps=rows([math.nan, -1.0, math.nan, 0.0])
    )
    parts.loss.backward()
    assert parts.loss.item() == pytest.approx(-1.0)
    assert new.grad is not None
    assert torch.isfinite(new.grad).all()
    assert new.grad[0, [0, 2, 3]].abs().max().item() == 0.0


def test_a_diverged_policy_gives_a_finite_loss() -> None:
    new = rows([0.0, -500.0]).requires_grad_()
    parts = policy_loss(new, rows([-500.0, 0.0]), torch.tensor([-1.0]), torch.ones(1, 2), LossSettings())
    parts.loss.backward()
    assert math.isfinite(parts.loss.item())
    assert new.grad is not None
    assert torch.isfinite(new.grad).all()


# ------------------------------------------------------------------------------------ agreement with TRL


def trl_loss(
    new: "torch.Tensor",
    old: "torch.Tensor",
    ref: "torch.Tensor",
    advantages: "torch.Tensor",
    mask: "torch.Tensor",
    loss_type: str,
    beta: float,
) -> "torch.Tensor":
    """TRL's own `GRPOTrainer._compute_loss` on given log-probabilities, everything else of the trainer stubbed."""
    from collections import defaultdict

    grpo = pytest.importorskip("trl.trainer.grpo_trainer")

    class Accelerator:
        num_processes = 1
        sync_gradients = True

        @staticmethod
        def gather(x: "torch.Tensor") -> "torch.Tensor":
            return x

        @staticmethod
        def reduce(x: "torch.Tensor", reduction: str) -> "torch.Tensor":
            return x

    me = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *a, **k: (new, torch.zeros_like(new), None),
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level="token", beta=beta, loss_type=loss_type, epsilon_low=0.2, epsilon_high=0.28,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        use_vllm=False, vllm_importance_sampling_correction=False, model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1, _entropy_bonus_enabled=False, accelerator=Accelerator,
        _metrics={"train": defaultdict(list)},
    )  # fmt: skip
    ids = torch.zeros_like(new, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1], "completion_ids": ids, "completion_mask": mask.long(),
        "advantages": advantages, "old_per_token_logps": old, "ref_per_token_logps": ref,
        "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    return grpo.GRPOTrainer._compute_loss(me, None, inputs)


@pytest.mark.parametrize(("norm", "loss_type"), [("seq_mean", "grpo"), ("token_mean", "dapo"), ("token_mean", "bnpo")])
@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_agreement_with_trl_on_perturbed_log_probabilities(norm: str, loss_type: str, beta: float) -> None:
    generator = torch.Generator().manual_seed(1)
    old = -torch.rand(5, 7, generator=generator, dtype=torch.float64) * 3
    start = old + torch.randn(5, 7, generator=generator, dtype=torch.float64) * 0.4
    ref = old + torch.randn(5, 7, generator=generator, dtype=torch.float64) * 0.2
    mask = torch.rand(5, 7, generator=generator) > 0.3
    mask[4] = False
    mask[3] = True
    advantages = torch.randn(5, generator=generator, dtype=torch.float64)
    gradients = []
    losses = []
    for which in ("ours", "trl"):
        new = start.clone().requires_grad_()
        if which == "ours":
            settings = LossSettings(norm=norm, kl_coef=beta)
            loss = policy_loss(new, old, advantages, mask, settings, ref_logps=ref).loss
        else:
            loss = trl_loss(new, old, ref, advantages, mask, loss_type, beta)
        loss.backward()
        losses.append(loss.item())
        gradients.append(new.grad)
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_the_difference_to_trl_in_advantages_is_the_sample_standard_deviation() -> None:
    utils = pytest.importorskip("trl.trainer.utils")
    rewards = torch.tensor([0.0, 0.2, 0.9, 1.0], dtype=torch.float64)
    theirs = (rewards - rewards.mean()) / (utils.nanstd(rewards) + 1e-4)
    ours = torch.from_numpy(group_advantages(rewards.tolist(), [0] * 4, [False] * 4, "vanilla"))
    std = rewards.std(unbiased=False)
    torch.testing.assert_close(ours, theirs * (std * math.sqrt(4 / 3) + 1e-4) / (std + 1e-4))
    assert not torch.allclose(ours, theirs)
