"""Muon for matrices, AdamW for the rest: against PyTorch's own, and through a checkpoint of the optimiser."""

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opensearch_vl.sft.muon import muon_adamw, orthogonalised  # noqa: E402


class Tiny(torch.nn.Module):
    """A linear layer, a norm, and an output head that must not count as a matrix."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(11, 6)
        self.up = torch.nn.Linear(6, 10)
        self.norm = torch.nn.LayerNorm(10)
        self.head = torch.nn.Linear(10, 11, bias=False)

    def get_output_embeddings(self) -> Any:
        return self.head

    def loss(self, seed: int) -> Any:
        ids = torch.randint(0, 11, (8,), generator=torch.Generator().manual_seed(seed))
        return torch.nn.functional.cross_entropy(self.head(self.norm(self.up(self.embed(ids)))), ids)


def steps(model: Tiny, optimizer: Any, seeds: range) -> None:
    for seed in seeds:
        model.loss(seed).backward()
        optimizer.step()
        optimizer.zero_grad()


def made(model: Tiny, **other: float) -> Any:
    return muon_adamw(model, **({"matrix_lr": 0.02, "lr": 3e-3, "beta2": 0.98, "weight_decay": 0.1} | other))


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    matrix = torch.randn(shape)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    made_matrix = orthogonalised(matrix)
    assert made_matrix.shape == matrix.shape
    values = torch.diagonal(left.T @ made_matrix @ right.T)
    assert ((values > 0.5) & (values < 1.4)).all(), values


def test_only_the_linear_layer_is_a_matrix() -> None:
    model = Tiny()
    first, second = made(model).param_groups
    assert [id(p) for p in first["params"]] == [id(model.up.weight)] and first["muon"]
    assert len(second["params"]) == 5 and not second["muon"]


def test_the_rest_is_stepped_as_by_adamw() -> None:
    ours, theirs = Tiny(), Tiny()
    ours.up.weight.requires_grad_(False)
    theirs.up.weight.requires_grad_(False)
    rest = [p for p in theirs.parameters() if p.requires_grad]
    steps(ours, made(ours), range(5))
    steps(theirs, torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.1), range(5))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=1e-6)


def test_a_stored_state_goes_on_to_the_same_weights() -> None:
    whole, halves = Tiny(), Tiny()
    steps(whole, made(whole), range(6))
    first = made(halves)
    steps(halves, first, range(3))
    again = made(halves)
    again.load_state_dict(copy.deepcopy(first.state_dict()))
    steps(halves, again, range(3, 6))
    for mine, other in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(mine, other)
