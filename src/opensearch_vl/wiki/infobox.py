"""Infoboxes: the facts of a page as (key, value) items, and the pages that values point to (paper, section 3.1).

mwparserfromhell splits a template into parameters, unless it is so plain that splitting at the pipes cannot differ
(most are, which saves a quarter of the time); our own renderer turns values into plain text and links. Brackets that
never close are escaped before mwparserfromhell sees them, since it would try every way of closing them.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from functools import cache

import mwparserfromhell

from opensearch_vl.wiki.language import Language, language, read_data
from opensearch_vl.wiki.templates import Template, expand, split_parts, top_level
from opensearch_vl.wiki.titles import FILE, Site, file_name
from opensearch_vl.wiki.wikitext import CLOSE, MIDDLE, OPEN, Markup, plain, tidy

MAX_INFOBOX = 100_000
"""Characters; a longer "infobox" is skipped and counted."""
_MAX_NESTING = 30
_MAX_ITEMS = 60  # per key
_MAX_VALUE = 2_000  # characters of one value's plain text

_BREAK = re.compile(r"<br\b[^<>]*+>|</?(?:li|ul|ol|div|p|hr)\b[^<>]*+>|\n\s*[*#:]+", re.IGNORECASE)
_LINK = re.compile(f"{OPEN}(\\d+){MIDDLE}([^{OPEN}-{CLOSE}]*){CLOSE}")
_LINK_LIST = re.compile(f"{_LINK.pattern}(?:\\s*+[,;·•]\\s*+(?:and\\s++)?{_LINK.pattern})++[,;.]?")
_KEY = re.compile(r"[^\W_][\w .()/\-]{0,59}")
_BARE_FILE = re.compile(r"[^\[\]{}|<>#\n]{1,200}\.(?:png|jpe?g|gif|svg|tiff?|webp|bmp)", re.IGNORECASE)
_NO_PROSE = re.compile(r"(?:\s|\[\[[^\[\]]*+\]\]|<[^<>]*+>|__\w++__|\{\||\|\}|[|!\-])*+")
_NAMED_LINE = re.compile(
    r"\n\s*+\|[^|=\[\]{}\n]{1,60}=[ \t]*+[^\s|]|\|[ \t]*+\n?[^|=\[\]{}\n]{1,60}=[ \t]*+[^\s|]++[^\n|]*+\n"
)
_MIN_NAMED = 3
_HARD = re.compile(r"\{\{\{|\{\||<[^<>]*+[|=]|<[^<>]*+$|(?<!\[)\[(?!\[)|\n\s*=|-\{")
"""What pipes and equal signs may hide in: parameters of parameters, tables, tags, external links, headings."""
_BRACKETS = re.compile(r"\{\{|\}\}|\[\[|\]\]")


@dataclass(frozen=True, slots=True)
class Item:
    """One value of one key. `target` is the title it names by a link; empty for plain values."""

    key: str
    value: str
    ord: int
    target: str


@dataclass(frozen=True, slots=True)
class InfoboxLink:
    """A link inside a value."""

    title: str
    anchor: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Infobox:
    """A page's infoboxes together. `type` is that of the first; `skipped` says why one could not be read."""

    type: str = ""
    items: tuple[Item, ...] = ()
    links: tuple[InfoboxLink, ...] = ()
    files: tuple[str, ...] = ()
    skipped: str = ""


def find_infoboxes(text: str, calls: list[Template], tables: Language) -> list[Template]:
    """Which top-level templates are the page's infoboxes.

    Those of the lead by name (further down they are about something else: a cabinet, a battle), else the first by name,
    else the leading template if it has three or more named values.
    """
    named = [call for call in calls if call.name and _is_infobox_name(call.name, tables)]
    if named:
        heading = text.find("\n==")
        return [call for call in named if heading < 0 or call.start < heading] or named[:1]
    place = 0
    for call in calls:
        if not _NO_PROSE.fullmatch(text, place, call.start):
            return []
        place = call.end
        if call.name in _not_infoboxes() or call.name.startswith(_NOT_PREFIXES):
            continue
        if len(_NAMED_LINE.findall(text, call.start, call.end)) >= _MIN_NAMED:
            return [call]
    return []


def _is_infobox_name(name: str, tables: Language) -> bool:
    if "infobox" not in name and not tables.infobox.match(name):
        return False
    return not name.startswith(("infobox mapframe", "end infobox"))


_NOT_PREFIXES = ("cite", "citation", "#", "use ", "multiple", "sidebar", "navbox", "quote", "location map")


@cache
def _not_infoboxes() -> frozenset[str]:
    return frozenset(read_data("domains")["not_infoboxes"])


@cache
def _skipped_keys() -> re.Pattern[str]:
    return re.compile("|".join(read_data("domains")["skipped_keys"]))


@cache
def _image_keys() -> re.Pattern[str]:
    return re.compile("|".join(read_data("domains")["image_keys"]))


def infobox_type(name: str) -> str:
    """Template name without the word "infobox": ``infobox military person`` is ``military person``."""
    return " ".join(re.sub(r"\binfo ?box\b", " ", name).split(" ")).strip(" /:_-") or name


