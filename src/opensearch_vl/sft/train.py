"""Supervised fine-tuning with TRL's trainer and our collator (paper, section 4).

The same code trains a miniature policy on a CPU and an 8B model under ``accelerate launch`` with ZeRO-3. What is ours:
transcripts instead of chat templates (`agent.transcript`), a run folder whose metrics go on exactly after a kill, and
a final checkpoint that plain transformers loads.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from opensearch_vl.agent.pixels import Pixels
from opensearch_vl.agent.transcript import ChatFormat
from opensearch_vl.errors import ConfigError, DataError, MissingExtra
from opensearch_vl.images import ImageStore
from opensearch_vl.runs import RunFolder
from opensearch_vl.sft.collate import Collator
from opensearch_vl.sft.examples import Examples
from opensearch_vl.sft.head import score_labels_only
from opensearch_vl.sft.muon import muon_adamw
from opensearch_vl.sft.order import Order
from opensearch_vl.sft.patches import multiply_patches
from opensearch_vl.sft.settings import LoraSettings, SftSettings

_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the optimiser steps that are done and those in all."""

_KEPT = frozenset({"loss", "grad_norm", "learning_rate", "mean_token_accuracy", "entropy"})
"""What of the trainer's log goes into `metrics.jsonl`; all of it the same in two equal runs (TRL's own count of tokens
begins anew on a resume)."""


@dataclass(frozen=True, slots=True)
class SftReport:
    """Outcome of a run of fine-tuning.

    Attributes:
        model: Directory of the final checkpoint.
        num_steps: Optimiser steps, those before a resume included.
        loss: Mean loss per action token in the last logged interval.
        token_accuracy: Share of action tokens that were the most likely one, in the last logged interval.
        resumed_from: Step the run continued from; 0 for a fresh one.
    """

    model: Path
    num_steps: int
    loss: float
    token_accuracy: float
    resumed_from: int


def train_sft(
    settings: SftSettings,
    chat_format: ChatFormat,
    examples: Examples,
    store: ImageStore,
    run: RunFolder | None,
    out: Path,
    progress: Progress | None = None,
) -> SftReport:
    """Fine-tune and write ``OUT/model``; checkpoints go to ``OUT/checkpoints`` and are continued from if there are any.

    Args:
        settings: All of it.
        chat_format: Of the checkpoint that is trained.
        examples: What to train on.
        store: Where the pictures are.
        run: Open run folder for metrics; None on all but the first process of a distributed run.
        out: The run folder's path.
        progress: Called after every optimiser step.

    Raises:
        DataError: Without examples, or without some for each stage.
        ConfigError: If the batch size does not divide into devices and passes, or for adapters under ZeRO-3.
        MissingExtra: Without the training extra.
    """
    if not examples.transcripts:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in examples.left_out.most_common(3))
        raise DataError(f"There is nothing to train on ({reasons or 'no records'}).")
    if settings.first is not None and not 0 < examples.num_first < len(examples.transcripts):
        raise DataError(
            f"{examples.num_first} of {len(examples.transcripts)} examples are for the first stage; "
            "both stages need some."
        )
    try:
        import torch
        from datasets import Dataset
        from transformers import AutoConfig, PrinterCallback
        from trl import SFTTrainer
    except ImportError as error:
        raise MissingExtra("trl", "train") from error
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)

    config = AutoConfig.from_pretrained(settings.model, trust_remote_code=False)
    arguments = sft_arguments(settings, out, router_aux(config, settings.router_aux))
    model = trained_model(settings.model, settings.precision, adapters=settings.lora is not None)
    order = order_of(examples, settings)
    if settings.freeze_vision:
        model.model.visual.requires_grad_(False)

    class Trainer(SFTTrainer):  # type: ignore[misc] # TRL is untyped here
        def _send_telemetry(self) -> None:
            """Training reports to nobody."""

        def _get_train_sampler(self, *_: Any) -> Order:
            return order

    resume = last_checkpoint(out / "checkpoints")
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"index": list(range(len(examples.transcripts)))}),
        data_collator=Collator(examples.transcripts, Pixels(chat_format, store), chat_format.tokenizer.pad_token_id),
        processing_class=chat_format.tokenizer,
        peft_config=lora_config(settings.lora),
        optimizers=(_optimizer(settings, model), None),
        callbacks=[run_callback(run, _KEPT.__contains__, chat_format, progress)],
    )
    trainer.remove_callback(PrinterCallback)  # it prints on stdout
    if settings.lora is None:
        score_labels_only(model)
    start = step_of(resume)
    if run is not None:
        run.keep_metrics(lambda row: row["step"] <= start)
    run_training(trainer, resume)
    folder = out / "model"
    save_checkpoint(trainer, chat_format, folder, merge=settings.lora is not None)
    logged = [row for row in trainer.state.log_history if "loss" in row]
    last = logged[-1] if logged else {}
    return SftReport(
        model=folder,
        num_steps=trainer.state.global_step,
        loss=float(last.get("loss", float("nan"))),
        token_accuracy=float(last.get("mean_token_accuracy", float("nan"))),
        resumed_from=start,
    )


