"""Trajectory → token ids, generation mask, step ids and pictures, for the Qwen3-VL chat format.

What a policy sampled is what it is trained on: its ids are copied verbatim, never re-tokenised from text (paper,
section 5; the likelihood counts action tokens only). The rest of the conversation is encoded here once, the same way
for rollouts, fine-tuning and reinforcement learning:

* control tokens come from structure alone: text is encoded with its special tokens split, so a web page that spells
  out ``<|im_end|>`` or ``<|image_pad|>`` stays text;
* what the chat template writes at the head of an assistant turn (``<think>``, for some checkpoints) is context, not
  generated;
* every picture becomes exactly as many placeholders as the vision tower makes features of it, checked at the end;
* a transcript that is too long loses whole steps from its end, never part of a picture.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.errors import MissingExtra, TranscriptError
from opensearch_vl.protocols import ImagePart, Message, TextPart
from opensearch_vl.types import ImageRef, Sampled, Step

OPENING = -1
"""Step id of everything before the first reply."""

_OPENED = "<|im_start|>assistant\n"
_CONTROL = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


@dataclass(frozen=True, slots=True)
class Transcript:
    """One trajectory as numbers.

    Attributes:
        ids: ``[T]`` int64 token ids, picture placeholders expanded.
        gen_mask: ``[T]`` bool, ``M_gen``: True iff the policy emitted the token.
        step_ids: ``[T]`` int32, ``s(t)``: the step a token belongs to, its observation included; `OPENING` before.
        logprobs: ``[T]`` float32 under the sampling policy; NaN where there is none.
        images: Pictures in order of appearance.
        image_tokens: Placeholders of each picture.
        num_steps: Steps in the transcript.
        num_cut: Steps left out because the transcript would have been too long.
    """

    ids: NDArray[np.int64]
    gen_mask: NDArray[np.bool_]
    step_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    images: tuple[ImageRef, ...]
    image_tokens: tuple[int, ...]
    num_steps: int
    num_cut: int

    def __len__(self) -> int:
        return len(self.ids)


_REMEMBERED = 1024
"""Texts whose ids are kept: prompts, openings of turns and empty results come again in every conversation."""


class ChatFormat:
    """The Qwen3-VL chat format over one checkpoint's tokenizer and image processor.

    Args:
        tokenizer: A fast transformers tokenizer with Qwen's control tokens.
        image_processor: A `Qwen2VLImageProcessorPil` (no torchvision, no video processor).
        prefill: What the chat template writes of every reply, such as ``<think>`` and a line break; `load` reads it off
            the template.

    Raises:
        TranscriptError: If the tokenizer lacks a control token.
    """

    def __init__(self, tokenizer: Any, image_processor: Any, prefill: str = "") -> None:
        self.tokenizer = tokenizer
        self.prefill = prefill
        self.image_processor = image_processor
        vocabulary = tokenizer.get_vocab()
        missing = [token for token in _CONTROL if token not in vocabulary]
        if missing:
            raise TranscriptError(f"The tokenizer lacks {', '.join(missing)}; a Qwen3-VL checkpoint has them.")
        self.im_start, self.im_end, self.vision_start, self.vision_end, self.image_pad, self.video_pad = (
            int(vocabulary[token]) for token in _CONTROL
        )
        self.banned = (self.image_pad, self.video_pad, self.vision_start, self.vision_end)
        """Ids that a policy must never sample: they would announce a picture that is not there."""
        self._control_ids = frozenset((self.im_start, self.im_end, *self.banned))
        self._encoded: dict[str, tuple[int, ...]] = {}
        self._newline = self.encode_text("\n")

    @classmethod
    def load(cls, checkpoint: Path | str, *, max_pixels: int | None = None) -> ChatFormat:
        """The format of a checkpoint directory.

        Args:
            checkpoint: A local directory (or hub name) with tokenizer and image processor configuration.
            max_pixels: Bound on the pixels of a picture as the model sees it; None keeps the checkpoint's.

        Raises:
            MissingExtra: Without transformers.
            TranscriptError: If the checkpoint's own chat template disagrees with the format written here.
        """
        try:
            from transformers import AutoTokenizer, Qwen2VLImageProcessorPil
        except ImportError as error:
            raise MissingExtra("transformers", "train") from error
        processor = Qwen2VLImageProcessorPil.from_pretrained(checkpoint)
        if max_pixels is not None:
            processor.size = {
                "shortest_edge": min(processor.size["shortest_edge"], max_pixels),
                "longest_edge": max_pixels,
            }
        chat_format = cls(AutoTokenizer.from_pretrained(checkpoint, trust_remote_code=False), processor)
        chat_format.check_template()
        return chat_format

    def check_template(self) -> None:
        """Compare with the tokenizer's chat template, if it has one, on a plain conversation; sets `prefill` by it.

        Raises:
            TranscriptError: If the ids differ; the format here would not be what the checkpoint was trained on.
        """
        if not getattr(self.tokenizer, "chat_template", None):
            return
        turns = [("system", "Look first."), ("user", "What is 12?"), ("assistant", "A number."), ("user", "Why?")]
        chat = [{"role": role, "content": text} for role, text in turns]
        closed, opened = (
            self.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=more)
            for more in (False, True)
        )
        self.prefill = opened.removeprefix(f"{closed}{_OPENED}") if opened.startswith(f"{closed}{_OPENED}") else ""
        theirs = self.tokenizer.apply_chat_template(chat, tokenize=True, add_generation_prompt=True, return_dict=False)
        ours, _ = self.encode([Message(role, (TextPart(text),)) for role, text in turns])  # type: ignore[arg-type]
        if ours + self.generation_prompt() != list(theirs):
            raise TranscriptError("The checkpoint's chat template is not the Qwen3-VL chat format.")

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text; special tokens spelt out in it are encoded as the text they are.

        Raises:
            TranscriptError: If a control id comes out all the same.
        """
        if text not in self._encoded:
            ids = tuple(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
            if not self._control_ids.isdisjoint(ids):
                raise TranscriptError("The tokenizer turned plain text into control tokens; use a fast tokenizer.")
            if len(self._encoded) >= _REMEMBERED:
                self._encoded.clear()
            self._encoded[text] = ids
        return list(self._encoded[text])

    def generation_prompt(self, *, prefilled: bool = True) -> list[int]:
        """Ids that open an assistant turn, with what the template writes of the reply unless `prefilled` is False."""
        return [self.im_start, *self.encode_text(f"assistant\n{self.prefill if prefilled else ''}")]

    def without_prefill(self, text: str) -> str | None:
        """What a policy has to write of a whole reply, the template having begun it; None if it begins otherwise."""
        if text.startswith(self.prefill):
            return text.removeprefix(self.prefill)
        begun = self.prefill.strip()
        return text.lstrip().removeprefix(begun).lstrip() if text.lstrip().startswith(begun) else None

    def turn_end(self, closed: bool) -> list[int]:
        """Ids between an assistant's tokens and the next turn; `closed` if it emitted ``<|im_end|>`` itself."""
        return self._newline if closed else [self.im_end, *self._newline]

    def encode(self, messages: Sequence[Message]) -> tuple[list[int], list[ImageRef]]:
        """Ids of whole turns, with the pictures they show. Consecutive `tool` messages form one user turn.

        Raises:
            TranscriptError: On a picture in a system or assistant turn, where the format has no place for it.
        """
        ids: list[int] = []
        images: list[ImageRef] = []
        for role, parts in _turns(messages):
            ids.append(self.im_start)
            for text, image in _joined(parts):
                if image is None:
                    ids += self.encode_text(text)
                elif role != "user":
                    raise TranscriptError(f"A {role} turn shows a picture; only user turns can.")
                else:
                    placeholders = [self.image_pad] * self.num_image_tokens(image)
                    ids += [self.vision_start, *placeholders, self.vision_end]
                    images.append(image)
            ids += [self.im_end, *self._newline]
        return ids, images

    def num_image_tokens(self, image: ImageRef) -> int:
        """How many features the vision tower makes of a picture, from its size alone."""
        patches: int = self.image_processor.get_number_of_image_patches(image.height_px, image.width_px)
        return patches // int(self.image_processor.merge_size) ** 2


class Tape:
    """A conversation that is written down token by token while it happens.

    The same object serves a live rollout (`prompt` gives the policy its context) and `transcribe` afterwards.
    """

    def __init__(self, chat_format: ChatFormat, opening: Sequence[Message]) -> None:
        self.format = chat_format
        self.images: list[ImageRef] = []
        self.num_steps = 0
        self._ids: list[int] = []
        self._gen: list[bool] = []
        self._steps: list[int] = []
        self._logprobs: list[float] = []
        self.add_messages(opening)

    def __len__(self) -> int:
        return len(self._ids)

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Append what the environment says."""
        ids, images = self.format.encode(messages)
        self._append(ids, self.num_steps - 1, generated=False)
        self.images += images

    def prompt(self) -> list[int]:
        """The context of the next reply, ending in the opened assistant turn."""
        return self._ids + self.format.generation_prompt()

    def add_reply(self, text: str, sampled: Sampled | None) -> None:
        """Append one step's reply: its sampled ids verbatim, or its text where no policy sampled it.

        A text that does not begin as the template makes replies begin is written as it stands, without the prefill.

        Raises:
            TranscriptError: If the reply was sampled after another context than this one, or holds picture tokens.
        """
        step = self.num_steps
        rest = self.format.without_prefill(text) if sampled is None else None
        prefilled = sampled is not None or rest is not None
        self._append(self.format.generation_prompt(prefilled=prefilled), step, generated=False)
        if sampled is None:
            ids = [*self.format.encode_text(text if rest is None else rest), self.format.im_end]
            self._append(ids, step, generated=True)
        else:
            if sampled.prompt_len != len(self._ids):
                raise TranscriptError(
                    f"Step {step} was sampled after {sampled.prompt_len} tokens of context, "
                    f"but the conversation before it has {len(self._ids)}."
                )
            ids = list(sampled.token_ids)
            if not set(self.format.banned).isdisjoint(ids):
                raise TranscriptError(f"Step {step} sampled a picture token; ban them in decoding.")
            self._append(ids, step, list(sampled.logprobs), generated=True)
        closed = bool(ids) and ids[-1] == self.format.im_end
        self._append(self.format.turn_end(closed), step, generated=False)
        self.num_steps += 1

    def transcript(self, num_cut: int = 0) -> Transcript:
        """The conversation so far, checked.

        Raises:
            TranscriptError: If placeholders and picture features differ in number.
        """
        ids = np.array(self._ids, dtype=np.int64)
        image_tokens = tuple(self.format.num_image_tokens(image) for image in self.images)
        placeholders = int((ids == self.format.image_pad).sum())
        if placeholders != sum(image_tokens):
            raise TranscriptError(
                f"{placeholders} picture placeholders, but {len(image_tokens)} pictures give {sum(image_tokens)}."
            )
        return Transcript(
            ids=ids,
            gen_mask=np.array(self._gen, dtype=np.bool_),
            step_ids=np.array(self._steps, dtype=np.int32),
            logprobs=np.array(self._logprobs, dtype=np.float32),
            images=tuple(self.images),
            image_tokens=image_tokens,
            num_steps=self.num_steps,
            num_cut=num_cut,
        )

    def mark(self) -> tuple[int, int, int]:
        """A place to `rewind` to."""
        return len(self._ids), len(self.images), self.num_steps

    def rewind(self, mark: tuple[int, int, int]) -> None:
        """Forget everything after `mark`."""
        length, num_images, self.num_steps = mark
        del self._ids[length:], self._gen[length:], self._steps[length:], self._logprobs[length:]
        del self.images[num_images:]

    def _append(self, ids: list[int], step: int, logprobs: list[float] | None = None, *, generated: bool) -> None:
        self._ids += ids
        self._gen += [generated] * len(ids)
        self._steps += [step] * len(ids)
        self._logprobs += logprobs if logprobs is not None else [float("nan")] * len(ids)


def transcribe(
    chat_format: ChatFormat,
    opening: Sequence[Message],
    steps: Sequence[Step],
    answers: Callable[[Step], Sequence[Message]],
    *,
    max_tokens: int | None = None,
) -> Transcript:
    """Write a finished trajectory down.

    Args:
        chat_format: Of the checkpoint that is to be trained.
        opening: System and user turns before the first reply.
        steps: The trajectory's steps.
        answers: What the environment says after a step, as the layout of the dialect has it; nothing after a response.
        max_tokens: Longest transcript; whole steps are cut from the end.

    Raises:
        TranscriptError: If the opening alone is too long, a step acted and has neither text nor ids, the sampled ids do
            not fit the conversation, or pictures and placeholders differ in number.
    """
    tape = Tape(chat_format, opening)
    if max_tokens is not None and len(tape) > max_tokens:
        raise TranscriptError(f"The conversation's opening has {len(tape)} tokens; at most {max_tokens} fit.")
    for step in steps:
        mark = tape.mark()
        acted = step.call is not None or step.response is not None
        if acted and not step.text and step.sampled is None:
            raise TranscriptError(f"Step {step.index} acted, but has neither text nor sampled ids.")
        tape.add_reply(step.text, step.sampled)
        tape.add_messages(answers(step))
        if max_tokens is not None and len(tape) > max_tokens:
            tape.rewind(mark)
            break
    return tape.transcript(num_cut=len(steps) - tape.num_steps)


def _turns(messages: Sequence[Message]) -> list[tuple[str, list[TextPart | ImagePart]]]:
    """Role and parts of every turn; consecutive `tool` messages become one user turn."""
    turns: list[tuple[str, list[TextPart | ImagePart]]] = []
    for is_tool, group in itertools.groupby(messages, key=lambda message: message.role == "tool"):
        run = list(group)
        turns += [_tool_turn(run)] if is_tool else [(message.role, _turn_parts(message)) for message in run]
    return turns


def _turn_parts(message: Message) -> list[TextPart | ImagePart]:
    parts: list[TextPart | ImagePart] = [TextPart(f"{message.role}\n"), *message.parts]
    for number, call in enumerate(message.tool_calls):
        gap = "\n" if number or message.text else ""
        body = f'{{"name": "{call.name}", "arguments": {call.arguments}}}'
        parts.append(TextPart(f"{gap}<tool_call>\n{body}\n</tool_call>"))
    return parts


def _tool_turn(messages: list[Message]) -> tuple[str, list[TextPart | ImagePart]]:
    parts: list[TextPart | ImagePart] = [TextPart("user")]
    for message in messages:
        parts += [TextPart("\n<tool_response>\n"), *message.parts, TextPart("\n</tool_response>")]
    return "user", parts


def _joined(parts: Sequence[TextPart | ImagePart]) -> list[tuple[str, ImageRef | None]]:
    """Runs of text joined (they are tokenised together, as a template's output is), pictures apart."""
    runs: list[tuple[str, ImageRef | None]] = []
    for is_text, group in itertools.groupby(parts, key=lambda part: isinstance(part, TextPart)):
        if is_text:
            runs.append(("".join(part.text for part in group if isinstance(part, TextPart)), None))
        else:
            runs += [("", part.image) for part in group if isinstance(part, ImagePart)]
    return runs
