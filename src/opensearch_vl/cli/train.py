"""`osvl train`: supervised fine-tuning, reinforcement learning, and what a configuration will need.

On several GPUs, put the command behind accelerate:
``accelerate launch --config_file configs/accelerate/zero3.yaml $(which osvl) train sft …``
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from opensearch_vl.cli.common import (
    EXIT_DONE,
    EXIT_PARTIAL,
    ConfigOption,
    IndexOption,
    JsonOption,
    OutOption,
    ResumeOption,
    SetOption,
    ToolsFor,
    WebOption,
    WikiOption,
    emit,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from opensearch_vl.runs import RunFolder


def register(app: typer.Typer, tools_for: ToolsFor) -> None:
    """Add the verbs to the command tree."""
    train = typer.Typer(no_args_is_help=True, help="Train a policy: fine-tuning, reinforcement learning, planning.")
    app.add_typer(train, name="train")

    @train.command()
    def sft(
        data: Annotated[
            list[Path], typer.Argument(metavar="RUN…", help="Runs of `osvl data synthesise`, or a ShareGPT file.")
        ],
        out: OutOption,
        config: ConfigOption = None,
        settings: SetOption = None,
        resume: ResumeOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Fine-tune on kept trajectories; loss on reasoning, calls and responses alone."""
        from opensearch_vl.agent.transcript import ChatFormat
        from opensearch_vl.config import load_config
        from opensearch_vl.sft.settings import SftSettings
        from opensearch_vl.sft.source import data_digest, open_source
        from opensearch_vl.sft.train import train_sft

        chosen = load_config(SftSettings, config, settings or ())
        _needs_model(chosen.model)
        source = open_source(data, out / "images")
        chat_format = ChatFormat.load(chosen.model, max_pixels=chosen.image_max_pixels)
        manifest = {"data": [str(run) for run in data], "data_digest": data_digest(data)}
        with _first_process(out, chosen, manifest, resume=resume) as run:
            examples = source.examples(chosen, chat_format)
            report = train_sft(chosen, chat_format, examples, source.store, run, out)
        emit(
            {
                "model": str(report.model),
                "steps": report.num_steps,
                "loss": report.loss,
                "token_accuracy": report.token_accuracy,
                "examples": len(examples.transcripts),
                "tokens": examples.num_tokens,
                "action_tokens": examples.num_action_tokens,
                "cut_steps": examples.num_cut_steps,
                "left_out": dict(examples.left_out),
                "resumed_from": report.resumed_from,
            },
            as_json,
        )

    @train.command()
    def rl(
        questions: Annotated[Path, typer.Argument(metavar="QUESTIONS", help="Run folder of `osvl questions build`.")],
        out: OutOption,
        wiki: WikiOption = None,
        index: IndexOption = None,
        web: WebOption = False,
        config: ConfigOption = None,
        settings: SetOption = None,
        resume: ResumeOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Train with multi-turn fatal-aware GRPO in the real tool environment."""
        from opensearch_vl.agent.environment import Environment
        from opensearch_vl.agent.transcript import ChatFormat
        from opensearch_vl.cli.data import judge_for
        from opensearch_vl.cli.wiring import retelling_of
        from opensearch_vl.config import load_config
        from opensearch_vl.errors import ConfigError, DataError
        from opensearch_vl.images import ImageStore
        from opensearch_vl.rl.rollouts import Scene
        from opensearch_vl.rl.settings import RlConfig
        from opensearch_vl.rl.trainer import train_rl
        from opensearch_vl.runs import read_records, records_digest
        from opensearch_vl.types import QuestionRecord
        from opensearch_vl.wiki.tables import WikiFolder

        chosen = load_config(RlConfig, config, settings or ())
        _needs_model(chosen.rl.model)
        if chosen.rl.retold and wiki is None:
            raise ConfigError("rl.retold tells an encyclopedia under other names.", "Give the wiki folder: --wiki WIKI")
        tasks = [record.task for record in read_records(questions, QuestionRecord) if record.task is not None]
        if not tasks:
            raise DataError(f"{questions} holds no finished question.", "Build some with: osvl questions build")
        chat_format = ChatFormat.load(chosen.rl.model, max_pixels=chosen.rl.image_max_pixels)
        digest = records_digest(questions)
        manifest = {"questions": str(questions), "questions_digest": digest, "tasks": len(tasks)}
        with _first_process(out, chosen, manifest, resume=resume) as run:
            store = ImageStore(out / "images", (ImageStore(questions / "images"),))
            scene = Scene(
                Environment(tools_for(wiki, index, web, store, chosen.agent.sizes.brief), chosen.agent, store),
                judge_for(chosen.judge, chosen.agent, store),
                chosen.reward,
                chat_format,
                max_tokens=chosen.rl.max_tokens,
                judge_retries=chosen.rl.judge_retries,
                retelling=retelling_of(WikiFolder(wiki)) if chosen.rl.retold and wiki is not None else None,
            )
            report = train_rl(chosen.rl, scene, tasks, run, out)
        emit(
            {
                "model": str(report.model),
                "steps": report.num_steps,
                "rollouts": report.num_rollouts,
                "unscored": report.num_unscored,
                "alarms": list(report.alarms),
                "resumed_from": report.resumed_from,
            },
            as_json,
        )
        raise typer.Exit(EXIT_PARTIAL if report.num_unscored else EXIT_DONE)

    @train.command()
    def plan(
        config: Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file of `osvl train sft`.")],
        devices: Annotated[int, typer.Option(min=1, help="GPUs.")] = 8,
        memory: Annotated[float, typer.Option(help="Memory of each, in GiB.")] = 80.0,
        sharding: Annotated[Literal["none", "zero2", "zero3"], typer.Option(help="How states are sharded.")] = "zero3",
        settings: SetOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Say what fine-tuning with a configuration needs, and warn of what will not fit."""
        from opensearch_vl.config import load_config
        from opensearch_vl.sft.budget import make_plan
        from opensearch_vl.sft.settings import SftSettings

        chosen = load_config(SftSettings, config, settings or ())
        _needs_model(chosen.model)
        made = make_plan(chosen, devices=devices, memory_gib=memory, sharding=sharding)
        emit(
            {
                "model": chosen.model,
                "parameters": made.parameters.total,
                "active_parameters": made.parameters.active,
                "vision_parameters": made.parameters.vision,
                "trained_parameters": made.trained,
                "devices": devices,
                "gib_per_device": {
                    "weights": round(made.weights_gib, 1),
                    "gradients": round(made.gradients_gib, 1),
                    "optimiser": round(made.optimiser_gib, 1),
                    "activations": round(made.activations_gib, 1),
                    "total": round(made.total_gib, 1),
                },
                "tokens_per_step": made.tokens_per_step,
                "accumulation": made.accumulation,
                "warnings": list(made.warnings),
            },
            as_json,
        )


def _needs_model(model: str) -> None:
    from opensearch_vl.errors import ConfigError

    if not model:
        raise ConfigError("No model is named.", "Give --set model=DIR (rl: --set rl.model=DIR) or put it in --config.")


@contextmanager
def _first_process(
    out: Path, config: BaseModel, manifest: dict[str, Any], *, resume: bool
) -> Iterator[RunFolder | None]:
    """The run folder in the first process of a distributed run, None in the others."""
    from opensearch_vl.runs import RunFolder

    if int(os.environ.get("RANK", "0")):
        yield None
        return
    with RunFolder(out, config, manifest, resume=resume) as run:
        yield run
