"""A miniature checkpoint, made once per session, for tests that need a tokenizer or a policy."""

from pathlib import Path

import pytest

TEXTS = [
    "<think>The picture shows the front of a station; I search for it by image.</think>"
    '<tool_call>{"name": "image_search", "arguments": {"url": "img_1"}}</tool_call>',
    "<think>Found it. Now the year.</think><response>It opened in 1931.</response>",
    "[Passage 1]\nTitle: Velmora Station\nURL: https://miniature.invalid/wiki/Velmora\nSummary: Opened on 15 May 1931.",
    "Answer the question about the picture. You may call text_search, image_search, crop, sharpen.",
] * 3


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a freshly initialised miniature policy with a small vocabulary."""
    pytest.importorskip("transformers").utils.logging.disable_progress_bar()
    from opensearch_vl.sft.model_init import MiniatureShape, init_miniature

    out = tmp_path_factory.mktemp("policy")
    shape = MiniatureShape(vocab_size=400, hidden=64, layers=2, heads=2, kv_heads=1, mlp=96, vision_hidden=32)
    init_miniature(out, TEXTS, seed=0, shape=shape)
    return out