def trained_model(checkpoint: str, precision: str, *, adapters: bool) -> Any:
    """A checkpoint as it is trained. Call it after TRL's arguments were made: under ZeRO-3 they shard the loading.

    With precision `bf16`, passes run in bf16, and the weights that are stepped are in fp32: most updates at rates such
    as 1e-6 are smaller than half a bf16 step and would be lost. Under DeepSpeed, which keeps the fp32 copy itself, and
    with adapters, which PEFT keeps in fp32, the checkpoint is loaded in bf16.

    Raises:
        ConfigError: For adapters under ZeRO-3, which could not be merged: no process has the whole weights.
    """
    import torch
    from transformers import AutoModelForImageTextToText
    from transformers.integrations import is_deepspeed_zero3_enabled

    if adapters and is_deepspeed_zero3_enabled():
        raise ConfigError(
            "Adapters are not trained under ZeRO-3.", "Launch with configs/accelerate/ddp.yaml, or with ZeRO-2."
        )
    deepspeed = os.environ.get("ACCELERATE_USE_DEEPSPEED", "false") == "true"
    dtype = torch.bfloat16 if precision == "bf16" and (adapters or deepspeed) else torch.float32
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=dtype, trust_remote_code=False)
    multiply_patches(model)
    return model


def sft_arguments(settings: SftSettings, out: Path, router_aux: float | None = None) -> Any:
    """TRL's arguments for our settings.

    Args:
        settings: All of them.
        out: The run folder's path.
        router_aux: As the function of this name gives it.

    Raises:
        ConfigError: If the batch size does not divide into devices and passes.
    """
    from trl import SFTConfig

    world = int(os.environ.get("WORLD_SIZE", "1"))
    per_pass = settings.per_device * world
    if settings.batch_size % per_pass:
        raise ConfigError(
            f"batch_size {settings.batch_size} is not a multiple of per_device {settings.per_device} × {world} devices."
        )
    decay = None
    if settings.schedule == "warmup_stable_decay":
        decay = {"num_decay_steps": max(1, round(settings.decay * (settings.max_steps or 0))), "decay_type": "cosine"}
    return SFTConfig(
        output_dir=str(out / "checkpoints"),
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        lr_scheduler_kwargs=decay,
        warmup_steps=settings.warmup,
        num_train_epochs=1,  # the sampler lays down all epochs as one
        max_steps=settings.max_steps if settings.max_steps is not None else -1,
        per_device_train_batch_size=settings.per_device,
        gradient_accumulation_steps=settings.batch_size // per_pass,
        weight_decay=settings.weight_decay,
        adam_beta2=settings.beta2,
        max_grad_norm=settings.max_grad_norm,
        bf16=settings.precision == "bf16",
        use_cpu=not cuda_available(),
        gradient_checkpointing=settings.gradient_checkpointing,
        save_steps=settings.save_every,
        save_total_limit=settings.keep,
        logging_steps=settings.log_every,
        logging_first_step=True,
        report_to=list(settings.report_to) or "none",
        seed=settings.seed,
        max_length=None,
        router_aux_loss_coef=router_aux,
        remove_unused_columns=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        dataloader_pin_memory=cuda_available(),
        ddp_find_unused_parameters=True if world > 1 else None,  # a text-only batch leaves the vision tower out
        disable_tqdm=True,
    )


