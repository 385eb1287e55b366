"""The stages that a recipe run is put together from: each reads folders, writes one, and goes on where it was stopped.

`cli/pipeline.py` strings them together for the short quickstart, `cli/learning.py` for the training that follows.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.cli.wiring import World, question_tools, toolbox
from opensearch_vl.images import ImageStore
from opensearch_vl.questions.build import build_questions
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.settings import QuestionSettings
from opensearch_vl.questions.tally import BuildReport
from opensearch_vl.runs import RunFolder
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.metrics import Accuracy
from opensearch_vl.sft.expert import ScriptedExpert
from opensearch_vl.sft.synthesis import SynthesisReport, SynthesisSettings, synthesise
from opensearch_vl.sft.trajectory_config import ExpertSettings, TrajectoryConfig
from opensearch_vl.types import Task
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.miniature import write_miniature
from opensearch_vl.wiki.tables import WikiFolder

Advance = Callable[[int, int], None]
"""Called with (done, total or 0)."""

POINTS = {"untrained": "before training", "tuned": "after fine-tuning", "reinforced": "after GRPO"}
"""Where the policy is measured: folder → words."""
_EXTRA = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")


def miniature_wiki(out: Path, wiki: Path, *, pages: int, seed: int, advance: Advance) -> WikiFolder:
    """Write a miniature encyclopedia into `out` and read it back into `wiki`; both are skipped when `wiki` is there."""
    if wiki.exists():
        return WikiFolder(wiki)
    made = write_miniature(out, pages=pages, seed=seed)
    return build_wiki(made.dump, wiki, images=made.images, progress=advance)


def build_question_run(
    world: World,
    out: Path,
    settings: QuestionSettings,
    *,
    seed: int,
    num: int | None,
    resume: bool,
    advance: Advance,
    ocr: bool = True,
) -> BuildReport:
    """Questions of a world as a run folder; pictures are read by OCR unless told otherwise."""
    store = ImageStore(out / "images", fallbacks=(world.wiki.images,))
    tools = question_tools(world, store, Facts(world.wiki), ocr=ocr)
    manifest = {"wiki": world.wiki.meta["name"], "seed": seed, "num": num}
    with RunFolder(out, settings, manifest, resume=resume) as run:
        return build_questions(world.wiki, settings, seed=seed, num=num, tools=tools, run=run, progress=advance)


def roll_out_expert(
    tasks: list[Task],
    world: World,
    out: Path,
    settings: SynthesisSettings,
    *,
    agent: AgentSettings,
    noise: float,
    pictures: Path,
    resume: bool,
    advance: Advance,
) -> SynthesisReport:
    """The scripted expert on every task, reviewed, as a run folder.

    Args:
        tasks: What it is asked.
        world: What its tools search.
        out: The run folder.
        settings: Numbers and thresholds.
        agent: How it is run; its prompts become part of the trajectories.
        noise: How often it errs before a move.
        pictures: Folder of the questions' pictures.
        resume: Continue what is there.
        advance: Called after every rollout.
    """
    config = TrajectoryConfig(agent=agent, expert=ExpertSettings(noise=noise), synthesis=settings)
    manifest = {"expert": ScriptedExpert.name, "tasks": len(tasks)}
    with RunFolder(out, config, manifest, resume=resume) as run:
        store = ImageStore(run.images.root, fallbacks=(ImageStore(pictures),))
        env = Environment(toolbox(world, store, brief=agent.sizes.brief), agent, store)
        run.write_manifest(prompt_hash=env.prompt_hash, tools=list(env.tools))
        total = len(tasks) * settings.samples
        return asyncio.run(
            synthesise(
                tasks,
                env,
                lambda task, sample: ScriptedExpert(task, noise, sample, brief=agent.profile == "miniature"),
                ExactJudge(),
                run,
                settings,
                progress=lambda report: advance(report.done, total),
            )
        )


def rate(value: Accuracy) -> dict[str, float | int | None]:
    """An accuracy as plain data; the rate is None when nothing was scored."""
    return {
        "accuracy": None if math.isnan(value.rate) else round(value.rate, 4),
        "correct": value.correct,
        "scored": value.scored,
        "unscored": value.unscored,
        "low": round(value.low, 4),
        "high": round(value.high, 4),
    }


def missing_extra() -> str | None:
    """The first library of the training extra that is not installed."""
    return next((name for name in _EXTRA if importlib.util.find_spec(name) is None), None)
