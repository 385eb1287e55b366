"""Parquet out and in: the same records, bounded files and memory, hostile files, and a card whose numbers are counted."""

import csv
import hashlib
import json
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from rolled_out import example_run, question_run, run_of

from opensearch_vl.errors import DataError, RecordError, RunExists, UsageError
from opensearch_vl.images import ImageStore, encode_png
from opensearch_vl.runs import read_records
from opensearch_vl.sft.card import ATTRIBUTION, NOT_RECORDED, size_category
from opensearch_vl.sft.dataset import export_parquet
from opensearch_vl.sft.parquet import SplitWriter, question_row
from opensearch_vl.sft.parquet_reading import read_parquet
from opensearch_vl.types import QuestionRecord, RolloutRecord


def exported(run: Path, out: Path, **options: Any) -> Path:
    export_parquet({"train": run}, out, name="Sample", **options)
    return out


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return exported(question_run(tmp_path / "run")[0], tmp_path / "out")


def test_trajectories_read_back_as_they_were(tmp_path: Path) -> None:
    run, records = example_run(tmp_path / "run")
    out = exported(run, tmp_path / "out")
    back = ImageStore(tmp_path / "back")
    assert list(read_parquet(out, back)) == list(read_records(run, RolloutRecord)) == records
    for record in records:
        made = [s.observation.image for s in record.trajectory.steps if s.observation and s.observation.image]
        assert len(made) == 1
        for ref in (*record.task.images, *made):
            assert back.read(ref) == ImageStore(run / "images").read(ref)


