"""Stored rollouts → transcripts to fine-tune on. What cannot be used leaves with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from opensearch_vl.agent.transcript import ChatFormat, Transcript, transcribe
from opensearch_vl.errors import TranscriptError
from opensearch_vl.protocols import Message
from opensearch_vl.types import RolloutRecord, Step, TaskView


class Rendering(Protocol):
    """How a conversation is laid out in messages; `agent.layouts.Layout` is one."""

    def opening(self, task: TaskView) -> Sequence[Message]:
        """System turn and first user turn."""
        ...

    def answer(self, step: Step) -> Sequence[Message]:
        """What the environment says after a step; nothing after a response."""
        ...


@dataclass(slots=True)
class Examples:
    """Transcripts to train on, and why records were left out.

    Attributes:
        transcripts: One per record that was used.
        ids: Ids of these records.
        left_out: Reason → number of records.
        num_cut_steps: Steps lost to the length limit, over all transcripts.
        num_first: How many of them, from the first on, are for the first stage of a run that has one.
    """

    transcripts: list[Transcript] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    num_cut_steps: int = 0
    num_first: int = 0

    def before(self, others: Examples) -> Examples:
        """These as the first stage's, and others as the second's."""
        return Examples(
            self.transcripts + others.transcripts,
            self.ids + others.ids,
            self.left_out + others.left_out,
            self.num_cut_steps + others.num_cut_steps,
            num_first=len(self.transcripts),
        )

    @property
    def num_tokens(self) -> int:
        """All tokens, context included."""
        return sum(len(transcript) for transcript in self.transcripts)

    @property
    def num_action_tokens(self) -> int:
        """Tokens that carry loss."""
        return sum(int(transcript.gen_mask.sum()) for transcript in self.transcripts)


def build_examples(
    records: Iterable[RolloutRecord],
    rendering: Rendering,
    chat_format: ChatFormat,
    *,
    max_tokens: int | None = None,
    only_accepted: bool = True,
) -> Examples:
    """Transcribe the records of a run.

    Args:
        records: Rollouts of synthesis.
        rendering: The layout they are to be trained in.
        chat_format: Of the checkpoint that is trained.
        max_tokens: Longest transcript (paper, section 4: 32,000); whole steps are cut from the end.
        only_accepted: Leave out what rejection sampling did not accept.
    """
    examples = Examples()
    for record in records:
        if only_accepted and record.accepted is not True:
            examples.left_out["not accepted"] += 1
            continue
        try:
            transcript = transcribe(
                chat_format,
                rendering.opening(record.task.view()),
                record.trajectory.steps,
                rendering.answer,
                max_tokens=max_tokens,
            )
        except TranscriptError as error:
            examples.left_out[f"no transcript: {error}"] += 1
            continue
        if not transcript.gen_mask.any():
            examples.left_out["no action token within the length limit"] += 1
            continue
        examples.num_cut_steps += transcript.num_cut
        examples.transcripts.append(transcript)
        examples.ids.append(record.id)
    return examples


def texts(records: Iterable[RolloutRecord], rendering: Rendering) -> Iterator[str]:
    """Every text of the records: what a miniature policy's tokenizer is trained on."""
    for record in records:
        for message in rendering.opening(record.task.view()):
            yield message.text
        for step in record.trajectory.steps:
            yield step.text
            for message in rendering.answer(step):
                yield message.text
