"""A policy that says what a test has written beforehand, as the tokens that a sampled reply would have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from opensearch_vl.agent.transcript import ChatFormat, Tape
from opensearch_vl.errors import ModelUnreachable
from opensearch_vl.protocols import Message, Reply, Sampling, ToolSchema
from opensearch_vl.types import Sampled, Usage


class Scripted:
    """A policy whose turns are written beforehand, as tokens; its conversations go as the script says.

    Each script is a list of replies; `None` stands for a model server that cannot be reached, a list of ids for tokens
    that no text would give.
    """

    name = "scripted"

    def __init__(self, chat: ChatFormat, scripts: Sequence[Sequence[Any]]) -> None:
        self.chat = chat
        self.scripts = scripts
        self.num = 0

    def __call__(self, conversation: str) -> "ScriptedTalk":
        script = self.scripts[self.num % len(self.scripts)]
        self.num += 1
        return ScriptedTalk(self.chat, script)


@dataclass
class Odd:
    """Tokens with a log-probability of their own."""

    ids: list[int]
    logprob: float


class ScriptedTalk:
    name = "scripted"

    def __init__(self, chat: ChatFormat, script: Sequence[Any]) -> None:
        self.chat = chat
        self.script = list(script)
        self.num_read = 0

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
        sampling: Sampling = Sampling(),
        seed: int = 0,
    ) -> Reply:
        turn = self.script.pop(0) if self.script else "<think>Done.</think><response>unknown</response>"
        if turn is None:
            raise ModelUnreachable("The server is gone.")
        if self.num_read == 0:
            self.tape = Tape(self.chat, messages)
        else:
            self.tape.add_messages(messages[self.num_read + 1 :])
        self.num_read = len(messages)
        odd = turn if isinstance(turn, Odd) else Odd(turn if isinstance(turn, list) else self.ids_of(turn), -1.0)
        ids = odd.ids
        sampled = Sampled(
            prompt_len=len(self.tape.prompt()), token_ids=tuple(ids), logprobs=tuple([odd.logprob] * len(ids))
        )
        spoken = ids[:-1] if isinstance(turn, Odd) else []
        text = turn if isinstance(turn, str) else self.chat.tokenizer.decode(spoken)
        if not set(ids) & set(self.chat.banned):
            self.tape.add_reply(text, sampled)
        return Reply(content=text, usage=Usage(), sampled=sampled)

    def ids_of(self, text: str) -> list[int]:
        return [*self.chat.encode_text(text), self.chat.im_end]
