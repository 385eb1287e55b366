"""Other corpora in the shapes they really come in."""

import base64
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from opensearch_vl.errors import DataError, RecordError
from opensearch_vl.images import ImageStore, encode_png
from opensearch_vl.questions.corpora import Unread, read_corpus
from opensearch_vl.types import Task


@pytest.fixture
def picture(tmp_path) -> bytes:
    data = encode_png(Image.new("RGB", (40, 30), "red"))
    (tmp_path / "a.png").write_bytes(data)
    return data


def rows_to(file: Path, rows) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def read(file, tmp_path, **options):
    return list(read_corpus(file, "fvqa", ImageStore(tmp_path / "store"), **options))


def test_the_usual_spellings(tmp_path, picture) -> None:
    inline = base64.b64encode(picture).decode()
    rows = [
        {"question": "Who?", "answer": "Ann", "image": "a.png"},
        {"prompt": "<image>Who?", "answers": ["Ann", "Anna", "Ann"], "file_path": "a.png", "question_id": 7},
        {"query": "How many?", "answer": 12, "images": [{"bytes": None, "path": "a.png"}]},
        {"prompt": [{"role": "system", "content": "x"}, {"role": "user", "content": "Where?"}],
         "reward_model": {"ground_truth": '["Rome", "Roma"]'}, "images": [inline]},
        {"question": "When?", "answers": [["1999"]], "image": f"data:image/png;base64,{inline}"},
    ]  # fmt: skip
    tasks = read(rows_to(tmp_path / "x.jsonl", rows), tmp_path)
    assert [(t.question, t.gold.answer, t.gold.aliases) for t in tasks] == [
        ("Who?", "Ann", ()), ("Who?", "Ann", ("Anna",)), ("How many?", "12", ()), ("Where?", "Rome", ("Roma",)),
        ("When?", "1999", ()),
    ]  # fmt: skip
    assert {t.images[0].width_px for t in tasks} == {40}
    assert {t.provenance.corpus for t in tasks} == {"fvqa"}
    assert len({t.id for t in tasks}) == 5


def test_boxed_answers_are_the_reference(tmp_path, picture) -> None:
    rows = [{"question": "Who?", "answer": r"So it is \boxed{\text{Ann}}.", "images": ["a.png"]}]
    (task,) = read(rows_to(tmp_path / "x.jsonl", rows), tmp_path)
    assert (task.gold.answer, task.gold.kind) == ("Ann", "name")
    assert task.provenance.extra["answer_text"] == r"So it is \boxed{\text{Ann}}."


def test_two_levels_under_one_picture(tmp_path, picture) -> None:
    entry = {
        "id": "n1", "img_path": "a.png",
        "level1_qa": {"question": "What event?", "Ground_Truth": "B", "Ground_Truth_List": ["a debate", "debate"]},
        "level2_qa": {"question": "Who asked?", "Ground_Truth": "A", "Ground_Truth_List": ["Ann"], "img_path": "a.png"},
    }  # fmt: skip
    file = tmp_path / "live.json"
    file.write_text(json.dumps([entry]), encoding="utf-8")
    assert [(t.question, t.gold.answer) for t in read(file, tmp_path)] == [
        ("What event?", "a debate"),
        ("Who asked?", "Ann"),
    ]


def test_parquet_with_pictures_inside(tmp_path, picture) -> None:
    table = pa.Table.from_pylist(
        [{"problem": "Who?", "solution": "Ann", "images": [{"bytes": picture, "path": None}]}] * 3
    )
    pq.write_table(table, tmp_path / "x.parquet")
    assert [t.gold.answer for t in read(tmp_path / "x.parquet", tmp_path)] == ["Ann"] * 3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answer": "Ann", "image": "a.png"}, "no_question"),
        ({"question": "<image>", "answer": "Ann", "image": "a.png"}, "no_question"),
        ({"question": "Who?", "image": "a.png"}, "no_answer"),
        ({"question": "Who?", "answers": ["", []], "image": "a.png"}, "no_answer"),
        ({"question": "Who?", "answer": "Ann"}, "no_picture"),
        ({"question": "Who?", "answer": "Ann", "image": "missing.png"}, "bad_picture"),
        ({"question": "Who?", "answer": "Ann", "image": "https://far.invalid/a.png"}, "bad_picture"),
        ({"question": "Who?", "answer": "Ann", "image": {"bytes": "bm90IGEgcGljdHVyZSBhdCBhbGw="}}, "bad_picture"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, picture, row, reason) -> None:
    (found,) = read(rows_to(tmp_path / "x.jsonl", [row]), tmp_path)
    assert isinstance(found, Unread)
    assert (found.row, found.reason) == (1, reason)


def test_remote_pictures_need_a_fetcher(tmp_path, picture) -> None:
    file = rows_to(
        tmp_path / "x.jsonl", [{"question": "Who?", "answer": "Ann", "image_url": "https://far.invalid/a.png"}]
    )
    (task,) = read(file, tmp_path, fetch=lambda url: picture)
    assert isinstance(task, Task)


@pytest.mark.parametrize(("name", "text", "error"), [
    ("x.json", "[1, 2]", RecordError), ("x.json", "{", RecordError), ("x.csv", "a,b", DataError),
    ("x.jsonl", "[]\n", RecordError), ("missing.json", None, DataError), ("missing.parquet", None, DataError),
])  # fmt: skip
def test_wrong_files(tmp_path, name, text, error) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=name):
        read(file, tmp_path)
