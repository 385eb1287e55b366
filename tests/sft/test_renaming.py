"""Trajectories under other names: consistent within a copy, new in each, and nothing else touched."""

import json
import re
from pathlib import Path

import pytest
from synthetic_world import records

from opensearch_vl.images import ImageStore
from opensearch_vl.seeds import generator
from opensearch_vl.sft.renaming import Names, renamed, renamed_copies, texts_of
from opensearch_vl.types import RolloutRecord, ToolCall

NAME = re.compile(r"Title: (\w+)\nSummary: Founded in (\d+)")


@pytest.fixture
def originals(tmp_path: Path) -> list[RolloutRecord]:
    return records(ImageStore(tmp_path), 40)


def name_and_year(record: RolloutRecord) -> tuple[str, str]:
    found = NAME.search(record.trajectory.steps[-2].observation.text)  # type: ignore[union-attr]
    assert found is not None
    return found[1], found[2]


def test_only_words_with_a_capital_that_few_trajectories_hold_are_names(originals: list[RolloutRecord]) -> None:
    assert Names.found_in(map(texts_of, originals)).words == {name_and_year(record)[0] for record in originals}


def test_a_word_that_is_also_written_small_is_no_name(originals: list[RolloutRecord]) -> None:
    name = name_and_year(originals[0])[0]
    question = originals[1].task.model_copy(update={"question": f"Is it {name.lower()}?"})
    others = [originals[0], originals[1].model_copy(update={"task": question}), *originals[2:]]
    assert name not in Names.found_in(map(texts_of, others)).words


def test_a_copy_is_the_same_story_of_somebody_else(originals: list[RolloutRecord]) -> None:
    names = Names.found_in(map(texts_of, originals))
    for record in originals:
        copy = renamed(record, names, generator("test", record.id), "copy")
        (name, year), (new, new_year) = name_and_year(record), name_and_year(copy)
        assert new != name and new_year[:2] == year[:2] and len(new_year) == 4
        assert copy.id == copy.trajectory.id == "copy"
        assert copy.task.gold.answer == new_year == copy.trajectory.response
        before, after = ("".join(step.model_dump_json() for step in r.trajectory.steps) for r in (record, copy))
        assert after == before.replace(name, new).replace(year, new_year)
        for step in copy.trajectory.steps:
            if step.call is not None:
                said = re.search("<tool_call>(.*)</tool_call>", step.text)
                assert said is not None and json.loads(said[1])["arguments"] == step.call.arguments


def test_two_names_of_one_trajectory_stay_two(originals: list[RolloutRecord]) -> None:
    """However few halves there are to join."""
    names = Names(frozenset({"Anna", "Berta", "Carla"}), ("An", "Ber", "Car"), ("na", "ta", "la"))
    question = originals[0].task.model_copy(update={"question": "Anna, Berta, Carla, 1000, 1001, 1002?"})
    record = originals[0].model_copy(update={"task": question})
    for seed in range(50):
        said = renamed(record, names, generator("test", seed), "copy").task.question
        assert len(set(re.findall(r"\w{3,}", said))) == 6


def test_numbers_keep_their_first_digits_and_may_run_out(originals: list[RolloutRecord]) -> None:
    """Two hundred years of one century have a hundred others to become; that must not go on for ever."""
    many = " ".join(str(year) for year in range(1800, 2000)) + " 1234567"
    record = originals[0].model_copy(
        update={"task": originals[0].task.model_copy(update={"question": f"{many} {many}"})}
    )
    said = renamed(record, Names.found_in(map(texts_of, originals)), generator("test"), "copy").task.question.split()
    assert said[:201] == said[201:]
    assert [word[:2] for word in said[:200]] == ["18"] * 100 + ["19"] * 100
    assert said[200][:3] == "123" and len(said[200]) == 7


def test_numbers_that_a_call_passes_as_numbers_stay(originals: list[RolloutRecord]) -> None:
    record = originals[0]
    box = ToolCall(name="crop", arguments={"image": "img_1", "x": 120, "box": [3.5, 640], "why": "of 1850"})
    text = f'<tool_call>{{"x": 120, "box": [3.5, 640]}}</tool_call> {name_and_year(record)[1]}'
    step = record.trajectory.steps[0].model_copy(update={"call": box, "text": text})
    trajectory = record.trajectory.model_copy(update={"steps": (step, *record.trajectory.steps[1:])})
    copy = renamed(
        record.model_copy(update={"trajectory": trajectory}),
        Names.found_in(map(texts_of, originals)),
        generator(0),
        "copy",
    )
    call = copy.trajectory.steps[0].call
    assert call is not None and call.arguments["x"] == 120 and call.arguments["box"] == [3.5, 640]
    assert call.arguments["why"] != "of 1850" and call.arguments["image"] == "img_1"
    assert '"x": 120, "box": [3.5, 640]' in copy.trajectory.steps[0].text


def test_copies_differ_and_the_same_seed_gives_the_same(originals: list[RolloutRecord]) -> None:
    copies = list(renamed_copies(lambda: iter(originals), 5, seed=3))
    assert copies == list(renamed_copies(lambda: iter(originals), 5, seed=3))
    assert len({record.id for record in copies}) == 200
    assert len({name_and_year(record) for record in copies}) > 195
    assert all("Founded in" in record.trajectory.steps[-2].observation.text for record in copies)  # type: ignore[union-attr]


def test_a_trajectory_that_comes_twice_is_another_one_each_time(originals: list[RolloutRecord]) -> None:
    copies = list(renamed_copies(lambda: iter([*originals, originals[0]]), 1, seed=0))
    first, again = copies[0], copies[-1]
    assert first.id != again.id and name_and_year(first)[0] != name_and_year(again)[0]


def test_no_copies_gives_the_records(originals: list[RolloutRecord]) -> None:
    assert list(renamed_copies(lambda: iter(originals), 0, seed=0)) == originals
