"""A local model as a `Policy` and, for one conversation, as a `ChatModel`: the model side of a rollout in training.

Rollouts are coroutines that wait, most of the time, for a tool or for the model. `LocalPolicy` collects the turns that
wait for the model, decodes them together in a thread (`rl.decoding`), and hands each back as soon as it is complete, so
that its tool call runs while the others go on. `PolicyChat` keeps one conversation's tape: what is sampled is what is
trained, token by token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from opensearch_vl.agent.pixels import Pixels
from opensearch_vl.agent.transcript import ChatFormat, Tape
from opensearch_vl.errors import TranscriptError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import Message, Reply, Sampling, ToolSchema
from opensearch_vl.rl.decoding import Decoder, Request
from opensearch_vl.rl.memory import Memory
from opensearch_vl.types import ImageRef, Sampled, Usage


class TurnPolicy(Protocol):
    """What decodes the turns of conversations: `LocalPolicy`, or `rl.server_policy.ServerPolicy`."""

    name: str
    stop_ids: frozenset[int]

    def open(self, conversation: str) -> None:
        """Announce a conversation."""
        ...

    def close(self, conversation: str) -> None:
        """Forget a conversation."""
        ...

    async def generate(
        self,
        token_ids: Sequence[int],
        images: Sequence[ImageRef],
        sampling: Sampling,
        *,
        seed: int = 0,
        conversation: str = "",
    ) -> Sampled:
        """Continue `token_ids`."""
        ...


@dataclass(slots=True)
class _Waiting:
    conversation: str
    request: Request
    future: asyncio.Future[Sampled]


class LocalPolicy:
    """Batches the turns of concurrent conversations.

    Args:
        decoder: The model.
        name: What trajectories call it.
        max_rows: Turns decoded together. Half the number of rollouts lets one half decode while the other half's tools
            run.
        lockstep: Decode only when every open conversation waits for the model. The batches, and with them the last bits
            of the log-probabilities, then no longer depend on how long tools take, which an exact resume needs.
    """

    def __init__(self, decoder: Decoder, name: str = "policy", *, max_rows: int = 128, lockstep: bool = False) -> None:
        self.decoder = decoder
        self.name = name
        self.stop_ids = decoder.stop_ids
        self.max_rows = max_rows
        self.lockstep = lockstep
        self.num_generated = 0
        self._memories: dict[str, Memory] = {}
        self._open: set[str] = set()
        self._waiting: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None

    def open(self, conversation: str) -> None:
        """Announce a conversation; in lockstep the others wait for it."""
        self._open.add(conversation)

    def close(self, conversation: str) -> None:
        """Forget a conversation; must be called from the event loop that its turns were decoded in."""
        self._open.discard(conversation)
        self._memories.pop(conversation, None)
        self._wake()

    def forget(self) -> None:
        """Forget what is held of all conversations; to be called when the weights have changed."""
        self._memories.clear()

    async def generate(
        self,
        token_ids: Sequence[int],
        images: Sequence[ImageRef],
        sampling: Sampling,
        *,
        seed: int = 0,
        conversation: str = "",
    ) -> Sampled:
        """Continue `token_ids`; `conversation` names whose turn it is, whose earlier turns need not be read again.

        The log-probabilities are those of the whole vocabulary at the sampling temperature, as the trainer computes
        them, although picture tokens are never sampled.
        """
        memory = self._memories.pop(conversation, None) or Memory()
        request = Request(list(token_ids), list(images), sampling, seed, memory)
        waiting = _Waiting(conversation, request, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._wake()
        return await waiting.future

    def _wake(self) -> None:
        if self._ready() and (self._worker is None or self._worker.done()):
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def _ready(self) -> bool:
        self._waiting = [turn for turn in self._waiting if not turn.future.done()]  # a cancelled rollout waits no more
        if self.lockstep:
            return bool(self._waiting) and self._open <= {turn.conversation for turn in self._waiting}
        return bool(self._waiting)

    async def _work(self) -> None:
        while self._ready():
            if self.lockstep:
                turns = sorted(self._waiting, key=lambda turn: turn.conversation)
                self._waiting = []
                for start in range(0, len(turns), self.max_rows):
                    await self._decode(turns[start : start + self.max_rows])
            else:
                turns, self._waiting = self._waiting[: self.max_rows], self._waiting[self.max_rows :]
                await self._decode(turns)

    async def _decode(self, turns: list[_Waiting]) -> None:
        loop = asyncio.get_running_loop()

        def deliver(index: int, sampled: Sampled) -> None:
            loop.call_soon_threadsafe(self._deliver, turns[index], sampled)

        try:
            await asyncio.to_thread(self.decoder.run, [turn.request for turn in turns], deliver)
        except Exception as error:  # the boundary between the decoding thread and the rollouts that wait for it
            for turn in turns:
                if not turn.future.done():
                    turn.future.set_exception(error)

    def _deliver(self, turn: _Waiting, sampled: Sampled) -> None:
        self.num_generated += len(sampled.token_ids)
        if turn.conversation in self._open:
            self._memories[turn.conversation] = turn.request.memory
        if not turn.future.done():
            turn.future.set_result(sampled)


class PolicyChat:
    """One conversation with a policy, spoken to in messages. Use one per rollout, and close it.

    Args:
        policy: The model.
        chat_format: Of its checkpoint.
        conversation: Name of the conversation; unique among those open.
    """

    def __init__(self, policy: TurnPolicy, chat_format: ChatFormat, conversation: str) -> None:
        self.name = policy.name
        self.policy = policy
        self.format = chat_format
        self.conversation = conversation
        self._tape: Tape | None = None
        self._num_read = 0
        policy.open(conversation)

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
        sampling: Sampling = Sampling(),
        seed: int = 0,
    ) -> Reply:
        """The next turn. `messages` must be those of the last call, the reply it got, and what came after.

        Raises:
            TranscriptError: If the conversation was rewritten (folded, say): its tokens would not be those sampled.
        """
        if self._tape is None:
            self._tape = Tape(self.format, messages)
        else:
            new = messages[self._num_read :]
            if not new or new[0].role != "assistant" or any(message.role == "assistant" for message in new[1:]):
                raise TranscriptError("The conversation does not continue where the policy left it.")
            self._tape.add_messages(new[1:])
        self._num_read = len(messages)
        prompt = self._tape.prompt()
        sampled = await self.policy.generate(
            prompt, self._tape.images, sampling, seed=seed, conversation=self.conversation
        )
        ids = list(sampled.token_ids)
        written = self.format.tokenizer.decode(ids[:-1] if ids and ids[-1] in self.policy.stop_ids else ids)
        text = self.format.prefill + written
        self._tape.add_reply(text, sampled)
        return Reply(
            content=text,
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids)),
            finish_reason=sampled.finish_reason,
            sampled=sampled,
        )

    def close(self) -> None:
        """Free what is held of the conversation."""
        self.policy.close(self.conversation)


def load_policy(
    checkpoint: Path | str,
    store: ImageStore,
    *,
    max_pixels: int | None = None,
    max_rows: int = 128,
    lockstep: bool = False,
) -> tuple[LocalPolicy, ChatFormat]:
    """A checkpoint directory as a policy in this process, and its chat format.

    Args:
        checkpoint: What fine-tuning or reinforcement learning wrote.
        store: Where the pictures of conversations are.
        max_pixels: Bound on the pixels of a picture as the model sees it; None keeps the checkpoint's.
        max_rows: Turns decoded together.
        lockstep: See `LocalPolicy`.

    Raises:
        MissingExtra: Without torch and transformers.
        TranscriptError: If the checkpoint does not speak the Qwen3-VL chat format.
    """
    chat_format = ChatFormat.load(checkpoint, max_pixels=max_pixels)
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(checkpoint, trust_remote_code=False)
    decoder = Decoder(model, Pixels(chat_format, store), stop_ids(chat_format))
    return LocalPolicy(decoder, Path(checkpoint).name, max_rows=max_rows, lockstep=lockstep), chat_format


def load_chat(checkpoint: Path | str, store: ImageStore, *, max_pixels: int | None = None) -> PolicyChat:
    """A checkpoint directory as a model for one conversation in this process; see `load_policy`."""
    policy, chat_format = load_policy(checkpoint, store, max_pixels=max_pixels)
    return PolicyChat(policy, chat_format, "conversation")


def stop_ids(chat_format: ChatFormat) -> list[int]:
    """Tokens that end a turn: ``<|im_end|>`` and the end of text."""
    return sorted({chat_format.im_end, int(chat_format.tokenizer.pad_token_id)})
