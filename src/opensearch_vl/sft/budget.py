"""What a training configuration needs: parameters, memory per device, tokens per step.

Arithmetic on a model's configuration alone, so that a plan for a cluster can be made on a laptop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opensearch_vl.errors import ConfigError
from opensearch_vl.sft.settings import SftSettings

GIB = 1024**3

Sharding = Literal["none", "zero2", "zero3"]

_VISION = {
    "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "spatial_merge_size": 2,
    "temporal_patch_size": 2, "in_channels": 3, "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [8, 16, 24],
}  # fmt: skip


def _dense(hidden: int, mlp: int, layers: int, heads: int, kv_heads: int) -> dict[str, Any]:
    text = {
        "hidden_size": hidden, "intermediate_size": mlp, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": 128, "vocab_size": 151936,
    }  # fmt: skip
    return {"text_config": text, "vision_config": {**_VISION, "out_hidden_size": hidden}, "tie_word_embeddings": False}


KNOWN: dict[str, dict[str, Any]] = {
    "Qwen3-VL-8B-Instruct": _dense(4096, 12288, 36, 32, 8),
    "Qwen3-VL-32B-Instruct": _dense(5120, 25600, 64, 64, 8),
    "Qwen3-VL-30B-A3B-Instruct": {
        **_dense(2048, 6144, 48, 32, 4),
        "moe": {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    },
}
"""Shapes of the paper's base models (section 4), by the last part of their name, as their configurations state them."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a model: in all, those a token passes through, and those of the vision tower with its mergers."""

    total: int
    active: int
    vision: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a configuration needs.

    Attributes:
        parameters: Of the model.
        trained: Parameters that the optimiser holds.
        weights_gib, gradients_gib, optimiser_gib, activations_gib: Memory per device.
        tokens_per_step: At most, over all devices.
        accumulation: Forward passes per device and optimiser step.
        warnings: What will not fit or not do what one expects.
    """

    parameters: Parameters
    trained: int
    weights_gib: float
    gradients_gib: float
    optimiser_gib: float
    activations_gib: float
    tokens_per_step: int
    accumulation: int
    warnings: tuple[str, ...]

    @property
    def total_gib(self) -> float:
        """Memory per device, without fragmentation."""
        return self.weights_gib + self.gradients_gib + self.optimiser_gib + self.activations_gib


def model_config(name: str) -> dict[str, Any]:
    """The configuration of a checkpoint directory, or of a known model by name.

    Raises:
        ConfigError: If there is neither.
    """
    file = Path(name) / "config.json"
    if file.is_file():
        loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        text = loaded.get("text_config", {})
        if "num_experts" in text:
            loaded["moe"] = {k: text[k] for k in ("num_experts", "num_experts_per_tok", "moe_intermediate_size")}
        return loaded
    known = KNOWN.get(name.rsplit("/", 1)[-1])
    if known is None:
        raise ConfigError(f"There is no checkpoint {name!r}; known by name: {', '.join(KNOWN)}.")
    return known


def count_parameters(config: Mapping[str, Any]) -> Parameters:
    """Count the parameters of a Qwen3-VL from its configuration."""
    text, vision, moe = config["text_config"], config["vision_config"], config.get("moe")
    hidden, head = text["hidden_size"], text["head_dim"]
    query, key = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    attention = hidden * (query + 2 * key) + query * hidden + 2 * head
    if moe is None:
        mlp = active_mlp = 3 * hidden * text["intermediate_size"]
    else:
        expert = 3 * hidden * moe["moe_intermediate_size"]
        mlp = moe["num_experts"] * (expert + hidden)
        active_mlp = moe["num_experts_per_tok"] * expert + moe["num_experts"] * hidden
    layers = text["num_hidden_layers"]
    embedding = text["vocab_size"] * hidden
    heads = 1 if config.get("tie_word_embeddings") or text.get("tie_word_embeddings") else 2
    shared = heads * embedding + layers * (attention + 2 * hidden) + hidden
    tower = _vision_parameters(vision)
    return Parameters(shared + layers * mlp + tower, shared + layers * active_mlp + tower, tower)


def make_plan(
    settings: SftSettings, *, devices: int = 8, memory_gib: float = 80.0, sharding: Sharding = "zero3"
) -> Plan:
    """What fine-tuning with these settings needs on each of `devices` GPUs of `memory_gib`.

    Weights, gradients and AdamW's state (a 32-bit copy and two moments: 12 bytes a trained parameter) are exact.
    Without DeepSpeed the weights themselves are the 32-bit copy and gradients have 4 bytes, which comes to the same
    sum. The activations are the usual estimate: one hidden state a layer and token with checkpointing, some 17 without,
    plus the layer that is being recomputed.

    Raises:
        ConfigError: If the model is not known, or the batch does not divide.
    """
    config = model_config(settings.model)
    parameters = count_parameters(config)
    text = config["text_config"]
    width = 2 if settings.precision == "bf16" else 4
    trained = parameters.total - (parameters.vision if settings.freeze_vision else 0)
    if settings.lora is not None:
        trained = lora_parameters(config, settings.lora.rank)
    per_pass = settings.per_device * devices
    if settings.batch_size % per_pass:
        raise ConfigError(
            f"batch_size {settings.batch_size} is not a multiple of per_device {settings.per_device} × {devices}."
        )
    shard_weights = devices if sharding == "zero3" else 1
    shard_rest = devices if sharding in ("zero2", "zero3") else 1
    tokens = settings.per_device * settings.max_tokens
    hidden, layers = text["hidden_size"], text["num_hidden_layers"]
    kept = layers if settings.gradient_checkpointing else 17 * layers
    mlp = text["intermediate_size"] if "moe" not in config else _active_width(config)
    recomputed = tokens * (8 * hidden + 4 * mlp) * width
    plan = Plan(
        parameters=parameters,
        trained=trained,
        weights_gib=parameters.total * width / shard_weights / GIB,
        gradients_gib=trained * width / shard_rest / GIB,
        optimiser_gib=trained * (12 if width == 2 else 8) / shard_rest / GIB,
        activations_gib=(tokens * hidden * kept * width + recomputed) / GIB,
        tokens_per_step=settings.batch_size * settings.max_tokens,
        accumulation=settings.batch_size // per_pass,
        warnings=(),
    )
    return _with_warnings(plan, settings, config, devices, memory_gib, sharding)


def lora_parameters(config: Mapping[str, Any], rank: int) -> int:
    """Parameters of adapters on every linear layer of the language model (attention only where it has experts)."""
    text = config["text_config"]
    hidden, head = text["hidden_size"], text["head_dim"]
    query, key = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    pairs = [(hidden, query), (hidden, key), (hidden, key), (query, hidden)]
    if "moe" not in config:
        mlp = text["intermediate_size"]
        pairs += [(hidden, mlp), (hidden, mlp), (mlp, hidden)]
    return int(text["num_hidden_layers"] * rank * sum(a + b for a, b in pairs))


def _vision_parameters(vision: Mapping[str, Any]) -> int:
    hidden, mlp = vision["hidden_size"], vision["intermediate_size"]
    patch = vision.get("in_channels", 3)
    embed = hidden * (patch * vision["temporal_patch_size"] * vision["patch_size"] ** 2 + 1)
    block = 4 * hidden * hidden + 4 * hidden + 2 * hidden * mlp + hidden + mlp + 4 * hidden
    merged = hidden * vision["spatial_merge_size"] ** 2
    merge = merged * (merged + 1) + (merged + 1) * vision["out_hidden_size"]
    deep = len(vision["deepstack_visual_indexes"])
    mergers = merge + 2 * hidden + deep * (merge + 2 * merged)
    return int(embed + vision["num_position_embeddings"] * hidden + vision["depth"] * block + mergers)


def _active_width(config: Mapping[str, Any]) -> int:
    return int(config["moe"]["num_experts_per_tok"] * config["moe"]["moe_intermediate_size"])


def _with_warnings(
    plan: Plan,
    settings: SftSettings,
    config: Mapping[str, Any],
    devices: int,
    memory_gib: float,
    sharding: Sharding,
) -> Plan:
    from dataclasses import replace

    warnings = []
    if plan.total_gib > 0.9 * memory_gib:
        warnings.append(
            f"{plan.total_gib:.0f} GiB a device do not fit into {memory_gib:.0f} GiB with room for fragmentation: use "
            "more devices, ZeRO-3, adapters, or a smaller max_tokens."
        )
    if not settings.gradient_checkpointing and settings.max_tokens > 4096:
        warnings.append("Long transcripts without gradient checkpointing: activations will dominate.")
    if sharding != "zero3" and settings.lora is None and plan.weights_gib > 0.5 * memory_gib:
        warnings.append("The weights alone take more than half a device; ZeRO-3 shards them.")
    if settings.lora is not None and sharding == "zero3":
        warnings.append("Adapters are not trained under ZeRO-3, where they could not be merged.")
    if settings.optimizer != "adamw":
        warnings.append(f"Counted as AdamW; {settings.optimizer} holds one moment less of each matrix.")
    if settings.lora is not None and "moe" in config:
        warnings.append("Adapters go on the attention layers only: experts are not plain linear layers.")
    if settings.image_max_pixels is None and settings.max_tokens < 32_000:
        warnings.append("Pictures are not bounded; a large one alone may exceed max_tokens.")
    return replace(plan, warnings=tuple(warnings))
