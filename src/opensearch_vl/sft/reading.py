"""What the scripted expert can read off an observation: titles of hits, ``Label: value`` lines, lettering, picture ids.

It reads the texts that the tools document, with whatever wrapping a layout puts around them. Everything returned is a
stretch of the observation itself: this is how the expert copies its answer instead of knowing it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from opensearch_vl.text import contains_words, words

_BLOCK = re.compile(r"(?:^|(?<=>))\[(?:Passage|Match) \d+\]", re.MULTILINE)
_TITLE = re.compile(r"^Title:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_URL = re.compile(r"^URL:[ \t]*(\S+)", re.MULTILINE)
_BODY = re.compile(r"^(?:Summary|Snippet):[ \t]*", re.MULTILINE)
_LETTERING = re.compile(r'(?:^|(?<=>))\[Text Block \d+\][^"\n]*"(.*)"[ \t]*$', re.MULTILINE)
_IMAGE_ID = re.compile(r"New image ID: (img_\d{1,5})")
_AMBIGUOUS = re.compile(r"^Note: \d+ pictures match about equally well", re.MULTILINE)
_PASSING = re.compile(r"(?:^|(?<=>))The tool call failed \((?:timeout|rate_limited|backend_down)\)", re.MULTILINE)
_CUT = re.compile(r"\n\[cut: [^\]\n]*\]")
_CLOSING_TAG = re.compile(r"</\w+>")
_NEXT_LABEL = r"(?=\s+[^\W\d_a-z][^\W\d_]*(?:[ ][a-z]\w*){0,4}:\s)"
_SENTENCE_END = re.compile(r"\.\s+(?=(?:An?|The|He|She|It|They|In|On|At|His|Her|Its|Their|This|There)\s)")
_BRACKETS = re.compile(r"\s*\([^()]*\)\s*$")

SIMILAR = 0.8
"""How much of a title the lettering must hold (Ratcliff/Obershelp, 0 to 1): OCR mistakes a letter now and then."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage or visual match as shown in an observation; `cut_off` if the observation ends within it."""

    title: str
    url: str
    body: str
    cut_off: bool = False


def hits(text: str) -> list[Hit]:
    """The hits of a search observation, in order; none where it lists none."""
    starts = [match.start() for match in _BLOCK.finditer(text)]
    blocks = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    found = []
    for block in blocks:
        title, url, body = _TITLE.search(block), _URL.search(block), _BODY.search(block)
        if title is not None:
            rest, *cut = _CUT.split(block[body.end() :] if body is not None else block[title.end() :], maxsplit=1)
            shown = _CLOSING_TAG.sub("", rest).strip() if body is not None else ""
            found.append(Hit(title[1], url[1] if url else "", shown, bool(cut)))
    return found


def value_of(body: str, label: str) -> str | None:
    """What follows ``Label:`` in a text; None without the label.

    A value ends with its line, before the next label, or with its sentence: summaries put the lines of an infobox one
    behind the other and close each with a full stop.
    """
    pattern = rf"(?:^|(?<=[\s.;,)]))(?i:{re.escape(label)}):[ \t]*(\S.*?)[ \t]*(?:$|{_NEXT_LABEL})"
    match = re.search(pattern, body, re.MULTILINE)
    if match is None:
        return None
    value = _SENTENCE_END.split(_CLOSING_TAG.sub("", match[1]), maxsplit=1)[0].strip(" ;")
    return (value[:-1].rstrip() if value.endswith(".") else value) or None


def lettering(text: str) -> str:
    """All text that OCR quotes, in reading order; empty if it read nothing."""
    return " ".join(" ".join(_LETTERING.findall(text)).split())


def new_image_id(text: str) -> str | None:
    """The id that the environment gave to a derived picture."""
    match = _IMAGE_ID.search(text)
    return match[1] if match else None


def is_ambiguous(text: str) -> bool:
    """Whether an image search says of itself that several pictures fit about equally well."""
    return _AMBIGUOUS.search(text) is not None


def is_passing_failure(text: str) -> bool:
    """Whether an observation says that a call failed for a reason that may have passed: worth asking once more."""
    return _PASSING.search(text) is not None


def bare(title: str) -> str:
    """A title without the bracketed addition that tells namesakes apart."""
    return _BRACKETS.sub("", title) or title


def same_name(title: str, name: str) -> bool:
    """Whether a page title names the entity, bracketed additions and accents aside."""
    return words(bare(title)) == words(bare(name))


def mentions(text: str, name: str) -> bool:
    """Whether a text speaks a name, bracketed addition aside, in whole words."""
    return contains_words(words(text), words(bare(name)))


def resemblance(title: str, sign: str) -> float:
    """How well the lettering on a sign holds a title, in [0, 1]; 1 if it holds all of its words in order."""
    wanted, read = "".join(words(bare(title))), "".join(words(sign))
    if not wanted or not read:
        return 0.0
    if contains_words(words(sign), words(bare(title))):
        return 1.0
    matched = SequenceMatcher(None, wanted, read, autojunk=False).get_matching_blocks()
    return sum(block.size for block in matched if block.size > 1) / len(wanted)
