"""The training part of the quickstart: a policy from nothing, fine-tuned, trained by GRPO, and measured at each point.

```
questions of two hops → expert trajectories → fresh policy → fine-tuning → GRPO
                      a second encyclopedia → its questions → accuracy of the policy at each of the three points
```

Each stage is a folder under OUT/training and is skipped, or resumed, when it is there. Held-out questions ask about
another miniature, so no entity of theirs was trained on; names that both happen to share are left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.agent.transcript import ChatFormat
from opensearch_vl.cli.quickstart_settings import QuickSft, TrainingSettings
from opensearch_vl.cli.stages import POINTS, Advance, build_question_run, miniature_wiki, rate, roll_out_expert
from opensearch_vl.cli.wiring import World, local_world, retelling_of, toolbox
from opensearch_vl.errors import DataError
from opensearch_vl.images import ImageStore
from opensearch_vl.rl.passrate import pass_rate
from opensearch_vl.rl.rollout_policy import PolicyChat, load_policy
from opensearch_vl.rl.rollouts import Outcome, Scene
from opensearch_vl.rl.settings import RlConfig
from opensearch_vl.rl.trainer import train_rl
from opensearch_vl.runs import RunFolder, read_json_lines, read_manifest, read_records
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.metrics import Accuracy, accuracy
from opensearch_vl.sft.model_init import init_miniature
from opensearch_vl.sft.source import TOKENIZER_COPIES, open_source
from opensearch_vl.sft.synthesis import keep_pictures
from opensearch_vl.sft.train import train_sft
from opensearch_vl.types import RolloutRecord, Task

Part = Callable[[str], AbstractContextManager[Advance]]
"""Opens a named part with its progress display."""

_AT_ONCE = 64
"""Questions measured at once; a killed measurement repeats at most so many."""


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: values over optimiser steps, by name; None where there is none."""

    steps: tuple[int, ...]
    values: dict[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Learning:
    """What training came to.

    Attributes:
        questions: Questions trained on.
        trajectories: Trajectories kept, of those rolled out.
        facts: Figures of the two trainings, by name.
        shared: Held-out questions left out because the training encyclopedia knows a name on their path.
        heldout: Accuracy on held-out questions, by the names of `POINTS`.
        sft: Loss and token accuracy.
        rl: Reward, accuracy and fatal rate of the training rollouts.
    """

    questions: int
    trajectories: tuple[int, int]
    facts: dict[str, dict[str, Any]]
    shared: int
    heldout: dict[str, Accuracy]
    sft: Series
    rl: Series

    def as_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "questions": self.questions,
            "trajectories": {"kept": self.trajectories[0], "of": self.trajectories[1]},
            **self.facts,
            "heldout": {point: rate(value) for point, value in self.heldout.items()},
            "heldout_shared_names": self.shared,
            "curves": {
                name: {"step": series.steps, **series.values} for name, series in (("sft", self.sft), ("rl", self.rl))
            },
        }


