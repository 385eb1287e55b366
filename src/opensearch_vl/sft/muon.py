"""Muon for the matrices, AdamW for the rest: what lets a policy of a million parameters learn on two cores.

Muon replaces the momentum of a weight matrix by the nearest semi-orthogonal one, so that every direction of the matrix
moves at the same pace (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/). Copying names out of
observations, which a small policy trained with AdamW takes a long plateau to find, comes several times sooner.

`torch.optim.Muon` iterates in bfloat16, which a CPU without such instructions emulates at many times the cost of a
training step; here the iteration runs in the precision of the weights. Both halves share one optimiser, so that
checkpoints, learning-rate schedules and exact resumption work as with any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration; five rounds bring all singular values near one (same source)."""
ROUNDS = 5
MOMENTUM = 0.95
EPSILON = 1e-8


def orthogonalised(matrix: Tensor) -> Tensor:
    """The semi-orthogonal matrix near ``matrix`` ``[n, m]``: same singular vectors, singular values near one."""
    a, b, c = NEWTON_SCHULZ
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


def muon_adamw(model: Any, *, matrix_lr: float, lr: float, beta2: float, weight_decay: float) -> Any:
    """An optimiser over all trainable parameters of `model`.

    Args:
        model: A transformers model.
        matrix_lr: Rate of Muon, for the weights of linear layers other than the output head; 0.02 is usual.
        lr: Rate of AdamW, for embeddings, norms, biases and everything else.
        beta2: Of AdamW; its other beta is 0.9.
        weight_decay: Decoupled, for matrices and embeddings alike.
    """
    import torch

    class MuonAdamW(torch.optim.Optimizer):  # type: ignore[misc] # torch is untyped here
        """Groups with ``muon=True`` are matrices; the others are stepped as by AdamW."""

        def step(self, closure: Any = None) -> None:
            if closure is not None:
                raise ValueError("closures are not supported")
            with torch.no_grad():
                for group in self.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is not None:
                            parameter.mul_(1 - group["lr"] * group["weight_decay"])
                            (self._muon if group["muon"] else self._adamw)(parameter, group)

        def _muon(self, parameter: Tensor, group: dict[str, Any]) -> None:
            state, grad = self.state[parameter], parameter.grad
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            state["momentum"].lerp_(grad, 1 - MOMENTUM)
            update = orthogonalised(grad.lerp(state["momentum"], MOMENTUM))  # Nesterov
            scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
            parameter.add_(update, alpha=-group["lr"] * scale)

        def _adamw(self, parameter: Tensor, group: dict[str, Any]) -> None:
            state, grad = self.state[parameter], parameter.grad
            if not state:
                state["step"] = torch.zeros(())
                state["mean"] = torch.zeros_like(parameter)
                state["square"] = torch.zeros_like(parameter)
            state["step"] += 1
            state["mean"].lerp_(grad, 0.1)
            state["square"].lerp_(grad.square(), 1 - group["beta2"])
            step = int(state["step"])
            mean = state["mean"] / (1 - 0.9**step)
            spread = (state["square"] / (1 - group["beta2"] ** step)).sqrt() + EPSILON
            parameter.addcdiv_(mean, spread, value=-group["lr"])

    head = model.get_output_embeddings()
    matrices = [
        module.weight
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module is not head and module.weight.requires_grad
    ]
    chosen = {id(parameter) for parameter in matrices}
    rest = [parameter for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in chosen]
    groups = [
        {"params": matrices, "lr": matrix_lr, "muon": True, "beta2": beta2, "weight_decay": weight_decay},
        {"params": rest, "lr": lr, "muon": False, "beta2": beta2, "weight_decay": weight_decay},
    ]
    return MuonAdamW([group for group in groups if group["params"]], {})
