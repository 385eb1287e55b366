"""Rollouts: whatever happens, a valid trajectory; and never one that takes down the rest."""

import asyncio
from pathlib import Path

import pytest
from agent_fakes import FakeTools, Script, answer, say, task, tokens

from opensearch_vl.agent.environment import Environment
from opensearch_vl.agent.rollout import AgentSolver, Job, rollout, run_many
from opensearch_vl.agent.settings import AgentSettings
from opensearch_vl.errors import ModelUnreachable
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Reply
from opensearch_vl.seeds import derive
from opensearch_vl.types import Termination, Trajectory


def world(tmp_path: Path, delay: float = 0.0, **settings: object) -> tuple[Environment, ImageStore]:
    store = ImageStore(tmp_path)
    return Environment(FakeTools(store, delay), AgentSettings(**settings), store), store


def check(trajectory: Trajectory) -> None:
    """A stored trajectory reads back equal."""
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
    assert [step.index for step in trajectory.steps] == list(range(len(trajectory.steps)))


async def test_a_rollout(tmp_path: Path) -> None:
    env, store = world(tmp_path)
    first = Reply(say("look", "crop", image="img_1").content, usage=tokens(10, 5))
    model = Script(first, Reply(answer("1970").content, usage=tokens(30, 4)))
    shown = []
    done = await rollout(task(store), model, env, seed=7, sample=2, on_step=shown.append)
    check(done)
    assert (done.id, done.task_id, done.sample, done.seed, done.model) == ("t1#2", "t1", 2, 7, "script")
    assert done.termination is Termination.ANSWERED and done.response == "1970"
    assert done.usage == tokens(40, 9)
    assert done.tools == ("text_search", "crop") and done.prompt_hash == env.prompt_hash
    assert [step.index for step in shown] == [0, 1]
    assert [seed for *_, seed in model.seen] == [derive(7, "turn", 0), derive(7, "turn", 1)]


async def test_a_model_error_is_a_termination(tmp_path: Path) -> None:
    env, store = world(tmp_path)
    key = "sk-" + "a" * 30
    model = Script(say("x", "text_search", q="1"), ModelUnreachable(f"No connection with {key}.", "Start it."))
    done = await rollout(task(store), model, env, seed=1)
    check(done)
    assert done.termination is Termination.ERROR and len(done.steps) == 1
    assert key not in done.error and "Start it." in done.error


async def test_what_calls_cost_is_part_of_the_usage(tmp_path: Path) -> None:
    env, store = world(tmp_path)
    model = Script(say("x", "text_search", q="1"), say("x", "text_search", q="2"), answer("y"))
    assert (await rollout(task(store), model, env, seed=1)).usage.cost == 0.5


async def test_a_bug_in_a_model_is_a_termination_too(tmp_path: Path) -> None:
    env, store = world(tmp_path)
    done = await rollout(task(store), Script(ZeroDivisionError("oops")), env, seed=1)
    assert done.termination is Termination.ERROR and done.error == "ZeroDivisionError: oops"
    done = await rollout(task(store), Script(TimeoutError("inner")), env, seed=1)
    assert done.termination is Termination.ERROR


@pytest.mark.parametrize(("model_delay", "tool_delay"), [(5.0, 0.0), (0.0, 5.0)])
async def test_time_runs_out(tmp_path: Path, model_delay: float, tool_delay: float) -> None:
    env, store = world(tmp_path, tool_delay, max_seconds=0.05)
    done = await rollout(task(store), Script(say("x", "crop"), delay=model_delay), env, seed=1)
    check(done)
    assert done.termination is Termination.TIME and done.steps == ()


@pytest.mark.parametrize(("model_delay", "tool_delay"), [(0.02, 5.0), (5.0, 0.0)])
async def test_cancelling_leaves_a_valid_trajectory(tmp_path: Path, model_delay: float, tool_delay: float) -> None:
    env, store = world(tmp_path, tool_delay)
    work = asyncio.create_task(rollout(task(store), Script(say("x", "crop"), delay=model_delay), env, seed=1))
    await asyncio.sleep(0.05)
    work.cancel()
    done = await work
    check(done)
    assert done.termination is Termination.CANCELLED


async def test_a_timeout_around_a_rollout_still_works(tmp_path: Path) -> None:
    env, store = world(tmp_path)
    async with asyncio.timeout(0.05):
        done = await rollout(task(store), Script(say("x", "crop"), delay=5), env, seed=1)
    assert done.termination is Termination.CANCELLED
    await asyncio.sleep(0)  # the loop goes on undisturbed


async def test_what_on_step_raises_is_the_callers(tmp_path: Path) -> None:
    env, store = world(tmp_path)

    def broken(step: object) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await rollout(task(store), Script(answer("x")), env, seed=1, on_step=broken)


async def test_many_with_one_that_fails(tmp_path: Path) -> None:
    env, store = world(tmp_path)
    jobs = [Job(task(store, f"t{n}"), sample) for n in range(5) for sample in range(3)]

    def model_for(job: Job) -> Script:
        return Script(RuntimeError("bad") if job.task.id == "t2" else answer(job.id))

    done = {job.id: t async for job, t in run_many(jobs, model_for, env, run_seed=3, max_parallel=4)}
    assert len(done) == 15
    for job in jobs:
        assert done[job.id].seed == derive(3, 0, job.task.id, job.sample)
        expected = Termination.ERROR if job.task.id == "t2" else Termination.ANSWERED
        assert done[job.id].termination is expected
        assert done[job.id].response == (None if job.task.id == "t2" else job.id)


async def test_many_are_parallel_bounded_lazy_and_fair(tmp_path: Path) -> None:
    env, store = world(tmp_path)
    running, peak, begun = 0, 0, []

    class Counting(Script):
        async def complete(self, *args: object, **kwargs: object) -> Reply:
            nonlocal running, peak
            running, peak = running + 1, max(peak, running + 1)
            try:
                return await super().complete(*args, **kwargs)
            finally:
                running -= 1

    taken = []

    def jobs() -> object:
        for n in range(20):
            taken.append(n)
            yield Job(task(store, f"t{n}"))

    def model_for(job: Job) -> Script:
        begun.append(job.task.id)
        return Counting(answer("x"), delay=0.01)

    async for _ in run_many(jobs(), model_for, env, run_seed=1, max_parallel=4):
        assert len(taken) <= len(begun) + 1
    assert peak == 4 and begun == [f"t{n}" for n in range(20)]


async def test_leaving_early_cancels_what_is_under_way(tmp_path: Path) -> None:
    env, store = world(tmp_path)
    jobs = [Job(task(store, f"t{n}")) for n in range(8)]
    many = run_many(jobs, lambda job: Script(answer("x"), delay=0 if job.task.id == "t0" else 30), env, run_seed=1)
    async for job, _ in many:
        assert job.task.id == "t0"
        break
    await many.aclose()
    assert len(asyncio.all_tasks()) == 1


async def test_cancelling_many_propagates(tmp_path: Path) -> None:
    env, store = world(tmp_path)

    async def consume() -> None:
        async for _ in run_many([Job(task(store))], Script(answer("x"), delay=30), env, run_seed=1):
            raise AssertionError

    work = asyncio.create_task(consume())
    await asyncio.sleep(0.02)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert len(asyncio.all_tasks()) == 1


async def test_the_solver_and_no_jobs(tmp_path: Path) -> None:
    env, store = world(tmp_path)
    solver = AgentSolver(env, Script(answer("1970")))
    assert (await solver.solve(task(store), 5)).response == "1970"
    assert [x async for x in run_many([], Script(answer("x")), env, run_seed=1)] == []
