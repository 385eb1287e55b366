"""Calls as other frameworks write them, and calls in any shape of JSON (lenient reading only).

A model served with another template than it was trained with falls back on the format it knows. Each format below is
recognised by its own opening mark; nothing is guessed from prose.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opensearch_vl.agent.repair import Unreadable, read_python_call, read_value


@dataclass(frozen=True, slots=True)
class Found:
    """A call that was made out.

    Attributes:
        name: Name of the tool as written.
        arguments: Its arguments.
        more: Another call follows in the same text.
        start: Where in the text the call begins.
    """

    name: str
    arguments: dict[str, Any]
    more: bool = False
    start: int = 0


_NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "params", "kwargs")
_NAME = re.compile(r"[A-Za-z_][\w.\-]{0,63}")
_NAMED_JSON = re.compile(r"\s*([A-Za-z_][\w.\-]{0,63})\s*(?=[{｛])")
_FENCE = re.compile(r"```[\w+-]{0,20}[ \t]*\n?")
_XML_CALL = re.compile(r"<(?:function|invoke)(?:\s{0,2}=\s{0,2}|\s{1,2}name\s?=\s?)[\"']?([\w.\-]{1,64})[\"']?\s{0,2}>")
_XML_PARAMETER = re.compile(
    r"<(?:parameter|param)(?:\s{0,2}=\s{0,2}|\s{1,2}name\s?=\s?)[\"']?([\w.\-]{1,64})[\"']?\s{0,2}>|</(?:parameter|param)>"
)
_XML_END = re.compile(r"</(?:function|invoke)>")
_PAIR = re.compile(r"<(/?)arg_(key|value)>")
_BAR_CALL = re.compile(
    r"<[｜|]tool[▁_](?:call|calls_section)[▁_]begin[｜|]>(?:<[｜|]tool[▁_]call[▁_]begin[｜|]>)?"
    r"(?:function<[｜|]tool[▁_]sep[｜|]>)?\s{0,4}([\w.\-]{1,64})(?::\d{1,4})?\s{0,4}"
    r"(?:<[｜|]tool[▁_](?:sep|call_argument_begin)[｜|]>)?"
)
_BRACKET_CALL = re.compile(r"\[TOOL_CALLS\]\s{0,4}(?:([\w.\-]{1,64})\s{0,2}(?:\[ARGS\])?\s{0,2}(?=\{))?")
_PYTHON_TAG = re.compile(r"<\|python_tag\|>\s{0,4}")
_ACTION = re.compile(
    r"^\**Action\**:\**[ \t]{0,4}`?([\w.\-]{1,64})`?[ \t]{0,4}\n\**Action Input\**:\**[ \t]{0,4}", re.M
)
_OPENERS = re.compile("|".join(p.pattern for p in (_XML_CALL, _BAR_CALL, _BRACKET_CALL, _PYTHON_TAG, _ACTION)), re.M)


def read_body(body: str, *, attribute: str = "", may_be_cut: bool = False) -> Found:
    """The call inside a call block, in whatever form.

    Args:
        body: Text between the tags.
        attribute: Name given by the opening tag.
        may_be_cut: The reply was cut off at its token limit inside this block.

    Raises:
        Unreadable: If no call can be made out.
    """
    text = _without_fence(body)
    if text[:1] in ("{", "[", "｛", "［"):
        try:
            value, end = read_value(text, may_be_cut=may_be_cut)
            found = from_value(value, attribute)
        except Unreadable:
            if text[0] != "[":
                raise
            name, arguments, end = read_python_call(text, 1, may_be_cut=may_be_cut)  # [search(q="…")]
            found = Found(name, arguments)
        return Found(found.name, found.arguments, found.more or _goes_on(text, end))
    if _OPENERS.match(text):
        return _read_marked(text, 0, may_be_cut)
    named = _NAMED_JSON.match(text)
    if named is not None:
        value, end = read_value(text, named.end(), may_be_cut=may_be_cut)
        return Found(named[1], _mapping(value), _goes_on(text, end))
    if _PAIR.search(text):
        return _read_pairs(text)
    name, arguments, end = read_python_call(text, may_be_cut=may_be_cut)
    return Found(name, arguments, _goes_on(text, end))


def find(text: str, *, may_be_cut: bool = False) -> Found | None:
    """The first call in text outside every block of the dialect; None if there is none.

    Raises:
        Unreadable: If there is the opening mark of a call, but no call can be made out after it.
    """
    opener = _OPENERS.search(text)
    if opener is not None:
        return _read_marked(text, opener.start(), may_be_cut)
    fence = _FENCE.search(text)
    start = fence.end() if fence is not None else 0
    for candidate in (start, 0):
        head = text[candidate:].lstrip()
        if head[:1] not in ("{", "[", "｛"):
            continue
        try:
            value, end = read_value(head, may_be_cut=may_be_cut)
            if _looks_like_call(value):
                found = from_value(value)
                return Found(found.name, found.arguments, found.more or _goes_on(head, end), candidate)
        except Unreadable:
            continue
    return None


def from_value(value: Any, name: str = "") -> Found:
    """The call that a decoded value means, under any of the usual key names.

    Raises:
        Unreadable: If it names no tool or its arguments are not pairs.
    """
    if isinstance(value, list) and value:
        first = from_value(value[0], name)
        return Found(first.name, first.arguments, more=len(value) > 1)
    if not isinstance(value, dict):
        raise Unreadable("not an object")
    if isinstance(value.get("function"), dict):
        return from_value(value["function"], name)
    if isinstance(value.get("tool_calls"), list):
        return from_value(value["tool_calls"], name)
    rest = dict(value)
    for key in _NAME_KEYS:
        if not name and isinstance(rest.get(key), str):
            name = rest.pop(key)
    for key in _ARGUMENT_KEYS:
        if key in rest and name:
            return Found(checked_name(name), _mapping(rest[key]))
    if not name and len(value) == 1 and not value.keys() & {*_NAME_KEYS, *_ARGUMENT_KEYS}:
        (only, inner), *_ = value.items()
        return Found(checked_name(only), _mapping(inner))
    for key in ("type", "id"):
        rest.pop(key, None)
    return Found(checked_name(name), rest)


def checked_name(name: str) -> str:
    """A tool name, without the namespace that some servers put before it.

    Raises:
        Unreadable: If it is no name.
    """
    name = name.strip().removeprefix("functions.").removeprefix("tools.")
    if not _NAME.fullmatch(name):
        raise Unreadable("no tool is named")
    return name


def is_name(text: str) -> bool:
    """Whether `text` is a tool name just as it stands."""
    return _NAME.fullmatch(text) is not None and not text.startswith(("functions.", "tools."))


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        if not value.strip():
            return {}
        value, _ = read_value(value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Unreadable("the arguments are not pairs of a name and a value")
    return value


def _looks_like_call(value: Any) -> bool:
    """Loose JSON in running text counts only when it names a tool and its arguments."""
    while isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return False
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    return any(isinstance(value.get(key), str) for key in _NAME_KEYS) and any(key in value for key in _ARGUMENT_KEYS)


def _read_marked(text: str, start: int, may_be_cut: bool) -> Found:
    """A call that begins with one of `_OPENERS` at `start`."""
    readers: tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str], bool], tuple[Found, int]]], ...] = (
        (_XML_CALL, _read_xml),
        (_BAR_CALL, _read_named),
        (_BRACKET_CALL, _read_named),
        (_PYTHON_TAG, _read_named),
        (_ACTION, _read_named),
    )
    for pattern, reader in readers:
        mark = pattern.match(text, start)
        if mark is not None:
            found, end = reader(text, mark, may_be_cut)
            more = found.more or _OPENERS.search(text, end) is not None
            return Found(checked_name(found.name), found.arguments, more, start)
    raise Unreadable("no call here")


def _read_named(text: str, mark: re.Match[str], may_be_cut: bool) -> tuple[Found, int]:
    """The mark may hold the name; a value (possibly fenced) or a Python call follows."""
    name = mark[1] if mark.re.groups else None
    start = mark.end()
    fence = _FENCE.match(text, start)
    start = fence.end() if fence is not None else start
    if name is None and _NAME.match(text, start):
        callee, arguments, end = read_python_call(text, start, may_be_cut=may_be_cut)
        return Found(callee, arguments), end
    if mark.re is _ACTION and text[start : start + 1] not in ("{", "["):
        raise Unreadable("the action's input is not pairs of a name and a value")
    value, end = read_value(text, start, may_be_cut=may_be_cut)
    return (Found(name, _mapping(value)), end) if name else (from_value(value), end)


def _read_xml(text: str, mark: re.Match[str], may_be_cut: bool) -> tuple[Found, int]:
    closing = _XML_END.search(text, mark.end())
    if closing is None and may_be_cut:
        raise Unreadable("cut off")
    end = closing.start() if closing is not None else len(text)
    body = text[mark.end() : end]
    arguments: dict[str, Any] = {}
    key, begun = "", 0
    for tag in _XML_PARAMETER.finditer(body):
        if key:
            arguments[key] = _plain_value(body[begun : tag.start()])
        key, begun = tag[1] or "", tag.end()
    if key:
        arguments[key] = _plain_value(body[begun:])
    if not arguments and body.strip():
        arguments = _mapping(_without_fence(body))
    return Found(mark[1], arguments), end


def _read_pairs(text: str) -> Found:
    """A name, then ``<arg_key>…</arg_key><arg_value>…</arg_value>`` pairs."""
    tags = list(_PAIR.finditer(text))
    name = text[: tags[0].start()].strip()
    arguments: dict[str, Any] = {}
    key = None
    for opening, closing in itertools.pairwise(tags):
        if opening[1]:
            continue
        inner = text[opening.end() : closing.start()]
        if opening[2] == "key":
            key = inner.strip()
        elif key:
            arguments[key] = _plain_value(inner)
    return Found(checked_name(name), arguments)


def _plain_value(text: str) -> Any:
    """Text of an XML-like parameter: kept as text unless it is a JSON array or object."""
    text = text.strip()
    if text[:1] in ("{", "["):
        try:
            return read_value(text)[0]
        except Unreadable:
            return text
    return text


def _without_fence(text: str) -> str:
    text = text.strip()
    fence = _FENCE.match(text)
    if fence is None:
        return text
    return text[fence.end() :].removesuffix("```").strip()


def _goes_on(text: str, end: int) -> bool:
    """Whether another value or call opens right after `end`."""
    rest = text[end:].lstrip(" \t\r\n,;")
    return rest[:1] in ("{", "｛") or _OPENERS.match(rest) is not None or _PYTHON_LIKE.match(rest) is not None


_PYTHON_LIKE = re.compile(r"[A-Za-z_]\w{0,63}\(")


def strict_json(text: str) -> Any:
    """A JSON value without repeated keys and without numbers that JSON does not have; None if it is anything else."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("out of range")
    return number
