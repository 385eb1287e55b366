"""Control ids from page texts, counted with a real tokenizer (part `page_ids` of `bench_agent.py`).

A byte-level BPE of Qwen's kind is trained on the pages and on what the environment made of them, with Qwen's control
tokens and tags added. Every observation is then encoded twice: as transcripts encode text (special tokens split), and
as the tokenizer does by default, which turns a control string into its id. Neither may give the id of any added token.
The pages as they were, encoded by default, show that the check can fail: `fuzz_raw_pages_with_control_ids` of them do.
"""

import sys
from collections.abc import Sequence

import tokenizers  # noqa: F401  (here, so that a missing extra is an ImportError of this module)
import transformers

from opensearch_vl.agent.transcript import ChatFormat
from opensearch_vl.sft.model_init import train_tokenizer

VOCAB_SIZE = 4096
TRAINED_ON = 5_000
BATCH = 1_000


def storable(text: str) -> str:
    """The text without lone surrogates, which no encoding has."""
    return text.encode("utf-8", "replace").decode()


def bench_page_ids(figures: dict[str, float], pages: Sequence[str], observations: Sequence[str]) -> None:
    transformers.logging.set_verbosity_error()
    some = slice(0, TRAINED_ON)
    tokenizer = train_tokenizer([*map(storable, pages[some]), *observations[some]], VOCAB_SIZE)
    chat = ChatFormat(tokenizer, image_processor=None)
    control = frozenset(tokenizer.get_added_vocab().values())

    def count(ids: Sequence[int]) -> int:
        return sum(token in control for token in ids)

    split = default = raw = num_tokens = 0
    for start in range(0, len(observations), BATCH):
        batch = observations[start : start + BATCH]
        for text, ids in zip(batch, tokenizer(batch)["input_ids"], strict=True):
            own = chat.encode_text(text)
            num_tokens += len(own)
            if count(own) or count(ids):
                sys.stderr.write(f"control ids: {text!r}\n")
            split += count(own)
            default += count(ids)
        raw += sum(count(ids) > 0 for ids in tokenizer(list(map(storable, pages[start : start + BATCH])))["input_ids"])
    figures["fuzz_control_ids"] = split + default
    figures["fuzz_pages_tokenised"] = len(observations)
    figures["fuzz_tokens"] = num_tokens
    figures["fuzz_raw_pages_with_control_ids"] = raw
