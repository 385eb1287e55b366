"""From a run of trajectories to a trained checkpoint through the commands, and their one-line errors."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("trl")

import synthetic_world as world
from training_fixtures import make_runs

from opensearch_vl.cli import ask, model, train
from opensearch_vl.errors import ConfigError, DataError, RunExists, RunMismatch
from opensearch_vl.images import ImageStore
from opensearch_vl.runs import RunFolder, digest, read_records
from opensearch_vl.sft.source import layout_of, open_source
from opensearch_vl.sft.synthesis import describe
from opensearch_vl.sft.trajectory_config import TrajectoryConfig
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.tools.visual import CropTool, SharpenTool
from opensearch_vl.types import RolloutRecord

pytestmark = pytest.mark.filterwarnings("ignore")  # third-party deprecations inside the training libraries

SMALL = [
    "precision=fp32", "gradient_checkpointing=false", "batch_size=4", "per_device=4", "max_steps=2", "log_every=1",
    "image_max_pixels=null", "threads=1",
]  # fmt: skip
SMALL_RL = [
    "rl.prompts_per_step=2", "rl.group_size=2", "rl.minibatches=1", "rl.steps=1", "rl.per_device=4", "rl.save_every=1",
    "rl.precision=fp32", "rl.gradient_checkpointing=false", "rl.image_max_pixels=null", "rl.threads=1",
    "agent.profile=miniature", "agent.sampling.max_tokens=8", "agent.max_turns=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of trajectories, a run of questions and an initialised checkpoint."""
    root = tmp_path_factory.mktemp("work")
    make_runs(root)
    call("model", "init", str(root / "trajectories"), "--out", str(root / "model"), "--vocab-size", "400")
    return root


