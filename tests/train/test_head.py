"""The head on a CPU: TRL's numbers and gradients, over labelled positions alone."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from transformers import AutoModelForImageTextToText  # noqa: E402
from trl.trainer.utils import add_fused_lm_head  # noqa: E402

from opensearch_vl.sft.head import score_labels_only  # noqa: E402


def outputs(checkpoint: Path, labels: Any, ids: Any, *, ours: bool, temperature: float) -> tuple[Any, Any]:
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    add_fused_lm_head(model, temperature, outputs=("log_probs", "entropy", "is_top1"))
    if ours:
        score_labels_only(model, temperature)
    out = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels, fused_lm_head=True)
    out.log_probs.sum().backward()
    return out, model.lm_head.weight.grad


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_same_as_trls(checkpoint: Path, temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 200, (3, 12), generator=generator)
    labels = ids.masked_fill(torch.rand(3, 12, generator=generator) < 0.6, -100)
    theirs, their_gradient = outputs(checkpoint, labels, ids, ours=False, temperature=temperature)
    ours, gradient = outputs(checkpoint, labels, ids, ours=True, temperature=temperature)
    assert torch.allclose(ours.loss, theirs.loss, atol=1e-5)
    assert torch.allclose(ours.log_probs, theirs.log_probs, atol=1e-5)
    assert torch.allclose(ours.entropy, theirs.entropy, atol=1e-4)
    assert torch.equal(ours.is_top1.bool(), theirs.is_top1.bool())
    assert torch.equal(ours.label_mask, theirs.label_mask)
    assert torch.allclose(gradient, their_gradient, atol=1e-4)


def test_a_batch_without_labels_gives_a_zero_that_can_be_differentiated(checkpoint: Path) -> None:
    ids = torch.randint(0, 200, (2, 6), generator=torch.Generator().manual_seed(1))
    out, gradient = outputs(checkpoint, torch.full_like(ids, -100), ids, ours=True, temperature=1.0)
    assert float(out.loss.detach()) == 0.0 and not gradient.any()


def test_without_the_fused_head_the_model_is_as_before(checkpoint: Path) -> None:
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    ids = torch.randint(0, 200, (2, 6), generator=torch.Generator().manual_seed(1))
    before = model(input_ids=ids).logits
    add_fused_lm_head(model, 1.0)
    score_labels_only(model)
    assert torch.equal(model(input_ids=ids).logits, before)