def test_questions_read_back_as_they_were_and_rejected_walks_are_counted(tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run")
    (facts,) = export_parquet({"train": run}, tmp_path / "out", name="Sample")
    assert list(read_parquet(tmp_path / "out", ImageStore(tmp_path / "back"))) == records
    assert facts.left_out == {"rejected at fuzz: not_unique": 1}
    assert facts.num_ungrounded == 1


def test_markers_and_pictures_of_a_row_agree(tmp_path: Path) -> None:
    out = exported(example_run(tmp_path / "run")[0], tmp_path / "out")
    for row in pq.read_table(out / "data").to_pylist():
        said = "".join(turn["value"] for turn in row["conversations"])
        assert said.count("<image>") == len(row["images"]) == 2
        assert [Path(p["path"]).suffix for p in row["images"]] == [".png", ".png"]
        assert row["correct"] == (row["response"] == "1970")
        assert row["num_calls"] == 3


def test_what_was_not_kept_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    run, records = example_run(tmp_path / "run")
    first, second, third = records
    wrong = second.model_copy(update={"accepted": False, "reason": "wrong_answer"})
    run.joinpath("records.jsonl").write_text(
        "".join(r.model_dump_json() + "\n" for r in (first, wrong, third.model_copy(update={"accepted": None})))
    )
    (facts,) = export_parquet({"train": run}, tmp_path / "out", name="Sample")
    assert (facts.num_rows, facts.left_out) == (1, {"rejected: wrong_answer": 1, "unscored": 1})
    (facts,) = export_parquet({"train": run}, tmp_path / "all", name="Sample", everything=True)
    assert (facts.num_rows, facts.left_out) == (3, {})
    assert pq.read_table(tmp_path / "all" / "data")["accepted"].to_pylist() == [True, False, None]


def test_files_are_bounded_and_say_how_many_they_are(tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run", 9)
    out = exported(run, tmp_path / "out", shard_bytes=3_000)
    names = sorted(file.name for file in (out / "data").iterdir())
    assert len(names) > 2
    assert names == [f"train-{n:05d}-of-{len(names):05d}.parquet" for n in range(len(names))]
    assert list(read_parquet(out, ImageStore(tmp_path / "back"))) == records
    assert list(read_parquet(out / "data" / names[1], ImageStore(tmp_path / "back")))
    (out / "data" / names[1]).unlink()
    with pytest.raises(DataError, match="is missing: its split has"):
        list(read_parquet(out, ImageStore(tmp_path / "back")))


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opensearch_vl.sft.parquet.GROUP_BYTES", 2_000)
    run, records = question_run(tmp_path / "run", 9)
    file = exported(run, tmp_path / "out") / "data" / "train-00000-of-00001.parquet"
    assert pq.ParquetFile(file).num_row_groups > 2
    assert list(read_parquet(file, ImageStore(tmp_path / "back"))) == records


def test_nothing_to_write_is_refused_with_the_reasons(tmp_path: Path) -> None:
    rejected = QuestionRecord(id="q", stage="fuzz", reason="not_unique")
    run = run_of(tmp_path / "run", [rejected])
    with pytest.raises(DataError, match="rejected at fuzz: not_unique': 1"):
        exported(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with SplitWriter(tmp_path, "train", QuestionRecord) as writer:
        pass
    table = pq.read_table(tmp_path / writer.names[0])
    assert table.num_rows == 0 and "images" in table.column_names
    assert list(read_parquet(tmp_path / writer.names[0], ImageStore(tmp_path / "back"))) == []


def test_a_lost_or_damaged_picture_costs_its_row_and_is_counted(tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run")
    store = ImageStore(run / "images")
    assert records[0].task is not None and records[1].task is not None
    store.path(records[0].task.images[0]).unlink()
    store.path(records[1].task.images[0]).write_bytes(encode_png(Image.new("RGB", (9, 9))))
    (facts,) = export_parquet({"train": run}, tmp_path / "out", name="Sample")
    assert facts.left_out["picture_missing"] == 2
    assert list(read_parquet(tmp_path / "out", ImageStore(tmp_path / "back"))) == records[2:]


# ------------------------------------------------------------------------------------------ what is refused


def changed(out: Path, **columns: Any) -> Path:
    """The first file of an export with values of some columns replaced in its second row."""
    file = out / "data" / "train-00000-of-00001.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    for name, value in columns.items():
        rows[1][name] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    return file


OTHER = encode_png(Image.new("RGB", (8, 8), "blue"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"question": "Edited?"}, "question is 'Edited?'"),
        ({"answer": "1"}, "answer is '1'"),
        ({"id": "other"}, "id is 'other'"),
        ({"record": "{"}, "Invalid JSON"),
        ({"record": None}, "Invalid JSON"),
        ({"record": '{"kind":"question","id":"q1"}'}, "holds no question"),
        ({"images": []}, "holds 0 pictures; its record names 1"),
        ({"images": None}, "holds 0 pictures"),
        ({"images": [{"bytes": b"no picture", "path": "a.png"}]}, "Picture 1 is not the one"),
        ({"images": [{"bytes": OTHER, "path": "a.png"}]}, "Picture 1 is not the one"),
        ({"images": [{"bytes": None, "path": "/etc/passwd"}]}, "Picture 1 has no bytes"),
        ({"images": [None]}, "Picture 1 has no bytes"),
    ],
)
def test_rows_that_were_tampered_with_are_refused(
    questions: Path, tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    file = changed(questions, **columns)
    with pytest.raises(RecordError, match="row 2") as caught:
        list(read_parquet(file, ImageStore(tmp_path / "back")))
    assert message in caught.value.message


def test_bytes_that_are_no_picture_are_refused_even_under_their_own_hash(tmp_path: Path) -> None:
    _, records = question_run(tmp_path / "run")
    task = records[0].task
    assert task is not None
    fake = ImageStore(tmp_path / "fake")
    data = b"GIF89a and then nothing"
    ref = task.images[0].model_copy(update={"sha256": hashlib.sha256(data).hexdigest()})
    path = fake.root / ref.sha256[:2] / f"{ref.sha256}.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    record = records[0].model_copy(update={"task": task.model_copy(update={"images": (ref,)})})
    with SplitWriter(tmp_path, "train", QuestionRecord) as writer:
        writer.add(question_row(record, fake))
    with pytest.raises(RecordError, match="row 1: "):
        list(read_parquet(tmp_path / writer.names[0], ImageStore(tmp_path / "back")))
    assert not list((tmp_path / "back").rglob("*.png"))


@pytest.mark.parametrize("keep", [0, 3, 200, -20, -1])
def test_torn_files_are_named(questions: Path, tmp_path: Path, keep: int) -> None:
    file = questions / "data" / "train-00000-of-00001.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:keep])
    with pytest.raises(RecordError, match=r"train-00000-of-00001\.parquet cannot be read as Parquet"):
        list(read_parquet(questions, ImageStore(tmp_path / "back")))


def test_a_damaged_middle_is_named(questions: Path, tmp_path: Path) -> None:
    file = questions / "data" / "train-00000-of-00001.parquet"
    data = bytearray(file.read_bytes())
    for at in range(8, len(data) // 2):
        data[at] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(RecordError, match="train-00000"):
        list(read_parquet(questions, ImageStore(tmp_path / "back")))


def test_files_of_others_are_told_apart(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(RecordError, match="has no column id, question, answer, images, record"):
        list(read_parquet(tmp_path / "x.parquet", ImageStore(tmp_path / "back")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no Parquet file"):
        list(read_parquet(tmp_path / "empty", ImageStore(tmp_path / "back")))


def test_an_export_is_whole_or_not_there(tmp_path: Path) -> None:
    run, _ = question_run(tmp_path / "run")
    broken = (run / "records.jsonl").read_text(encoding="utf-8") + '{"kind": "question"}\n'
    (run / "records.jsonl").write_text(broken, encoding="utf-8")
    with pytest.raises(RecordError):
        exported(run, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    again = exported(question_run(tmp_path / "run2")[0], tmp_path / "out")
    with pytest.raises(RunExists):
        exported(tmp_path / "run2", again)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    run, _ = question_run(tmp_path / "run", 40)
    code = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from pathlib import Path\n"
        "from opensearch_vl.errors import StorageFull\n"
        "from opensearch_vl.sft.dataset import export_parquet\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))\n"
        f"try: export_parquet({{'train': Path({str(run)!r})}}, Path({str(tmp_path / 'out')!r}), name='x')\n"
        "except StorageFull as error: print('StorageFull', error)"
    )
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True)
    assert done.stdout.startswith("StorageFull"), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_splits_are_named_as_datasets_wants_them_and_of_one_kind(tmp_path: Path) -> None:
    run, _ = question_run(tmp_path / "run")
    other, _ = example_run(tmp_path / "other")
    with pytest.raises(UsageError, match="cannot be the name"):
        export_parquet({"a-b": run}, tmp_path / "out", name="x")
    with pytest.raises(UsageError, match="not both"):
        export_parquet({"a": run, "b": other}, tmp_path / "out", name="x")
    with pytest.raises(DataError, match="no file"):
        export_parquet({"a": tmp_path / "lost"}, tmp_path / "out", name="x")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    run, _ = question_run(tmp_path / "run")
    (record, *_) = read_records(run, QuestionRecord)
    row = question_row(record, ImageStore(run / "images")) | {"record": "x" * 5_000}

    def write(num: int) -> int:
        with SplitWriter(tmp_path, f"n{num}", QuestionRecord) as writer:
            for _ in range(num):
                writer.add(row)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert write(100_000) - write(10_000) < 50_000  # kilobytes; the rows themselves hold 500 MB


# --------------------------------------------------------------------------------------------------- card


def tables(card: str) -> list[list[list[str]]]:
    """The Markdown tables of a card, as lines of cells, without the ruler."""
    found: list[list[list[str]]] = [[]]
    for line in card.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip("|").replace("\\|", "¦").split("|")])
        elif found[-1]:
            found.append([])
    return [[line for n, line in enumerate(table) if n != 1] for table in found if table]


def test_the_card_counts_what_is_there(tmp_path: Path) -> None:
    run, records = example_run(tmp_path / "run", 5)
    held, held_out = question_run(tmp_path / "held")
    out = exported(run, tmp_path / "out")
    card = (out / "README.md").read_text(encoding="utf-8")
    shown = {table[0][0]: table[1:] for table in tables(card)}
    wrong = sum(record.trajectory.response != "1970" for record in records)
    assert shown["split"] == [["train", "5", "0", "2", "1"]]  # one photo, one crop
    assert shown["verdict on the answer"] == [
        ["correct", f"{5 - wrong} ({(5 - wrong) / 5:.1%})"],
        ["wrong", f"{wrong} ({wrong / 5:.1%})"],
    ]
    calls = Counter(s.call.name for r in records for s in r.trajectory.steps if s.call is not None)
    assert {line[0]: int(line[1].split()[0]) for line in shown["tool calls"]} == calls
    assert shown["licence of pictures"] == [["cc0", "2"]]
    facts = dict(next(table for table in tables(card) if table[0] == ["fact", "value"])[1:])
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    assert facts["prompt hash"] == manifest["agent"]["prompt_hash"]
    assert facts["tools"] == "text_search, crop"

    both = tmp_path / "both"
    export_parquet({"train": held, "test": held}, both, name="Sample")
    card = (both / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(card.split("---")[1])
    assert head["configs"][0]["data_files"] == [
        {"split": "train", "path": "data/train-*.parquet"},
        {"split": "test", "path": "data/test-*.parquet"},
    ]
    assert head["size_categories"] == ["n<1K"]
    assert head["license"] == "other"
    assert f"| {NOT_RECORDED} | 2 |" in card  # the first question's picture, in both splits
    assert "Rows without a picture, whose anchor is named in the text: 2." in card
    assert len(held_out) == 4


def test_every_picture_is_attributed_once(tmp_path: Path) -> None:
    run, records = example_run(tmp_path / "run")
    out = exported(run, tmp_path / "out")
    with open(out / ATTRIBUTION, encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    given = {ref.sha256 for record in records for ref in record.task.images}
    assert {row["sha256"]: row["state"] for row in rows}.items() >= dict.fromkeys(given, "as given").items()
    stored = {p["path"].split(".")[0] for row in pq.read_table(out / "data").to_pylist() for p in row["images"]}
    assert [row["sha256"] for row in rows] == sorted(stored, key=[row["sha256"] for row in rows].index)
    assert {row["state"] for row in rows if row["sha256"] not in given} == {"changed"}
    assert {row["author"] for row in rows} == {"Ann | <b>"}


def test_nothing_in_a_record_breaks_the_card(tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run")
    task = records[0].task
    assert task is not None and task.provenance.picture is not None
    nasty = "cc0 | <script>\n---\n# Title"
    source = task.provenance.picture.model_copy(update={"licence": nasty})
    known = task.provenance.model_copy(update={"picture": source, "domain": nasty})
    bad = records[0].model_copy(update={"id": "bad", "task": task.model_copy(update={"provenance": known})})
    (run / "records.jsonl").write_text(bad.model_dump_json() + "\n", encoding="utf-8")
    card = (exported(run, tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    assert "<script>" not in card and "\n# Title" not in card
    assert all(len(line) == len(table[0]) for table in tables(card) for line in table)


@pytest.mark.parametrize(("num", "name"), [(0, "n<1K"), (999, "n<1K"), (1_000, "1K<n<10K"), (36_592, "10K<n<100K"), (10**8, "n>10M")])  # fmt: skip
def test_sizes(num: int, name: str) -> None:
    assert size_category(num) == name
