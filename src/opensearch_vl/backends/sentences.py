"""Text cut into search terms, sentences and passages, the same way wherever a backend needs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opensearch_vl.text import fold

# Scripts written without spaces between words: Thai, Lao, Myanmar, Khmer, kana, CJK ideographs.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
)
_TERM = re.compile(rf"([{_UNSPACED}]+)|((?:(?![{_UNSPACED}])\w)+)")
_HEADING = re.compile(r"==+\s*(.+?)\s*==+$")
_END = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[」』”]*")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"“«])(?:[^\W\d_]|St|Mt|Ft|Dr|Mr|Mrs|Ms|Prof|Rev|Gen|Col|Lt|Sgt|Capt|Sr|Jr|No|Nr|vs|ca|c|cf|approx|al|etc|spec|Spec|vol|Vol|fig|Fig|op|Op|e\.g|i\.e"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)\.$"
)


def terms(text: str) -> list[str]:
    """Folded search terms, in order; runs of a script without spaces become overlapping pairs of characters."""
    found: list[str] = []
    for match in _TERM.finditer(fold(text)):
        run = match[1]
        if run is None:
            found.append(match[2])
        else:
            found.extend([run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)])
    return found


STOPWORDS = frozenset(
    terms(
        "a about an and are as at be been but by did do does for from had has have he her his how i if in into is it "
        "its me my of on one or our she so that the their them they this to under was we were what when where which "
        "who whom whose why will with would you your image picture shown tell please"
    )
)
"""English words that say nothing about what a query asks for."""


def num_words(text: str) -> int:
    """Length of a text in words; two characters of a script without spaces count as one."""
    return sum(1 if match[1] is None else (len(match[1]) + 1) // 2 for match in _TERM.finditer(text))


def heading(line: str) -> str | None:
    """The title in a line of the form ``== Title ==``, else None."""
    match = _HEADING.match(line.strip())
    return match[1] if match else None


def sentences(paragraph: str) -> list[str]:
    """Sentences of one paragraph. A full stop after an initial or a common abbreviation ends none."""
    found: list[str] = []
    start = 0
    for match in _END.finditer(paragraph):
        after = paragraph[match.end() :].lstrip()[:1]
        if match[0].startswith("."):
            if after and after.islower():
                continue
            if _ABBREVIATION.search(paragraph[max(start, match.start() - 12) : match.start() + 1]):
                continue
        if piece := paragraph[start : match.end()].strip():
            found.append(piece)
        start = match.end()
    if rest := paragraph[start:].strip():
        found.append(rest)
    return found


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a document: infobox lines or prose."""

    text: str
    infobox: bool


def passages(document: str, *, has_infobox: bool, target_words: int = 120, max_words: int = 150) -> Iterator[Piece]:
    """Cut a document into passages: the infobox lines apart from the prose, whole sentences, a new one per section.

    Args:
        document: Infobox lines, a blank line, then paragraphs separated by blank lines, with ``== H ==`` headings.
        has_infobox: Whether the first block holds infobox lines.
        target_words: A passage is closed once it has this many words.
        max_words: No passage is longer, unless a single word is.
    """
    box, _, prose = document.partition("\n\n") if has_infobox else ("", "", document)
    yield from (Piece(text, True) for text in _pack(box.splitlines(), "\n", max_words, max_words))
    section: list[str] = []
    for paragraph in prose.split("\n\n"):
        lines = paragraph.strip().splitlines()
        if lines and heading(lines[0]) is not None:
            yield from (Piece(text, False) for text in _pack(section, " ", target_words, max_words))
            section = [lines[0].strip() + "\n"]
            lines = lines[1:]
        section.extend(sentences(" ".join(lines)))
    yield from (Piece(text, False) for text in _pack(section, " ", target_words, max_words))


def _pack(units: list[str], glue: str, target_words: int, max_words: int) -> Iterator[str]:
    """Join units greedily. A heading alone (a section without text) makes no passage."""
    held: list[str] = []
    size = 0
    for unit in (piece for raw in units for piece in _split_long(raw, max_words)):
        length = num_words(unit)
        if held and size + length > max_words:
            yield from _joined(held, glue)
            held, size = [], 0
        held.append(unit)
        size += length
        if size >= target_words:
            yield from _joined(held, glue)
            held, size = [], 0
    yield from _joined(held, glue)


def _joined(held: list[str], glue: str) -> Iterator[str]:
    if any(heading(unit) is None for unit in held):
        yield glue.join(held).replace("\n ", "\n").strip()


def _split_long(unit: str, max_words: int) -> Iterator[str]:
    if num_words(unit) <= max_words:
        yield unit
        return
    held: list[str] = []
    size = 0
    for word in re.split(r"(?<=\s)", unit):
        for part in [word[i : i + max_words] for i in range(0, len(word), max_words)]:
            length = num_words(part)
            if held and size + length > max_words:
                yield "".join(held).strip()
                held, size = [], 0
            held.append(part)
            size += length
    if rest := "".join(held).strip():
        yield rest
