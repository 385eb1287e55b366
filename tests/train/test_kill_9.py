"""`kill -9` at awkward moments: a resumed training ends as if nothing had happened."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runner import SRC
from training_fixtures import make_runs

pytest.importorskip("torch")
pytest.importorskip("trl")

DRIVER = Path(__file__).parents[1] / "killed_training.py"

SFT = [
    "precision=fp32", "gradient_checkpointing=false", "batch_size=4", "per_device=4", "max_steps=5", "save_every=2",
    "log_every=1", "image_max_pixels=null", "threads=1", "learning_rate=0.003",
]  # fmt: skip
RL = [
    "rl.prompts_per_step=2", "rl.group_size=2", "rl.minibatches=2", "rl.steps=6", "rl.per_device=2", "rl.save_every=2",
    "rl.precision=fp32", "rl.gradient_checkpointing=false", "rl.image_max_pixels=null", "rl.threads=1",
    "rl.learning_rate=0.01", "rl.loss.kl_coef=0.01",
    "agent.profile=miniature", "agent.sampling.max_tokens=8", "agent.max_turns=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("work")
    make_runs(root)
    return root


def killed(command: list[str], settings: list[str], out: Path, scenarios: dict[str, list[str]]) -> dict[str, Any]:
    """What became of each scenario, the uninterrupted run (`whole`) among them."""
    overrides = [part for setting in settings for part in ("--set", setting)]
    plan = {"command": ["train", *command, *overrides], "out": str(out), "scenarios": {"whole": [], **scenarios}}
    (out / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(out / "plan.json")],
        env={**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_equal(found: dict[str, Any], scenarios: dict[str, list[str]], kills: bool = True) -> None:
    whole = found["whole"]
    assert whole["codes"] == [0] and whole["weights"], whole["log"]
    for name, moments in scenarios.items():
        codes = found[name]["codes"]
        assert codes[-1] == 0, (name, codes, found[name]["log"])
        if kills:
            assert codes[:-1] == [-9] * len(moments), (name, codes, found[name]["log"])
        assert found[name]["digest"] == whole["digest"], name
        assert found[name]["weights"] == whole["weights"], name


def test_fine_tuning_goes_on_after_kill_9(folder: Path, checkpoint: Path, tmp_path: Path) -> None:
    scenarios = {"in a row of metrics beyond the checkpoint, then in a checkpoint's state": ["metric:4", "state:1"]}
    command = ["sft", str(folder / "trajectories")]
    assert_equal(killed(command, [*SFT, f"model={checkpoint}"], tmp_path, scenarios), scenarios)


@pytest.mark.slow
def test_fine_tuning_goes_on_after_kill_9_at_any_moment(folder: Path, checkpoint: Path, tmp_path: Path) -> None:
    scenarios = {
        "before anything": ["metric:1"],
        "in a checkpoint's weights": ["weights:2"],
        "in the last model": ["tokenizer:4"],
        "in the first checkpoint": ["weights:1", "metric:4"],
        "in the optimiser": ["torch.save:4"],
        "while an old checkpoint is deleted": ["rotation:1"],
        "before a checkpoint has its image processor": ["checkpoint done:1"],
        "in the last checkpoint, again and again": ["state:3", "state:1", "state:1"],
        "in the last weights": ["weights:4"],
    }
    command = ["sft", str(folder / "trajectories")]
    assert_equal(killed(command, [*SFT, f"model={checkpoint}"], tmp_path, scenarios), scenarios)
    lora = {"within": ["metric:4"], "at the end": ["tokenizer:4"]}
    settings = [*SFT, f"model={checkpoint}", "lora.rank=4", "max_steps=4"]
    (tmp_path / "lora").mkdir()
    assert_equal(killed(command, settings, tmp_path / "lora", lora), lora)


@pytest.mark.slow
def test_reinforcement_learning_goes_on_after_kill_9(folder: Path, checkpoint: Path, tmp_path: Path) -> None:
    scenarios = {
        "in a record of a rollout beyond the checkpoint": ["record:7"],
        "in a row of metrics": ["metric:3"],
        "in a checkpoint's weights, then in its state": ["weights:2", "state:1"],
        "in the optimiser": ["torch.save:4"],
        "while an old checkpoint is deleted": ["rotation:1"],
        "in the last model": ["tokenizer:4"],
    }
    command = ["rl", str(folder / "questions")]
    assert_equal(killed(command, [*RL, f"rl.model={checkpoint}"], tmp_path, scenarios), scenarios)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sft", "rl"])
def test_kill_9_after_some_time(folder: Path, checkpoint: Path, tmp_path: Path, kind: str) -> None:
    """From outside, at moments nobody chose; a child may also be done before its time."""
    scenarios = {f"{seconds} s": [f"after {seconds}"] * 3 for seconds in (0.3, 0.7, 1.1, 1.9)}
    command = [kind, str(folder / ("trajectories" if kind == "sft" else "questions"))]
    settings = [*SFT, f"model={checkpoint}"] if kind == "sft" else [*RL, f"rl.model={checkpoint}"]
    assert_equal(killed(command, settings, tmp_path, scenarios), scenarios, kills=False)
