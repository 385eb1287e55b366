"""The exported folder in the hands of `datasets` itself: pictures decoded, splits found, columns typed."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rolled_out import example_run, question_run

from opensearch_vl.images import ImageStore
from opensearch_vl.sft.dataset import export_parquet
from opensearch_vl.sft.parquet_reading import read_parquet

datasets: Any = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets.disable_progress_bars()


def test_a_folder_of_questions_loads_with_pictures_and_splits(tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run")
    other, held = question_run(tmp_path / "other", 2)
    export_parquet({"train": run, "test": other}, tmp_path / "out", name="Sample", shard_bytes=3_000)
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in loaded.items()} == {"train": len(records), "test": len(held)}
    store = ImageStore(run / "images")
    for row, record in zip(loaded["train"], records, strict=True):
        assert record.task is not None
        assert (row["question"], row["answer"]) == (record.task.question, record.task.gold.answer)
        assert row["aliases"] == list(record.task.gold.aliases)
        assert row["path"] == list(record.task.provenance.path)
        assert len(row["images"]) == len(record.task.images)
        for shown, ref in zip(row["images"], record.task.images, strict=True):
            assert isinstance(shown, Image.Image)
            assert shown.convert("RGB").tobytes() == store.open(ref).tobytes()
    features = loaded["train"].features
    assert features["images"].feature == datasets.Image()
    assert features["num_hops"] == datasets.Value("int64")


def test_trajectories_load_from_their_files(tmp_path: Path) -> None:
    run, records = example_run(tmp_path / "run")
    export_parquet({"train": run}, tmp_path / "out", name="Sample")
    files = str(tmp_path / "out" / "data" / "train-*.parquet")
    rows = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert len(rows) == len(records)
    assert [turn["from"] for turn in rows[0]["conversations"][:3]] == ["human", "gpt", "observation"]
    assert [image.size for image in rows[0]["images"]] == [(64, 48), (32, 24)]
    assert rows[0]["correct"] is True
    streamed = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    assert next(iter(streamed))["images"][0].size == (64, 48)


def test_what_datasets_writes_again_is_still_ours(tmp_path: Path) -> None:
    run, records = example_run(tmp_path / "run")
    export_parquet({"train": run}, tmp_path / "out", name="Sample")
    rows = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    rows.select([2, 0]).to_parquet(str(tmp_path / "again.parquet"))
    back = list(read_parquet(tmp_path / "again.parquet", ImageStore(tmp_path / "back")))
    assert back == [records[2], records[0]]
