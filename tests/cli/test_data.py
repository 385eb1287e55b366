"""`osvl data`: synthesise, export and view over run folders."""

import json
from pathlib import Path

import pytest
import typer
from expert_world import WorldTools, make_task, store_with_photo
from typer.testing import CliRunner

from opensearch_vl.cli.data import register
from opensearch_vl.config import Config
from opensearch_vl.errors import DataError, ModelError, ModelKeyRefused, RunExists
from opensearch_vl.images import ImageStore
from opensearch_vl.runs import RunFolder
from opensearch_vl.types import QuestionRecord


class NoSettings(Config):
    pass


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    register(app, lambda wiki, index, web, store, brief: WorldTools(store))  # type: ignore[arg-type, return-value]
    return app


def make_questions(path: Path) -> Path:
    with RunFolder(path, NoSettings()) as run:
        _, photo = store_with_photo(run.images.root)
        for n in (2, 3):
            run.append(QuestionRecord(id=f"q{n}", task=make_task(n, images=(photo,))))
        run.append(QuestionRecord(id="q9", stage="walk", reason="dead_end"))
    return path


def test_from_questions_to_a_page_and_an_export(app: typer.Typer, tmp_path: Path) -> None:
    questions, run = make_questions(tmp_path / "questions"), tmp_path / "run"
    invoke = CliRunner().invoke
    done = invoke(
        app, ["data", "synthesise", str(questions), "--out", str(run), "--set", "synthesis.samples=2", "--json"]
    )
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["done"], facts["accepted"], facts["accuracy"]["rate"]) == (4, 4, 1.0)
    again = invoke(app, ["data", "synthesise", str(questions), "--out", str(run), "--set", "synthesis.samples=2"])
    assert isinstance(again.exception, RunExists)
    exported = invoke(app, ["data", "export", str(run), "--out", str(tmp_path / "out"), "--json"])
    assert json.loads(exported.stdout)["exported"] == 4
    shown = invoke(
        app, ["data", "view", str(run), "--out", str(tmp_path / "new" / "page.html"), "--limit", "3", "--json"]
    )
    assert shown.exit_code == 0
    assert "1 more are not shown" in (tmp_path / "new" / "page.html").read_text(encoding="utf-8")


def test_when_every_rollout_fails_the_reason_is_said(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        name = "down"

        async def complete(self, *_: object, **__: object) -> None:
            raise ModelKeyRefused("The server refused the key (HTTP 401).")

    monkeypatch.setattr("opensearch_vl.cli.ask.chat_model", lambda *_: Down())
    questions = make_questions(tmp_path / "questions")
    arguments = ["data", "synthesise", str(questions), "--out", str(tmp_path / "run"), "--set", "expert.model=m"]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, ModelError) and "refused the key" in done.exception.message
    assert done.stdout == ""


def test_noise_is_a_setting_and_rejections_are_counted(app: typer.Typer, tmp_path: Path) -> None:
    questions = make_questions(tmp_path / "questions")
    arguments = [
        "data",
        "synthesise",
        str(questions),
        "--out",
        str(tmp_path / "run"),
        "--set",
        "expert.noise=1.0",
        "--json",
    ]
    facts = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert facts["done"] == 10
    assert sum(facts["rejected"].values()) == 10 - facts["accepted"] > 0


def test_a_run_without_questions_says_what_to_do(app: typer.Typer, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "questions", NoSettings()) as run:
        run.append(QuestionRecord(id="q9", stage="walk", reason="dead_end"))
    done = CliRunner().invoke(app, ["data", "synthesise", str(tmp_path / "questions"), "--out", str(tmp_path / "run")])
    assert isinstance(done.exception, DataError)
    assert "osvl questions build" in str(done.exception)
    assert not ImageStore(tmp_path / "run" / "images").root.exists()
