"""Reading values that are almost JSON: what models write when they mean a call (lenient reading only).

Accepted beyond JSON: single, typographic and missing quotes, Python and bare words, trailing and missing commas,
full-width punctuation, quotes and line breaks inside strings, closing brackets missing at the very end, and Python call
syntax. Nothing is ever evaluated. Linear time; nesting is bounded.
"""

from __future__ import annotations

import re
from typing import Any

from opensearch_vl.agent.blocks import MAX_DEPTH


class Unreadable(ValueError):
    """The text is not a value, even with good will."""


_SPACE = re.compile(r"\s*")
_CLOSERS = {"{": "}｝", "｛": "}｝", "[": "]］", "［": "]］", "(": ")）"}
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "「": "」"}
_ENDS_STRING = re.compile(r"\s{0,16}(?:[,}\]):=，：｝］）]|\Z)")
_BARE = re.compile(r"[^,}\]{\[():=，：｝］）\n]+")
_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?\Z")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/", "\n": ""}
_CALLEE = re.compile(r"([A-Za-z_][\w.\-]{0,63})\s{0,4}\(")


def read_value(text: str, start: int = 0, *, may_be_cut: bool = False) -> tuple[Any, int]:
    """The value that opens at `start`, and where it ends.

    Args:
        text: The text to read.
        start: Where the value begins; space before it is skipped.
        may_be_cut: The text may stop in the middle, so brackets missing at its end are not supplied.

    Raises:
        Unreadable: If there is no such value, or it nests deeper than `MAX_DEPTH`.
    """
    reader = _Reader(text, start, may_be_cut)
    return reader.value(0), reader.pos


def read_python_call(text: str, start: int = 0, *, may_be_cut: bool = False) -> tuple[str, dict[str, Any], int]:
    """``name(key=value, …)`` at `start`: the name, the arguments, and where it ends.

    Raises:
        Unreadable: If it is anything else, positional arguments included.
    """
    callee = _CALLEE.match(text, start)
    if callee is None:
        raise Unreadable("not a call")
    reader = _Reader(text, callee.end() - 1, may_be_cut)
    arguments = reader.mapping(")）", 1)
    return callee[1], arguments, reader.pos


class _Reader:
    """A recursive-descent reader with its position."""

    def __init__(self, text: str, pos: int, may_be_cut: bool) -> None:
        self.text = text
        self.pos = pos
        self.may_be_cut = may_be_cut

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        mark = self._peek()
        if mark in ("{", "｛"):
            return self.mapping(_CLOSERS[mark], depth + 1)
        if mark in ("[", "［"):
            return self._sequence(_CLOSERS[mark], depth + 1)
        if mark in _QUOTES:
            return self._string(_QUOTES[mark])
        return self._bare()

    def mapping(self, closers: str, depth: int) -> dict[str, Any]:
        """Pairs up to one of `closers`; the opening bracket is at `pos`."""
        self.pos += 1
        found: dict[str, Any] = {}
        while not self._at_end(closers):
            mark = self._peek()
            key = self._string(_QUOTES[mark]) if mark in _QUOTES else self._bare()
            if self._peek() not in (":", "：", "="):
                raise Unreadable("a key without a value")
            self.pos += 1
            found[str(key)] = self.value(depth)
        return found

    def _sequence(self, closers: str, depth: int) -> list[Any]:
        self.pos += 1
        found: list[Any] = []
        while not self._at_end(closers):
            found.append(self.value(depth))
        return found

    def _at_end(self, closers: str) -> bool:
        while self._peek() in (",", "，"):
            self.pos += 1
        mark = self._peek()
        if not mark:
            if self.may_be_cut:
                raise Unreadable("cut off")
            return True
        if mark in closers:
            self.pos += 1
            return True
        return mark in "}]｝］)）"  # a bracket of another kind: left to whoever opened it

    def _string(self, quote: str) -> str:
        """A string ends at the first quote that is followed by punctuation of the value around it."""
        start = self.pos + 1
        at = start
        while True:
            at = self._next(quote, at)
            if _ENDS_STRING.match(self.text, at + 1):
                break
            at += 1
        self.pos = at + 1
        return _unescape(self.text[start:at])

    def _next(self, quote: str, at: int) -> int:
        while True:
            found = self.text.find(quote, at)
            if found < 0:
                raise Unreadable("a string without an end")
            backslashes = 0
            while found - backslashes > at and self.text[found - backslashes - 1] == "\\":
                backslashes += 1
            if backslashes % 2 == 0:
                return found
            at = found + 1

    def _bare(self) -> Any:
        match = _BARE.match(self.text, self.pos)
        word = match[0].strip() if match else ""
        if not match or not word:
            raise Unreadable("no value here")
        self.pos = match.end()
        if word.lower() in _WORDS:
            return _WORDS[word.lower()]
        if _NUMBER.match(word):
            number = float(word)
            if "." not in word and "e" not in word.lower():
                return int(word)
            if abs(number) != float("inf"):
                return number
        return word

    def _peek(self) -> str:
        match = _SPACE.match(self.text, self.pos)
        self.pos = match.end() if match else self.pos
        return self.text[self.pos : self.pos + 1]


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def one(escape: re.Match[str]) -> str:
        code = escape[1]
        if len(code) > 1:
            return chr(int(code[1:], 16))
        return _ESCAPED.get(code, escape[0])

    joined = _ESCAPE.sub(one, text)
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
