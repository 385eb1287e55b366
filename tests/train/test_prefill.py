"""Checkpoints whose chat template opens the reasoning: the prefill is context, and replies are read whole."""

import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from opensearch_vl.agent.dialect import parse
from opensearch_vl.agent.transcript import ChatFormat, Tape, transcribe
from opensearch_vl.protocols import Message, TextPart
from opensearch_vl.rl.rollout_policy import PolicyChat
from opensearch_vl.types import Sampled, Step

PREFILL = "<think>\n"
REPLY = "<think>\nIt was 1931.</think><response>1931</response>"
OPENING = [Message("user", (TextPart("When?"),))]


@pytest.fixture(scope="module")
def thinking(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> ChatFormat:
    """The format of a checkpoint that differs from the other in what its template writes of a reply."""
    folder = tmp_path_factory.mktemp("thinking") / "checkpoint"
    shutil.copytree(checkpoint, folder)
    file = folder / "chat_template.jinja"
    template = file.read_text()
    opened = template.replace("'<|im_start|>assistant\\n'", "'<|im_start|>assistant\\n<think>\\n'")
    assert opened != template
    file.write_text(opened)
    return ChatFormat.load(folder)


def test_the_prefill_is_read_off_the_template(thinking: ChatFormat, checkpoint: Path) -> None:
    assert thinking.prefill == PREFILL
    assert ChatFormat.load(checkpoint).prefill == ""
    chat = [{"role": "user", "content": "When?"}]
    theirs = thinking.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert Tape(thinking, OPENING).prompt() == list(theirs)


def test_prefilled_ids_are_context_and_the_rest_is_generated(thinking: ChatFormat) -> None:
    written = transcribe(thinking, OPENING, [Step(index=0, text=REPLY, response="1931")], lambda step: [])
    generated = thinking.tokenizer.decode(written.ids[written.gen_mask])
    context = thinking.tokenizer.decode(written.ids[~written.gen_mask])
    assert generated == REPLY.removeprefix(PREFILL) + "<|im_end|>"
    assert context == f"<|im_start|>user\nWhen?<|im_end|>\n<|im_start|>assistant\n{PREFILL}\n"
    first = int(np.argmax(written.gen_mask))
    assert list(written.ids[:first]) == Tape(thinking, OPENING).prompt()


def test_another_line_break_after_the_tag_gives_the_same_ids(thinking: ChatFormat) -> None:
    step = Step(index=0, text=REPLY.replace("<think>\n", "<think>"), response="1931")
    same = transcribe(thinking, OPENING, [step], lambda step: [])
    assert list(same.ids) == list(
        transcribe(thinking, OPENING, [step.model_copy(update={"text": REPLY})], lambda step: []).ids
    )


def test_a_text_that_begins_otherwise_is_written_as_it_stands(thinking: ChatFormat) -> None:
    text = "<response>1931</response>"
    written = transcribe(thinking, OPENING, [Step(index=0, text=text, response="1931")], lambda step: [])
    assert thinking.tokenizer.decode(written.ids).endswith(f"assistant\n{text}<|im_end|>\n")


class Fixed:
    """A policy that always samples the same ids."""

    name = "fixed"

    def __init__(self, ids: list[int], stop: int) -> None:
        self.ids = tuple(ids)
        self.stop_ids = frozenset({stop})
        self.prompts: list[list[int]] = []

    def open(self, conversation: str) -> None: ...

    def close(self, conversation: str) -> None: ...

    async def generate(self, token_ids, images, sampling, *, seed=0, conversation="") -> Sampled:  # type: ignore[no-untyped-def]
        self.prompts.append(list(token_ids))
        return Sampled(
            prompt_len=len(token_ids), token_ids=self.ids, logprobs=(0.0,) * len(self.ids), finish_reason="stop"
        )


async def test_a_sampled_reply_is_read_whole_and_trained_as_sampled(thinking: ChatFormat) -> None:
    ids = [*thinking.encode_text(REPLY.removeprefix(PREFILL)), thinking.im_end]
    policy = Fixed(ids, thinking.im_end)
    reply = await PolicyChat(policy, thinking, "c").complete(OPENING)
    parsed = parse(reply)
    assert parsed.well_formed and parsed.response == "1931" and parsed.text == REPLY
    step = Step(index=0, text=parsed.text, response=parsed.response, sampled=reply.sampled)
    written = transcribe(thinking, OPENING, [step], lambda step: [])
    assert list(written.ids[written.gen_mask]) == ids
    assert list(written.ids[: len(policy.prompts[0])]) == policy.prompts[0]
    assert not written.gen_mask[: len(policy.prompts[0])].any()
