"""`osvl questions audit` on anybody's questions: released forms, no wiki, nothing left behind."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from opensearch_vl.cli.questions import app
from opensearch_vl.errors import DataError
from opensearch_vl.images import ImageStore, encode_png
from opensearch_vl.types import Gold, RolloutRecord, Task, Termination, Trajectory


def audit(file, *options):
    return CliRunner().invoke(app, ["audit", str(file), "--json", *map(str, options)])


@pytest.fixture
def folder(tmp_path):
    blobs = Image.fromarray(np.random.default_rng(1).integers(0, 256, (9, 12), dtype=np.uint8))
    for name, size in (("a", (240, 180)), ("b", (120, 90))):
        picture = blobs.resize(size, Image.Resampling.BICUBIC).convert("RGB")
        (tmp_path / f"{name}.png").write_bytes(encode_png(picture))
    return tmp_path


def test_a_released_jsonl_without_a_wiki(folder) -> None:
    rows = [
        {"question": "When was the man in the picture born?", "answer": "1962", "images": ["a.png"], "dataset": "fvqa"},
        {"question": "When was the cat in the picture born?", "answer": "1970", "images": ["b.png"]},
        {"question": "Was it 1999 or 2001?", "answer": "1999", "images": ["b.png"]},
        {"question": "Who?", "answer": "Ann"},
    ]
    file = folder / "rl.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    before = sorted(folder.rglob("*"))
    found = audit(file)
    assert found.exit_code == 3, found.output  # a row is unread, and an answer leaks
    result = json.loads(found.stdout)
    assert (result["questions"], result["unread"]) == (3, {"no_picture": 1})
    assert [(f["problem"], f["detail"]) for f in result["findings"]] == [("answer_leak", "1999")]
    assert result["duplicates"] == {
        "question_and_picture": 0, "picture": 1, "near_picture": 1, "answer_page_and_attribute": 0,
    }  # fmt: skip
    assert [row["solver"] for row in result["solvers"]] == ["no_tools"]
    assert sorted(folder.rglob("*")) == before
    page = folder / "out" / "page.html"
    assert audit(file, "--out", page).exit_code == 3
    html = page.read_text(encoding="utf-8")
    assert "No wiki was given" in html and "answer leak" in html and "<script" not in html


def test_the_released_sharegpt_form(folder) -> None:
    row = {
        "conversations": [
            {"from": "human", "value": "<image>When was the man in the picture born?"},
            {"from": "gpt", "value": "<think>I see.</think><response>1962</response>"},
        ],
        "images": ["a.png"], "system": "", "tools": "[]",
    }  # fmt: skip
    file = folder / "sft.json"
    file.write_text(json.dumps([row]), encoding="utf-8")
    found = audit(file)
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    assert (result["questions"], result["ungrounded"]) == (1, 0)
    assert result["skeletons"]["commonest"]["text"] == "when was the man in the picture born?"
    assert result["skeletons"]["commonest"]["share"] == 1.0


def test_rollouts_count_each_task_once_and_bare_tasks_are_read(folder) -> None:
    ref = ImageStore(folder / "images").put(Image.new("RGB", (20, 20), "red"))
    task = Task(id="t", question="Who is it?", images=(ref,), gold=Gold(answer="Ann"))
    records = [
        RolloutRecord(
            id=f"t#{n}",
            task=task,
            trajectory=Trajectory(id=f"t#{n}", task_id="t", steps=(), termination=Termination.TURNS),
        )
        for n in range(3)
    ]
    for name, lines in (("rollouts", records), ("tasks", [task])):
        file = folder / f"{name}.jsonl"
        file.write_text("".join(line.model_dump_json() + "\n" for line in lines), encoding="utf-8")
        result = json.loads(audit(file).stdout)
        assert (result["questions"], result["corpora"]) == (1, {"wiki": 1})


def test_what_is_no_set_of_questions_says_so(folder) -> None:
    assert isinstance(audit(folder / "a.png").exception, DataError)
    assert isinstance(audit(folder / "none.jsonl").exception, DataError)
