"""The output head on a CPU: scored where there is a label, and nowhere else.

TRL never holds the logits of a whole batch: on a GPU it runs the head in tiles over the positions that have a label,
elsewhere over *all* positions. Three quarters of a trajectory are observations, so on a CPU that is most of the work
for nothing: with the miniature policy half of a training step.
"""

from __future__ import annotations

from typing import Any


def score_labels_only(model: Any, temperature: float = 1.0) -> None:
    """Replace TRL's fused forward of `model` by one that scores labelled positions alone, where that pays.

    It does on a CPU and without a mixture of experts (whose balancing loss TRL's forward computes). To be called after
    TRL's trainer was made; results are TRL's but for rounding.

    Args:
        model: What the trainer trains, without adapters.
        temperature: Logits are divided by it.
    """
    if model.device.type != "cpu" or hasattr(model.config.get_text_config(), "output_router_logits"):
        return
    from trl.trainer.utils import FusedCausalLMOutput

    fused = model.forward

    def forward(*args: Any, fused_lm_head: bool = False, labels: Any = None, **kwargs: Any) -> Any:
        if not fused_lm_head:
            return fused(*args, **kwargs) if labels is None else fused(*args, labels=labels, **kwargs)
        total = kwargs.pop("num_items_in_batch", None)
        kwargs["use_cache"] = False
        hidden = model.base_model(*args, **kwargs).last_hidden_state[:, :-1]
        targets = labels[:, 1:]
        mask = targets != -100
        logps = (model.get_output_embeddings()(hidden[mask]).float() / temperature).log_softmax(-1)
        found = logps.gather(-1, targets[mask][:, None])[:, 0]
        logps = logps.detach()

        def placed(values: Any) -> Any:
            return values.new_zeros(mask.shape).masked_scatter(mask, values)

        log_probs = placed(found)
        return FusedCausalLMOutput(
            loss=-log_probs.sum() / (mask.sum().clamp(min=1) if total is None else total),
            log_probs=log_probs,
            entropy=placed(-(logps.exp() * logps).sum(-1)),
            is_top1=placed(logps.argmax(-1) == targets[mask]),
            label_mask=mask,
        )

    model.forward = forward
