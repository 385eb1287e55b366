"""Text to actions and back: what a policy's reply means (paper, sections 2 and 5).

A reply in exact form is one ``<think>…</think>`` block followed at once by one ``<tool_call>…</tool_call>`` or one
``<response>…</response>``; that is what the format reward counts. The *lenient* reading, meant for serving, also makes
sense of what models write when they almost hold to the form. The *strict* reading accepts the exact form only. Both
read the same blocks (`blocks.scan`), and neither ever runs anything that stands inside the reasoning.

Servers with parsers of their own move the reasoning and the calls out of the text; `parse` puts the parts together
again, so that a reply means the same whichever way it arrives.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from opensearch_vl.agent.blocks import Block, balanced_end, disarm, has_tag, scan
from opensearch_vl.agent.foreign import Found, checked_name, find, is_name, read_body, strict_json
from opensearch_vl.agent.repair import Unreadable, read_value
from opensearch_vl.protocols import NativeCall, Reply
from opensearch_vl.types import FailureKind, ToolCall, ToolFailure

Mode = Literal["strict", "lenient"]

_END_MARKS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|end|>")
_WHAT_TO_DO = "Reply with a think block followed by either one tool_call block or one response block."
_CUT_OFF = "The reply was cut off at its length limit. Be briefer."


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a reply means. Exactly one of `call`, `response` and `failure` is set.

    Attributes:
        text: The reply as one text, parts that a server moved away put back; empty for a call in a conversation in
            native tool calls.
        thought: The reasoning ``z_l``; prose around a call counts as reasoning.
        call: The tool call to run.
        response: The final response.
        failure: Why there is nothing to do: `malformed_call` or `no_action`.
        well_formed: The reply has the exact form, whatever the mode it was read in.
        note: What was in the reply and is not acted upon; shown to the policy, so that nothing is lost silently.
    """

    text: str
    thought: str = ""
    call: ToolCall | None = None
    response: str | None = None
    failure: ToolFailure | None = None
    well_formed: bool = False
    note: str = ""


def parse(reply: Reply, mode: Mode = "lenient", *, plain_answer: bool = False, prefill: str = "") -> Parsed:
    """Read a reply. Never raises, whatever the reply holds; time is linear in its length.

    Args:
        reply: The model's turn.
        mode: `strict` turns everything that is not in exact form into a failure; `lenient` repairs.
        plain_answer: The conversation is in native tool calls: untagged text is the final response.
        prefill: What the chat template wrote of the turn before the policy went on, such as ``<think>`` and a line
            break; it is put back in front of the reply (`with_prefill`).
    """
    reasoning = _clean(reply.reasoning).strip()
    content = _clean(reply.content)
    if not reasoning:  # a server that moved the reasoning out has closed what the template opened
        content = with_prefill(content, prefill)
    blocks = scan(_without_end_marks(content))
    text = "" if reply.tool_calls and plain_answer else _whole_text(content, reasoning, reply.tool_calls)
    exact = _exact_form(text, blocks, reasoning, reply.tool_calls, plain_answer and reply.finish_reason != "length")
    if exact is not None:
        return exact
    cut = reply.finish_reason == "length"
    reading = _Reading(text, blocks, reasoning, cut, plain_answer).read(reply.tool_calls)
    if mode == "strict" and reading.failure is None:
        message = f"The reply is not in the required form. {reading.note} {_WHAT_TO_DO}".replace("  ", " ")
        failure = ToolFailure(kind=FailureKind.MALFORMED_CALL, message=message)
        return Parsed(text=text, thought=reading.thought, failure=failure)
    return reading


def with_prefill(text: str, prefill: str) -> str:
    """A whole turn: `text` with what the chat template wrote in front of it, unless the server gave that back too."""
    return text if text.lstrip().startswith(prefill.strip()) else prefill + text


def render_call(thought: str, call: ToolCall) -> str:
    """The exact form of a step that calls a tool."""
    body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    body = body.replace("</", "<\\/")  # the same JSON, and no parser of tags can be misled by an argument
    return f"<think>{disarm(thought)}</think>\n<tool_call>{body}</tool_call>"


def render_response(thought: str, response: str) -> str:
    """The exact form of a step that answers."""
    return f"<think>{disarm(thought)}</think>\n<response>{disarm(response)}</response>"