def run_callback(
    run: RunFolder | None,
    kept: Callable[[str], bool],
    chat_format: ChatFormat,
    progress: Progress | None = None,
) -> Any:
    """A trainer callback that copies what is logged, as far as its name is `kept`, into the run's metrics.

    It also completes each checkpoint with the image processor, so that it can be used like the final one, and drops an
    update whose gradient is not finite: one such update would make every weight NaN. `dropped_updates` counts them, in
    the rows that follow one; figures that are not finite are stored as null.
    """
    from transformers import TrainerCallback

    class Bookkeeping(TrainerCallback):  # type: ignore[misc] # transformers is untyped here
        num_dropped = 0

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            if gradients and not all(bool(gradient.isfinite().all()) for gradient in gradients):
                model.zero_grad(set_to_none=True)  # the optimiser passes over weights without a gradient
                self.num_dropped += 1
                _log.warning("step %d: the gradient is not finite; the update is dropped", state.global_step + 1)

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
            if run is None or not logs or "loss" not in logs:  # the summary at the end has no loss
                return
            row = {name: value for name, value in logs.items() if kept(name)}
            row |= {name: None for name, value in row.items() if isinstance(value, float) and not isfinite(value)}
            if self.num_dropped:  # transformers puts a figure of its own in place of such a loss
                row |= {"loss": None, "dropped_updates": self.num_dropped}
                self.num_dropped = 0
            run.metric({"step": state.global_step, **row})

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if progress is not None:
                progress(state.global_step, state.max_steps)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                chat_format.image_processor.save_pretrained(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return Bookkeeping()


def run_training(trainer: Any, resume: Path | None) -> None:
    """Train, from a checkpoint if there is one. One that was taken after the last step is loaded and left as it is.

    transformers would take a step more when the last one does not end an epoch.
    """
    from transformers import TrainerState

    if resume is not None:
        state = TrainerState.load_from_json(str(resume / "trainer_state.json"))
        if state.global_step >= state.max_steps:
            trainer._load_from_checkpoint(str(resume))
            trainer.state = state
            return
    trainer.train(resume_from_checkpoint=str(resume) if resume is not None else None)


def last_checkpoint(folder: Path) -> Path | None:
    """The latest whole checkpoint; one that was cut off while being written lacks its last file and is passed over."""
    whole = [path for path in folder.glob("checkpoint-*") if _is_whole(path)]
    return max(whole, key=step_of, default=None)


def step_of(checkpoint: Path | None) -> int:
    """Optimiser steps of a checkpoint directory; 0 for None."""
    return int(checkpoint.name.removeprefix("checkpoint-")) if checkpoint is not None else 0


def save_checkpoint(trainer: Any, chat_format: ChatFormat, folder: Path, *, merge: bool) -> None:
    """Write a checkpoint that plain transformers loads: weights (adapters merged), tokenizer, image processor.

    It is written beside `folder` and then takes its name, so that a folder of this name is always whole.
    """
    part = folder.with_name(f"{folder.name}.part")
    first = trainer.is_world_process_zero()
    if merge:
        if not first:
            return
        model = trainer.accelerator.unwrap_model(trainer.model)
        model.save_pretrained(folder.with_name("adapter"))
        model.merge_and_unload().save_pretrained(part)
    else:
        trainer.save_model(str(part))
    if first:
        chat_format.tokenizer.save_pretrained(part)
        chat_format.image_processor.save_pretrained(part)
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)


def cuda_available() -> bool:
    """Whether there is a GPU to train on."""
    import torch

    return bool(torch.cuda.is_available())


def order_of(examples: Examples, settings: SftSettings) -> Order:
    """The sampler of a run, in one or two stages; it draws `max_steps` batches, or `epochs` times all examples."""
    lengths = [len(transcript) for transcript in examples.transcripts]
    steps, size = settings.max_steps, settings.batch_size
    draws = steps * size if steps is not None else max(1, round(settings.epochs * len(lengths)))
    stages = [(len(lengths), draws)]
    if settings.first is not None:
        first = settings.first.steps * size
        stages = [(examples.num_first, first), (len(lengths) - examples.num_first, draws - first)]
    return Order(lengths, stages, size, settings.seed, settings.group_by_length)


def _is_whole(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return checkpoint.name.removeprefix("checkpoint-").isdigit()


def _optimizer(settings: SftSettings, model: Any) -> Any:
    """The optimiser, or None for the trainer's own AdamW."""
    if settings.optimizer == "adamw":
        return None
    return muon_adamw(
        model,
        matrix_lr=settings.matrix_learning_rate,
        lr=settings.learning_rate,
        beta2=settings.beta2,
        weight_decay=settings.weight_decay,
    )


def router_aux(config: Any, weight: float) -> float | None:
    """Weight of the load-balancing loss for TRL: None for a model, by its configuration, without a router."""
    return weight if hasattr(config.get_text_config(), "output_router_logits") else None


def lora_config(lora: LoraSettings | None) -> Any:
    """PEFT's configuration, or None. Adapters go on every linear layer of the language model."""
    if lora is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear",
        exclude_modules=None if lora.vision else r".*visual.*",
        task_type="CAUSAL_LM",
    )
