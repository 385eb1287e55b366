"""`osvl questions build` with a served model, and `osvl data synthesise`: what `--resume` and `--budget` hold to."""

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
import typer
from cli.test_data import NoSettings, make_questions
from expert_world import WorldTools
from obedient_model import obey
from stub_openai import StubOpenAI, completion
from typer.testing import CliRunner

from opensearch_vl.cli.data import register
from opensearch_vl.cli.questions import app
from opensearch_vl.errors import ConfigError, RunMismatch
from opensearch_vl.runs import RunFolder, read_manifest, records_digest
from opensearch_vl.types import QuestionRecord
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.miniature import write_miniature


@pytest.fixture(scope="module")
def wiki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    info = write_miniature(folder, pages=150, seed=3, max_pictures=0, workers=1)
    return build_wiki(info.dump, folder / "wiki")


@contextmanager
def served(models=("stub",)):
    """A stub server in a thread of its own, as a command sees it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = StubOpenAI([lambda body: completion(obey(body["messages"][-1]["content"]))], models=models)
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


RULES = ("walks.min_in_degree=15", "walks.require_image=false", "walks.edges=stated", "answer.min_key_pages=3",
         "fuzz.min_shared=3", "anchor.required=false", "shallow_first_hop=true")  # fmt: skip


def build(wiki, out, *more):
    settings = [option for rule in RULES for option in ("--set", rule)]
    return CliRunner().invoke(app, ["build", str(wiki.root), "--out", str(out), "--no-ocr", "--json", *settings, *more])


def test_the_model_the_budget_and_the_way_on(wiki, tmp_path) -> None:
    out = tmp_path / "run"
    with served() as server:
        url = ("--base-url", server.url, "--price", "10,10")
        stopped = build(wiki, out, *url, "--budget", "0.004")
        assert stopped.exit_code == 3, stopped.output
        found = json.loads(stopped.stdout)
        assert found["stopped"] == "budget"
        assert all(row["came_in"] == row["passed"] + sum(row["reasons"].values()) for row in found["stages"])
        assert "Raise --budget and continue with --resume." in stopped.stderr
        assert len(server.requests) == 3  # at 0.0012 each
        assert read_manifest(out)["model"] == "stub"  # the only one of the server

        for other, said in ((["--model", "another", *url], "'another'"), ([], "none")):
            refused = build(wiki, out, *other, "--resume")
            assert isinstance(refused.exception, RunMismatch)
            assert "model 'stub'" in refused.exception.message and said in refused.exception.message
        paid = len(server.requests)
        done = build(wiki, out, *url, "--model", "stub", "--resume", "--budget", "9")
        assert done.exit_code == 0, done.output
        sent = [json.dumps(body, sort_keys=True) for body in server.requests]
        assert len(sent) == len(set(sent)) > paid
    assert "stopped" not in json.loads(done.stdout)


def test_prose_needs_a_model(wiki, tmp_path) -> None:
    for rule in ("answer.source=llm", "fuzz.use_prose=true"):
        refused = build(wiki, tmp_path / rule, "--set", rule)
        assert isinstance(refused.exception, ConfigError)
        assert "--model" in str(refused.exception)


def test_synthesis_resumes_on_the_same_questions_only(tmp_path) -> None:
    command = typer.Typer()
    register(command, lambda wiki, index, web, store: WorldTools(store))
    questions, out = make_questions(tmp_path / "questions"), tmp_path / "run"
    arguments = ["data", "synthesise", str(questions), "--out", str(out), "--set", "synthesis.samples=1", "--json"]
    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert read_manifest(out)["questions_digest"] == records_digest(questions)
    assert CliRunner().invoke(command, [*arguments, "--resume"]).exit_code == 0
    with RunFolder(questions, NoSettings(), resume=True) as run:
        run.append(QuestionRecord(id="q10", stage="walk", reason="dead_end"))
    refused = CliRunner().invoke(command, [*arguments, "--resume"])
    assert isinstance(refused.exception, RunMismatch)
    assert "questions_digest" in refused.exception.message and "\n" not in refused.exception.message