def learn(out: Path, world: World, settings: TrainingSettings, seed: int, part: Part, *, resume: bool) -> Learning:
    """All stages of training.

    Args:
        out: Folder of the training part.
        world: The encyclopedia that is trained on.
        settings: All of it.
        seed: Of the run; the held-out encyclopedia takes the next one.
        part: Opens each stage's progress display.
        resume: Continue what is there.

    Raises:
        DataError: If no question was made, or no trajectory kept.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    out = out.resolve()  # checkpoints are named in settings, which a resumed run must share
    with part("Building questions of two hops") as advance:
        questions = build_question_run(
            world,
            out / "questions",
            settings.questions,
            seed=seed,
            num=settings.num,
            resume=resume,
            advance=advance,
            ocr=False,
        )
    with part("Rolling out the expert to learn from") as advance:
        report = roll_out_expert(
            questions.tasks,
            world,
            out / "trajectories",
            settings.synthesis,
            agent=settings.agent,
            noise=settings.noise,
            pictures=out / "questions" / "images",
            resume=resume,
            advance=advance,
        )
    if not report.accepted:
        raise DataError("There is nothing to train on: no trajectory was kept.", "Try more pages, or --no-train.")
    with part("Making the held-out encyclopedia") as advance:
        other, held, shared = held_out(out, world, settings, seed + 1, resume=resume, advance=advance)

    def measured(point: str, model: Path) -> Accuracy:
        with part(f"Measuring {POINTS[point]}") as advance:
            return measure(model, held, other, out / point, settings, resume=resume, advance=advance)

    policy = initial_policy(out / "trajectories", out / "policy", settings, seed)
    heldout = {"untrained": measured("untrained", policy)}
    with part("Fine-tuning") as advance:
        sft = fine_tune(out / "trajectories", policy, out / "sft", settings.sft, seed, resume=resume, advance=advance)
    heldout["tuned"] = measured("tuned", out / "sft" / "model")
    with part("Choosing questions that are sometimes solved") as advance:
        chosen = sometimes_solved(questions.tasks, world, out, settings, seed, advance=advance)
    with part("Training with GRPO") as advance:
        rl = reinforce(chosen, world, out, settings, seed, resume=resume, advance=advance)
    heldout["reinforced"] = measured("reinforced", out / "rl" / "model")
    return Learning(
        questions=len(questions.tasks),
        trajectories=(report.accepted, report.done),
        facts={"sft": sft, "rl": rl},
        shared=shared,
        heldout=heldout,
        sft=curve(out / "sft", {"loss": "loss", "token accuracy": "mean_token_accuracy"}),
        rl=curve(out / "rl", {"reward": "reward/total", "accuracy": "accuracy", "fatal rate": "fatal/rate"}),
    )


def held_out(
    out: Path, world: World, settings: TrainingSettings, seed: int, *, resume: bool, advance: Advance
) -> tuple[World, list[Task], int]:
    """A second encyclopedia, questions about entities that the first does not know, and how many it does know."""
    pages = settings.heldout_pages
    wiki = miniature_wiki(out / "heldout" / "export", out / "heldout" / "wiki", pages=pages, seed=seed, advance=advance)
    other = local_world(wiki.root)
    build = build_question_run(
        other,
        out / "heldout" / "questions",
        settings.questions,
        seed=seed,
        num=settings.heldout_num,
        resume=resume,
        advance=advance,
        ocr=False,
    )
    new = [task for task in build.tasks if all(world.wiki.resolve(name) is None for name in task.provenance.path)]
    if not new:
        raise DataError("There is no held-out question to measure on.", "Try more training.heldout_pages.")
    return other, new, len(build.tasks) - len(new)


def initial_policy(trajectories: Path, out: Path, settings: TrainingSettings, seed: int) -> Path:
    """A fresh miniature policy whose tokenizer is trained on the trajectories; it is there only whole."""
    if not out.exists():
        source = open_source([trajectories], out)
        part = out.with_name(f"{out.name}.part")
        init_miniature(part, source.tokenizer_texts(TOKENIZER_COPIES, seed), seed, settings.shape)
        part.replace(out)
    return out


def fine_tune(
    trajectories: Path, policy: Path, out: Path, settings: QuickSft, seed: int, *, resume: bool, advance: Advance
) -> dict[str, Any]:
    """Fine-tune the policy on the kept trajectories; writes ``OUT/model`` and returns the figures."""
    if (done := _result(out)) is not None:
        return done
    settings = settings.model_copy(update={"model": str(policy), "seed": seed})
    source = open_source([trajectories], out / "images")
    chat_format = ChatFormat.load(policy, max_pixels=settings.image_max_pixels)
    examples = source.examples(settings, chat_format)
    manifest = {"data": [str(trajectories)], "examples": len(examples.transcripts)}
    with RunFolder(out, settings, manifest, resume=resume) as run:
        report = train_sft(settings, chat_format, examples, source.store, run, out, progress=advance)
        facts = {
            "steps": report.num_steps,
            "loss": report.loss,
            "token_accuracy": report.token_accuracy,
            "examples": len(examples.transcripts),
            "action_tokens": examples.num_action_tokens,
            "left_out": dict(examples.left_out),
        }
        run.write_manifest(result=facts)
    return facts


def sometimes_solved(
    tasks: list[Task], world: World, out: Path, settings: TrainingSettings, seed: int, *, advance: Advance
) -> list[Task]:
    """Questions for GRPO: of the first `rl_pool`, those that the fine-tuned policy answers in some samples only.

    Their ids are kept in ``OUT/rl-tasks.json``. Where there is none, all of the pool are taken.
    """
    kept, pool = out / "rl-tasks.json", tasks[: settings.rl_pool]
    if not kept.exists():
        model = out / "sft" / "model"
        store = ImageStore(out / "pool" / "images", fallbacks=(ImageStore(out / "questions" / "images"),))
        policy, chat_format = load_policy(
            model, store, max_pixels=settings.rl.image_max_pixels, max_rows=settings.rl.max_rows, lockstep=True
        )
        scene = _scene(world, store, settings, settings.agent, chat_format)
        talk = partial(PolicyChat, policy, chat_format)
        rate = asyncio.run(pass_rate(scene, pool, talk, samples=settings.rl_samples, seed=seed))
        part = kept.with_suffix(".part")
        part.write_text(json.dumps([task.id for task in rate.sometimes_solved()]), encoding="utf-8")
        part.replace(kept)
    advance(len(pool), len(pool))
    chosen = set(json.loads(kept.read_text(encoding="utf-8")))
    return [task for task in pool if task.id in chosen] or pool


def reinforce(
    tasks: list[Task], world: World, out: Path, settings: TrainingSettings, seed: int, *, resume: bool, advance: Advance
) -> dict[str, Any]:
    """GRPO from ``OUT/sft/model`` on the questions; writes ``OUT/rl/model`` and returns the figures."""
    folder = out / "rl"
    if (done := _result(folder)) is not None:
        return done
    start = out / "sft" / "model"
    rl = settings.rl.model_copy(update={"model": str(start), "seed": seed})
    config = RlConfig(rl=rl, agent=settings.agent, reward=settings.reward)
    with RunFolder(folder, config, {"tasks": len(tasks)}, resume=resume) as run:
        store = ImageStore(run.images.root, fallbacks=(ImageStore(out / "questions" / "images"),))
        chat_format = ChatFormat.load(start, max_pixels=rl.image_max_pixels)
        scene = _scene(world, store, settings, settings.agent, chat_format)
        scene = replace(scene, retelling=retelling_of(world.wiki)) if rl.retold else scene
        report = train_rl(rl, scene, tasks, run, folder, progress=advance)
        unscored = sum(bool(record.reason) for record in read_records(folder, RolloutRecord))
        counts = {"rollouts": len(run.done), "unscored": unscored}
        facts = {"steps": report.num_steps, **counts, "alarms": list(report.alarms)}
        run.write_manifest(result=facts)
    return facts


def measure(
    model: Path,
    tasks: list[Task],
    world: World,
    out: Path,
    settings: TrainingSettings,
    *,
    resume: bool,
    advance: Advance,
) -> Accuracy:
    """Greedy pass@1 of a checkpoint, as a run folder with a record per question."""
    sampling = settings.agent.sampling.model_copy(update={"temperature": 0.0})
    agent = settings.agent.model_copy(update={"sampling": sampling})
    config = RlConfig(rl=settings.rl.model_copy(update={"model": str(model)}), agent=agent, reward=settings.reward)
    with RunFolder(out, config, {"tasks": len(tasks)}, resume=resume) as run:
        store = ImageStore(run.images.root, fallbacks=(ImageStore(out.parent / "heldout" / "questions" / "images"),))
        waiting = [task for task in tasks if f"{task.id}#0" not in run.done]

        async def work() -> None:
            policy, chat_format = load_policy(
                model, store, max_pixels=settings.rl.image_max_pixels, max_rows=_AT_ONCE, lockstep=True
            )
            scene = _scene(world, store, settings, agent, chat_format)
            for start in range(0, len(waiting), _AT_ONCE):
                few = waiting[start : start + _AT_ONCE]
                found = await pass_rate(scene, few, lambda name: PolicyChat(policy, chat_format, name))
                for outcome in found.outcomes:
                    record = _record(outcome)
                    keep_pictures(record, store, run.images)
                    run.append(record)
                advance(len(run.done), len(tasks))

        if waiting:
            asyncio.run(work())
        return accuracy([record.verdict for record in read_records(out, RolloutRecord)])


def curve(run: Path, names: dict[str, str]) -> Series:
    """What a run's metrics say of some figures, by the words they are shown with."""
    rows = [row for row in read_json_lines(run / "metrics.jsonl") if any(name in row for name in names.values())]
    steps = tuple(int(row["step"]) for row in rows)
    return Series(steps, {word: tuple(row.get(name) for row in rows) for word, name in names.items()})


def _scene(
    world: World, store: ImageStore, settings: TrainingSettings, agent: AgentSettings, chat_format: ChatFormat
) -> Scene:
    env = Environment(toolbox(world, store, brief=agent.sizes.brief), agent, store)
    return Scene(env, ExactJudge(), settings.reward, chat_format, max_tokens=settings.rl.max_tokens)


def _record(outcome: Outcome) -> RolloutRecord:
    return RolloutRecord(
        id=outcome.trajectory.id,
        task=outcome.task,
        trajectory=outcome.trajectory,
        verdict=outcome.score.verdict,
        reward=outcome.score.reward,
        reason=outcome.reason,
    )


def _result(run: Path) -> dict[str, Any] | None:
    """The figures of a training that came to its end; None if it did not."""
    if not (run / "manifest.json").exists() or not (run / "model").exists():
        return None
    result: dict[str, Any] | None = read_manifest(run).get("result")
    return result
