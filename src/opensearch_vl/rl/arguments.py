"""TRL's arguments for our settings of reinforcement learning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from opensearch_vl.errors import ConfigError
from opensearch_vl.rl.settings import RlSettings
from opensearch_vl.sft.train import cuda_available


def rl_arguments(settings: RlSettings, temperature: float, out: Path, router_aux: float | None = None) -> Any:
    """TRL's arguments for our settings.

    Args:
        settings: All of them.
        temperature: Of the rollouts.
        out: The run folder's path.
        router_aux: As `sft.train.router_aux` gives it.

    Raises:
        ConfigError: If sizes do not divide, or the temperature is 0.
    """
    from trl import GRPOConfig

    if temperature <= 0:
        raise ConfigError("Rollouts of training need a temperature above 0 (agent.sampling.temperature).")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rollouts = settings.prompts_per_step * settings.group_size
    unit = settings.per_device * world * settings.minibatches
    if settings.prompts_per_step % world or rollouts % unit:
        raise ConfigError(
            f"{settings.prompts_per_step} prompts × {settings.group_size} rollouts do not divide into "
            f"{world} devices × {settings.minibatches} minibatches of {settings.per_device} rollouts a pass."
        )
    if settings.save_every % settings.minibatches:
        raise ConfigError(f"save_every {settings.save_every} must be a multiple of minibatches {settings.minibatches}.")
    return GRPOConfig(
        output_dir=str(out / "checkpoints"),
        per_device_train_batch_size=settings.per_device,
        gradient_accumulation_steps=rollouts // unit,
        steps_per_generation=rollouts // (settings.per_device * world),
        num_generations=settings.group_size,
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        **({"optim": "sgd"} if settings.optimizer == "sgd" else {}),
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        adam_beta2=settings.beta2,
        max_grad_norm=settings.max_grad_norm,
        beta=settings.loss.kl_coef,
        router_aux_loss_coef=router_aux,
        temperature=temperature,
        bf16=settings.precision == "bf16",
        use_cpu=not cuda_available(),
        use_vllm=bool(settings.server),
        vllm_mode="server",
        vllm_server_base_url=settings.server or None,
        gradient_checkpointing=settings.gradient_checkpointing,
        shuffle_dataset=False,
        remove_unused_columns=False,
        disable_dropout=True,
        logging_steps=1,
        save_steps=settings.save_every,
        save_total_limit=2,
        report_to=list(settings.report_to) or "none",
        seed=settings.seed,
        dataloader_pin_memory=cuda_available(),
        ddp_find_unused_parameters=True if world > 1 else None,
        disable_tqdm=True,
    )
