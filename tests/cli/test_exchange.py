"""`osvl data export`, `import` and `split` as a user types them."""

import json
from pathlib import Path

import pytest
import typer
from rolled_out import example_run, lines_of, question_run
from typer.testing import CliRunner

from opensearch_vl.cli.exchange import register
from opensearch_vl.errors import DataError, RecordError, RunExists, UsageError
from opensearch_vl.runs import digest, read_manifest, read_records
from opensearch_vl.sft.export import NAME, RL_FILE
from opensearch_vl.sft.source import layout_of
from opensearch_vl.types import QuestionRecord, RolloutRecord


class Osvl:
    """Runs a verb; gives the exit code and the one object on stdout."""

    def __init__(self) -> None:
        self.app = typer.Typer()
        register(self.app)

    def __call__(self, *arguments: object) -> tuple[int, dict]:
        done = CliRunner().invoke(self.app, [*map(str, arguments), "--json"])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, json.loads(done.stdout) if done.stdout else {}


@pytest.fixture
def osvl() -> Osvl:
    return Osvl()


def test_parquet_out_and_in_is_the_same_run(osvl: Osvl, tmp_path: Path) -> None:
    for make, model in ((example_run, RolloutRecord), (question_run, QuestionRecord)):
        name = make.__name__
        run, records = make(tmp_path / name)
        code, told = osvl("export", run, "--format", "parquet", "--out", tmp_path / f"{name}-out")
        assert (code, told["exported"], told["splits"]) == (0, len(records), {"train": len(records)})
        code, told = osvl("import", tmp_path / f"{name}-out", "--out", tmp_path / f"{name}-back")
        assert (code, told["format"], told["read"], told["unread"]) == (0, "parquet", len(records), {})
        back = tmp_path / f"{name}-back"
        assert list(read_records(back, model)) == records


def test_imported_trajectories_say_what_the_policy_was_told(osvl: Osvl, tmp_path: Path) -> None:
    run, _ = example_run(tmp_path / "run")
    osvl("export", run, "--format", "parquet", "--out", tmp_path / "out")
    osvl("import", tmp_path / "out", "--out", tmp_path / "back")
    before, after = read_manifest(run), read_manifest(tmp_path / "back")
    assert after["agent"] == before["agent"]
    assert layout_of(tmp_path / "back").hash == before["agent"]["prompt_hash"]
    osvl("export", run, "--out", tmp_path / "a")
    osvl("export", tmp_path / "back", "--out", tmp_path / "b")
    assert (tmp_path / "a" / f"{NAME}.json").read_bytes() == (tmp_path / "b" / f"{NAME}.json").read_bytes()


def test_sharegpt_out_in_and_out_is_the_same_file(osvl: Osvl, tmp_path: Path) -> None:
    run, records = example_run(tmp_path / "run")
    osvl("export", run, "--out", tmp_path / "a")
    code, told = osvl("import", tmp_path / "a" / f"{NAME}.json", "--out", tmp_path / "back", "--name", "fvqa")
    assert (code, told["format"], told["read"]) == (0, "sharegpt", len(records))
    assert {r.task.provenance.corpus for r in read_records(tmp_path / "back", RolloutRecord)} == {"fvqa"}
    code, told = osvl("export", tmp_path / "back", "--out", tmp_path / "b")
    assert code == 0
    assert (tmp_path / "a" / f"{NAME}.json").read_bytes() == (tmp_path / "b" / f"{NAME}.json").read_bytes()


def test_rows_that_cannot_be_read_are_counted_and_the_code_says_so(osvl: Osvl, tmp_path: Path) -> None:
    run, records = example_run(tmp_path / "run")
    osvl("export", run, "--out", tmp_path / "a")
    file = tmp_path / "a" / f"{NAME}.json"
    rows = json.loads(file.read_text(encoding="utf-8"))
    rows += [7, {**rows[0], "system": "other"}, {**rows[0], "images": ["../x", "../y"]}, rows[0]]
    file.write_text(json.dumps(rows), encoding="utf-8")
    code, told = osvl("import", file, "--out", tmp_path / "back")
    assert (code, told["read"]) == (3, len(records) + 1)  # the first row twice: two samples of one question
    assert told["unread"] == {"bad_row": 1, "other_prompt": 1, "bad_picture": 1}
    ids = [record.id for record in read_records(tmp_path / "back", RolloutRecord)]
    assert len(set(ids)) == len(ids)


