"""The plan counts parameters as the models have them, and warns of what does not fit."""

import json
from pathlib import Path
from typing import Any

import pytest

from opensearch_vl.errors import ConfigError
from opensearch_vl.sft.budget import KNOWN, count_parameters, lora_parameters, make_plan, model_config
from opensearch_vl.sft.settings import LoraSettings, SftSettings


def test_parameters_of_the_miniature_checkpoint(checkpoint: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint)
    counted = count_parameters(model_config(str(checkpoint)))
    assert counted.total == counted.active == model.num_parameters()
    assert counted.vision == sum(p.numel() for p in model.model.visual.parameters())


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_of_the_papers_models_equal_transformers_on_the_meta_device(name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = KNOWN[name]
    kind = "Qwen3VLMoe" if "moe" in config else "Qwen3VL"
    text = {**config["text_config"], **config.get("moe", {})}
    made = getattr(transformers, f"{kind}Config")(
        text_config=text, vision_config=config["vision_config"], tie_word_embeddings=False
    )
    with torch.device("meta"):
        model = getattr(transformers, f"{kind}ForConditionalGeneration")(made)
    counted = count_parameters(config)
    assert counted.total == sum(p.numel() for p in model.parameters())
    assert counted.vision == sum(p.numel() for p in model.model.visual.parameters())


@pytest.mark.parametrize(("name", "billions"), [("8B", 8.77), ("32B", 33.4), ("30B-A3B", 31.1)])
def test_parameters_are_of_the_size_that_the_names_say(name: str, billions: float) -> None:
    counted = count_parameters(KNOWN[f"Qwen3-VL-{name}-Instruct"])
    assert counted.total / 1e9 == pytest.approx(billions, rel=0.01)
    if "A3B" in name:
        assert 3e9 < counted.active < 4e9


def plan(**changes: Any) -> Any:
    extra = {key: changes.pop(key) for key in ("devices", "memory_gib", "sharding") if key in changes}
    return make_plan(SftSettings.model_validate({"model": "Qwen/Qwen3-VL-8B-Instruct", **changes}), **extra)


def test_memory_by_hand() -> None:
    made = plan(devices=8)
    total = made.parameters.total
    assert made.weights_gib == pytest.approx(total * 2 / 8 / 1024**3)
    assert made.optimiser_gib == pytest.approx(total * 12 / 8 / 1024**3)
    assert made.tokens_per_step == 256 * 32_000
    assert made.accumulation == 32
    assert made.warnings == ()


def test_what_does_not_fit_is_said() -> None:
    assert any("do not fit" in w for w in plan(devices=8, memory_gib=24).warnings)
    assert any("ZeRO-3 shards" in w for w in plan(devices=8, memory_gib=24, sharding="none").warnings)
    assert any("checkpointing" in w for w in plan(gradient_checkpointing=False).warnings)
    assert any("not bounded" in w for w in plan(image_max_pixels=None, max_tokens=8000).warnings)
    assert any("experts" in w for w in plan(model="Qwen3-VL-30B-A3B-Instruct", lora=LoraSettings()).warnings)


def test_adapters_need_little() -> None:
    full, small = plan(), plan(lora=LoraSettings(rank=64))
    assert small.trained < full.trained / 30
    assert small.optimiser_gib < full.optimiser_gib / 30


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # inside peft
def test_adapters_are_counted_as_peft_makes_them(checkpoint: Path) -> None:
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint)
    config = peft.LoraConfig(r=4, target_modules="all-linear", exclude_modules=r".*visual.*", task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(model, config)
    trained = sum(p.numel() for p in wrapped.parameters() if p.requires_grad)
    assert lora_parameters(model_config(str(checkpoint)), 4) == trained


def test_unknown_models_and_batches_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint"):
        model_config(str(tmp_path))
    with pytest.raises(ConfigError, match="not a multiple"):
        plan(devices=7)


def test_a_checkpoint_with_experts_is_read_from_its_file(tmp_path: Path) -> None:
    known = KNOWN["Qwen3-VL-30B-A3B-Instruct"]
    text = {**known["text_config"], **known["moe"]}
    (tmp_path / "config.json").write_text(json.dumps({**known, "text_config": text, "moe": None}))
    assert count_parameters(model_config(str(tmp_path))) == count_parameters(known)
