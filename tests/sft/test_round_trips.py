"""What is exported reads back the same: ShareGPT byte for byte in all layouts, and by LLaMA-Factory's own rules."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import native
from hypothesis import given, settings
from hypothesis import strategies as st
from rolled_out import LAYOUTS, example_run, replies, rolled_out, texts

from opensearch_vl.errors import RecordError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Reply
from opensearch_vl.sft.export import DATASET_INFO, NAME, export_run, sharegpt
from opensearch_vl.sft.sharegpt import from_row, read_sharegpt, to_row
from opensearch_vl.types import RolloutRecord


def llamafactory(row: dict[str, Any], info: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """What LLaMA-Factory makes of a row, by its documented rules; None if it would skip it.

    Messages alternate, user or observation first, assistant or function call second, and are even in number; an optional
    system message may lead. Each media marker in any message stands for one entry of the media column, in order.
    """
    columns, tags = info["columns"], info["tags"]
    messages = row[columns["messages"]]
    system = row.get(columns["system"], "")
    if messages and messages[0][tags["role_tag"]] == tags["system_tag"]:
        system, messages = messages[0][tags["content_tag"]], messages[1:]
    asking, answering = {tags["user_tag"], tags["observation_tag"]}, {tags["assistant_tag"], tags["function_tag"]}
    for place, message in enumerate(messages):
        if message[tags["role_tag"]] not in (answering if place % 2 else asking):
            return None
    if not messages or len(messages) % 2:
        return None
    images = row[columns["images"]]
    said = "".join(message[tags["content_tag"]] for message in messages)
    assert said.count("<image>") == len(images), "LLaMA-Factory stops at such a row"
    assert "<video>" not in said and "<audio>" not in said
    assert all((folder / path).is_file() for path in images)
    tools = row.get(columns["tools"]) or "[]"
    assert all({"name", "parameters"} <= tool["function"].keys() for tool in json.loads(tools))
    return {"prompt": messages[:-1], "response": messages[-1:], "system": system}


def bare(record: RolloutRecord, native: bool) -> list[Any]:
    """What a row can hold of the steps; where tags were put around native text, tags in it were made harmless first."""

    def plain(text: str | None) -> str | None:
        return text.replace("‹", "<").replace("›", ">").strip() if native and text is not None else text

    return [
        (plain(s.thought), s.call, plain(s.response), s.observation and (s.observation.text, s.observation.image))
        for s in record.trajectory.steps
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=30)
@given(st.data())
def test_reading_back_gives_the_same_trajectory_and_the_same_bytes(layout: str, data: Any) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        record, env = rolled_out(folder / "photos", layout, data.draw(replies(layout)), data.draw(texts))
        schemas, told = env.toolbox.schemas(), env.layout.system
        report = sharegpt([record], env.store, folder / "out", system=told, schemas=schemas)
        text = (folder / "out" / f"{NAME}.json").read_bytes()
        (row,) = json.loads(text) or [None]
        if row is None:
            assert report.left_out == {"no_response": 1}
            assert record.trajectory.steps[-1].observation is not None
            return
        read = llamafactory(row, DATASET_INFO[NAME], folder / "out")
        assert read is not None and read["response"][0]["from"] == "gpt"
        (back,) = read_sharegpt(folder / "out" / f"{NAME}.json", ImageStore(folder / "back"))
        assert back.task.question == record.task.question
        assert back.task.images == record.task.images
        native = layout == "native_tools"
        assert bare(back, native) == bare(record, native)
        if not native:  # a native answer comes back in tags, as rows have no other form
            replay = env.layout.replay(back.task.view(), back.trajectory.steps)
            assert replay == env.layout.replay(record.task.view(), record.trajectory.steps)
        sharegpt([back], ImageStore(folder / "back"), folder / "again", system=told, schemas=schemas)
        assert (folder / "again" / f"{NAME}.json").read_bytes() == text
        for path in row["images"]:
            assert (folder / "again" / path).read_bytes() == (folder / "out" / path).read_bytes()


def test_a_rollout_without_a_response_is_left_out_since_llamafactory_skips_it(tmp_path: Path) -> None:
    record, env = rolled_out(tmp_path / "photos", "sft", [Reply("<think>a</think>\n<response>b</response>")], "?")
    cut = record.trajectory.model_copy(update={"steps": example_run(tmp_path / "run", 1)[1][0].trajectory.steps[:-1]})
    cut_off = record.model_copy(update={"trajectory": cut})
    row, images = to_row(cut_off, system="", schemas=())
    row["images"] = ["x"] * len(images)
    assert llamafactory({**row, "images": []} | {"images": []}, DATASET_INFO[NAME], tmp_path) is None
    report = sharegpt([cut_off, record], env.store, tmp_path / "out", system="", schemas=())
    assert report.left_out == {"no_response": 1}
    assert report.exported == 1


def test_every_exported_row_passes_and_the_info_names_the_file(tmp_path: Path) -> None:
    run, records = example_run(tmp_path / "run")
    export_run(run, tmp_path / "out")
    info = json.loads((tmp_path / "out" / "dataset_info.json").read_text(encoding="utf-8"))[NAME]
    assert info["formatting"] == "sharegpt"
    rows = json.loads((tmp_path / "out" / info["file_name"]).read_text(encoding="utf-8"))
    assert len(rows) == len(records)
    for row in rows:
        read = llamafactory(row, info, tmp_path / "out")
        assert read is not None
        assert len(read["prompt"]) == 7 and read["system"]


def test_what_a_server_took_out_of_the_text_is_in_the_row(tmp_path: Path) -> None:
    lines = [Reply("", "hm"), native("crop", "look", "Let me see.", image="img_1"), Reply("Seventy.", "I know it.")]
    record, _ = rolled_out(tmp_path / "photos", "native_tools", lines, "?", answer="Seventy.")
    assert record.trajectory.response == "Seventy."
    row, _ = to_row(record, system="", schemas=())
    assert [turn["value"] for turn in row["conversations"] if turn["from"] == "gpt"] == [
        "<think>hm</think>\n",  # neither call nor answer: as it stood
        '<think>look\n\nLet me see.</think>\n<tool_call>{"name": "crop", "arguments": {"image": "img_1"}}</tool_call>',
        "<think>I know it.</think>\n<response>Seventy.</response>",
    ]


def test_rows_of_others_are_written_as_they_were_read(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "photos")
    record, _ = rolled_out(tmp_path / "photos", "sft", [Reply("x")], "?")
    (tmp_path / "a.png").write_bytes(store.read(record.task.images[0]))
    call = '<think>t</think>\n<tool_call>{"name": "crop", "arguments": {}}</tool_call>'
    turns = [
        ("human", "<image>\nWho built this? "),
        ("gpt", call),
        ("observation", "<observation>\nDone. New image ID: img_3.\n</observation>\n<image>"),
        ("gpt", "I do not know"),
        ("human", "Answer in the form that was asked for."),
        ("gpt", call),
        ("observation", "<observation>never closed"),
        ("gpt", "<think>t</think><response>Ana</response>"),
    ]
    row = {
        "conversations": [{"from": role, "value": value} for role, value in turns],
        "images": ["a.png", "a.png"],
        "system": "s",
        "tools": "[]",
    }
    back = from_row(row, ImageStore(tmp_path / "back"), base=tmp_path)
    stored = RolloutRecord.model_validate_json(back.model_dump_json())
    again, images = to_row(stored, system="s", schemas=())
    assert again["conversations"] == row["conversations"]
    assert len(images) == 2
    assert stored.trajectory.steps[0].observation is not None
    assert stored.trajectory.steps[0].observation.image_id == "img_3"
    assert stored.task.question == "\nWho built this? "


@pytest.mark.parametrize(
    ("number", "value"), [(1, "<image>a reply cannot show a picture"), (2, "<image><image>two pictures")]
)
def test_pictures_that_would_be_lost_are_refused(tmp_path: Path, number: int, value: str) -> None:
    turns = ["q", "<tool_call>x", "o", "<response>Ana</response>"]
    turns[number] = value
    roles = ["human", "gpt", "observation", "gpt"]
    row = {
        "conversations": [{"from": role, "value": text} for role, text in zip(roles, turns, strict=True)],
        "images": ["a.png"] * value.count("<image>"),
    }
    with pytest.raises(RecordError, match=f"Turn {number} holds"):
        from_row(row, ImageStore(tmp_path), base=tmp_path)


def test_half_characters_of_other_peoples_json_do_not_stop_reading(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    turns = '[{"from": "human", "value": "a\\ud800"}, {"from": "gpt", "value": "<response>b\\udfff</response>"}]'
    file.write_text(f'[{{"conversations": {turns}, "images": []}}]', encoding="utf-8")
    (record,) = read_sharegpt(file, ImageStore(tmp_path / "s"))
    assert (record.task.question, record.trajectory.response) == ("a?", "b?")