def call(*arguments: str, codes: tuple[int, ...] = (0, 3)) -> Any:
    """Run `osvl` with these rooms and return its JSON; errors pass through as exceptions."""
    app = typer.Typer()
    model.register(app)

    def tools_for(wiki: Any, index: Any, web: bool, store: ImageStore, brief: bool) -> Any:
        return world.Tools(world.entities(store, 6))

    train.register(app, tools_for)
    ask.register(app, lambda wiki, index, web, store, brief: Toolbox([CropTool(), SharpenTool()], store))
    result = CliRunner().invoke(app, [*arguments, "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in codes, result.output
    return json.loads(result.stdout)  # one object and nothing else


def with_settings(settings: list[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def test_init_then_sft_then_rl(folder: Path, tmp_path: Path) -> None:
    data, sft = str(folder / "trajectories"), tmp_path / "sft"
    tuned = call(
        "train", "sft", data, "--out", str(sft), *with_settings([*SMALL, f"model={folder / 'model'}"])
    )  # fmt: skip
    assert (tuned["steps"], tuned["examples"], tuned["left_out"]) == (2, 6, {})
    assert 0 < tuned["action_tokens"] < tuned["tokens"]
    renamed = [*SMALL, "renamed_copies=3", f"model={folder / 'model'}"]
    assert call("train", "sft", data, "--out", str(tmp_path / "renamed"), *with_settings(renamed))["examples"] == 18
    staged = [*renamed, "first.trajectories=2", "first.renamed_copies=4", "first.steps=1"]
    assert call("train", "sft", data, "--out", str(tmp_path / "staged"), *with_settings(staged))["examples"] == 8 + 18
    again = call(
        "train", "sft", data, "--out", str(tmp_path / "again"), *with_settings([*SMALL, f"model={folder / 'model'}"])
    )  # fmt: skip
    assert again["loss"] == tuned["loss"]
    assert digest(sft) == digest(tmp_path / "again")
    trained = call(
        "train", "rl", str(folder / "questions"), "--out", str(tmp_path / "rl"),
        *with_settings([*SMALL_RL, f"rl.model={tuned['model']}"]),
    )  # fmt: skip
    assert (trained["steps"], trained["rollouts"], trained["unscored"]) == (1, 4, 0)
    records = list(read_records(tmp_path / "rl", RolloutRecord))
    assert len(records) == 4
    store = ImageStore(tmp_path / "rl" / "images", (ImageStore(folder / "questions" / "images"),))
    assert all(image in store for record in records for image in record.task.images)


def test_a_resumed_run_must_be_given_the_same_data(folder: Path, tmp_path: Path) -> None:
    data, settings = folder / "trajectories", with_settings([*SMALL, f"model={folder / 'model'}"])
    other = tmp_path / "other"
    shutil.copytree(data, other)
    lines = (other / "records.jsonl").read_text().splitlines(keepends=True)
    (other / "records.jsonl").write_text("".join(lines[:-1]))
    call("train", "sft", str(data), "--out", str(tmp_path / "sft"), *settings)
    with pytest.raises(RunMismatch, match="data_digest"):
        call("train", "sft", str(other), "--out", str(tmp_path / "sft"), "--resume", *settings)
    assert json.loads((tmp_path / "sft" / "manifest.json").read_text())["data"] == [str(data)]


def test_a_checkpoint_answers_through_ask(folder: Path) -> None:
    picture = next((folder / "questions" / "images").rglob("*.png"))
    answered = call(
        "ask", str(picture), "When was it founded?", "--model", str(folder / "model"),
        *with_settings(["profile=miniature", "max_turns=2", "sampling.max_tokens=8"]), codes=(0, 1),
    )  # fmt: skip
    assert answered["trajectory"]["model"] == "model"
    assert answered["termination"] in ("answered", "turns", "fatal")  # untrained: it babbles, but it is asked


def test_plan_prints_what_is_needed(tmp_path: Path) -> None:
    config = tmp_path / "plan.yaml"
    config.write_text("model: Qwen/Qwen3-VL-8B-Instruct\n")
    made = call("train", "plan", str(config), "--memory", "24")
    assert made["parameters"] > 8e9
    assert made["gib_per_device"]["total"] == pytest.approx(
        sum(made["gib_per_device"][part] for part in ("weights", "gradients", "optimiser", "activations")), abs=0.3
    )
    assert made["warnings"]


def test_the_layout_is_rebuilt_from_the_run(folder: Path, tmp_path: Path) -> None:
    run = folder / "trajectories"
    manifest = json.loads((run / "manifest.json").read_text())
    assert layout_of(run).hash == manifest["agent"]["prompt_hash"]
    assert len(list(open_source([run], tmp_path).records())) == 6
    other = tmp_path / "other"
    other.mkdir()
    manifest["agent"]["prompt_hash"] = "0" * 16
    (other / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="write otherwise"):
        open_source([run, other], tmp_path)
    (other / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="not a run of trajectories"):
        layout_of(other)
    with pytest.raises(DataError, match="no run"):
        open_source([], tmp_path)


def test_runs_that_were_rolled_out_otherwise_are_not_mixed(folder: Path, tmp_path: Path) -> None:
    env = world.environment(ImageStore(tmp_path), world.Tools([]), layout="rl")
    with RunFolder(tmp_path / "rl-layout", TrajectoryConfig(agent=env.settings)) as run:
        run.write_manifest(agent=describe(env))
    with pytest.raises(DataError, match="another prompt"):
        open_source([folder / "trajectories", tmp_path / "rl-layout"], tmp_path)


def test_a_released_sharegpt_file_is_trained_on_as_it_is(folder: Path, tmp_path: Path) -> None:
    from opensearch_vl.agent.transcript import ChatFormat
    from opensearch_vl.sft.examples import build_examples
    from opensearch_vl.sft.export import export_run

    export_run(folder / "trajectories", tmp_path / "export")
    file = tmp_path / "export" / "opensearch_vl_sft.json"
    source = open_source([file], tmp_path / "pictures")
    chat_format = ChatFormat.load(folder / "model")
    examples = build_examples(source.records(), source.layout, chat_format)
    assert (len(examples.transcripts), dict(examples.left_out)) == (6, {})
    rows = json.loads(file.read_text())
    for row, transcript in zip(rows, examples.transcripts, strict=True):
        replies = [turn["value"] for turn in row["conversations"] if turn["from"] == "gpt"]
        trained = chat_format.tokenizer.decode(transcript.ids[transcript.gen_mask])
        assert trained == "".join(f"{reply}<|im_end|>" for reply in replies)
        whole = chat_format.tokenizer.decode(transcript.ids)
        assert row["system"] in whole and "<tools>" in whole and "<image>" not in whole
        assert len(transcript.images) == len(row["images"])
    rows[0]["system"] += " Be brief."
    mixed = file.with_name("mixed.json")
    mixed.write_text(json.dumps(rows))
    with pytest.raises(DataError, match="differ in system prompt"):
        open_source([mixed], tmp_path / "pictures")
    with pytest.raises(DataError, match="trained on alone"):
        open_source([file, folder / "trajectories"], tmp_path / "pictures")
    mixed.write_text("not json")
    with pytest.raises(DataError, match="not a ShareGPT file"):
        open_source([mixed], tmp_path / "pictures")


def test_errors_are_typed_and_say_what_to_do(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No model"):
        call("train", "sft", str(folder / "trajectories"), "--out", str(tmp_path / "x"))
    with pytest.raises(ConfigError, match="No model"):
        call("train", "rl", str(folder / "questions"), "--out", str(tmp_path / "x"))
    with pytest.raises(ConfigError, match="under other names"):
        settings = with_settings(["rl.model=x", "rl.retold=true"])
        call("train", "rl", str(folder / "questions"), "--out", str(tmp_path / "x"), *settings)
    with pytest.raises(RunExists, match="already holds a checkpoint"):
        call("model", "init", str(folder / "trajectories"), "--out", str(folder / "model"))
    with pytest.raises(DataError, match="not a run folder"):
        call("model", "init", str(tmp_path), "--out", str(tmp_path / "m"))


def test_other_processes_of_a_distributed_run_write_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("RANK", "1")
    with train._first_process(tmp_path / "out", TrajectoryConfig(), {}, resume=False) as run:
        assert run is None
    assert not (tmp_path / "out").exists()
