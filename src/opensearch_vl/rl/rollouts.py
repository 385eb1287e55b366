"""One generation of rollouts: every task of a step G times through the environment, judged, scored and transcribed.

What fails for reasons that are not the policy's leaves with a count and without a reward: a model server's failure, a
judge that stays silent after the retries, a conversation whose tokens do not fit together.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.rollout import rollout
from opensearch_vl.agent.transcript import ChatFormat, Tape, Transcript, transcribe
from opensearch_vl.errors import TranscriptError
from opensearch_vl.protocols import ChatModel, Judge
from opensearch_vl.rl.batch import Batch, ScoredTranscript
from opensearch_vl.rl.retelling import Retelling
from opensearch_vl.scoring.reward import NOT_THE_POLICY
from opensearch_vl.scoring.score import RewardSettings, Scored, score_rollout
from opensearch_vl.seeds import derive, generator
from opensearch_vl.types import RewardParts, RolloutRecord, Task, TrainingFacts, Trajectory


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one rollout.

    Attributes:
        task: The task.
        group: Which task of the step it is.
        trajectory: The rollout.
        score: Verdict, fatal step and reward parts.
        transcript: Its tokens; of the opening alone if they do not fit together.
        reason: Why it has no reward; empty if it has one.
    """

    task: Task
    group: int
    trajectory: Trajectory
    score: Scored
    transcript: Transcript
    reason: str = ""

    @property
    def scored(self) -> ScoredTranscript:
        """As `rl.batch` wants it."""
        reward = None if self.reason else self.score.reward.total
        answered = self.trajectory.response is not None
        return ScoredTranscript(self.transcript, self.group, reward, self.score.fatal, answered)


@dataclass(frozen=True, slots=True)
class Scene:
    """What rollouts of training need besides the policy.

    Attributes:
        env: Tools and rules.
        judge: Of answers and searches.
        reward: How a rollout is scored.
        chat_format: Of the checkpoint.
        max_tokens: Longest transcript; whole steps are cut from the end.
        judge_retries: How often a silent judge is asked again.
        retelling: Tells every group of every step under names of its own; None leaves all as it is.
    """

    env: Environment
    judge: Judge
    reward: RewardSettings
    chat_format: ChatFormat
    max_tokens: int | None = None
    judge_retries: int = 2
    retelling: Retelling | None = None

    def told(self, task: Task, seed: int) -> tuple[Scene, Task]:
        """The scene of one conversation and its task, under the names of a seed."""
        if self.retelling is None:
            return self, task
        task, env = self.retelling.under(task, self.env, seed)
        return replace(self, env=env), task


ModelFor = Callable[[str], ChatModel]
"""Gives each conversation, by its name, a model of its own; one that has a `close` is closed at the end."""


def tasks_of_step(num_tasks: int, prompts_per_step: int, seed: int, generation: int) -> list[int]:
    """Indices of the tasks of a generation: passes over all tasks in seeded orders, cut into steps.

    A function of its arguments alone, so a resumed run meets the same tasks.
    """
    orders: dict[int, list[int]] = {}
    chosen = []
    for place in range(generation * prompts_per_step, (generation + 1) * prompts_per_step):
        turn, at = divmod(place, num_tasks)
        if turn not in orders:
            orders[turn] = list(range(num_tasks))
            generator("tasks", seed, turn).shuffle(orders[turn])
        chosen.append(orders[turn][at])
    return chosen