def test_rl_rows_out_and_in(osvl: Osvl, tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run")
    code, told = osvl("export", run, "--format", "rl", "--out", tmp_path / "out")
    assert (code, told["exported"], told["left_out"]) == (0, 3, {"no_picture": 1})
    code, told = osvl("import", tmp_path / "out" / RL_FILE, "--out", tmp_path / "back")
    assert (code, told["format"], told["read"]) == (0, "rl", 3)
    back = list(read_records(tmp_path / "back", QuestionRecord))
    assert [record.task and record.task.gold for record in back] == [r.task and r.task.gold for r in records[:3]]


def test_an_import_goes_on_where_it_stopped(osvl: Osvl, tmp_path: Path) -> None:
    run, _ = question_run(tmp_path / "run")
    osvl("export", run, "--format", "parquet", "--out", tmp_path / "out")
    osvl("import", tmp_path / "out", "--out", tmp_path / "whole")
    osvl("import", tmp_path / "out", "--out", tmp_path / "back")
    records = tmp_path / "back" / "records.jsonl"
    records.write_bytes(records.read_bytes()[:-40])  # killed while writing
    with pytest.raises(RunExists):
        osvl("import", tmp_path / "out", "--out", tmp_path / "back")
    code, told = osvl("import", tmp_path / "out", "--out", tmp_path / "back", "--resume")
    assert (code, told["read"]) == (0, 4)
    assert digest(tmp_path / "back") == digest(tmp_path / "whole")


def test_a_split_gives_runs_that_share_nothing(osvl: Osvl, tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run", 12)
    code, told = osvl("split", run, "--rl", 3, "--test", 2, "--out", tmp_path / "split")
    assert (code, told["sets"], told["dropped"]) == (0, {"test": 2, "rl": 3, "sft": 7}, {})
    seen: set[str] = set()
    for name, num in told["sets"].items():
        part = tmp_path / "split" / name
        members = list(read_records(part, QuestionRecord))
        assert len(members) == num
        titles = {title for record in members if record.task for title in record.task.provenance.path}
        assert not titles & seen
        seen |= titles
        manifest = read_manifest(part)
        assert manifest["origin"]["wiki"] == "Miniature"
        assert manifest["split"]["sets"] == told["sets"]
        code, facts = osvl("export", part, "--format", "parquet", "--out", tmp_path / f"{name}-out")
        assert (code, facts["exported"]) == (0, num)
        card = (tmp_path / f"{name}-out" / "README.md").read_text(encoding="utf-8")
        assert "| set rl | 3 |" in card and "| split seed | 0 |" in card and "| wiki | Miniature |" in card
    assert len(seen) == 2 * len(records)
    assert told["named_in_several_sets"] == 0
    assert osvl("split", run, "--rl", 3, "--test", 2, "--out", tmp_path / "again")[1]["sets"] == told["sets"]
    assert [digest(tmp_path / "again" / name) for name in told["sets"]] == [
        digest(tmp_path / "split" / name) for name in told["sets"]
    ]


def test_what_a_split_drops_is_listed_and_an_empty_rest_is_partial(osvl: Osvl, tmp_path: Path) -> None:
    run, records = question_run(tmp_path / "run", 5)
    rows = []
    for record in records:
        assert record.task is not None
        known = record.task.provenance.model_copy(update={"path": (record.task.provenance.path[0], "Hub")})
        task = record.task.model_copy(update={"provenance": known})
        rows.append(record.model_copy(update={"task": task}).model_dump_json())
    (run / "records.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    code, told = osvl("split", run, "--rl", 2, "--out", tmp_path / "split")
    assert (code, told["sets"]) == (3, {"rl": 2, "sft": 0})
    assert told["bridges"][0] == {"entity": "entity:hub", "dropped": sum(told["dropped"].values())}
    lost = lines_of(tmp_path / "split" / "dropped.jsonl")
    assert len(lost) == 3
    assert all("entity:hub" in row["inside"] for row in lost)


def test_wrong_usage(osvl: Osvl, tmp_path: Path) -> None:
    run, _ = question_run(tmp_path / "run")
    out = tmp_path / "out"
    for arguments in (
        ("export", run, "--out", out, "--all"),
        ("export", run, "--out", out, "--format", "rl", "--split", "a=b"),
        ("export", run, "--out", out, "--format", "parquet", "--split", "nothing"),
        ("export", run, "--out", out, "--format", "parquet", "--split", f"train={run}"),
        ("split", run, "--out", out),
    ):
        with pytest.raises(UsageError):
            osvl(*arguments)
    assert osvl("export", run, "--out", out, "--format", "csv")[0] == 2
    for source in (tmp_path / "lost", tmp_path):
        with pytest.raises(DataError):
            osvl("import", source, "--out", out)
    with pytest.raises(DataError, match="fewer than the 99"):
        osvl("split", run, "--rl", 99, "--out", out)
    with pytest.raises(DataError, match="no finished question"):
        osvl("split", example_run_of_nothing(tmp_path / "none"), "--rl", 1, "--out", out)
    assert not out.exists()


def example_run_of_nothing(folder: Path) -> Path:
    run, _ = question_run(folder, 1)
    (run / "records.jsonl").write_text("", encoding="utf-8")
    return run


@pytest.mark.parametrize("content", ["", "{", "[]", "[1]", "null"])
def test_files_without_a_row_say_so(osvl: Osvl, tmp_path: Path, content: str) -> None:
    for name in ("x.json", "x.jsonl"):
        (tmp_path / name).write_text(content + "\n", encoding="utf-8")
        with pytest.raises((DataError, RecordError), match=r"x\.json"):
            osvl("import", tmp_path / name, "--out", tmp_path / f"{name}-run")


def test_what_cannot_be_trained_on_is_said_to_be(osvl: Osvl, tmp_path: Path) -> None:
    run, _ = example_run(tmp_path / "run")
    osvl("export", run, "--out", tmp_path / "a")
    osvl("import", tmp_path / "a" / f"{NAME}.json", "--out", tmp_path / "back")
    with pytest.raises(DataError, match="does not say what the policy was told"):
        layout_of(tmp_path / "back")
    manifest = read_manifest(run)
    del manifest["agent"]["settings"]
    (run / "manifest.json").write_text(json.dumps(manifest | {"config": {}}), encoding="utf-8")
    with pytest.raises(DataError, match="does not hold the agent's settings"):
        layout_of(run)