def read_infoboxes(text: str, calls: list[Template], site: Site) -> Infobox:
    """Read the infoboxes among a page's template calls, and those embedded in their values.

    `text` has gone through `wikitext.hide`.
    """
    items: list[Item] = []
    links: list[InfoboxLink] = []
    files: list[str] = []
    counts: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    skipped = ""
    sources = deque(text[call.start : call.end] for call in calls)
    while sources:
        source = sources.popleft()
        why = _unreadable(source)
        if why:
            skipped = why
            continue
        for key, value in parameters(source):
            if not value.strip():
                continue
            sources.extend(_embedded(value, language(site.lang)))
            if _image_keys().fullmatch(key):
                files += _files(value, site)
            if _skipped_keys().fullmatch(key):
                continue
            found, inside = _items(key, value, site, files)
            for text_of, target in found:
                if counts.get(key, 0) < _MAX_ITEMS and (key, text_of) not in seen:
                    seen.add((key, text_of))
                    items.append(Item(key, text_of, counts.get(key, 0), target))
                    counts[key] = counts.get(key, 0) + 1
            links += inside
    kind = infobox_type(calls[0].name) if calls else ""
    return Infobox(kind, tuple(items), tuple(links), tuple(files), skipped)


def _embedded(value: str, tables: Language) -> list[str]:
    """Infoboxes inside a value: of a second office, of a building's other use."""
    if "{{" not in value:
        return []
    return [value[call.start : call.end] for call in top_level(value) if _is_infobox_name(call.name, tables)]


def _unreadable(source: str) -> str:
    if len(source) > MAX_INFOBOX:
        return "infobox_too_long"
    depth = deepest = 0
    for token in _BRACKETS.finditer(source):
        depth += 1 if token[0] in ("{{", "[[") else -1
        deepest = max(deepest, depth)
    return "infobox_nested_too_deeply" if deepest > _MAX_NESTING else ""


def parameters(source: str) -> list[tuple[str, str]]:
    """(key, value) of each named parameter of one template call, in order, keys in lower case with underscores."""
    balanced = _balance(source)
    if balanced is source and not _HARD.search(source):
        pairs = [part.partition("=")[::2] for part in split_parts(source[2:-2])[1:] if "=" in part]
    else:
        pairs = parsed_parameters(balanced)
    named = ((re.sub(r"[\s_]+", "_", name.strip().lower()).strip("_"), value) for name, value in pairs)
    return [(key, value) for key, value in named if _KEY.fullmatch(key)]


def parsed_parameters(source: str) -> list[tuple[str, str]]:
    """(name, value) of each named parameter according to mwparserfromhell."""
    templates = mwparserfromhell.parse(source, skip_style_tags=True).filter_templates(recursive=False)
    return [(str(p.name), str(p.value)) for p in templates[0].params if p.showkey] if templates else []


def _balance(source: str) -> str:
    """Escape brackets without a partner, so that parsing never has to try them."""
    opened: list[tuple[str, int, int]] = []
    unpaired: list[tuple[int, int]] = []
    for token in _BRACKETS.finditer(source):
        mark = token[0]
        if mark in ("{{", "[["):
            opened.append((mark, *token.span()))
            continue
        partner = "{{" if mark == "}}" else "[["
        if opened and opened[-1][0] == partner:
            opened.pop()
        elif any(entry[0] == partner for entry in opened[-_MAX_NESTING:]):
            while opened[-1][0] != partner:
                unpaired.append(opened.pop()[1:])
            opened.pop()
        else:
            unpaired.append(token.span())
    unpaired += [(start, end) for _, start, end in opened]
    if not unpaired:
        return source
    pieces: list[str] = []
    place = 0
    for start, end in sorted(unpaired):
        pieces += [source[place:start], "".join(f"&#{ord(ch)};" for ch in source[start:end])]
        place = end
    return "".join([*pieces, source[place:]])


def _files(value: str, site: Site) -> list[str]:
    markup = Markup(site)
    rest = tidy(markup.link(expand(value))).strip()
    if markup.files:
        return markup.files
    name = rest.partition("|")[0].strip()
    prefix, colon, bare = name.partition(":")
    if colon and site.namespace(prefix) == FILE:
        name = bare.strip()
    return [file_name(name)] if _BARE_FILE.fullmatch(name) else []


def _items(key: str, value: str, site: Site, files: list[str]) -> tuple[list[tuple[str, str]], list[InfoboxLink]]:
    """(text, linked title) of each value of a key, and the links inside."""
    markup = Markup(site)
    marked = markup.link(expand(value))
    files += [file for file in markup.files if file not in files]
    found: list[tuple[str, str]] = []
    links: list[InfoboxLink] = []
    for part in _split(marked):
        text = " ".join(plain(part).split()).strip(" ,;")[:_MAX_VALUE]
        if not any(ch.isalnum() for ch in text) or _BARE_FILE.fullmatch(text):
            continue
        inside = [(markup.anchors[int(mark[1])].title, mark[2]) for mark in _LINK.finditer(part) if mark[2].strip()]
        named = inside[0][0] if inside and part.strip().startswith(OPEN) else ""
        found.append((text, named))
        links += [InfoboxLink(title, " ".join(anchor.split()), key, text) for title, anchor in inside]
    return found, links


def _split(marked: str) -> list[str]:
    parts: list[str] = []
    for part in _BREAK.split(marked):
        part = tidy(part).strip()
        if _LINK_LIST.fullmatch(part):
            parts += [mark[0] for mark in _LINK.finditer(part)]
        elif part:
            parts.append(part)
    return parts
