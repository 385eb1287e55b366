"""Settings of reinforcement learning. Defaults are the paper's for the 8B model (section 5) where it gives any."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.config import Config
from opensearch_vl.rl.advantage import Estimator, Mode
from opensearch_vl.rl.loss import LossSettings
from opensearch_vl.scoring.score import RewardSettings
from opensearch_vl.sft.settings import ROUTER_AUX, LoraSettings
from opensearch_vl.sft.trajectory_config import JudgeSettings

Optimizer = Literal["adamw", "sgd"]


class RlSettings(Config):
    """How a checkpoint is trained with multi-turn fatal-aware GRPO.

    Attributes:
        model: Checkpoint directory; usually the one that fine-tuning wrote.
        mode: What is done with fatal trajectories; `fatal_clamp` is the paper's method.
        estimator: The baseline; `grpo` is the paper's text.
        clamp_unanswered: Whether a trajectory cut off before its response is clamped like a fatal one. The paper's text
            says no, so that never answering is penalised; its code says yes.
        loss: Clip range, normalisation, KL.
        prompts_per_step: Prompts rolled out between two generations; 256 in the paper.
        group_size: G, rollouts per prompt; 8 for the 8B model, 16 for 30B-A3B in the paper.
        minibatches: Optimiser steps per generation; 4 in the paper (256 prompts, mini-batches of 64).
        steps: Optimiser steps in all; about 200 in the paper.
        learning_rate: 1e-6 in the paper.
        optimizer: `adamw`, or `sgd` without momentum. AdamW's first steps move every weight by the whole rate, however
            small its gradient; where some hundred rollouts are all there are, that is mostly noise, and steps in
            proportion to the gradient learn faster (docs/log.md). Rates of `sgd` are a million times those of AdamW.
        schedule: How the rate goes on after the warm-up.
        warmup: Share of the steps over which the rate rises.
        weight_decay: Of AdamW; `sgd` takes none.
        beta2: Of AdamW.
        max_grad_norm: Clip of the gradient's norm.
        per_device: Rollouts per forward pass and device when training.
        max_tokens: Longest trained transcript: 4,096 of prompt and 70,000 of response in the paper.
        image_max_pixels: Pixels of a picture as the model sees it; None keeps the checkpoint's.
        old_logprobs: Log-probabilities of the old policy in the ratio: `recomputed` by the trainer before the first
            update of a generation, or as `sampled`. With one minibatch both policies are the same and none are needed.
        judge_retries: How often a failed judgement is asked for again before the rollout counts as unscored.
        server: Address of a vLLM server that makes the rollouts and is sent the new weights; empty decodes with the
            trained model in this process.
        lora: Adapters; None trains all weights. The final checkpoint has them merged.
        router_aux: Weight of the loss that balances the experts of a mixture; 0.01 in the paper. Only for MoE models.
        lockstep: Whether rollouts wait for one another, which makes runs of a local policy repeat to the last bit.
        retold: Tell every group of every step, question and encyclopedia, under names of its own; for small policies
            that would learn the answers by heart (`rl.retelling`).
        max_rows: Turns decoded together by a local policy.
        precision: `fp32` on CPUs.
        gradient_checkpointing: Recompute activations in the backward pass.
        save_every: Steps between checkpoints; a multiple of `minibatches`.
        save_rollouts: Steps between generations whose rollouts are all kept in the run folder; 0 keeps none.
        report_to: Trackers besides our own metrics file.
        seed: Of task order, rollouts and everything else.
        threads: CPU threads of torch; None leaves torch's choice.
    """

    model: str = ""
    mode: Mode = "fatal_clamp"
    estimator: Estimator = "grpo"
    clamp_unanswered: bool = False
    loss: LossSettings = LossSettings()
    prompts_per_step: int = Field(default=256, gt=0)
    group_size: int = Field(default=8, gt=1)
    minibatches: int = Field(default=4, gt=0)
    steps: int = Field(default=200, gt=0)
    learning_rate: float = Field(default=1e-6, gt=0)
    optimizer: Optimizer = "adamw"
    schedule: Literal["constant_with_warmup", "cosine", "linear"] = "constant_with_warmup"
    warmup: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    beta2: float = Field(default=0.999, gt=0, lt=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    per_device: int = Field(default=1, gt=0)
    max_tokens: int | None = Field(default=74_096, gt=0)
    image_max_pixels: int | None = Field(default=262_144, gt=0)
    old_logprobs: Literal["recomputed", "sampled"] = "recomputed"
    judge_retries: int = Field(default=2, ge=0)
    server: str = ""
    lora: LoraSettings | None = None
    router_aux: float = Field(default=ROUTER_AUX, ge=0)
    lockstep: bool = True
    retold: bool = False
    max_rows: int = Field(default=128, gt=0)
    precision: Literal["bf16", "fp32"] = "bf16"
    gradient_checkpointing: bool = True
    save_every: int = Field(default=20, gt=0)
    save_rollouts: int = Field(default=1, ge=0)
    report_to: tuple[Literal["wandb", "tensorboard"], ...] = ()
    seed: int = 0
    threads: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _sgd_is_plain(self) -> Self:
        if self.optimizer == "sgd" and self.weight_decay:
            raise ValueError("sgd takes no weight_decay: at its rates, it would take the weights themselves")
        return self


class RlConfig(Config):
    """Configuration of `osvl train rl`: the training, the agent that is trained, how it is scored and by whom."""

    rl: RlSettings = RlSettings()
    agent: AgentSettings = AgentSettings()
    reward: RewardSettings = RewardSettings()
    judge: JudgeSettings = JudgeSettings()
