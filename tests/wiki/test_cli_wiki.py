import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner
from wiki.wikitool import write

from opensearch_vl.cli.wiki import app
from opensearch_vl.errors import DataError, DumpError, RunExists
from opensearch_vl.runs import digest, read_records
from opensearch_vl.wiki.report import WalkRecord

RUNNER = CliRunner()


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    (tmp_path / "p").mkdir()
    for n in range(8):
        Image.new("RGB", (520, 512), (n, 0, 0)).save(tmp_path / "p" / f"E{n}.png")
    pages = {
        f"E{n}": f"{{{{Infobox person|image=E{n}.png|mate=[[E{(n + 1) % 8}]]}}}} See [[E{(n + 3) % 8}]]."
        for n in range(8)
    }
    return write(tmp_path / "d.xml", pages)


def call(*words: object) -> dict[str, object]:
    result = RUNNER.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_build_stats_walks(dump: Path, tmp_path: Path) -> None:
    built = call("build", dump, "--out", tmp_path / "wiki", "--images", tmp_path / "p", "--json")
    assert built["counts"]["pages"] == built["counts"]["images"] == 8  # type: ignore[index]
    stats = call("stats", tmp_path / "wiki", "--json")
    assert stats["seeds"]["Person"] == 8  # type: ignore[index]
    assert stats["rules"]["hub"] == 20  # type: ignore[index]
    walks = call("walks", tmp_path / "wiki", "--out", tmp_path / "run", "--seed", 1, "--json")
    records = list(read_records(tmp_path / "run", WalkRecord))
    assert len(records) == 8
    assert walks["accepted"] == sum(record.accepted for record in records) > 0
    first = next(record for record in records if record.accepted)
    assert len(first.path) == len(first.anchors) + 1 == len(first.sentences) + 1
    call("walks", tmp_path / "wiki", "--out", tmp_path / "again", "--seed", 1, "--json")
    assert digest(tmp_path / "run") == digest(tmp_path / "again")


def test_the_miniature_is_read_like_any_dump(tmp_path: Path) -> None:
    made = call("mini", "--out", tmp_path / "mini", "--pages", 120, "--json")
    built = call("build", made["dump"], "--images", made["images"], "--out", tmp_path / "wiki", "--json")
    assert built["counts"]["pages"] == made["pages"]  # type: ignore[index]
    assert built["counts"]["images"] >= made["pictures"] > 0  # type: ignore[index, operator]
    assert sum(call("stats", tmp_path / "wiki", "--json")["seeds"].values()) > 10  # type: ignore[attr-defined]


def test_walks_resume(dump: Path, tmp_path: Path) -> None:
    call("build", dump, "--out", tmp_path / "wiki", "--images", tmp_path / "p", "--json")
    call("walks", tmp_path / "wiki", "--out", tmp_path / "run", "--json")
    whole = digest(tmp_path / "run")
    file = tmp_path / "run" / "records.jsonl"
    file.write_bytes(file.read_bytes()[:700])
    call("walks", tmp_path / "wiki", "--out", tmp_path / "run", "--resume", "--json")
    assert digest(tmp_path / "run") == whole


def test_output_for_people(dump: Path, tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["build", str(dump), "--out", str(tmp_path / "wiki")], catch_exceptions=False)
    assert result.exit_code == 0
    assert "Wiki folder" in result.stdout
    assert "with_infobox" in result.stdout


def test_errors_pass_through(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="no dump"):
        call("build", tmp_path / "none.xml", "--out", tmp_path / "wiki")
    assert not (tmp_path / "wiki").exists()
    call("build", dump, "--out", tmp_path / "wiki", "--json")
    with pytest.raises(RunExists):
        call("build", dump, "--out", tmp_path / "wiki")
    with pytest.raises(DataError, match="require_image"):
        call("walks", tmp_path / "wiki", "--out", tmp_path / "run")
    with pytest.raises(DataError, match="not a wiki folder"):
        call("stats", tmp_path / "p")


def test_fewer_walks_than_asked_is_partial(dump: Path, tmp_path: Path) -> None:
    call("build", dump, "--out", tmp_path / "wiki", "--images", tmp_path / "p", "--json")
    result = RUNNER.invoke(
        app, ["walks", str(tmp_path / "wiki"), "--out", str(tmp_path / "run"), "--num", "99", "--json"]
    )
    assert result.exit_code == 3
    assert json.loads(result.stdout)["accepted"] < 99


def test_a_damaged_dump_is_partial(dump: Path, tmp_path: Path) -> None:
    text = dump.read_text()
    dump.write_text(text[: text.rindex("<page>") + 20])
    result = RUNNER.invoke(app, ["build", str(dump), "--out", str(tmp_path / "wiki"), "--json"])
    assert result.exit_code == 3
    assert "damaged" in json.loads(result.stdout)["damage"]
