"""Pass@1 of a scripted policy, and which tasks are worth training on."""

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import synthetic_world as world
from scripted_policy import Scripted

from opensearch_vl.agent.transcript import ChatFormat
from opensearch_vl.images import ImageStore
from opensearch_vl.rl.passrate import pass_rate
from opensearch_vl.rl.rollouts import Scene
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.score import RewardSettings


def saying(answers: Sequence[str]) -> list[list[str]]:
    return [[f"<think>I guess.</think><response>{answer}</response>"] for answer in answers]


async def test_tasks_that_are_sometimes_solved(checkpoint: Path, tmp_path: Path) -> None:
    """Three tasks, three samples each, in order: always, sometimes and never right."""
    store = ImageStore(tmp_path)
    entities = world.entities(store, 3)
    tasks = [world.task_of(entity, blurred=False) for entity in entities]
    env = world.environment(store, world.Tools(entities), reply_tokens=200)
    chat = ChatFormat.load(checkpoint)
    scene = Scene(env, ExactJudge(), RewardSettings(), chat)
    always, sometimes, never = (task.gold.answer for task in tasks)
    said = [always, always, always, "1", sometimes, "1", "1", "1", never + "0"]
    rate = await pass_rate(scene, tasks, Scripted(chat, saying(said)), samples=3)
    assert rate.accuracy.correct == 4 and rate.accuracy.scored == 9
    assert rate.sometimes_solved() == [tasks[1]]


async def test_nothing_to_measure_on_is_an_error(checkpoint: Path, tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    chat = ChatFormat.load(checkpoint)
    scene = Scene(world.environment(store, world.Tools([])), ExactJudge(), RewardSettings(), chat)
    with pytest.raises(ValueError, match="no tasks"):
        await pass_rate(scene, [], Scripted(chat, []))
