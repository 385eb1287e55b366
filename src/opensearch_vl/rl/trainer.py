"""Multi-turn fatal-aware GRPO on TRL's `GRPOTrainer` (paper, section 5).

TRL keeps what it is good at: distributed set-up, optimiser, micro-batches, checkpoints, trackers. Ours are the rollouts
(`rl.rollouts`, through the same environment that serves users), advantages and masks (`rl.batch`), and the loss
(`rl.loss`). Two methods are replaced for that, `_generate_and_score_completions` and `_compute_loss`; between them
travel only row numbers, and each micro-batch loads its own pictures, so pixels reach the loss for every turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opensearch_vl.agent.pixels import Pixels
from opensearch_vl.errors import ConfigError, DataError, MissingExtra
from opensearch_vl.rl.arguments import rl_arguments
from opensearch_vl.rl.batch import Batch, make_batch
from opensearch_vl.rl.decoding import Decoder
from opensearch_vl.rl.loss import normaliser, policy_loss
from opensearch_vl.rl.metrics import alarms, history_of, rollout_metrics
from opensearch_vl.rl.rollout_policy import LocalPolicy, PolicyChat, stop_ids
from opensearch_vl.rl.rollouts import (
    ModelFor,
    Outcome,
    Scene,
    roll_out,
    rollout_record,
    tasks_of_step,
    unscored_reasons,
)
from opensearch_vl.rl.server_policy import ServerPolicy
from opensearch_vl.rl.settings import RlSettings
from opensearch_vl.runs import RunFolder
from opensearch_vl.sft.collate import model_inputs
from opensearch_vl.sft.head import score_labels_only
from opensearch_vl.sft.train import (
    Progress,
    last_checkpoint,
    lora_config,
    router_aux,
    run_callback,
    run_training,
    save_checkpoint,
    step_of,
    trained_model,
)
from opensearch_vl.types import Task

if TYPE_CHECKING:
    from torch import Tensor

_log = logging.getLogger(__name__)

_TIMINGS = frozenset({"step_time", "num_tokens", "epoch", "reward", "total_flos"})
"""What TRL logs that says nothing about our run, or differs between equal runs."""


@dataclass(frozen=True, slots=True)
class RlReport:
    """Outcome of a run.

    Attributes:
        model: Directory of the final checkpoint.
        num_steps: Optimiser steps, those before a resume included.
        resumed_from: Step the run continued from; 0 for a fresh one.
        num_rollouts: Rollouts made since then.
        num_unscored: Of these, without a reward.
        alarms: What looked like a collapse, each message once.
    """

    model: Path
    num_steps: int
    resumed_from: int
    num_rollouts: int
    num_unscored: int
    alarms: tuple[str, ...]


@dataclass(slots=True)
class Generation:
    """The rollouts that are being trained on.

    Attributes:
        batch: Tokens, masks, advantages.
        divide_by: What the summed loss of one optimiser step is divided by.
        old_logps: ``[B, T]`` under the policy before the first update; None if it is the policy itself.
        ref_logps: ``[B, T]`` under the reference policy; None without KL.
    """

    batch: Batch
    divide_by: float
    old_logps: Tensor | None = None
    ref_logps: Tensor | None = None


def train_rl(
    settings: RlSettings,
    scene: Scene,
    tasks: Sequence[Task],
    run: RunFolder | None,
    out: Path,
    model_for: ModelFor | None = None,
    progress: Progress | None = None,
) -> RlReport:
    """Train and write ``OUT/model``; checkpoints go to ``OUT/checkpoints`` and are continued from if there are any.

    Args:
        settings: All of it.
        scene: Environment, judge, reward.
        tasks: What to roll out.
        run: Open run folder for rollouts and metrics; None on all but the first process of a distributed run.
        out: The run folder's path.
        model_for: Where replies come from; None decodes with the trained model itself, in this process.
        progress: Called after every optimiser step.

    Raises:
        DataError: Without tasks.
        ConfigError: If sizes do not divide, the temperature is 0, or K is not the same everywhere.
        MissingExtra: Without the training extra.
    """
    if not tasks:
        raise DataError("There are no tasks to train on.")
    if scene.env.settings.fatal_after != scene.reward.fatal_after:
        raise ConfigError(
            f"Rollouts end after {scene.env.settings.fatal_after} errors in a row (agent.fatal_after), but are scored "
            f"as fatal after {scene.reward.fatal_after} (reward.fatal_after); both are K of the paper."
        )
    try:
        import torch
        from transformers import AutoConfig, PrinterCallback
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    aux = router_aux(AutoConfig.from_pretrained(settings.model, trust_remote_code=False), settings.router_aux)
    arguments = rl_arguments(settings, scene.env.settings.sampling.temperature, out, aux)
    model = trained_model(settings.model, settings.precision, adapters=settings.lora is not None)
    resume = last_checkpoint(out / "checkpoints")
    start = step_of(resume)
    trainer = trainer_class()(settings, scene, tasks, run, model, arguments, progress)
    trainer.remove_callback(PrinterCallback)  # it prints on stdout
    if settings.lora is None:
        for scored in (model, trainer.ref_model):
            if scored is not None:
                score_labels_only(scored, scene.env.settings.sampling.temperature)
    trainer.model_for = model_for or (server_policy if settings.server else local_policy)(trainer, settings)
    if run is not None:
        run.keep_metrics(lambda row: row["step"] <= start)
        run.keep_records(lambda row: row["training"]["step"] < start)
        trainer.history = history_of(run.path)
    with trainer.runner:
        run_training(trainer, resume)
    save_checkpoint(trainer, scene.chat_format, out / "model", merge=settings.lora is not None)
    return RlReport(
        model=out / "model",
        num_steps=trainer.state.global_step,
        resumed_from=start,
        num_rollouts=trainer.num_rollouts,
        num_unscored=trainer.num_unscored,
        alarms=tuple(dict.fromkeys(trainer.alarms)),
    )


def local_policy(trainer: Any, settings: RlSettings) -> ModelFor:
    """Replies by the trained model itself, one `PolicyChat` per conversation."""
    chat_format = trainer.scene.chat_format
    model = trainer.accelerator.unwrap_model(trainer.model)
    if settings.lora is not None:
        model = model.get_base_model()  # with the adapters inside its layers
    decoder = Decoder(model, trainer.pixels, stop_ids(chat_format), trainer.accelerator.autocast)
    policy = LocalPolicy(decoder, max_rows=settings.max_rows, lockstep=settings.lockstep)
    return lambda conversation: PolicyChat(policy, chat_format, conversation)


def server_policy(trainer: Any, settings: RlSettings) -> ModelFor:
    """Replies by a vLLM server, which TRL keeps supplied with the current weights."""
    from trl.generation.vllm_client import VLLMClient

    chat_format = trainer.scene.chat_format
    client = VLLMClient(base_url=settings.server, connection_timeout=120.0)
    policy = ServerPolicy(client, chat_format, trainer.scene.env.store, stop_ids(chat_format))
    return lambda conversation: PolicyChat(policy, chat_format, conversation)


def trainer_class() -> type[Any]:
    """`FatalAwareTrainer`, made on demand because TRL is heavy."""
    import torch
    from datasets import Dataset
    from trl import GRPOTrainer

    class FatalAwareTrainer(GRPOTrainer):  # type: ignore[misc] # TRL is untyped here
        """`GRPOTrainer` with our rollouts, our batch and our loss."""

        _last_loaded_step: int  # TRL's: the step whose weights the server has

        def __init__(
            self,
            settings: RlSettings,
            scene: Scene,
            tasks: Sequence[Task],
            run: RunFolder | None,
            model: Any,
            arguments: Any,
            progress: Progress | None = None,
        ) -> None:
            super().__init__(
                model=model,
                reward_funcs=_never_asked,
                args=arguments,
                peft_config=lora_config(settings.lora),
                train_dataset=Dataset.from_dict(
                    {"prompt": [""] * settings.prompts_per_step, "slot": list(range(settings.prompts_per_step))}
                ),
                processing_class=scene.chat_format.tokenizer,
                callbacks=[run_callback(run, lambda name: name not in _TIMINGS, scene.chat_format, progress)],
            )
            self.settings = settings
            self.scene = scene
            self.tasks = tasks
            self.run = run
            self.pixels = Pixels(scene.chat_format, scene.env.store)
            self.runner = asyncio.Runner()
            self.model_for: ModelFor
            self.generation: Generation
            self.num_rollouts = 0
            self.num_unscored = 0
            self.alarms: list[str] = []
            self.history: list[dict[str, float]] = []

        def _send_telemetry(self) -> None:
            """Training reports to nobody."""

        # -------------------------------------------------------------------------------------- rollouts

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            """Roll out this process's share of the generation; what travels on are the numbers of its rows."""
            settings = self.settings
            if settings.server and self.state.global_step != self._last_loaded_step:
                self.vllm_generation.sync_weights()
                self._last_loaded_step = self.state.global_step
            number = self.state.global_step // settings.minibatches
            chosen = tasks_of_step(len(self.tasks), settings.prompts_per_step, settings.seed, number)
            slots = sorted({row["slot"] for row in inputs})
            started = time.perf_counter()
            outcomes = self.runner.run(
                roll_out(
                    self.scene,
                    [self.tasks[chosen[slot]] for slot in slots],
                    settings.group_size,
                    self.model_for,
                    run_seed=settings.seed,
                    step=self.state.global_step,
                    repeats=[chosen[:slot].count(chosen[slot]) for slot in slots],
                )
            )
            seconds = time.perf_counter() - started
            batch = make_batch(
                [outcome.scored for outcome in outcomes],
                mode=settings.mode,
                estimator=settings.estimator,
                clamp_unanswered=settings.clamp_unanswered,
                pad_id=self.scene.chat_format.tokenizer.pad_token_id,
            )
            self.generation = Generation(batch, self._divide_by(batch))
            self._look_back(batch)
            self._report(outcomes, batch, slots, seconds)
            return {"row": torch.arange(len(outcomes))}

        def _divide_by(self, batch: Batch) -> float:
            """Normaliser of one optimiser step. Gradients are averaged over processes, so it is a process's share."""
            whole = torch.tensor(normaliser(torch.from_numpy(batch.mask), self.settings.loss.norm))
            shared = self.accelerator.reduce(whole.to(self.accelerator.device), reduction="mean").item()
            return float(shared) / self.settings.minibatches

        def _look_back(self, batch: Batch) -> None:
            """Log-probabilities of the policies that do not change while a generation is trained on."""
            generation = self.generation
            rows = torch.arange(len(batch.ids))
            if self.settings.minibatches > 1:
                if self.settings.old_logprobs == "sampled":
                    generation.old_logps = torch.from_numpy(batch.logprobs[:, 1:])
                else:
                    generation.old_logps = self._frozen_logps(self.model, rows)
            if self.settings.loss.kl_coef > 0:
                with self._adapters_off():
                    generation.ref_logps = self._frozen_logps(self.ref_model or self.model, rows)

        def _adapters_off(self) -> AbstractContextManager[Any]:
            """With adapters, the reference policy is the model without them."""
            if self.settings.lora is None:
                return nullcontext()
            off: AbstractContextManager[Any] = self.accelerator.unwrap_model(self.model).disable_adapter()
            return off

        def _frozen_logps(self, model: Any, rows: Tensor) -> Tensor:
            """``[B, T−1]`` under a model, without gradient, in passes of the training size."""
            width = self.generation.batch.ids.shape[1] - 1
            parts = []
            with torch.no_grad():
                for part in rows.split(self.settings.per_device):
                    logps = self._logps(model, part)[0]
                    parts.append(torch.nn.functional.pad(logps, (0, width - logps.shape[1])).cpu())
            return torch.cat(parts)

        # ------------------------------------------------------------------------------------------ loss

        def _logps(self, model: Any, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
            """Log-probabilities, entropies and mask ``[b, t−1]`` of some rows; position j is about token j + 1.

            Last comes the load-balancing loss of a mixture of experts; None for a dense model.
            """
            batch = self.generation.batch
            index = rows.cpu().numpy()
            length = int(batch.attention[index].sum(axis=1).max())
            ids, mask = batch.ids[index, :length], torch.from_numpy(batch.mask[index, :length])
            inputs = model_inputs(ids, [batch.images[i] for i in index], self.pixels)
            labels = torch.from_numpy(ids).masked_fill(~mask, -100)
            device = self.accelerator.device
            inputs = {name: value.to(device) for name, value in inputs.items()}
            with self.accelerator.autocast():
                if self.aux_loss_enabled:
                    inputs["output_router_logits"] = True
                out = model(**inputs, labels=labels.to(device), fused_lm_head=True)
            entropy = out.entropy if out.entropy is not None else torch.zeros_like(out.log_probs)
            balance = out.aux_loss if self.aux_loss_enabled else None
            return out.log_probs, entropy, mask[:, 1:].to(device), balance

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
            generation, rows = self.generation, inputs["row"].cpu()
            logps, entropy, mask, balance = self._logps(model, rows)
            width = logps.shape[1]

            def of_rows(stored: Tensor | None) -> Tensor | None:
                return None if stored is None else stored[rows, :width].to(logps.device)

            old = of_rows(generation.old_logps)
            parts = policy_loss(
                logps,
                logps.detach() if old is None else old,
                torch.from_numpy(generation.batch.advantages)[rows].to(logps.device),
                mask,
                self.settings.loss,
                ref_logps=of_rows(generation.ref_logps),
                divide_by=generation.divide_by,
            )
            sampled = of_rows(torch.from_numpy(generation.batch.logprobs[:, 1:]))
            if parts.num_tokens and sampled is not None:
                gap = ((logps.detach() - sampled).abs() * mask).sum() / parts.num_tokens
                self._note("policy/sampling_gap", gap)
                self._note("policy/entropy", (entropy.detach() * mask).sum() / parts.num_tokens)
                self._note("policy/kl", parts.kl)
                self._note("policy/clip_low", parts.clip_low_fraction)
                self._note("policy/clip_high", parts.clip_high_fraction)
                self._note("policy/ratio", parts.ratio_mean)
            if balance is None:
                return parts.loss
            self._note("policy/router_aux", balance.detach())
            return parts.loss + self.router_aux_loss_coef * balance / self.current_gradient_accumulation_steps

        def _note(self, name: str, value: Tensor) -> None:
            self._metrics["train"][name].append(float(value))

        # --------------------------------------------------------------------------------------- reports

        def _report(self, outcomes: list[Outcome], batch: Batch, slots: list[int], seconds: float) -> None:
            row = self._mean_over_processes(rollout_metrics(outcomes, batch.counts))
            generated = batch.counts.num_generated_tokens
            for name, value in {**row, "wall_s": seconds, "tokens_per_s": generated / seconds}.items():
                self._metrics["train"][name].append(value)
            self.num_rollouts += len(outcomes)
            self.num_unscored += batch.counts.num_unscored
            for reason, count in unscored_reasons(outcomes).items():
                _log.warning("%d of %d rollouts have no reward: %s", count, len(outcomes), reason)
            self.history.append(row)
            self._save_rollouts(outcomes, batch, slots)

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            """Called after each optimiser step, with what was noted since the last."""
            entropies = self._metrics["train"]["policy/entropy"]
            if self.history:
                self.history[-1].setdefault("entropy", sum(entropies) / len(entropies) if entropies else 0.0)
            for message in alarms(self.history):
                _log.warning("training may be collapsing: %s", message)
                self.alarms.append(message)
            super().log(logs, start_time)

        def _mean_over_processes(self, row: dict[str, float]) -> dict[str, float]:
            values = torch.tensor(list(row.values()), dtype=torch.float64, device=self.accelerator.device)
            return dict(zip(row, self.accelerator.reduce(values, reduction="mean").tolist(), strict=True))

        def _save_rollouts(self, outcomes: list[Outcome], batch: Batch, slots: list[int]) -> None:
            from accelerate.utils import gather_object

            step = self.state.global_step
            every = self.settings.save_rollouts
            if every == 0 or (step // self.settings.minibatches) % every:
                return
            records = [rollout_record(o, batch, row, step, slots[o.group]) for row, o in enumerate(outcomes)]
            for record in gather_object(records):
                if self.run is not None and record.id not in self.run.done:
                    self.run.append(record)

    return FatalAwareTrainer


def _never_asked(**_: Any) -> list[float]:
    raise RuntimeError("rewards come with the rollouts; TRL's reward functions are not used")