# ------------------------------------------------------------------------------------------- exact form


def _exact_form(
    text: str, blocks: Sequence[Block], reasoning: str, native: Sequence[NativeCall], plain_answer: bool
) -> Parsed | None:
    """The reading of a reply in exact form; None if it is not."""
    if reasoning:
        if has_tag(reasoning):
            return None
        thought, rest = reasoning, list(blocks)
    elif blocks and blocks[0].kind == "think" and blocks[0].exact:
        thought, rest = blocks[0].inner, list(blocks[1:])
    else:
        return None
    if native:
        if rest or len(native) > 1:
            return None
        arguments = _exact_arguments(native[0].arguments)
        if arguments is None or not is_name(native[0].name):
            return None
        call = ToolCall(name=native[0].name, arguments=arguments)
        return Parsed(text=text, thought=thought, call=call, well_formed=True)
    if len(rest) != 1:
        return None
    action = rest[0]
    if action.kind == "response" and action.exact and action.inner:
        return Parsed(text=text, thought=thought, response=action.inner, well_formed=True)
    if action.kind == "text" and plain_answer:
        return Parsed(text=text, thought=thought, response=action.inner, well_formed=True)
    if action.kind == "call" and action.exact and not action.attribute:
        value = _sound(strict_json(action.inner))
        if isinstance(value, dict) and value.keys() == {"name", "arguments"}:
            name, arguments = value["name"], value["arguments"]
            if isinstance(name, str) and is_name(name) and isinstance(arguments, dict):
                call = ToolCall(name=name, arguments=arguments)
                return Parsed(text=text, thought=thought, call=call, well_formed=True)
    return None


def _exact_arguments(text: str) -> dict[str, Any] | None:
    text = text.strip()
    if balanced_end(text, 0) != len(text):
        return None
    arguments = _sound(strict_json(text))
    return arguments if isinstance(arguments, dict) else None


# --------------------------------------------------------------------------------------- lenient reading


