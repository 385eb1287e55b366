"""ShareGPT out and in: round trip, escaped markers, the released format, and broken rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from expert_world import make_task, store_with_photo
from hypothesis import given
from hypothesis import strategies as st
from scoring_samples import answer, call, hits, trajectory

from opensearch_vl.agent.dialect import render_call, render_response
from opensearch_vl.errors import RecordError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ToolSchema
from opensearch_vl.sft.export import DATASET_INFO, NAME, sharegpt
from opensearch_vl.sft.sharegpt import MARKER, escape, read_sharegpt, unescape
from opensearch_vl.types import RolloutRecord, Step, Termination

SCHEMAS = (
    ToolSchema("crop", "Cuts out.", {"type": "object"}),
    ToolSchema("text_search", "Searches.", {"type": "object"}),
)


def written(step: Step) -> Step:
    """The step with the text that a policy would have written."""
    if step.call is not None:
        return step.model_copy(update={"text": render_call(step.thought, step.call)})
    return step.model_copy(update={"text": render_response(step.thought, step.response or "")})


def sample(store: ImageStore, photo: Any, *, thought: str = "Look closer.", text: str = "Nothing.") -> RolloutRecord:
    steps = (
        call(
            "crop",
            "Cut out.\nNew image ID: img_2",
            picture=photo,
            image_id="img_2",
            image="img_1",
            x=1,
            thought=thought,
        ),
        call("text_search", text, q="Grand Hall"),
        answer("15 May 1931"),
    )
    rollout = trajectory(*map(written, steps))
    return RolloutRecord(id=rollout.id, task=make_task(2, images=(photo,)), trajectory=rollout, accepted=True)


def test_what_was_exported_reads_back_the_same(tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path / "photos")
    record = sample(store, photo, text=hits(("Grand Hall", "Architect: Ana Boro")))
    report = sharegpt([record], store, tmp_path / "out", system="Be careful.", schemas=SCHEMAS)
    assert (report.exported, report.calls, report.images) == (1, 2, 1)
    back = list(read_sharegpt(tmp_path / "out" / f"{NAME}.json", ImageStore(tmp_path / "back")))
    assert len(back) == 1
    found, wanted = back[0].trajectory, record.trajectory
    assert back[0].task.question == record.task.question
    assert back[0].task.images == record.task.images
    assert found.tools == ("crop", "text_search")
    assert found.termination is Termination.ANSWERED
    for one, other in zip(found.steps, wanted.steps, strict=True):
        assert (one.thought, one.call, one.response, one.text) == (
            other.thought,
            other.call,
            other.response,
            other.text,
        )
        assert one.observation == other.observation
        assert one.well_formed
    assert ImageStore(tmp_path / "back").read(photo) == store.read(photo)


def test_rows_are_what_the_contract_says(tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path / "photos")
    sharegpt([sample(store, photo)], store, tmp_path / "out", system="Be careful.", schemas=SCHEMAS)
    (row,) = json.loads((tmp_path / "out" / f"{NAME}.json").read_text(encoding="utf-8"))
    assert set(row) == {"conversations", "images", "system", "tools"}
    assert [turn["from"] for turn in row["conversations"]] == [
        "human",
        "gpt",
        "observation",
        "gpt",
        "observation",
        "gpt",
    ]
    assert row["conversations"][0]["value"].startswith(MARKER)
    assert row["conversations"][2]["value"] == "<image><observation>\nCut out.\nNew image ID: img_2\n</observation>"
    assert row["conversations"][4]["value"] == "<observation>\nNothing.\n</observation>"
    assert row["system"] == "Be careful."
    assert [tool["function"]["name"] for tool in json.loads(row["tools"])] == ["crop", "text_search"]
    assert row["images"] == [row["images"][0]] * 2
    assert (tmp_path / "out" / row["images"][0]).is_file()
    info = json.loads((tmp_path / "out" / "dataset_info.json").read_text(encoding="utf-8"))
    assert info == DATASET_INFO
    assert (tmp_path / "out" / info[NAME]["file_name"]).is_file()


def test_literal_markers_never_shift_the_pictures(tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path / "photos")
    nasty = "Use <image> and <\u2060image>, <video> or <audio> tags. <image"
    record = sample(store, photo, thought=nasty.replace("<image>", "<image> too"), text=nasty)
    record = record.model_copy(update={"task": record.task.model_copy(update={"question": f"What is {nasty}?"})})
    sharegpt([record], store, tmp_path / "out", system=f"No {nasty}", schemas=SCHEMAS)
    (row,) = json.loads((tmp_path / "out" / f"{NAME}.json").read_text(encoding="utf-8"))
    joined = "".join(turn["value"] for turn in row["conversations"]) + row["system"]
    assert joined.count(MARKER) == len(row["images"]) == 2
    assert "<video>" not in joined
    (back,) = read_sharegpt(tmp_path / "out" / f"{NAME}.json", ImageStore(tmp_path / "back"))
    assert back.task.question == record.task.question
    assert back.trajectory.steps[1].observation == record.trajectory.steps[1].observation
    assert [step.text for step in back.trajectory.steps] == [step.text for step in record.trajectory.steps]


@given(st.text(alphabet=st.sampled_from("<>\u2060imagevdou x/"), max_size=60) | st.text(max_size=60))
def test_escaping_is_reversible_and_leaves_no_marker(text: str) -> None:
    for wrapped in (text, f"<image>{text}<\u2060image>"):
        assert unescape(escape(wrapped)) == wrapped
        assert MARKER not in escape(wrapped)


def test_only_what_was_kept_is_exported_and_the_rest_is_counted(tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path / "photos")
    kept = sample(store, photo)
    rejected = kept.model_copy(update={"accepted": False, "id": "b"})
    unscored = kept.model_copy(update={"accepted": None, "id": "c"})
    lost = kept.model_copy(
        update={"id": "d", "task": make_task(2)}  # its picture is in no store
    )
    empty = kept.model_copy(update={"id": "e", "trajectory": trajectory()})
    report = sharegpt([rejected, kept, unscored, lost, empty], store, tmp_path / "out", system="", schemas=())
    assert report.exported == 1
    assert report.left_out == {"not_chosen": 2, "picture_missing": 1, "no_steps": 1}
    assert len(json.loads((tmp_path / "out" / f"{NAME}.json").read_text(encoding="utf-8"))) == 1
    nothing = sharegpt([], store, tmp_path / "none", system="", schemas=())
    assert nothing.exported == 0
    assert json.loads((tmp_path / "none" / f"{NAME}.json").read_text(encoding="utf-8")) == []


def test_native_steps_are_written_in_the_exact_form(tmp_path: Path) -> None:
    store, photo = store_with_photo(tmp_path / "photos")
    record = sample(store, photo)
    bare = tuple(step.model_copy(update={"text": ""}) for step in record.trajectory.steps)
    record = record.model_copy(update={"trajectory": record.trajectory.model_copy(update={"steps": bare})})
    sharegpt([record], store, tmp_path / "out", system="", schemas=SCHEMAS)
    (back,) = read_sharegpt(tmp_path / "out" / f"{NAME}.json", ImageStore(tmp_path / "back"))
    assert [step.call for step in back.trajectory.steps] == [step.call for step in bare]
    assert all(step.well_formed for step in back.trajectory.steps)


# ---------------------------------------------------------------------------------- the released format


def released(tmp_path: Path, **changes: Any) -> Path:
    """A file in the released format, its observations worded as the release words them."""
    store, photo = store_with_photo(tmp_path / "photos")
    (tmp_path / "a.png").write_bytes(store.read(photo))
    row = {
        "conversations": [
            {"from": "human", "value": "<image>Who built this?"},
            {
                "from": "gpt",
                "value": '<think>Zoom in.</think>\n<tool_call>{"name": "crop", "arguments": {"image": "img_1", "x": 1, "y": 2, "width": 3, "height": 4}}</tool_call>',
            },
            {
                "from": "observation",
                "value": "<image><observation>\nImage cropped successfully. New image ID: img_3. The cropped image has been uploaded to: URL\n</observation>",
            },
            {
                "from": "gpt",
                "value": '<think>Search.</think>\n<tool_call>{"name": "image_search", "arguments": {"url": "img_3"}}</tool_call>',
            },
            {
                "from": "observation",
                "value": "<observation>\nTool execution result:\n[{'title': 'A', 'source': 'b'}]\n</observation>",
            },
            {"from": "gpt", "value": "<think>Known.</think>\n<response>Ana Boro</response>"},
        ],
        "images": ["a.png", "a.png"],
        "system": "You are …",
        "tools": json.dumps([{"name": "crop", "parameters": {}}]),
        **changes,
    }
    file = tmp_path / "released.json"
    file.write_text(json.dumps([row]), encoding="utf-8")
    return file


def test_the_released_format_is_read(tmp_path: Path) -> None:
    (record,) = read_sharegpt(released(tmp_path), ImageStore(tmp_path / "back"), corpus="wiki_en")
    assert record.task.question == "Who built this?"
    assert record.task.gold.answer == "Ana Boro"
    assert record.task.provenance.corpus == "wiki_en"
    assert record.trajectory.num_calls == 2
    first = record.trajectory.steps[0].observation
    assert first is not None
    assert first.image_id == "img_3"
    assert first.text.startswith("Image cropped successfully.")
    assert record.trajectory.tools == ("crop",)
    assert record.accepted


def test_a_row_that_ends_with_an_observation_was_cut_off(tmp_path: Path) -> None:
    file = released(tmp_path)
    row = json.loads(file.read_text(encoding="utf-8"))[0]
    file = released(tmp_path, conversations=row["conversations"][:-1])
    (record,) = read_sharegpt(file, ImageStore(tmp_path / "back"))
    assert record.trajectory.termination is Termination.TURNS
    assert record.trajectory.response is None


def test_rows_may_stand_one_a_line_and_without_tools(tmp_path: Path) -> None:
    row = json.loads(released(tmp_path).read_text(encoding="utf-8"))[0]
    row = {
        **row,
        "conversations": [{"from": "human", "value": "Hi?"}, {"from": "gpt", "value": "<response>Yo</response>"}],
        "images": [],
    }
    del row["tools"]
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n\n" + json.dumps(row) + "\n", encoding="utf-8")
    records = list(read_sharegpt(file, ImageStore(tmp_path / "back")))
    assert [record.trajectory.response for record in records] == ["Yo", "Yo"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": ["a.png"]}, "2 <image> markers but 1"),
        ({"images": ["a.png", "../../etc/passwd"]}, "outside"),
        ({"images": ["a.png", "/etc/passwd"]}, "outside"),
        ({"images": ["a.png", "lost.png"]}, "no picture file"),
        ({"images": ["a.png", 7]}, "not by a int"),
        ({"images": ["a.png", "released.json"]}, "Not a picture"),
        ({"conversations": []}, "no conversations"),
        ({"conversations": [{"from": "gpt", "value": "x"}]}, "Turn 0 should be from human"),
        (
            {"conversations": [{"from": "human", "value": "x"}, {"from": "human", "value": "x"}]},
            "Turn 1 should be from gpt",
        ),
        ({"conversations": [{"from": "human", "value": None}]}, "Turn 0"),
        ({"conversations": ["x"]}, "Turn 0"),
        ({"tools": "{nope"}, "tools is not JSON"),
    ],
)
def test_broken_rows_are_refused_with_their_number(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match="row 0") as caught:
        list(read_sharegpt(released(tmp_path, **changes), ImageStore(tmp_path / "back")))
    assert message in caught.value.message


@pytest.mark.parametrize("content", ["", "{", "7", '{"a": 1}'])
def test_files_that_are_no_array_of_rows_are_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match=r"x\.json"):
        list(read_sharegpt(file, ImageStore(tmp_path / "back")))
    with pytest.raises(RecordError, match=r"lost\.json"):
        list(read_sharegpt(tmp_path / "lost.json", ImageStore(tmp_path / "back")))
