"""The patch embedding as a matrix product: the same numbers and gradients as the convolution, also in copies."""

import copy

import pytest

torch = pytest.importorskip("torch")

from opensearch_vl.sft.patches import multiply_patches  # noqa: E402


def both() -> tuple["torch.nn.Module", "torch.nn.Module", "torch.Tensor"]:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Conv3d(3, 5, kernel_size=(2, 4, 4), stride=(2, 4, 4)))
    product = copy.deepcopy(plain)
    multiply_patches(product)
    return plain, product, torch.randn(7, 3, 2, 4, 4)


def test_same_result_and_gradient() -> None:
    plain, product, patches = both()
    assert torch.allclose(plain(patches), product(patches), atol=1e-6)
    for model in (plain, product):
        model(patches).square().sum().backward()
    assert torch.allclose(plain[0].weight.grad, product[0].weight.grad, atol=1e-4)
    assert torch.allclose(plain[0].bias.grad, product[0].bias.grad, atol=1e-4)


def test_a_copy_has_its_own_weights() -> None:
    _, product, patches = both()
    before = product(patches).detach()
    other = copy.deepcopy(product)
    with torch.no_grad():
        product[0].weight.zero_()
    assert torch.allclose(other(patches), before)


def test_whole_pictures_and_other_convolutions_are_left_alone() -> None:
    plain, product, _ = both()
    picture = torch.randn(1, 3, 4, 8, 12)
    assert torch.allclose(plain(picture), product(picture), atol=1e-6)
    overlapping = torch.nn.Sequential(torch.nn.Conv3d(3, 5, kernel_size=3, stride=1))
    multiply_patches(overlapping)
    assert type(overlapping[0]) is torch.nn.Conv3d
