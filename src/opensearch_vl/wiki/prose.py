"""Half-rendered wikitext to prose: paragraphs with their sections, and every link with the sentence around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opensearch_vl.wiki.sentences import sentence_spans
from opensearch_vl.wiki.wikitext import LINK_MARK, MARKS, NOTE, NOTE_MARK, OPEN, Anchor, Markup, plain, tidy

_CELL_BREAK = re.compile(r"\|\||!!")
_EMPTY_BRACKETS = re.compile(r"\s?[(（][\s,;:–-]*+[)）]")
_OPENED_BRACKET = re.compile(r"([(（])[\s,;:]++")
_SPACE_BEFORE = re.compile(r" ++(?=[,.;:!?)](?:\s|$))")
_MAX_ANCHOR = 500  # characters


@dataclass(frozen=True, slots=True)
class ProseLink:
    """A link in prose with the sentence around it and the section it stands in."""

    title: str
    anchor: str
    sentence: str
    section: str


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item, table row or caption. `heading` blocks hold a section title."""

    text: str
    kind: str
    section: str


def blocks(text: str, captions: list[str]) -> Iterator[Block]:
    """Cut half-rendered text into blocks. Captions follow the block that their picture stands in."""
    section = ""
    paragraph: list[str] = []
    row: list[str] = []
    tables = 0

    def flush() -> Iterator[Block]:
        joined = [(" ".join(paragraph), "paragraph"), (" | ".join(cell for cell in row if cell.strip()), "row")]
        paragraph.clear()
        row.clear()
        for whole, kind in joined:
            yield from _with_captions(whole, kind, section, captions)

    for line in text.split("\n"):
        line = line.strip()
        mark = line[:1]
        if not mark:
            if not tables:
                yield from flush()
        elif mark == "=" and len(line) > 2 and line[-1] == "=":
            yield from flush()
            tables = 0
            section = " ".join(plain(line.strip("=")).split())
            yield Block(section, "heading", section)
        elif line.startswith("{|"):
            yield from flush()
            tables += 1
        elif tables and line.startswith("|}"):
            yield from flush()
            tables -= 1
        elif tables and mark in "|!":
            if line.startswith(("|-", "|+")):
                yield from flush()
                if line.startswith("|+"):
                    yield from _with_captions(line[2:].rpartition("|")[2].strip(), "row", section, captions)
            else:
                row.extend(cell.rpartition("|")[2].strip() for cell in _CELL_BREAK.split(line.lstrip("|!")))
        elif tables and row:
            row[-1] = f"{row[-1]} {line}"
        elif mark in "*#:;":
            yield from flush()
            yield from _with_captions(line.lstrip("*#:; "), "item", section, captions)
        elif line.startswith("----"):
            yield from flush()
        else:
            paragraph.append(line)
    yield from flush()


def _with_captions(text: str, kind: str, section: str, captions: list[str]) -> Iterator[Block]:
    notes = [int(number) for number in NOTE_MARK.findall(text)] if NOTE in text else []
    if notes:
        text = NOTE_MARK.sub("", text)
    if text.strip():
        yield Block(text, kind, section)
    for number in notes:
        yield from _with_captions(" ".join(tidy(captions[number]).split()), "caption", section, captions)


@dataclass(frozen=True, slots=True)
class Prose:
    """Plain text of a page and the links in it, in order."""

    text: str
    links: tuple[ProseLink, ...]


def prose(text: str, markup: Markup) -> Prose:
    """Render half-rendered text (after `Markup.link` and `tidy`) into prose."""
    pieces: list[str] = []
    links: list[ProseLink] = []
    heading = ""
    last = ""
    for block in blocks(text, markup.captions):
        if block.kind == "heading":
            heading = f"== {block.text} ==" if block.text else ""
            continue
        shown, found = _unmark(block.text, markup)
        if not shown:
            continue
        if heading:
            pieces += ["\n\n" if pieces else "", heading]
            heading, last = "", "heading"
        if pieces:
            pieces.append("\n" if block.kind == last and last in ("item", "row") else "\n\n")
        pieces.append(shown)
        last = block.kind
        if found:
            links += _sentences(shown, found, block.section, markup.site.lang)
    return Prose("".join(pieces), tuple(links))


def _unmark(text: str, markup: Markup) -> tuple[str, list[tuple[int, Anchor]]]:
    """Plain text of a block and the offsets of its links in it."""
    pieces: list[str] = []
    found: list[tuple[int, Anchor]] = []
    size = place = 0
    text = " ".join(text.split())
    if "(" in text or "（" in text:  # what a dropped template leaves behind
        text = _OPENED_BRACKET.sub(r"\1", _EMPTY_BRACKETS.sub("", text))
    text = _SPACE_BEFORE.sub("", text)
    if OPEN in text:
        for mark in LINK_MARK.finditer(text):
            before = text[place : mark.start()].translate(MARKS)
            shown = " ".join(mark[2].split())
            if shown:  # an anchor of markup alone shows nothing
                found.append((size + len(before), Anchor(markup.anchors[int(mark[1])].title, shown)))
            pieces += [before, mark[2]]
            size += len(before) + len(mark[2])
            place = mark.end()
    pieces.append(text[place:].translate(MARKS))
    return "".join(pieces), found


def _sentences(text: str, found: list[tuple[int, Anchor]], section: str, lang: str) -> list[ProseLink]:
    links: list[ProseLink] = []
    spans = iter(sentence_spans(text, lang))
    sentence, end = "", 0
    for offset, anchor in found:
        while offset >= end:  # spans cover the text, so one of them holds the link
            start, end = next(spans)
            sentence = text[start:end].strip()
        links.append(ProseLink(anchor.title, anchor.text[:_MAX_ANCHOR], sentence, section))
    return links
