"""`osvl quickstart` on a very small miniature: every part runs, resumes, and fails in one clear line."""

import bz2
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from cli_runner import SRC, osvl

from opensearch_vl.cli import stages
from opensearch_vl.cli.quickstart import why_not_train
from opensearch_vl.cli.quickstart_settings import QuickstartSettings
from opensearch_vl.config import load_config
from opensearch_vl.images import ImageStore
from opensearch_vl.runs import RunFolder, digest, read_records
from opensearch_vl.types import QuestionRecord, RolloutRecord
from opensearch_vl.wiki.tables import WikiFolder

TRAINING = (
    "num=6", "heldout_pages=150", "heldout_num=4", "synthesis.samples=1", "noise=0", "agent.sampling.max_tokens=8",
    "shape.vocab_size=400", "shape.hidden=64", "shape.layers=2", "shape.heads=2", "shape.kv_heads=1",
    "sft.max_steps=3", "sft.batch_size=2", "sft.per_device=2", "sft.save_every=1", "sft.log_every=1",
    "sft.first.trajectories=3", "sft.first.renamed_copies=2", "sft.first.steps=1", "sft.renamed_copies=1", "rl_pool=4", "rl_samples=2",
    "rl.steps=2", "rl.prompts_per_step=2", "rl.group_size=2", "rl.per_device=4", "rl.save_every=1",
)  # fmt: skip
SMALL = ("--pages", "300", "--set", "num=5", "--set", "synthesis.samples=1", "--json", "--no-train")
SMALL += tuple(part for setting in TRAINING for part in ("--set", f"training.{setting}"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("quickstart") / "run"
    done = osvl("quickstart", "--out", str(out), *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return out, json.loads(done.stdout)


def test_the_summary_has_the_promised_figures(made: tuple[Path, dict[str, Any]]) -> None:
    out, summary = made
    assert summary["training"] is None and summary["training_skipped"] == "left out by --no-train."
    assert summary["questions"] == 5 and summary["ungrounded"] == 0
    assert summary["expert"]["scored"] == summary["expert_blinded"]["scored"] == 5
    assert summary["expert_blinded"]["correct"] == 0
    solvers = {"no_tools", "one_text_search", "one_image_search", "image_then_text"}
    assert solvers <= set(summary["solvers"]) and all(summary["solvers"][name]["scored"] == 5 for name in solvers)
    assert set(summary["counterfactuals"]) == {"full", "no_fuzz", "answer_anchored"}
    assert summary["seconds"] > 0 and Path(summary["report"]) == out / "report.html"
    assert json.loads((out / "summary.json").read_text()) == summary


def test_stage_counts_add_up(made: tuple[Path, dict[str, Any]]) -> None:
    out, summary = made
    stages = summary["stages"]
    for above, below in itertools.pairwise(stages):
        assert above["came_in"] - sum(above["reasons"].values()) == above["passed"] == below["came_in"]
    records = list(read_records(out / "questions", QuestionRecord))
    assert stages[0]["came_in"] == len(records)
    assert sum(record.task is not None for record in records) == summary["questions"]


def test_the_report_is_one_file_that_loads_nothing(made: tuple[Path, dict[str, Any]]) -> None:
    html = (made[0] / "report.html").read_text(encoding="utf-8")
    assert "data:image/" in html
    for outside in ('src="http', "src='http", "@import", "<script src", '<link rel="stylesheet"'):
        assert outside not in html


def test_nothing_of_the_gold_reached_the_agent(made: tuple[Path, dict[str, Any]]) -> None:
    records = list(read_records(made[0] / "trajectories", RolloutRecord))
    assert records
    for record in records:
        for step in record.trajectory.steps:
            assert step.call is None or record.task.gold.answer not in json.dumps(dict(step.call.arguments))


def test_resuming_changes_nothing(made: tuple[Path, dict[str, Any]]) -> None:
    out, summary = made
    before = {name: digest(out / name) for name in ("questions", "trajectories", "blinded")}
    torn = out / "trajectories" / "records.jsonl"
    lines = torn.read_bytes().splitlines(keepends=True)
    torn.write_bytes(b"".join(lines[:2]) + lines[2][:100])
    again = osvl("quickstart", "--out", str(out), "--resume", *SMALL)
    assert again.returncode == 0, again.stderr
    assert {name: digest(out / name) for name in before} == before
    ours = json.loads(again.stdout)
    assert ours["expert"] == summary["expert"] and ours["solvers"] == summary["solvers"]


def test_an_export_without_pictures_gives_ungrounded_questions(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """They are counted as such, the expert starts from the name, and whoever needs a picture answers nothing."""
    dump = next((made[0] / "export").glob("dump.xml*"))
    options = ("--set", "num=5", "--set", "synthesis.samples=1", "--set", "noise=0")
    done = osvl("quickstart", "--dump", str(dump), "--out", str(tmp_path / "run"), *options, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["questions"] == summary["ungrounded"] == 5
    assert summary["expert"]["correct"] >= 4 and summary["expert_blinded"]["correct"] == 0
    assert summary["solvers"]["one_image_search"]["correct"] == summary["solvers"]["image_then_text"]["correct"] == 0
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "5 of 5 questions are ungrounded" in html and "--images DIR" in html
    records = list(read_records(tmp_path / "run" / "trajectories", RolloutRecord))
    assert {step.call.name for r in records for step in r.trajectory.steps if step.call} == {"text_search"}


def test_what_is_there_is_not_overwritten(made: tuple[Path, dict[str, Any]]) -> None:
    refused = osvl("quickstart", "--out", str(made[0]), *SMALL)
    assert refused.returncode == 1 and "--resume" in refused.stderr and refused.stdout == ""


@pytest.mark.parametrize("override", [[], ["questions.walks.require_image=false"], ["questions.parallel=2"]])
def test_walks_keep_to_what_the_rules_can_word(override: list[str]) -> None:
    assert load_config(QuickstartSettings, None, override).questions.walks.edges == "stated"
    assert (
        load_config(QuickstartSettings, None, [*override, "questions.walks.edges=any"]).questions.walks.edges == "any"
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no export"),
        (b"", "empty"),
        (b"PK\x03\x04 not a dump", ""),
        (b"<html><body>not a dump</body></html>", ""),
        (bz2.compress(b"<mediawiki></mediawiki>"), ""),
    ],
)
def test_a_bad_export_is_one_clear_line(tmp_path: Path, content: bytes | None, says: str) -> None:
    dump = tmp_path / "dump.xml.bz2"
    if content is not None:
        dump.write_bytes(content)
    failed = osvl("quickstart", "--dump", str(dump), "--out", str(tmp_path / "out"), "--json")
    assert failed.returncode == 1 and failed.stdout == "" and "internal error" not in failed.stderr
    assert failed.stderr.strip().count("\n") == 0 and says in failed.stderr
    assert not (tmp_path / "out" / "wiki").exists()


@pytest.mark.parametrize("wrong", [("--images", "nowhere"), ("--set", "pages=many"), ("--set", "pagez=3")])
def test_wrong_usage_is_refused_before_any_work(tmp_path: Path, wrong: tuple[str, str]) -> None:
    refused = osvl("quickstart", "--out", str(tmp_path / "out"), *wrong)
    assert refused.returncode == 2 and not (tmp_path / "out").exists()


def test_a_folder_is_resumed_only_as_it_was_begun(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    out = str(made[0])
    for other in (("--set", "noise=0.5"), ("--seed", "1"), ("--pages", "400")):
        refused = osvl("quickstart", "--out", out, "--resume", *SMALL, *other)
        assert refused.returncode == 1 and "other settings" in refused.stderr and refused.stdout == ""
    dump = tmp_path / "other.xml"
    dump.write_text("<mediawiki></mediawiki>")
    refused = osvl("quickstart", "--out", out, "--resume", *SMALL, "--dump", str(dump), "--images", str(tmp_path))
    assert refused.returncode == 1 and "not other.xml" in refused.stderr
    assert digest(made[0])


def test_one_process_at_a_time(made: tuple[Path, dict[str, Any]]) -> None:
    overrides = [value for option, value in itertools.pairwise(SMALL) if option == "--set"]
    settings = load_config(QuickstartSettings, None, [f"pages={SMALL[1]}", *overrides])
    with RunFolder(made[0], settings, resume=True):
        refused = osvl("quickstart", "--out", str(made[0]), "--resume", *SMALL)
    assert refused.returncode == 1 and "Another process" in refused.stderr


def test_a_damaged_export_is_used_as_far_as_it_goes_and_said(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    whole = bz2.decompress((made[0] / "export" / "dump.xml.bz2").read_bytes())
    (tmp_path / "half.xml").write_bytes(whole[: len(whole) // 3])
    settings = ("--set", "num=1", "--set", "synthesis.samples=1")
    done = osvl("quickstart", "--dump", str(tmp_path / "half.xml"), "--out", str(tmp_path / "out"), *settings)
    assert done.returncode == 3 and "breaks off" in done.stderr


def test_why_training_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "missing_extra", lambda: "torch")
    assert why_not_train(True, None) == (
        "torch is not installed. pip install 'opensearch-vl[train]', then the same command with --resume."
    )
    assert "second miniature" in why_not_train(True, Path("dump.xml"))
    monkeypatch.setattr(stages, "missing_extra", lambda: None)
    assert why_not_train(True, None) == ""


def test_without_the_extra_the_short_version_is_made(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """The command says in one line what it skips, and ends well."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'trl' else found(name, package)\n"
    )
    arguments = [part if part != "--no-train" else "--train" for part in SMALL]
    path = f"{tmp_path}{os.pathsep}{SRC}"
    done = osvl("quickstart", "--out", str(made[0]), "--resume", *arguments, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["training"] is None
    said = [line for line in done.stderr.splitlines() if "skipped" in line]
    assert len(said) == 1 and "pip install 'opensearch-vl[train]'" in said[0]


def test_training_on_top_of_the_short_version(made: tuple[Path, dict[str, Any]]) -> None:
    """A policy from nothing, fine-tuned, trained by GRPO, measured three times."""
    pytest.importorskip("torch")
    pytest.importorskip("trl")
    arguments = [part if part != "--no-train" else "--train" for part in SMALL]
    done = osvl("quickstart", "--out", str(made[0]), "--resume", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    summary = json.loads(done.stdout)
    training = summary["training"]
    assert training["questions"] == 6 and training["sft"]["steps"] == 3 and training["rl"]["rollouts"] == 8
    assert list(training["heldout"]) == ["untrained", "tuned", "reinforced"]
    asked = 4 - training["heldout_shared_names"]
    assert all(point["scored"] + point["unscored"] == asked > 0 for point in training["heldout"].values())
    sft, rl = training["curves"]["sft"], training["curves"]["rl"]
    assert sft["step"] == [1, 2, 3] and sft["loss"][0] > sft["loss"][2] > 0 and len(sft["token accuracy"]) == 3
    assert rl["step"] == [1, 2] and all(len(rl[name]) == 2 for name in ("reward", "accuracy", "fatal rate"))
    html = (made[0] / "report.html").read_text(encoding="utf-8")
    assert "policy after GRPO, held-out entities" in html and html.count("<svg") >= 3
    wiki = WikiFolder(made[0] / "wiki")
    for record in read_records(made[0] / "training" / "reinforced", RolloutRecord):
        assert all(wiki.resolve(name) is None for name in record.task.provenance.path)


@pytest.mark.slow
def test_resumed_training_repeats_nothing_and_the_policy_is_asked(made: tuple[Path, dict[str, Any]]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("trl")
    arguments = [part if part != "--no-train" else "--train" for part in SMALL]
    training = json.loads(osvl("quickstart", "--out", str(made[0]), "--resume", *arguments).stdout)["training"]
    before = digest(made[0] / "training" / "rl")
    again = osvl("quickstart", "--out", str(made[0]), "--resume", *arguments)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["training"] == training and digest(made[0] / "training" / "rl") == before

    records = read_records(made[0] / "training" / "questions", QuestionRecord)
    record = next(record for record in records if record.task is not None)
    assert record.task is not None
    store = ImageStore(made[0] / "training" / "questions" / "images")
    picture = next(store.root.rglob(f"{record.task.images[0].sha256}.*"))
    asked_it = osvl(
        "ask", str(picture), record.task.question, "--model", str(made[0] / "training" / "rl" / "model"), "--wiki",
        str(made[0] / "wiki"), "--index", str(made[0] / "wiki" / "index"), "--set", "profile=miniature", "--set",
        "sampling.max_tokens=8", "--json",
    )  # fmt: skip
    ending = json.loads(asked_it.stdout)["termination"]  # hardly trained: it babbles, but it ends as it should
    assert ending in ("answered", "turns", "fatal", "tokens") and asked_it.returncode == (ending != "answered")


@pytest.mark.parametrize(
    ("override", "shape"),
    [
        ([], (600, 14, 1060)),
        (["training.sft.first.steps=900"], (600, 14, 900)),
        (["training.sft.first.trajectories=300", "training.sft.first.steps=500"], (300, 14, 500)),
    ],
)
def test_one_value_of_the_first_stage_can_be_changed(override: list[str], shape: tuple[int, int, int]) -> None:
    first = load_config(QuickstartSettings, None, override).training.sft.first
    assert first is not None and (first.trajectories, first.renamed_copies, first.steps) == shape


def test_a_failing_training_part_leaves_the_report_of_the_others(tmp_path: Path) -> None:
    """Training is the default, and its own failure costs nothing that was made before."""
    pytest.importorskip("torch")
    pytest.importorskip("trl")
    arguments = [part for part in SMALL if part != "--no-train"]
    done = osvl("quickstart", "--out", str(tmp_path / "run"), *arguments, "--set", "training.agent.max_turns=1")
    assert done.returncode == 1 and done.stdout == "" and "nothing to train on" in done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["questions"] == 5 and summary["training"] is None and summary["training_skipped"] == ""
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000
