"""The vision tower's patch embedding as a matrix product.

Qwen3-VL cuts a picture into patches that do not overlap and embeds them with a 3-D convolution whose kernel is one
patch. That is a matrix product, and PyTorch's convolution takes several times as long for it, above all backwards: a
fifth of a training step of the miniature policy. Weights, names and checkpoints stay as they are.
"""

from __future__ import annotations

from typing import Any


def multiply_patches(model: Any) -> None:
    """Let every convolution of `model` whose kernels do not overlap multiply instead. Results differ by rounding."""
    import torch

    class PatchProduct(torch.nn.Conv3d):  # type: ignore[misc] # torch is untyped here
        """A convolution that is given single patches ``[P, C, t, h, w]`` and gives ``[P, D, 1, 1, 1]``."""

        def forward(self, input: Any) -> Any:
            if tuple(input.shape[2:]) != tuple(self.kernel_size):
                return super().forward(input)
            out = torch.nn.functional.linear(input.flatten(1), self.weight.flatten(1), self.bias)
            return out[:, :, None, None, None]

    for module in model.modules():
        if type(module) is torch.nn.Conv3d and module.kernel_size == module.stride and not any(module.padding):
            module.__class__ = PatchProduct  # the class, not the method: copies of the model keep their own weights
