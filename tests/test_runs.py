"""Run folders: resumable, locked, repaired, comparable."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opensearch_vl import runs
from opensearch_vl.config import Config
from opensearch_vl.errors import DataError, RecordError, RunExists, RunLocked, RunMismatch, StorageFull
from opensearch_vl.runs import RunFolder, digest, read_json_lines, read_manifest, read_records
from opensearch_vl.types import QuestionRecord


class Settings(Config):
    rate: float = 0.5
    api_key: str = ""


def record(number: int, **more: object) -> QuestionRecord:
    return QuestionRecord(id=f"q{number}", reason=f"reason {number}", draft={"n": number, **more})  # type: ignore[dict-item]


def test_order_and_volatile_fields_do_not_change_the_digest(tmp_path: Path) -> None:
    for name, order, seconds in (("a", (1, 2, 3), 0.1), ("b", (3, 1, 2), 9.9)):
        with RunFolder(tmp_path / name, Settings()) as run:
            for number in order:
                run.append(record(number, seconds=seconds, nested={"cost": seconds}))
            run.metric({"step": 0, "loss": 1.5, "seconds": seconds})
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    with RunFolder(tmp_path / "c", Settings()) as run:
        run.append(record(1))
    assert digest(tmp_path / "c") != digest(tmp_path / "a")


def test_an_existing_run_is_kept_unless_resume_is_given(tmp_path: Path) -> None:
    with RunFolder(tmp_path, Settings()) as run:
        run.append(record(1))
    with pytest.raises(RunExists):
        RunFolder(tmp_path, Settings())
    with pytest.raises(RunMismatch):
        RunFolder(tmp_path, Settings(rate=0.6), resume=True)
    with RunFolder(tmp_path, Settings(), resume=True) as run:
        assert run.done == {"q1"}
        run.append(record(2))
        with pytest.raises(RecordError, match="q1"):
            run.append(record(1))
    assert [r.id for r in read_records(tmp_path, QuestionRecord)] == ["q1", "q2"]


def test_a_run_is_not_resumed_with_another_seed_or_wiki(tmp_path: Path) -> None:
    begun = {"seed": 0, "wiki": "Miniature", "num": 5}
    with RunFolder(tmp_path, Settings(), begun):
        pass
    for other in ({"seed": 1}, {"wiki": "Wikipedia"}):
        with pytest.raises(RunMismatch, match=str(next(iter(other.values())))):
            RunFolder(tmp_path, Settings(), begun | other, resume=True)
    with RunFolder(tmp_path, Settings(), begun | {"num": 9}, resume=True):
        pass


def test_the_digest_of_a_folder_covers_the_runs_inside(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        with RunFolder(tmp_path / name, Settings()), RunFolder(tmp_path / name / "part", Settings()) as part:
            part.append(record(2 if name == "c" else 1))
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")


@pytest.mark.parametrize("torn", [b'{"id": "q2", "ki', b'{"id": "q2"}', b"\x00\xff", b"x" * 200_000])
def test_a_torn_last_line_is_cut_off_on_resume(tmp_path: Path, torn: bytes) -> None:
    with RunFolder(tmp_path, Settings()) as run:
        run.append(record(1))
    file = tmp_path / "records.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + torn)
    assert [row["id"] for row in read_json_lines(file)] == ["q1"]
    with RunFolder(tmp_path, Settings(), resume=True) as run:
        assert run.done == {"q1"}
    assert file.read_bytes() == whole


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    with RunFolder(tmp_path, Settings()):
        pass
    (tmp_path / "records.jsonl").write_bytes(b'{"id": "q1"')
    with RunFolder(tmp_path, Settings(), resume=True) as run:
        assert run.done == set()
    assert (tmp_path / "records.jsonl").read_bytes() == b""


def test_two_writers_cannot_hold_one_run(tmp_path: Path) -> None:
    with RunFolder(tmp_path, Settings()), pytest.raises(RunLocked):
        RunFolder(tmp_path, Settings(), resume=True)
    with RunFolder(tmp_path, Settings(), resume=True):
        pass


def test_kill_at_any_moment_never_leaves_a_broken_or_doubled_record(tmp_path: Path) -> None:
    script = """
import sys, itertools
from opensearch_vl.runs import RunFolder
from opensearch_vl.types import QuestionRecord
from opensearch_vl.config import Config
with RunFolder(sys.argv[1], Config(), resume=True) as run:
    print("go", flush=True)
    for n in itertools.count():
        if f"q{n}" not in run.done:
            run.append(QuestionRecord(id=f"q{n}", reason="x" * 5000))
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, env=env)
        assert child.stdout is not None
        child.stdout.readline()
        try:
            child.wait(timeout=0.15)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    with RunFolder(tmp_path, Config(), resume=True) as run:
        done = run.done
    ids = [r.id for r in read_records(tmp_path, QuestionRecord)]
    assert len(ids) == len(set(ids)) == len(done) > 0
    assert ids == [f"q{n}" for n in range(len(ids))]


def test_a_full_disk_is_one_clear_error_and_the_file_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.write

    def full(fd: int, data: bytes) -> int:
        real_write(fd, data[:7])
        raise OSError(28, "No space left on device")

    with RunFolder(tmp_path, Settings()) as run:
        run.append(record(1))
        monkeypatch.setattr(runs.os, "write", full)
        with pytest.raises(StorageFull, match="No space left"):
            run.append(record(2))
        monkeypatch.undo()
        run.append(record(2))
    assert [r.id for r in read_records(tmp_path, QuestionRecord)] == ["q1", "q2"]


def test_secrets_are_redacted_in_records_and_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2-hunter2")
    with RunFolder(tmp_path, Settings(api_key="abcdefgh"), {"note": "Bearer hunter2-hunter2"}) as run:
        run.append(QuestionRecord(id="q1", reason="failed: key hunter2-hunter2 refused, sk-abcdefghijklmnop"))
    everything = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert b"hunter2" not in everything and b"sk-abcdef" not in everything
    assert json.loads((tmp_path / "manifest.json").read_text())["config"]["api_key"] == "[redacted]"


def test_reading_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run folder"):
        digest(tmp_path)
    with pytest.raises(DataError, match="no file"):
        list(read_records(tmp_path / "none.jsonl", QuestionRecord))
    (tmp_path / "bad.jsonl").write_text('{"id": 5}\n')
    with pytest.raises(RecordError, match="line 1"):
        list(read_records(tmp_path / "bad.jsonl", QuestionRecord))
    (tmp_path / "manifest.json").write_text("[1]")
    with pytest.raises(DataError):
        read_manifest(tmp_path)


def test_an_interrupted_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path, Settings()):
        raise KeyboardInterrupt
    assert read_manifest(tmp_path)["status"] == "interrupted"
