"""Agreement with verl's own functions, on values that `make_verl_values.py` wrote; every difference is explicit."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opensearch_vl.rl.advantage import DELTA, group_advantages  # noqa: E402
from opensearch_vl.rl.loss import LossSettings, policy_loss  # noqa: E402

VALUES = np.load(Path(__file__).with_name("verl_values.npz"), allow_pickle=False)
NORMS = {"token_mean": "token-mean", "seq_mean_token_sum": "seq-mean-token-sum", "seq_mean": "seq-mean-token-mean"}


def tensor(name: str) -> "torch.Tensor":
    return torch.from_numpy(VALUES[name])


def ours(norm: str, divide_by: float | None) -> tuple[float, np.ndarray]:
    new = tensor("new").clone().requires_grad_()
    parts = policy_loss(
        new, tensor("old"), tensor("advantages"), tensor("mask"), LossSettings(norm=norm), divide_by=divide_by
    )
    parts.loss.backward()
    assert new.grad is not None
    return parts.loss.item(), new.grad.numpy()


@pytest.mark.parametrize("norm", NORMS)
def test_loss_and_gradient_agree(norm: str) -> None:
    # verl divides by the sequences that have a token (5 of the 6), ours by all of them, as the paper's 1/G says
    loss, gradient = ours(norm, None if norm == "token_mean" else 5.0)
    assert loss == pytest.approx(VALUES[f"plain/{NORMS[norm]}/loss"], rel=1e-6)
    np.testing.assert_allclose(gradient, VALUES[f"plain/{NORMS[norm]}/gradient"], rtol=1e-6, atol=1e-9)
    if norm != "token_mean":
        assert ours(norm, None)[0] == pytest.approx(loss * 5 / 6)


@pytest.mark.parametrize("norm", NORMS)
def test_dual_clip_is_verls_default_and_not_ours(norm: str) -> None:
    plain, dual = VALUES[f"plain/{NORMS[norm]}/gradient"], VALUES[f"dual_clip/{NORMS[norm]}/gradient"]
    assert plain[0, 0] != 0 and dual[0, 0] == 0  # the token with a ratio of 5 and a negative advantage
    np.testing.assert_array_equal(np.delete(plain.ravel(), 0), np.delete(dual.ravel(), 0))


def test_low_variance_kl_agrees() -> None:
    """verl's `low_var_kl` of one token at a time, against our term with β = 1 and no advantage."""
    new, reference = tensor("new"), tensor("old")
    mask = torch.ones(1, 1, dtype=torch.bool)
    settings = LossSettings(kl_coef=1.0)
    for row in range(3):
        token, ref = new[row : row + 1, :1], reference[row : row + 1, :1]
        parts = policy_loss(token, token, torch.zeros(1), mask, settings, ref_logps=ref)
        assert parts.loss.item() == pytest.approx(float(VALUES["kl/low_var_kl"][row, 0]), rel=1e-6)


def test_rloo_advantages_agree_and_grpos_differ_by_the_standard_deviation() -> None:
    rewards, groups = VALUES["rewards"], VALUES["groups"]
    fatal = [False] * len(rewards)
    np.testing.assert_allclose(
        group_advantages(rewards, groups, fatal, "vanilla", "rloo"), VALUES["advantage/rloo"], atol=1e-12
    )
    grpo = group_advantages(rewards, groups, fatal, "vanilla", "grpo")
    first = rewards[:4]
    theirs = (first - first.mean()) / (first.std(ddof=1) + 1e-6)  # sample standard deviation, their δ
    np.testing.assert_allclose(VALUES["advantage/grpo"][:4], theirs, rtol=1e-6)
    np.testing.assert_allclose(grpo[:4], theirs * (first.std(ddof=1) + 1e-6) / (first.std() + DELTA), rtol=1e-9)
    assert grpo[4:].tolist() == [0.0, 0.0]
