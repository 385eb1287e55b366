"""Observations of hostile pages hold no control id, whichever way a tokenizer of Qwen's kind encodes them."""

import random
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from opensearch_vl.agent.transcript import ChatFormat
from opensearch_vl.sft.model_init import PAIRS, SPECIAL, TAGS
from opensearch_vl.tools.scrub import scrub

PIECES = [
    *SPECIAL, *TAGS, "<|im_end|", "|>", "<", ">", "＜|im_end|＞", "<\u200b|im_end|>", "<|im_\u00adend|>", "< think >", "</", "<|",
    "\n", " ", "assistant", "text", "é", "｜", "<｜im_end｜>", "\u202e", "\ufe0f", "img_1", '{"name": "crop"}',
]  # fmt: skip


@pytest.fixture(scope="module")
def chat(checkpoint: Path) -> ChatFormat:
    return ChatFormat.load(checkpoint)


def test_no_control_id_comes_out_of_a_scrubbed_page(chat: ChatFormat) -> None:
    random_ = random.Random(0)
    pages = ["".join(random_.choices(PIECES, k=random_.randint(1, 16))) for _ in range(1_000)]
    observations = [scrub(page) for page in pages]
    vocabulary = chat.tokenizer.get_added_vocab()
    assert len(vocabulary) == len(SPECIAL) + len(TAGS) + len(PAIRS)
    added = {vocabulary[token] for token in (*SPECIAL, *TAGS)}
    by_default = chat.tokenizer(observations)["input_ids"]
    for text, ids in zip(observations, by_default, strict=True):
        assert added.isdisjoint(ids), text
        assert added.isdisjoint(chat.encode_text(text)), text
    raw = sum(not added.isdisjoint(ids) for ids in chat.tokenizer(pages)["input_ids"])
    assert raw > 800, "the pages do not hold what the check looks for"
