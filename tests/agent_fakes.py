"""Fakes at the agent's two seams: a model that follows a script, and tools that need no world."""

import asyncio
import json
from collections.abc import Callable, Sequence

from PIL import Image

from opensearch_vl.images import ImageBank, ImageStore
from opensearch_vl.protocols import Message, NativeCall, Reply, Sampling, ToolSchema
from opensearch_vl.types import (
    FailureKind,
    ImageRef,
    Observation,
    TaskView,
    ToolCall,
    ToolFailure,
    ToolResult,
    Usage,
)

SCHEMAS = (
    ToolSchema(
        "text_search",
        "Search texts.",
        {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    ),
    ToolSchema(
        "crop",
        "Cut out a part.",
        {"type": "object", "properties": {"image": {"type": "string"}}, "required": ["image"]},
    ),
)


def say(thought: str, name: str, **arguments: object) -> Reply:
    """A reply in exact form that calls a tool."""
    body = json.dumps({"name": name, "arguments": arguments})
    return Reply(f"<think>{thought}</think>\n<tool_call>{body}</tool_call>")


def answer(text: str) -> Reply:
    """A reply in exact form that answers."""
    return Reply(f"<think>done</think>\n<response>{text}</response>")


def native(name: str, reasoning: str = "hm", content: str = "", **arguments: object) -> Reply:
    """A reply of a server that parses calls itself."""
    return Reply(content, reasoning, (NativeCall("srv-1", name, json.dumps(arguments)),))


class Script:
    """A `ChatModel` that says its lines in turn; a line may be a reply, an exception or a function of the messages."""

    def __init__(
        self, *lines: Reply | Exception | Callable[[Sequence[Message]], Reply], name: str = "script", delay: float = 0.0
    ) -> None:
        self.name = name
        self.lines = list(lines)
        self.delay = delay
        self.seen: list[tuple[tuple[Message, ...], tuple[ToolSchema, ...], Sampling, int]] = []

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
        sampling: Sampling = Sampling(),
        seed: int = 0,
    ) -> Reply:
        self.seen.append((tuple(messages), tuple(tools), sampling, seed))
        await asyncio.sleep(self.delay)
        line = self.lines[min(len(self.seen), len(self.lines)) - 1]
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, Reply) else line(messages)


class FakeTools:
    """`text_search` echoes its query, `crop` makes a picture, `fail` fails, anything else is unknown."""

    def __init__(self, store: ImageStore, delay: float = 0.0) -> None:
        self.store = store
        self.delay = delay
        self.calls: list[ToolCall] = []

    @property
    def names(self) -> tuple[str, ...]:
        return ("text_search", "crop")

    def schemas(self) -> tuple[ToolSchema, ...]:
        return SCHEMAS

    def key(self, call: ToolCall) -> str:
        return f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"

    async def call(self, call: ToolCall, bank: ImageBank) -> ToolResult:
        self.calls.append(call)
        await asyncio.sleep(self.delay)
        if call.name == "text_search":
            return ToolResult(
                observation=Observation(text=f"You searched {call.arguments.get('q')}"), seconds=0.5, cost=0.25
            )
        if call.name == "crop":
            tone = len(bank) * 20 % 256
            ref = self.store.put(Image.new("RGB", (32, 24), (tone, 0, 0)))
            return ToolResult(observation=Observation(text="Cropped to 32×24 px.", image=ref))
        kind = FailureKind.TIMEOUT if call.name == "fail" else FailureKind.UNKNOWN_TOOL
        failure = ToolFailure(kind=kind, message="it failed")
        return ToolResult(observation=Observation(text="The tool call failed."), failure=failure)


def picture(store: ImageStore, width: int = 64, height: int = 48) -> ImageRef:
    """A plain picture in the store."""
    return store.put(Image.new("RGB", (width, height), (10, 120, 200)))


def task(store: ImageStore, task_id: str = "t1", question: str = "When was it built?") -> TaskView:
    """A task about a plain picture."""
    return TaskView(id=task_id, question=question, images=(picture(store),))


def tokens(prompt: int, completion: int) -> Usage:
    """What a server reports."""
    return Usage(prompt_tokens=prompt, completion_tokens=completion)