class _Reading:
    """The lenient reading of one reply: the first action counts, and what is not acted upon is noted."""

    def __init__(self, text: str, blocks: Sequence[Block], reasoning: str, cut: bool, plain_answer: bool) -> None:
        self.text = text
        self.cut = cut
        self.plain_answer = plain_answer
        self.thoughts = [reasoning] if reasoning else []
        self.blocks = [b for b in blocks if b.kind not in ("think", "stray")]
        self.thoughts += [b.inner for b in blocks if b.kind == "think" and b.inner]
        self.unclosed_thought = any(b.kind == "think" and not b.closed for b in blocks)

    def read(self, native: Sequence[NativeCall]) -> Parsed:
        if native:
            return self._native(native)
        calls = [b for b in self.blocks if b.kind == "call" and (b.inner or b.attribute)]
        responses = [b for b in self.blocks if b.kind == "response"]
        if calls and (not responses or self.blocks.index(calls[0]) < self.blocks.index(responses[0])):
            return self._call(calls[0], len(calls) > 1, bool(responses))
        if responses:
            return self._response(responses, bool(calls))
        return self._untagged()

    def _native(self, native: Sequence[NativeCall]) -> Parsed:
        others = len(native) > 1 or any(b.kind == "call" for b in self.blocks)
        answered = any(b.kind == "response" for b in self.blocks)
        self._take_prose()
        first = native[0]
        try:
            found = _native_call(first, self.cut)
        except Unreadable:
            return self._malformed("The arguments of the call are not a JSON object.")
        return self._run(found, others, answered)

    def _call(self, block: Block, others: bool, answered: bool) -> Parsed:
        at = self.blocks.index(block)
        trailing = any(b.kind in ("text", "observation") for b in self.blocks[at + 1 :])
        self._take_prose(at)
        try:
            may_be_cut = self.cut and not block.closed
            found = read_body(block.inner, attribute=block.attribute, may_be_cut=may_be_cut)
        except Unreadable as problem:
            return self._malformed(f"The call could not be read: {problem}.")
        return self._run(found, others, answered, trailing)

    def _run(self, found: Found, others: bool, answered: bool, trailing: bool = False) -> Parsed:
        notes = []
        if found.more or others:
            notes.append("Only the first call of the turn was run; make one call per turn.")
        if answered:
            notes.append("The response given together with the call was not taken; respond in a turn of its own.")
        if trailing:
            notes.append("Text after the call was not read; end the turn with the call.")
        call = ToolCall(name=_clean(found.name), arguments=_sound(found.arguments))
        return Parsed(text=self.text, thought=self._thought(), call=call, note=" ".join(notes))

    def _response(self, responses: Sequence[Block], called: bool) -> Parsed:
        self._take_prose(self.blocks.index(responses[0]))
        if called:
            return self._malformed("The turn holds both a response and a call; give one of them.")
        answers = list(dict.fromkeys(b.inner for b in responses if b.inner))
        if len(answers) > 1:
            return self._malformed("The turn holds more than one response; give one.")
        if not answers:
            return self._no_action("The response is empty.")
        if self.cut and not responses[-1].closed:
            return self._no_action(_CUT_OFF)
        return Parsed(text=self.text, thought=self._thought(), response=answers[0])

    def _untagged(self) -> Parsed:
        prose = "\n".join(b.inner for b in self.blocks if b.kind == "text")
        try:
            found = find(prose, may_be_cut=self.cut)
        except Unreadable as problem:
            self._take_prose()
            return self._malformed(f"The call could not be read: {problem}.")
        if found is not None:
            self.thoughts += [prose[: found.start].strip()] if found.start else []
            return self._run(found, others=False, answered=False)
        if self.cut:
            self._take_prose()
            return self._no_action(_CUT_OFF)
        if self.plain_answer and prose:
            return Parsed(text=self.text, thought=self._thought(), response=prose)
        self._take_prose()
        if self.unclosed_thought:
            return self._no_action("The think block was never closed, so nothing after it counts.")
        if any(b.kind == "call" for b in self.blocks):
            return self._malformed("The call is empty.")
        return self._no_action("The reply is empty." if not prose else "The reply holds neither a call nor a response.")

    def _take_prose(self, until: int | None = None) -> None:
        self.thoughts += [b.inner for b in self.blocks[:until] if b.kind == "text"]

    def _thought(self) -> str:
        return "\n\n".join(self.thoughts)

    def _malformed(self, message: str) -> Parsed:
        failure = ToolFailure(kind=FailureKind.MALFORMED_CALL, message=f"{message} {self._advice()}")
        return Parsed(text=self.text, thought=self._thought(), failure=failure)

    def _no_action(self, message: str) -> Parsed:
        failure = ToolFailure(kind=FailureKind.NO_ACTION, message=f"{message} {self._advice()}")
        return Parsed(text=self.text, thought=self._thought(), failure=failure)

    def _advice(self) -> str:
        return "Call one tool, or give the final answer as plain text." if self.plain_answer else _WHAT_TO_DO


def _native_call(call: NativeCall, cut: bool) -> Found:
    name = checked_name(call.name)
    if not call.arguments.strip():
        return Found(name, {})
    value, _ = read_value(_clean(call.arguments), may_be_cut=cut)
    if isinstance(value, str):  # encoded twice
        value, _ = read_value(value, may_be_cut=cut)
    if not isinstance(value, dict):
        raise Unreadable("the arguments are not pairs of a name and a value")
    return Found(name, value)


# ------------------------------------------------------------------------------------------------- text


def _whole_text(content: str, reasoning: str, calls: Sequence[NativeCall]) -> str:
    """The reply as the policy wrote it, before a server took it apart."""
    text = f"<think>{reasoning}</think>\n{content}" if reasoning else content
    for call in calls:
        body = f'{{"name": {json.dumps(_clean(call.name))}, "arguments": {_clean(call.arguments) or "{}"}}}'
        text = f"{text}\n<tool_call>{body}</tool_call>".lstrip()
    return text


def _without_end_marks(text: str) -> str:
    """The text without end-of-turn tokens that a server left at its end."""
    while True:
        text = text.rstrip()
        mark = next((mark for mark in _END_MARKS if text.endswith(mark)), None)
        if mark is None:
            return text
        text = text.removesuffix(mark)


def _clean(text: str) -> str:
    """Text that can be stored: lone surrogates, which no encoding has, become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _sound(value: Any) -> Any:
    """`_clean` for every string of a value."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {_clean(str(key)): _sound(item) for key, item in value.items()}
    return value
