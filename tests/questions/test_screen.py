"""The staged filter stores every verdict and never drops on one that could not be reached."""

import pytest

from opensearch_vl.questions.screen import screen
from opensearch_vl.types import Gold, Step, Task, TaskView, Termination, Trajectory, Verdict

TASK = Task(id="t", question="What?", gold=Gold(answer="42"))


class Says:
    """A solver with a fixed line of responses; None ends in an error."""

    def __init__(self, name, *responses):
        self.name, self.responses, self.seeds = name, list(responses), []

    async def solve(self, task, seed):
        assert type(task) is TaskView
        self.seeds.append(seed)
        text = self.responses[(len(self.seeds) - 1) % len(self.responses)]
        if text is None:
            return Trajectory(id="x", task_id=task.id, termination=Termination.ERROR, error="gone")
        if text == "":
            return Trajectory(id="x", task_id=task.id, termination=Termination.TURNS)
        return Trajectory(
            id="x", task_id=task.id, steps=(Step(index=0, response=text),), termination=Termination.ANSWERED
        )


class Exact:
    name = "exact"

    async def accuracy(self, case):
        return Verdict(correct=None if case.response == "?" else case.response == case.reference, judge=self.name)


async def run(*solvers, attempts=1):
    return await screen(TASK, solvers, Exact(), attempts=attempts, seed=9)


async def test_the_first_right_answer_drops() -> None:
    second = Says("image", "42")
    found = await run(Says("no_tools", "42"), second)
    assert found.answered_by == "no_tools"
    assert not second.seeds


async def test_later_stages_and_attempts_count() -> None:
    found = await run(Says("no_tools", "7"), Says("image", "7", "42"), attempts=3)
    assert found.answered_by == "image"
    assert [(a.solver, a.attempt, a.verdict.correct) for a in found.attempts] == [
        ("no_tools", 0, False), ("no_tools", 1, False), ("no_tools", 2, False), ("image", 0, False), ("image", 1, True),
    ]  # fmt: skip


async def test_seeds_differ_by_attempt_and_repeat_by_run() -> None:
    first, again = Says("a", "7"), Says("a", "7")
    await run(first, attempts=3)
    await run(again, attempts=3)
    assert first.seeds == again.seeds
    assert len(set(first.seeds)) == 3


@pytest.mark.parametrize("text", ["?", None])
async def test_unscored_never_drops(text) -> None:
    found = await run(Says("a", text), Says("b", "7"))
    assert found.answered_by == ""
    assert found.num_unscored == 1
    assert found.attempts[0].as_dict()["correct"] is None


async def test_giving_no_answer_is_wrong_not_unscored() -> None:
    found = await run(Says("a", ""))
    assert found.attempts[0].verdict.correct is False
