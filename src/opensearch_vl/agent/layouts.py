"""Layouts: how prompt, pictures and observations are laid out as messages.

Released checkpoints were trained and run in three layouts, so "runs them unchanged" means each of them by name:

| layout | tools | observation | format error |
|---|---|---|---|
| `sft` | system prompt | user turn, `<tool_response>` around picture and `<observation>` | like an observation |
| `rl` | system prompt | user turn, `<tool_response>` around picture and text | bare user turn |
| `infer` | first user turn | user turn, `<observation>`, then the picture | like an observation |
| `native_tools` | with the request | `tool` turn with text and picture | bare user turn |

A layout is a pure function of the prompt and the steps: `replay` gives the very messages that a finished trajectory was
rolled out with, which is what training and export build on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from opensearch_vl.agent.settings import AgentSettings, LayoutName
from opensearch_vl.prompts import fill, prompt_hash, template
from opensearch_vl.protocols import ImagePart, Message, NativeCall, Part, TextPart, ToolSchema
from opensearch_vl.types import FailureKind, Step, TaskView

FORMAT_ERRORS = frozenset({FailureKind.MALFORMED_CALL, FailureKind.NO_ACTION})
"""Failures of the dialect; all others are failures of a call that could be read."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to lay out a conversation.

    Attributes:
        name: Its name.
        system: The system prompt.
        tools: Text that describes the tools, for the place where this layout puts it; empty in native mode.
        schemas: What is sent with the request; empty unless tools are native.
        list_pictures: The first turn states ids and sizes.
        hash: Changes with anything above.
    """

    name: LayoutName
    system: str
    tools: str
    schemas: tuple[ToolSchema, ...]
    list_pictures: bool
    hash: str

    @property
    def native(self) -> bool:
        """Whether calls go through the server's own tool calls."""
        return self.name == "native_tools"

    def opening(self, task: TaskView) -> tuple[Message, ...]:
        """System turn and first user turn: pictures, then the question."""
        parts: list[Part] = [TextPart(f"{self.tools}\n\n")] if self.name == "infer" and self.tools else []
        parts += [ImagePart(image) for image in task.images]
        question = task.question
        if self.list_pictures and task.images:
            sizes = (f"img_{n} ({i.width_px}×{i.height_px} px)" for n, i in enumerate(task.images, 1))
            question = f"Pictures: {', '.join(sizes)}\n\n{question}"
        parts.append(TextPart(question))
        system = f"{self.system}\n\n{self.tools}" if self.name in ("sft", "rl") and self.tools else self.system
        return Message("system", (TextPart(system),)), Message("user", tuple(parts))

    def reply(self, step: Step) -> Message:
        """The policy's own turn, as it stands in the history."""
        if self.native and step.call is not None:
            arguments = json.dumps(step.call.arguments, ensure_ascii=False)
            call = NativeCall(_call_id(step), step.call.name, arguments)
            return Message("assistant", _text(step.thought), tool_calls=(call,))
        return Message("assistant", _text(step.text or step.thought))

    def answer(self, step: Step) -> tuple[Message, ...]:
        """What the environment says after a step; nothing after a response."""
        seen = step.observation
        if seen is None:
            return ()
        image = (ImagePart(seen.image),) if seen.image is not None else ()
        is_format_error = step.failure is not None and step.failure.kind in FORMAT_ERRORS
        observation = TextPart(f"<observation>\n{seen.text}\n</observation>")
        match self.name:
            case "sft":
                opened, closed = TextPart("<tool_response>\n"), TextPart("\n</tool_response>")
                return (Message("user", (opened, *image, observation, closed)),)
            case "infer":
                return (Message("user", (observation, *image)),)
            case _ if is_format_error or (self.native and step.call is None):
                return (Message("user", (TextPart(seen.text),)),)
            case "rl":
                closed = TextPart(f"{seen.text}\n</tool_response>")
                return (Message("user", (TextPart("<tool_response>\n"), *image, closed)),)
            case _:
                return (Message("tool", (TextPart(seen.text), *image), tool_call_id=_call_id(step)),)

    def replay(self, task: TaskView, steps: Sequence[Step]) -> list[Message]:
        """All messages of a trajectory, the last reply included."""
        messages = list(self.opening(task))
        for step in steps:
            messages += [self.reply(step), *self.answer(step)]
        return messages


def build_layout(settings: AgentSettings, schemas: Sequence[ToolSchema]) -> Layout:
    """The layout that the settings ask for, with the prompt filled in."""
    native = settings.layout == "native_tools"
    suffix = settings.sizes.suffix
    form = template(f"agent_form_{'native' if native else 'tags'}{suffix}")
    today = [f"Today is {settings.date}."] if settings.date else []
    system = fill(f"agent_system{suffix}", form="\n\n".join([form, *today]))
    tools = "" if native or not schemas else describe_tools(schemas, short=settings.sizes.signatures)
    hashed = [settings.layout, system, tools, str(settings.list_pictures)]
    hashed += [json.dumps([s.name, s.description, s.parameters], sort_keys=True) for s in schemas]
    return Layout(
        name=settings.layout,
        system=system,
        tools=tools,
        schemas=tuple(schemas) if native else (),
        list_pictures=settings.list_pictures,
        hash=prompt_hash(*hashed),
    )


def describe_tools(schemas: Sequence[ToolSchema], *, short: bool = False) -> str:
    """The tools between `<tools>` tags: one JSON function signature a line, or one short line each."""
    lines = [_signature(schema) if short else _function(schema) for schema in schemas]
    return (
        "\n".join(["<tools>", *lines, "</tools>"])
        if short
        else "\n".join(["# Tools", "", "<tools>", *lines, "</tools>"])
    )


def _function(schema: ToolSchema) -> str:
    function = {"name": schema.name, "description": schema.description, "parameters": schema.parameters}
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def _signature(schema: ToolSchema) -> str:
    """Name and required arguments."""
    return f"{schema.name}({', '.join(schema.parameters.get('required', ()))})"


def _call_id(step: Step) -> str:
    """Id of a native call: made from the step alone, nine letters and digits as the strictest servers want it."""
    return f"call{step.index:05d}"


def _text(text: str) -> tuple[Part, ...]:
    return (TextPart(text),) if text else ()
