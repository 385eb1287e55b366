r"""RL rows of the released form: out, back, boxed answers, and rows that must not be believed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rolled_out import lines_of, question_run

from opensearch_vl.errors import DataError, RecordError
from opensearch_vl.images import ImageStore, encode_png
from opensearch_vl.questions.answers import boxed
from opensearch_vl.questions.corpora import Unread
from opensearch_vl.sft.export import RL_FILE, export_rl
from opensearch_vl.sft.rl_rows import read_rl
from opensearch_vl.types import Task


def test_questions_go_out_in_the_released_form_and_come_back(tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run")
    tasks = [record.task for record in records if record.task is not None]
    report = export_rl(tasks, ImageStore(run / "images"), tmp_path / "out")
    assert (report.exported, report.images, report.left_out) == (3, 3, {"no_picture": 1})
    rows = lines_of(tmp_path / "out" / RL_FILE)
    for row, task in zip(rows, tasks, strict=False):
        assert list(row)[:4] == ["question", "answer", "images", "dataset"]
        assert "<image>" not in row["question"]
        assert row["answer"] == task.gold.answer
        (path,) = row["images"]
        assert (tmp_path / "out" / path).is_file()
    back = list(read_rl(tmp_path / "out" / RL_FILE, ImageStore(tmp_path / "back")))
    for found, task in zip(back, tasks, strict=False):
        assert isinstance(found, Task)
        assert (found.id, found.question, found.gold, found.images) == (task.id, task.question, task.gold, task.images)
    again = export_rl([t for t in back if isinstance(t, Task)], ImageStore(tmp_path / "back"), tmp_path / "again")
    assert again.exported == 3
    assert (tmp_path / "again" / RL_FILE).read_bytes() == (tmp_path / "out" / RL_FILE).read_bytes()


def test_several_pictures_and_lost_ones_are_counted(tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run")
    task = records[0].task
    assert task is not None
    two = task.model_copy(update={"images": task.images * 2})
    report = export_rl([two, task], ImageStore(tmp_path / "elsewhere"), tmp_path / "out")
    assert (report.exported, report.left_out) == (0, {"several_pictures": 1, "picture_missing": 1})
    assert (tmp_path / "out" / RL_FILE).read_bytes() == b""
    assert run.exists()


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (r"Thus \boxed{Ana Boro}.", "Ana Boro"),
        (r"First \boxed{no}, then \boxed{yes}", "yes"),
        (r"\boxed{\text{Ana Boro}}", "Ana Boro"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {  12\% }", "12%"),
        (r"\boxed{$5$}", "5"),
        (r"\boxed{a \{b\} c}", "a {b} c"),
        (r"\fbox{no} \boxed{}", None),
        (r"\boxed{never closed", None),
        (r"\boxed{good} and \boxed{never closed", "good"),
        ("plain", None),
        ("", None),
    ],
)
def test_boxed(text: str, inner: str | None) -> None:
    assert boxed(text) == inner


@given(st.text(alphabet="abc \\{}$"))
def test_boxed_never_fails_and_finds_what_is_in_a_box(text: str) -> None:
    boxed(text)
    plain = "".join(ch for ch in text if ch in "abc ").strip()
    if plain:
        assert boxed(rf"so \boxed{{{plain}}}.") == plain


def write(folder: Path, **changes: Any) -> Path:
    (folder / "a.png").write_bytes(encode_png(Image.new("RGB", (40, 30), "red")))
    row = {"question": "<image>\nWho?", "answer": r"It is \boxed{Ana}.", "images": ["a.png"], "dataset": "wiki_en"}
    row |= changes
    file = folder / "rl.jsonl"
    file.write_text(json.dumps({key: value for key, value in row.items() if value is not ...}) + "\n", encoding="utf-8")
    return file


def test_a_released_row(tmp_path: Path) -> None:
    (task,) = read_rl(write(tmp_path), ImageStore(tmp_path / "s"))
    assert isinstance(task, Task)
    assert (task.question, task.gold.answer, task.gold.kind) == ("Who?", "Ana", "name")
    assert task.provenance.corpus == "wiki_en"
    assert task.provenance.extra["answer_text"] == r"It is \boxed{Ana}."
    assert task.images[0].width_px == 40
    (same,) = read_rl(write(tmp_path), ImageStore(tmp_path / "s"))
    assert isinstance(same, Task) and same.id == task.id
    (other,) = read_rl(write(tmp_path, dataset="palace"), ImageStore(tmp_path / "s"))
    assert isinstance(other, Task) and other.id != task.id
    report = export_rl([task], ImageStore(tmp_path / "s"), tmp_path / "out")
    assert report.exported == 1
    (row,) = lines_of(tmp_path / "out" / RL_FILE)
    assert (row["question"], row["answer"]) == ("Who?", r"It is \boxed{Ana}.")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"question": ""}, "no_question"),
        ({"question": "<image>"}, "no_question"),
        ({"question": 7}, "no_question"),
        ({"answer": " "}, "no_answer"),
        ({"answer": None}, "no_answer"),
        ({"images": []}, "no_picture"),
        ({"images": ["a.png", "a.png"]}, "no_picture"),
        ({"images": "a.png"}, "no_picture"),
        ({"images": ["../a.png"]}, "bad_picture"),
        ({"images": ["x/../../a.png"]}, "bad_picture"),
        ({"images": ["/etc/hostname"]}, "bad_picture"),
        ({"images": ["link.png"]}, "bad_picture"),
        ({"images": ["lost.png"]}, "bad_picture"),
        ({"images": ["rl.jsonl"]}, "bad_picture"),
        ({"images": [{"bytes": "aGk="}]}, "bad_picture"),
        ({"images": ["a\0.png"]}, "bad_picture"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "a.png").write_bytes(encode_png(Image.new("RGB", (40, 30), "blue")))
    os.symlink(tmp_path / "a.png", tmp_path / "data" / "link.png")
    (found,) = read_rl(write(tmp_path / "data", **changes), ImageStore(tmp_path / "s"))
    assert isinstance(found, Unread)
    assert (found.row, found.reason) == (1, reason)
    assert not (tmp_path / "s").exists()


def test_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="line 1 has no dataset"):
        list(read_rl(write(tmp_path, dataset=...), ImageStore(tmp_path / "s")))
    (tmp_path / "x.jsonl").write_text("[1]\n", encoding="utf-8")
    with pytest.raises(RecordError, match="line 1"):
        list(read_rl(tmp_path / "x.jsonl", ImageStore(tmp_path / "s")))
    with pytest.raises(DataError, match="no file"):
        list(read_rl(tmp_path / "lost.jsonl", ImageStore(tmp_path / "s")))


def test_half_characters_do_not_stop_reading(tmp_path: Path) -> None:
    (task,) = read_rl(write(tmp_path, question="Who\ud800?", answer="A\udfffna"), ImageStore(tmp_path / "s"))
    assert isinstance(task, Task)
    assert (task.question, task.gold.answer) == ("Who??", "A?na")
