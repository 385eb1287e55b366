"""Settings of supervised fine-tuning. Defaults are the paper's (section 4)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from opensearch_vl.config import Config

ROUTER_AUX = 0.01
"""Weight of the experts' load-balancing loss in the paper's runs of the 30B-A3B model (section 5). Its z-loss (1e-3) is
Megatron's: transformers has none for this architecture, so it is not offered here."""


Schedule = Literal["cosine", "linear", "constant_with_warmup", "warmup_stable_decay"]


class LoraSettings(Config):
    """Low-rank adapters instead of full fine-tuning (not in the paper; for machines that cannot hold the optimiser).

    Attributes:
        rank: Rank of the adapters.
        alpha: Scale; the update is multiplied by ``alpha / rank``.
        dropout: Dropout before the adapters.
        vision: Whether the vision tower gets adapters too.
    """

    rank: int = Field(default=64, gt=0)
    alpha: int = Field(default=128, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    vision: bool = False


class FirstStage(Config):
    """What a policy that learns from nothing is trained on first: few trajectories under many names.

    With few of them, it soon finds that names are to be copied, and confuses relations; with many, it is the other way
    round. Few first and all of them afterwards does both (docs/log.md).

    Attributes:
        trajectories: How many of the data's first trajectories; those that were not accepted count too.
        renamed_copies: As the setting of this name for the other steps.
        steps: Optimiser steps on these alone, of `max_steps`.
    """

    trajectories: int = Field(gt=0)
    renamed_copies: int = Field(default=0, ge=0)
    steps: int = Field(gt=0)


class SftSettings(Config):
    """How a checkpoint is fine-tuned.

    Attributes:
        model: Checkpoint directory, or a name on the hub.
        renamed_copies: Train on each trajectory so many times under other names instead of on itself; for policies that
            learn from nothing (`sft.renaming`). 0 leaves the data as they are.
        first: A first stage with few trajectories; None has none. It needs `max_steps`.
        max_tokens: Longest transcript; 32,000 in the paper.
        image_max_pixels: Pixels of a picture as the model sees it; 262,144 in the paper. None keeps the checkpoint's.
        learning_rate: Peak; 2e-5 in the paper.
        optimizer: `adamw`, or `muon_adamw`: Muon for the weights of linear layers, AdamW for the rest (`sft.muon`).
        matrix_learning_rate: Peak of Muon's rate; not used by `adamw`.
        schedule: How the rate goes on after the warm-up; `warmup_stable_decay` stays at its peak before a cosine decay.
        warmup: Share of the steps over which the rate rises; 0.1 in the paper.
        decay: Share of the steps, at the end, over which `warmup_stable_decay` falls to 0.
        epochs: Passes over the data; 8 in the paper. Ignored when `max_steps` is given.
        max_steps: Optimiser steps, those of a first stage included, or None.
        batch_size: Examples per optimiser step over all devices; 256 in the paper.
        per_device: Examples per forward pass and device.
        weight_decay: Decoupled, of AdamW and Muon.
        beta2: Of AdamW.
        max_grad_norm: Clip of the gradient's norm.
        precision: Of the passes: `bf16` in the paper; `fp32` on CPUs. See `sft.train.trained_model` for the weights.
        gradient_checkpointing: Recompute activations in the backward pass.
        freeze_vision: Leave the vision tower as it is; the paper trains everything.
        group_by_length: Put examples of like length into a batch.
        lora: Adapters; None is full fine-tuning.
        router_aux: Weight of the loss that balances the experts of a mixture; see `ROUTER_AUX`. Only for MoE models.
        keep: How many of the latest checkpoints stay on disk.
        save_every: Steps between checkpoints; a multiple of `log_every`: a row of metrics is a mean over the steps from
            the row before, and a resumed run knows of none before its checkpoint.
        log_every: Steps between rows of metrics.
        report_to: Trackers besides our own metrics file.
        seed: Of data order, dropout and new names.
        threads: CPU threads of torch; None leaves torch's choice.
    """

    model: str = ""
    renamed_copies: int = Field(default=0, ge=0)
    first: FirstStage | None = None
    max_tokens: int = Field(default=32_000, gt=0)
    image_max_pixels: int | None = Field(default=262_144, gt=0)
    learning_rate: float = Field(default=2e-5, gt=0)
    optimizer: Literal["adamw", "muon_adamw"] = "adamw"
    matrix_learning_rate: float = Field(default=0.02, gt=0)
    schedule: Schedule = "cosine"
    warmup: float = Field(default=0.1, ge=0, lt=1)
    decay: float = Field(default=0.5, gt=0, le=1)
    epochs: float = Field(default=8, gt=0)
    max_steps: int | None = Field(default=None, gt=0)
    batch_size: int = Field(default=256, gt=0)
    per_device: int = Field(default=1, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    beta2: float = Field(default=0.999, gt=0, lt=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    precision: Literal["bf16", "fp32"] = "bf16"
    gradient_checkpointing: bool = True
    freeze_vision: bool = False
    group_by_length: bool = True
    lora: LoraSettings | None = None
    router_aux: float = Field(default=ROUTER_AUX, ge=0)
    keep: int = Field(default=2, gt=0)
    save_every: int = Field(default=500, gt=0)
    log_every: int = Field(default=10, gt=0)
    report_to: tuple[Literal["wandb", "tensorboard"], ...] = ()
    seed: int = 0
    threads: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _rows_end_at_checkpoints(self) -> Self:
        if self.save_every % self.log_every:
            raise ValueError(f"save_every {self.save_every} must be a multiple of log_every {self.log_every}")
        return self

    @model_validator(mode="after")
    def _parts_fit_into_the_steps(self) -> Self:
        if self.first is not None and (self.max_steps is None or self.max_steps <= self.first.steps):
            raise ValueError(f"max_steps {self.max_steps} must be more than the first stage's {self.first.steps} steps")
        if self.schedule == "warmup_stable_decay" and (self.max_steps is None or self.warmup + self.decay > 1):
            raise ValueError("warmup_stable_decay needs max_steps, and warmup and decay of at most 1 together")
        return self

    @model_validator(mode="after")
    def _adapters_are_no_matrices(self) -> Self:
        if self.lora is not None and self.optimizer == "muon_adamw":
            raise ValueError("muon_adamw trains whole matrices; adapters are trained with optimizer adamw")
        return self
