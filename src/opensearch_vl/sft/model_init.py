"""The miniature policy: a Qwen3-VL of about a million parameters, made from nothing, that learns on a CPU.

It is an ordinary checkpoint directory: `AutoModelForImageTextToText` and `AutoTokenizer` load it, the chat format is
Qwen3-VL's, and everything that trains or serves an 8B model trains and serves this one. Only the sizes differ: a
picture is shown at 192 by 192 pixels or so, which costs at most 36 tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensearch_vl.config import Config
from opensearch_vl.errors import DataError, MissingExtra

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""Qwen's control tokens, in the order of its vocabulary. Text never becomes one of these."""

TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
"""Tags that Qwen's vocabulary holds as single tokens of ordinary text."""

PAIRS = tuple(f"{number:02}" for number in range(100))
"""Two digits are one token here, where Qwen's vocabulary has each digit apart: of 1847, ``18`` is easily told, and
``47`` is one thing to copy instead of two that occur everywhere. Policies of this size did not learn to copy single
digits."""

CHAT_TEMPLATE = """\
{%- macro show(content) -%}
  {%- if content is string -%}{{ content }}{%- else -%}
    {%- for part in content -%}
      {%- if part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>{%- else -%}{{ part.text }}{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
  {%- if message.role == 'tool' -%}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{ '<|im_start|>user' }}{%- endif -%}
    {{ '\\n<tool_response>\\n' + show(message.content) + '\\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{ '<|im_end|>\\n' }}{%- endif -%}
  {%- else -%}
    {{ '<|im_start|>' + message.role + '\\n' + show(message.content) + '<|im_end|>\\n' }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
"""The Qwen3-VL chat format without server-side tools (the dialect describes tools in the prompt), in our own words."""


class MiniatureShape(Config):
    """Sizes of the miniature policy. Defaults give about 0.9 million parameters.

    They were chosen for learning per second on two cores (docs/log.md): three narrow layers learn to copy as well as
    four of width 128 and run twice as fast, and twice the vocabulary saves a tenth of the tokens.

    Attributes:
        vocab_size: Tokens of ordinary text, bytes included; control tokens come on top.
        hidden: Width of the language model.
        layers: Depth of the language model; two are the least that can copy.
        heads: Query heads, of 32 dimensions each.
        kv_heads: Key and value heads.
        mlp: Width of the language model's feed-forward layers.
        vision_hidden: Width of the vision tower.
        vision_layers: Depth of the vision tower; its first layer also feeds the language model directly (DeepStack).
        patch_px: Side of a patch; two by two patches make one token.
        max_image_tokens: Bound on the tokens of one picture.
        context: Longest conversation in tokens.
    """

    vocab_size: int = 2048
    hidden: int = 96
    layers: int = 3
    heads: int = 3
    kv_heads: int = 1
    mlp: int = 256
    vision_hidden: int = 64
    vision_layers: int = 2
    patch_px: int = 16
    max_image_tokens: int = 36
    context: int = 8192


@dataclass(frozen=True, slots=True)
class InitReport:
    """What was written: where, and the parameters in all and in the vision tower."""

    path: Path
    num_parameters: int
    num_vision_parameters: int
    vocab_size: int


def init_miniature(
    out: Path | str, texts: Iterable[str], seed: int = 0, shape: MiniatureShape | None = None
) -> InitReport:
    """Write a freshly initialised miniature checkpoint. Same texts and seed, same bytes.

    Args:
        out: Directory to write; created.
        texts: What the tokenizer is trained on: replies, observations and prompts of trajectories.
        seed: Of the weights.
        shape: Sizes.

    Raises:
        DataError: If `texts` holds nothing.
        MissingExtra: Without torch and transformers.
    """
    shape = shape or MiniatureShape()
    try:
        import torch
        from transformers import GenerationConfig, Qwen2VLImageProcessorPil, Qwen3VLForConditionalGeneration
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts, shape.vocab_size)
    tokenizer.save_pretrained(folder)

    side = shape.patch_px * 2
    Qwen2VLImageProcessorPil(
        size={"shortest_edge": 4 * side**2, "longest_edge": shape.max_image_tokens * side**2},
        patch_size=shape.patch_px,
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    ).save_pretrained(folder)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(_model_config(tokenizer, shape))
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    model.generation_config = GenerationConfig(
        eos_token_id=[ids["<|im_end|>"], ids["<|endoftext|>"]], pad_token_id=ids["<|endoftext|>"]
    )
    model.save_pretrained(folder)
    return InitReport(
        path=folder,
        num_parameters=model.num_parameters(),
        num_vision_parameters=sum(p.numel() for p in model.model.visual.parameters()),
        vocab_size=len(tokenizer),
    )


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """A byte-level BPE tokenizer of Qwen's kind (same splitting rule) with its control tokens, tags and digit pairs.

    Raises:
        DataError: If `texts` holds nothing.
    """
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    markup = re.compile("|".join(re.escape(token) for token in (*SPECIAL, *TAGS)))
    pieces = [piece for text in texts for piece in markup.split(text) if piece]
    if not pieces:
        raise DataError("There is no text to train a tokenizer on.", "Give trajectories with at least one step.")
    blank = Qwen2Tokenizer()
    learner = Tokenizer(models.BPE())
    learner.normalizer = blank.backend_tokenizer.normalizer
    learner.pre_tokenizer = blank.backend_tokenizer.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    learner.train_from_iterator(pieces, trainer)
    vocabulary, merges = _bpe_tables(learner)
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary, merges=merges, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT_TEMPLATE
    )
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL], special_tokens=True)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in (*TAGS, *PAIRS)])
    return tokenizer


def _bpe_tables(learner: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    import json

    model = json.loads(learner.to_str())["model"]
    return model["vocab"], [(left, right) for left, right in model["merges"]]


def _model_config(tokenizer: Any, shape: MiniatureShape) -> Any:
    from transformers import Qwen3VLConfig

    def token_id(token: str) -> int:
        return int(tokenizer.convert_tokens_to_ids(token))

    grid_side = 32  # learned positions are interpolated to the picture's own grid
    return Qwen3VLConfig(
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
        tie_word_embeddings=True,
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": shape.hidden,
            "intermediate_size": shape.mlp,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": 32,
            "max_position_embeddings": shape.context,
            "initializer_range": 0.02,
            "tie_word_embeddings": True,
            "pad_token_id": token_id("<|endoftext|>"),
            "eos_token_id": token_id("<|im_end|>"),
            # 16 rotary frequencies shared between time, height and width as in Qwen3-VL (24, 20, 20 of 64)
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": shape.vision_layers,
            "hidden_size": shape.vision_hidden,
            "intermediate_size": 2 * shape.vision_hidden,
            "num_heads": 2,
            "patch_size": shape.patch_px,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": shape.hidden,
            "num_position_embeddings": grid_side**2,
            "deepstack_visual_indexes": [0],
        },
    )