async def roll_out(
    scene: Scene,
    tasks: Sequence[Task],
    group_size: int,
    model_for: ModelFor,
    *,
    run_seed: int,
    step: int,
    repeats: Sequence[int] | None = None,
) -> list[Outcome]:
    """Roll out every task `group_size` times at once; outcomes in the order of tasks and samples.

    Args:
        scene: Environment, judge, reward.
        tasks: One per group.
        group_size: G.
        model_for: Where replies come from.
        run_seed: Seed of the run.
        step: Optimiser steps before.
        repeats: How many groups of this step have the same task before each group does: its samples are numbered on,
            and it is told under other names. None: each task comes once.
    """
    first = [group_size * before for before in repeats or [0] * len(tasks)]
    jobs = [(group, task, first[group] + sample) for group, task in enumerate(tasks) for sample in range(group_size)]
    # All are announced before any begins, so that a policy in lockstep knows whom to wait for.
    models = [model_for(f"{group:05d}/{task.id}#{sample}") for group, task, sample in jobs]
    return list(
        await asyncio.gather(
            *(
                _one(
                    *scene.told(task, derive(run_seed, step, task.id, "names", first[group])),
                    group,
                    sample,
                    model,
                    derive(run_seed, step, task.id, sample),
                )
                for (group, task, sample), model in zip(jobs, models, strict=True)
            )
        )
    )


def unscored_reasons(outcomes: Sequence[Outcome]) -> Counter[str]:
    """Reason → number of rollouts without a reward."""
    return Counter(outcome.reason for outcome in outcomes if outcome.reason)


async def _one(scene: Scene, task: Task, group: int, sample: int, model: ChatModel, seed: int) -> Outcome:
    try:
        trajectory = await rollout(task.view(), model, scene.env, seed=seed, sample=sample)
    finally:
        close = getattr(model, "close", None)
        if close is not None:
            close()
    score = await score_rollout(task, trajectory, scene.judge, scene.reward)
    for _ in range(scene.judge_retries):
        if score.reward.total is not None or trajectory.termination in NOT_THE_POLICY:
            break
        score = await score_rollout(task, trajectory, scene.judge, scene.reward)
    transcript, reason = _transcript(scene, task, trajectory)
    if not reason and score.reward.total is None:
        reason = f"ended by {trajectory.termination}" if trajectory.termination in NOT_THE_POLICY else "judge silent"
    return Outcome(task, group, trajectory, score, transcript, reason)


def _transcript(scene: Scene, task: Task, trajectory: Trajectory) -> tuple[Transcript, str]:
    layout = scene.env.layout
    opening = layout.opening(task.view())
    steps = trajectory.steps
    if any(step.sampled is None for step in steps):
        return Tape(scene.chat_format, opening).transcript(), "a step without sampled tokens"
    try:
        written = transcribe(scene.chat_format, opening, steps, layout.answer, max_tokens=scene.max_tokens)
    except TranscriptError:
        return Tape(scene.chat_format, opening).transcript(), "tokens that do not fit together"
    if not np.isfinite(written.logprobs[written.gen_mask]).all():
        return written, "log-probabilities that are no numbers"
    return written, ""


def reward_means(rewards: Sequence[RewardParts]) -> dict[str, float]:
    """Mean of each part of the reward over the rollouts that have it."""
    means = {}
    for part in ("fmt", "acc", "query", "total"):
        known = [value for reward in rewards if (value := getattr(reward, part)) is not None]
        means[part] = sum(known) / len(known) if known else 0.0
    return means


def rollout_record(outcome: Outcome, batch: Batch, row: int, step: int, group: int) -> RolloutRecord:
    """A rollout as it is kept in the run folder, with what training made of it."""
    transcript = outcome.transcript
    trained = batch.mask[row, : len(transcript)]
    return RolloutRecord(
        id=f"{step:06d}/{group:05d}/{outcome.trajectory.id}",
        task=outcome.task,
        trajectory=outcome.trajectory,
        verdict=outcome.score.verdict,
        reward=outcome.score.reward,
        reason=outcome.reason,
        training=TrainingFacts(
            step=step,
            group=group,
            fatal=outcome.score.fatal,
            relative=float(batch.relative[row]),
            advantage=float(batch.advantages[row]),
            trained_tokens=tuple(int(trained[transcript.step_ids == n].sum()) for n in range(transcript.num_steps)),
        ),
    )
