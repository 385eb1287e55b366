"""Rollouts under other names: the tools are asked for the real ones, and the policy never sees them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import synthetic_world as world
from scripted_policy import Scripted

from opensearch_vl.agent.transcript import ChatFormat
from opensearch_vl.images import ImageStore
from opensearch_vl.rl.retelling import Retelling
from opensearch_vl.rl.rollouts import Outcome, Scene, roll_out
from opensearch_vl.scoring.judges import ExactJudge
from opensearch_vl.scoring.score import RewardSettings
from opensearch_vl.sft.renaming import Names, texts_of
from opensearch_vl.types import Task


@pytest.fixture
def scene(checkpoint: Path, tmp_path: Path) -> tuple[Scene, list[world.Entity]]:
    store = ImageStore(tmp_path)
    entities = world.entities(store, 40)
    names = Names.found_in(texts_of(record) for record in world.records(store, 40))
    env = world.environment(store, world.Tools(entities), reply_tokens=200)
    chat = ChatFormat.load(checkpoint)
    return Scene(env, ExactJudge(), RewardSettings(), chat, retelling=Retelling(names)), entities


def seen(outcome: Outcome) -> str:
    return "\n".join(step.observation.text for step in outcome.trajectory.steps if step.observation is not None)


async def group(scene: Scene, task: Task, name_told: str | None, step: int = 0) -> list[Outcome]:
    """Two rollouts of one task: image search, a text search for `name_told`, an answer."""
    turns = ['<think>?</think><tool_call>{"name": "image_search", "arguments": {"url": "img_1"}}</tool_call>']
    if name_told is not None:
        call = {"name": "text_search", "arguments": {"q": name_told}}
        turns.append(f"<think>?</think><tool_call>{json.dumps(call)}</tool_call>")
    turns.append("<think>?</think><response>1</response>")
    policy = Scripted(scene.chat_format, [turns])
    return await roll_out(scene, [task], 2, policy, run_seed=0, step=step)


async def test_a_group_shares_names_that_are_not_the_real_ones(scene: tuple[Scene, list[world.Entity]]) -> None:
    told, entities = scene
    entity = entities[0]
    task = world.task_of(entity, blurred=False)
    first, second = await group(told, task, None)
    assert seen(first) == seen(second) and entity.name not in seen(first)
    assert first.task.gold.answer == second.task.gold.answer != str(entity.year)
    assert first.task.gold.answer[:2] == str(entity.year)[:2] and first.task.id == task.id
    later, _ = await group(told, task, None, step=1)
    assert seen(later) != seen(first)
    again, _ = await group(told, task, None)
    assert seen(again) == seen(first)


async def test_what_is_asked_under_the_new_name_is_found(scene: tuple[Scene, list[world.Entity]]) -> None:
    told, entities = scene
    entity = entities[3]
    task = world.task_of(entity, blurred=False)
    name = seen((await group(told, task, None))[0]).removeprefix("[Match 1]\nTitle: ").split()[0]
    outcome, _ = await group(told, task, name)
    page = outcome.trajectory.steps[1].observation
    assert page is not None
    assert f"Title: {name}" in page.text and f"Founded in {outcome.task.gold.answer}" in page.text
    call = outcome.trajectory.steps[1].call
    assert call is not None and call.arguments["q"] == name  # the trajectory has what the policy said
    assert not outcome.reason


async def test_without_it_everything_is_as_it_is(scene: tuple[Scene, list[world.Entity]]) -> None:
    told, entities = scene
    outcome, _ = await group(replace(told, retelling=None), world.task_of(entities[0], blurred=False), None)
    assert entities[0].name in seen(outcome) and outcome.task.gold.answer == str(entities[0].year)


async def test_a_task_that_comes_twice_in_a_step_is_another_group(scene: tuple[Scene, list[world.Entity]]) -> None:
    told, entities = scene
    task = world.task_of(entities[0], blurred=False)
    turns = ['<think>?</think><tool_call>{"name": "image_search", "arguments": {"url": "img_1"}}</tool_call>']
    turns.append("<think>?</think><response>1</response>")
    policy = Scripted(told.chat_format, [turns])
    outcomes = await roll_out(told, [task, task], 2, policy, run_seed=0, step=0, repeats=[0, 1])
    assert [outcome.trajectory.sample for outcome in outcomes] == [0, 1, 2, 3]
    assert len({outcome.trajectory.seed for outcome in outcomes}) == 4
    first, second = outcomes[0], outcomes[2]
    assert seen(first) == seen(outcomes[1]) != seen(second) == seen(outcomes[3])
    assert first.task.gold.answer != second.task.gold.answer
