"""Cutting a reply into blocks: the one scanner under the strict and the lenient reading (paper, section 5).

The tags of the dialect are named here and in `foreign`, nowhere else. One pass over the tag positions of a reply gives
its blocks; the text of a call is read JSON-first, so that a closing tag inside an argument does not end the call. Work
is linear in the length of the reply whatever it holds: a region is bounded by the next tag, and at most
`MAX_BODIES` calls are looked into.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["think", "call", "response", "observation", "text", "stray"]

MAX_DEPTH = 32
"""Deepest nesting of arrays and objects that is read; tool arguments are flat, or nearly."""
MAX_BODIES = 8
"""Calls of one reply that are looked into. Only the first is ever run; the rest only have to be noticed."""

_NAMES: dict[str, Kind] = {
    "think": "think",
    "thinking": "think",
    "thought": "think",
    "reasoning": "think",
    "tool_call": "call",
    "tool_calls": "call",
    "toolcall": "call",
    "function_call": "call",
    "tool_use": "call",
    "response": "response",
    "answer": "response",
    "final_answer": "response",
    "final_response": "response",
    "tool_response": "observation",
    "tool_result": "observation",
    "observation": "observation",
}
_TAG = re.compile(
    r"[<＜]\s{0,2}(?P<close>[/／]?)\s{0,2}(?P<name>"
    + "|".join(sorted(_NAMES, key=len, reverse=True))
    + r")(?:\s{1,4}name\s?=\s?[\"']?(?P<attribute>[\w.\-]{1,64})[\"']?)?\s{0,2}[>＞]",
    re.IGNORECASE,
)
_EXACT = frozenset(
    {"<think>", "</think>", "<tool_call>", "</tool_call>", "<response>", "</response>"}
)  # what released checkpoints are trained to write
_JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a reply.

    Attributes:
        kind: What its tag says; `text` for anything outside a block, `stray` for a closing tag that closes nothing.
        inner: The text between the tags.
        exact: Both tags are there, spelt as trained, with no other tag inside.
        closed: The closing tag is there.
        attribute: The `name="…"` of the opening tag, which some models write.
    """

    kind: Kind
    inner: str
    exact: bool = False
    closed: bool = True
    attribute: str = ""


def scan(text: str) -> list[Block]:
    """The blocks of a reply, in order; whitespace between them is left out."""
    return _Scanner(text).run()


def has_tag(text: str) -> bool:
    """Whether any tag of the dialect occurs, in any spelling."""
    return _TAG.search(text) is not None


def disarm(text: str) -> str:
    """`text` with its dialect tags made visible but powerless: ``<think>`` becomes ``‹think›``."""
    return _TAG.sub(lambda tag: f"‹{tag[0][1:-1]}›", text)


def balanced_end(text: str, start: int) -> int | None:
    """End of the JSON array or object that opens at `start`; None if it does not close or nests too deeply."""
    depth = 0
    for token in _JSON_TOKEN.finditer(text, start):
        match token[0]:
            case "{" | "[":
                depth += 1
                if depth > MAX_DEPTH:
                    return None
            case "}" | "]":
                depth -= 1
                if depth <= 0:
                    return token.end()
            case '"':  # a string that never closes
                return None
    return None


