"""Templates: finding them, rendering the few that carry text, and dropping the rest.

Only templates whose output is plainly their arguments are rendered (dates, units, languages, lists); everything else
would need the wiki's own template pages and code. Infoboxes are handed out, not rendered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from opensearch_vl.wiki.language import read_data

_BRACES = re.compile(r"\{{2,}+|\}{2,}+")
_PIPES = re.compile(r"\{\{|\}\}|\[\[|\]\]|\|")
_MAX_DEPTH = 8
"""Rendered templates nested deeper than this vanish."""
_MAX_ARGUMENTS = 5_000
_PARAMETER = re.compile(r"\s*([\w .\-]{1,60}?)\s*=")

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Template:
    """A template call at the top level of a text: span ``[start, end)`` and lower-case name."""

    start: int
    end: int
    name: str


def top_level(text: str) -> Iterator[Template]:
    """Template calls that are not inside another, in order. Braces that never close are text.

    Runs of braces pair as in MediaWiki: three with three (a parameter), else two with two.
    """
    if "{{" not in text:
        return
    opened: list[list[int]] = []
    spans: list[tuple[int, int, int]] = []
    for run in _BRACES.finditer(text):
        place, size = run.start(), run.end() - run.start()
        if text[place] == "{":
            opened.append([place, size])
            continue
        while size >= 2 and opened:
            top = opened[-1]
            width = 3 if top[1] >= 3 and size >= 3 else 2
            top[1] -= width
            start, end = top[0] + top[1], place + width
            while spans and spans[-1][0] > start:
                spans.pop()
            spans.append((start, end, width))
            place, size = end, size - width
            if top[1] < 2:
                opened.pop()
    for start, end, width in spans:
        yield Template(start, end, _name(text, start, end) if width == 2 else "")


def _name(text: str, start: int, end: int) -> str:
    head = text[start + 2 : min(end - 2, start + 120)]
    name = re.split(r"[|{}<>\[\]]", head, maxsplit=1)[0]
    return " ".join(name.replace("_", " ").split()).lower().removeprefix("template:")


def split_parts(call: str) -> list[str]:
    """Name and arguments of a call, as written: split at the pipes that are in no nested template or link."""
    parts: list[str] = []
    depth = place = 0
    for token in _PIPES.finditer(call):
        mark = token[0]
        if mark == "|":
            if depth == 0:
                parts.append(call[place : token.start()])
                place = token.end()
                if len(parts) > _MAX_ARGUMENTS:
                    break
        else:
            depth = depth + 1 if mark in ("{{", "[[") else max(0, depth - 1)
    parts.append(call[place:])
    return parts


def arguments(call: str) -> tuple[list[str], dict[str, str]]:
    """Positional and named arguments of a call (text between, and without, the braces)."""
    positional: list[str] = []
    named: dict[str, str] = {}
    for part in split_parts(call)[1:]:
        parameter = _PARAMETER.match(part)
        if parameter is None:
            positional.append(part.strip())
        elif parameter[1].isdigit() and 0 < int(parameter[1]) <= _MAX_ARGUMENTS:
            positional += [""] * (int(parameter[1]) - len(positional))
            positional[int(parameter[1]) - 1] = part[parameter.end() :].strip()
        else:
            named[parameter[1].lower()] = part[parameter.end() :].strip()
    return positional, named


def expand(text: str, depth: int = 0) -> str:
    """`text` with its templates rendered or dropped."""
    pieces: list[str] = []
    place = 0
    for call in top_level(text):
        pieces.append(text[place : call.start])
        place = call.end
        pieces.append(render(call.name, text[call.start + 2 : call.end - 2], depth))
    pieces.append(text[place:])
    return "".join(pieces) if place else text


def render(name: str, call: str, depth: int = 0) -> str:
    """What a template shows; empty for those we cannot know."""
    if name in _characters():
        return _characters()[name]
    if name.startswith(("formatnum:", "lc:", "uc:", "ucfirst:", "lcfirst:")):
        return expand(call.partition(":")[2], depth + 1) if depth < _MAX_DEPTH else ""
    renderer = _renderers().get(name)
    if renderer is None and name.startswith("lang-"):
        renderer = _first
    if renderer is None or depth >= _MAX_DEPTH:
        return ""
    positional, named = arguments(call)
    return renderer([expand(value, depth + 1) for value in positional], named, name)


_Renderer = Callable[[list[str], dict[str, str], str], str]


def _get(values: list[str], index: int) -> str:
    return values[index] if index < len(values) else ""


def _first(values: list[str], named: dict[str, str], name: str) -> str:
    return _get(values, 0)


def _second(values: list[str], named: dict[str, str], name: str) -> str:
    return _get(values, 1)


def _last(values: list[str], named: dict[str, str], name: str) -> str:
    return values[-1] if values else ""


def _prefixed(prefix: str) -> _Renderer:
    return lambda values, named, name: f"{prefix}{values[0]}" if values and values[0] else ""


def _linked(values: list[str], named: dict[str, str], name: str) -> str:
    first = _get(values, 0)
    return first if not first or "[" in first else f"[[{first}]]"


def _lines(values: list[str], named: dict[str, str], name: str) -> str:
    return "".join(f"\n* {value}" for value in values if value) + "\n"


def _block(values: list[str], named: dict[str, str], name: str) -> str:
    body = "\n".join(values)
    return f"\n{body}\n"


def date(year: str, month: str = "", day: str = "") -> str:
    """``date("1931", "5", "15")`` is "15 May 1931"; parts that are not numbers are kept as written."""
    year, month, day = year.strip(), month.strip(), day.strip()
    if month.isdecimal() and 1 <= int(month) <= 12:
        month = MONTHS[int(month) - 1]
    if day.isdecimal():
        day = str(int(day)) if int(day) else ""
    return " ".join(part for part in ((day if month else ""), month, year.lstrip("0") or year) if part)


def _date(values: list[str], named: dict[str, str], name: str) -> str:
    return date(_get(values, 0), _get(values, 1), _get(values, 2))


def _film_dates(values: list[str], named: dict[str, str], name: str) -> str:
    return _lines([date(*values[i : i + 3]) for i in range(0, len(values), 4)], {}, "")


def _convert(values: list[str], named: dict[str, str], name: str) -> str:
    """``{{convert|5|–|6|km}}`` is "5–6 km"; the converted figure is left out."""
    joined = _get(values, 0)
    index = 1
    while _get(values, index) in _RANGES and index + 1 < len(values):
        joined += _RANGES[values[index]] + values[index + 1]
        index += 2
    return f"{joined} {_get(values, index)}".strip()


_RANGES = {
    "-": "–",
    "–": "–",
    "to": " to ",
    "and": " and ",
    "by": " by ",
    "x": " × ",
    "×": " × ",
    "or": " or ",
    "+/-": " ± ",
}


def _value(values: list[str], named: dict[str, str], name: str) -> str:
    return f"{_get(values, 0)} {named.get('u', named.get('ul', ''))}".strip()


def _height(values: list[str], named: dict[str, str], name: str) -> str:
    parts = [f"{named[unit]} {unit}" for unit in ("m", "cm", "ft", "in") if named.get(unit)]
    return " ".join(parts)


def _fraction(values: list[str], named: dict[str, str], name: str) -> str:
    match values:
        case [whole, top, bottom, *_]:
            return f"{whole} {top}/{bottom}"
        case [top, bottom]:
            return f"{top}/{bottom}"
    return f"1/{values[0]}" if values else ""


_BY_KIND: dict[str, _Renderer] = {
    "date": _date,
    "film": _film_dates,
    "first": _first,
    "second": _second,
    "last": _last,
    "lines": _lines,
    "block": _block,
    "circa": _prefixed("c. "),
    "floruit": _prefixed("fl. "),
    "reign": _prefixed("r. "),
    "linked": _linked,
    "convert": _convert,
    "value": _value,
    "height": _height,
    "fraction": _fraction,
    "as_of": _prefixed("As of "),
}


@cache
def _renderers() -> dict[str, _Renderer]:
    return {name: _BY_KIND[kind] for kind, names in read_data("templates")["renderers"].items() for name in names}


@cache
def _characters() -> dict[str, str]:
    return dict(read_data("templates")["characters"])
