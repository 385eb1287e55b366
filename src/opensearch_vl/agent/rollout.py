"""Rollouts: one, or many at once, none of which can take down the rest.

A rollout always ends in a valid trajectory; what went wrong is its `termination`. A step that was under way when the
rollout was stopped is left out, so every stored step is whole.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass

from opensearch_vl.agent.environment import Environment, Episode
from opensearch_vl.errors import ModelContextFull, OsvlError
from opensearch_vl.protocols import ChatModel
from opensearch_vl.redaction import redact
from opensearch_vl.seeds import derive
from opensearch_vl.types import Step, TaskView, Termination, Trajectory, Usage

_log = logging.getLogger(__name__)

OnStep = Callable[[Step], None]


async def rollout(
    task: TaskView,
    model: ChatModel,
    env: Environment,
    *,
    seed: int,
    sample: int = 0,
    on_step: OnStep | None = None,
) -> Trajectory:
    """Roll one task out.

    Cancelling the asyncio task ends the rollout with `Termination.CANCELLED` and still returns the trajectory so far.
    The task stays marked as being cancelled (`Task.cancelling`), so that loops around this call can tell.

    Args:
        task: What the policy is asked.
        model: The policy.
        env: Tools and rules.
        seed: Of this rollout; each turn derives its own from it.
        sample: Which rollout of the task this is.
        on_step: Called after each step; what it raises is the caller's and passes through.

    Returns:
        A valid trajectory, whatever happened.
    """
    run = _Run(env.reset(task), model, seed, asyncio.get_running_loop().time() + env.settings.max_seconds)
    while run.ending is None:
        step = await run.turn()
        if step is not None and on_step is not None:
            on_step(step)
    return Trajectory(
        id=f"{task.id}#{sample}",
        task_id=task.id,
        sample=sample,
        seed=seed,
        steps=tuple(run.episode.steps),
        termination=run.ending,
        prompt_hash=env.prompt_hash,
        tools=env.tools,
        model=model.name,
        usage=run.usage + Usage(cost=run.episode.tool_cost),
        error=run.error,
    )


class _Run:
    """State of one rollout."""

    def __init__(self, episode: Episode, model: ChatModel, seed: int, deadline: float) -> None:
        self.episode = episode
        self.model = model
        self.seed = seed
        self.deadline = deadline
        self.usage = Usage()
        self.ending: Termination | None = None
        self.error = ""

    async def turn(self) -> Step | None:
        """One turn; None if it came to nothing and the rollout is over. The boundary of a rollout: nothing gets out."""
        episode, started = self.episode, time.perf_counter()
        try:
            async with asyncio.timeout_at(self.deadline) as limit:
                reply = await self.model.complete(
                    episode.messages, episode.schemas, episode.sampling(), derive(self.seed, "turn", len(episode.steps))
                )
                self.usage += reply.usage
                step = await episode.step(reply, time.perf_counter() - started)
        except asyncio.CancelledError:
            self.ending = Termination.CANCELLED
        except ModelContextFull as error:
            self.ending, self.error = Termination.TOKENS, redact(str(error))
            if not episode.steps:  # nothing that the policy did: every rollout of this task will end so
                _log.warning("the opening of task %s does not fit the model: %s", episode.task.id, self.error)
        except OsvlError as error:
            self._fail(str(error))
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                self.ending = Termination.TIME
                return None
            _log.exception("the rollout of task %s failed", episode.task.id)
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self.ending = episode.termination
            return step
        return None

    def _fail(self, message: str) -> None:
        self.ending = Termination.ERROR
        self.error = redact(message)


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to be done: the n-th sample of a task, at a training step (0 outside training)."""

    task: TaskView
    sample: int = 0
    step: int = 0

    @property
    def id(self) -> str:
        """Id of the trajectory that comes of it."""
        return f"{self.task.id}#{self.sample}"

    def seed(self, run_seed: int) -> int:
        """Seed of the rollout; depends on nothing but what the rollout is."""
        return derive(run_seed, self.step, self.task.id, self.sample)


ModelFor = Callable[[Job], ChatModel]


async def run_many(
    jobs: Iterable[Job],
    model: ChatModel | ModelFor,
    env: Environment,
    *,
    run_seed: int,
    max_parallel: int = 16,
) -> AsyncGenerator[tuple[Job, Trajectory], None]:
    """Roll many tasks out and yield each trajectory as it finishes.

    Jobs are begun in order, the next one as soon as a place is free; a consumer that is slow to take results slows the
    rest down instead of filling the memory. Leaving the loop early cancels what is under way once the generator is
    closed (`contextlib.aclosing` does it at once).

    Args:
        jobs: Read lazily.
        model: One model for all, or what gives each job its own.
        env: Tools and rules.
        run_seed: Seed of the run.
        max_parallel: Rollouts at the same time.
    """
    if max_parallel < 1:
        raise ValueError(f"max_parallel is {max_parallel}; at least 1 rollout has to run")
    waiting = iter(jobs)
    running: dict[asyncio.Task[Trajectory], Job] = {}

    def fill() -> None:
        while len(running) < max_parallel and (job := next(waiting, None)) is not None:
            policy = model if isinstance(model, ChatModel) else model(job)
            work = rollout(job.task, policy, env, seed=job.seed(run_seed), sample=job.sample)
            running[asyncio.create_task(work)] = job

    try:
        fill()
        while running:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            finished = [(running.pop(work), work.result()) for work in done]
            fill()
            for result in finished:
                yield result
    finally:
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class AgentSolver:
    """An agent as a `Solver`.

    Args:
        env: Tools and rules.
        model: The policy.
        name: What reports call it.
    """

    def __init__(self, env: Environment, model: ChatModel, name: str = "agent") -> None:
        self.env = env
        self.model = model
        self.name = name

    async def solve(self, task: TaskView, seed: int) -> Trajectory:
        """Roll the task out once."""
        return await rollout(task, self.model, self.env, seed=seed)
