"""Every shipped configuration loads, and the plans say that it fits what it is meant for."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from opensearch_vl.config import load_config
from opensearch_vl.rl.settings import RlConfig
from opensearch_vl.sft.budget import make_plan
from opensearch_vl.sft.settings import SftSettings

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("file", sorted((CONFIGS / "sft").glob("*.yaml")), ids=lambda file: file.stem)
def test_sft_configs_load(file: Path) -> None:
    load_config(SftSettings, file)


@pytest.mark.parametrize("file", sorted((CONFIGS / "rl").glob("*.yaml")), ids=lambda file: file.stem)
def test_rl_configs_load_and_divide(file: Path) -> None:
    config = load_config(RlConfig, file)
    assert config.rl.prompts_per_step * config.rl.group_size % (config.rl.per_device * config.rl.minibatches) == 0
    assert config.rl.save_every % config.rl.minibatches == 0
    assert config.agent.fatal_after == config.reward.fatal_after


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("qwen3-vl-8b", {"devices": 8}),
        ("qwen3-vl-30b-a3b", {"devices": 32}),
        ("qwen3-vl-32b", {"devices": 32}),
        ("qwen3-vl-8b-lora-8x24gb", {"devices": 8, "memory_gib": 24.0, "sharding": "none"}),
    ],
)
def test_plans_fit(name: str, where: dict[str, Any]) -> None:
    assert make_plan(load_config(SftSettings, CONFIGS / "sft" / f"{name}.yaml"), **where).warnings == ()


@pytest.mark.parametrize("name", ["8b", "30b-a3b", "32b"])
def test_the_papers_settings_are_the_papers(name: str) -> None:
    sft = load_config(SftSettings, CONFIGS / "sft" / f"qwen3-vl-{name}.yaml")
    assert (sft.learning_rate, sft.batch_size, sft.epochs, sft.warmup) == (2e-5, 256, 8, 0.1)
    assert (sft.max_tokens, sft.image_max_pixels, sft.freeze_vision, sft.lora) == (32_000, 262_144, False, None)
    rl = load_config(RlConfig, CONFIGS / "rl" / f"qwen3-vl-{name}.yaml").rl
    assert (rl.prompts_per_step, rl.group_size) == (256, 8 if name == "8b" else 16)
    assert rl.prompts_per_step // rl.minibatches == {"8b": 64, "30b-a3b": 128, "32b": 64}[name]
    assert (rl.learning_rate, rl.loss.clip_high, rl.loss.kl_coef) == (1e-6, 0.28, 0.0)


def test_llamafactory_and_accelerate_files_agree_with_ours() -> None:
    ours = load_config(SftSettings, CONFIGS / "sft" / "qwen3-vl-8b.yaml")
    theirs = yaml.safe_load((CONFIGS / "llamafactory" / "qwen3-vl-8b-sft.yaml").read_text())
    assert theirs["model_name_or_path"] == ours.model
    assert theirs["cutoff_len"] == ours.max_tokens
    assert theirs["image_max_pixels"] == ours.image_max_pixels
    assert theirs["per_device_train_batch_size"] * theirs["gradient_accumulation_steps"] * 8 == ours.batch_size
    assert yaml.safe_load((CONFIGS / "accelerate" / "zero3.yaml").read_text())["deepspeed_config"]["zero_stage"] == 3
