"""The command frame: exit codes, one clear line per failure, clean stdout, quick help."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import SRC, osvl


def test_help_is_quick_and_loads_no_heavy_library() -> None:
    best = 9.0
    for _ in range(3):
        before = os.times()
        assert osvl("--help").returncode == 0
        after = os.times()  # processor time: what the command costs, whatever else the machine does
        spent = after.children_user - before.children_user + after.children_system - before.children_system
        best = min(best, spent)
    assert best < 0.5, f"osvl --help took {best:.2f} s"
    code = "import sys, opensearch_vl.cli.app; print([m for m in ('pydantic','numpy','cv2','torch','duckdb','pyarrow','openai') if m in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [["digest"], ["no-such-verb"], ["digest", "--no-such-option", "x"]])
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    assert osvl(*arguments).returncode == 2


def test_a_failure_is_one_line_with_exit_1(tmp_path: Path) -> None:
    done = osvl("digest", str(tmp_path / "nothing"))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "not a run folder" in done.stderr


def test_doctor_prints_one_json_object_and_never_a_key(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=very-secret-value\n")
    done = osvl("doctor", "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert done.returncode == 0 and result["ok"] is True
    assert {"name": "OPENAI_API_KEY", "status": "ok", "detail": "set", "fix": ""} in result["checks"]
    assert "very-secret-value" not in done.stdout + done.stderr


def test_doctor_names_an_unreachable_server_and_the_fix(tmp_path: Path) -> None:
    done = osvl("doctor", "--json", "--base-url", "http://127.0.0.1:9/v1", cwd=tmp_path)
    server = next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "model server")
    assert done.returncode == 1 and server["status"] == "broken" and "running" in server["fix"]
    assert "[train]" in osvl("doctor", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    "module", ["typer", "opensearch_vl.errors", "opensearch_vl.cli.wiki", "opensearch_vl.cli.wiring"]
)
def test_ctrl_c_while_the_command_loads_is_one_line(module: str) -> None:
    code = f"""
import os, signal, sys
class Interrupt:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000): pass  # a Python handler runs between two instructions
sys.meta_path.insert(0, Interrupt())
from opensearch_vl.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "version"],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130
    assert done.stdout == "" and done.stderr.strip() == "osvl: stopped."