class _Scanner:
    """State of one `scan`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tags = list(_TAG.finditer(text))
        self.blocks: list[Block] = []
        self.pos = 0
        self.bodies_left = MAX_BODIES
        self.reasoning_end: int | None = None

    def run(self) -> list[Block]:
        for index, tag in enumerate(self.tags):
            if tag.start() < self.pos:
                continue  # swallowed by the block before
            self._text_until(tag.start())
            self.pos = tag.end()
            kind = _kind(tag)
            if tag["close"]:
                self._stray(kind, tag)
            elif kind == "think":
                self._think(index)
            elif kind == "call":
                self._call(index)
            else:
                self._until_close(index, kind)
        self._text_until(len(self.text))
        if self.reasoning_end is None:
            return self.blocks
        return [Block("think", self.text[: self.reasoning_end].strip()), *self.blocks]

    def _text_until(self, end: int) -> None:
        if end > self.pos:
            gap = self.text[self.pos : end].strip()
            if gap:
                self.blocks.append(Block("text", gap))

    def _stray(self, kind: Kind, tag: re.Match[str]) -> None:
        if kind == "think":
            # The opening tag was in the prompt or got lost: all of this was reasoning, calls in it included.
            self.blocks.clear()
            self.reasoning_end = tag.start()
        else:
            self.blocks.append(Block("stray", ""))

    def _think(self, index: int) -> None:
        """Up to the matching closing tag; doubled opening tags with nothing between them count as one."""
        opening = begun = previous = self.tags[index]
        depth, inside = 1, 0
        for tag in self._tags_after(index):
            if _kind(tag) != "think":
                inside += 1
            elif tag["close"]:
                depth -= 1
                if depth == 0:
                    inner = self.text[begun.end() : tag.start()]
                    exact = inside == 0 and previous is opening and _exact(opening) and _exact(tag)
                    self.blocks.append(Block("think", inner.strip(), exact))
                    self.pos = tag.end()
                    return
            elif previous is begun and not self.text[begun.end() : tag.start()].strip():
                begun = tag
            else:
                depth += 1
            previous = tag if _kind(tag) == "think" else previous
        self.blocks.append(Block("think", self.text[begun.end() :].strip(), closed=False))
        self.pos = len(self.text)

    def _call(self, index: int) -> None:
        opening = self.tags[index]
        attribute = opening["attribute"] or ""
        start = self._skip_space(opening.end())
        if self.bodies_left > 0 and self.text[start : start + 1] in ("{", "["):
            self.bodies_left -= 1
            end = balanced_end(self.text, start)
            closing = _TAG.match(self.text, self._skip_space(end)) if end is not None else None
            if closing is not None and closing["close"] and _kind(closing) == "call":
                exact = _exact(opening) and _exact(closing)
                self.blocks.append(Block("call", self.text[start:end], exact, attribute=attribute))
                self.pos = closing.end()
                return
            if end is not None and not self._closes_next(index, end):
                self.blocks.append(Block("call", self.text[start:end], closed=False, attribute=attribute))
                self.pos = end
                return
        following = next(self._tags_after(index), None)
        end = following.start() if following is not None else len(self.text)
        closed = following is not None and bool(following["close"]) and _kind(following) == "call"
        if closed and following is not None and self._closes_next(index + 1, following.end()):
            # two closing tags in a row: the first may be part of an argument that is not valid JSON
            following = self.tags[index + 2]
            end = following.start()
        self.blocks.append(Block("call", self.text[start:end].strip(), closed=closed, attribute=attribute))
        self.pos = following.end() if closed and following is not None else end

    def _closes_next(self, index: int, start: int) -> bool:
        """Whether the first tag after `start` (and after tag `index`) closes a call."""
        for tag in self._tags_after(index):
            if tag.start() >= start:
                return bool(tag["close"]) and _kind(tag) == "call"
        return False

    def _until_close(self, index: int, kind: Kind) -> None:
        opening = self.tags[index]
        for inside, tag in enumerate(self._tags_after(index)):
            if _kind(tag) == kind and tag["close"]:
                exact = inside == 0 and _exact(opening) and _exact(tag)
                self.blocks.append(Block(kind, self.text[opening.end() : tag.start()].strip(), exact))
                self.pos = tag.end()
                return
        self.blocks.append(Block(kind, self.text[opening.end() :].strip(), closed=False))
        self.pos = len(self.text)

    def _tags_after(self, index: int) -> Iterator[re.Match[str]]:
        return (self.tags[i] for i in range(index + 1, len(self.tags)))

    def _skip_space(self, start: int) -> int:
        match = _SPACE.match(self.text, start)
        return match.end() if match else start


def _kind(tag: re.Match[str]) -> Kind:
    return _NAMES[tag["name"].lower()]


def _exact(tag: re.Match[str]) -> bool:
    return tag[0] in _EXACT
