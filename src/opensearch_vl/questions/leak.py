"""Non-leakage: no title, redirect or alias of the path may be read in the question (paper, section 3.3, condition iii).

Names are compared token by token, case- and accent-folded, with possessives and plurals stripped, so "Ångströms'" gives
away "Angstrom". A surname gives a person away too. A name made of nothing but ordinary words ("It", "The Museum")
cannot be told from ordinary wording when folded; such a name leaks only where it stands exactly as written, with its
capitals, and not at the start of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opensearch_vl.questions.phrases import table
from opensearch_vl.text import words

_SURNAME_LETTERS = 4
"""Shorter last names ("Li", "Oz") are too often parts of other words' tokens to count alone."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A name found in a text."""

    name: str
    how: str


def leaks(text: str, names: Iterable[str], person: bool = False) -> tuple[Leak, ...]:
    """Which of the names a text gives away.

    Args:
        text: The question.
        names: Title, redirects and aliases of one entity, the title first.
        person: Whether the entity is a person, whose surname alone is a leak as well.
    """
    tokens = [_stem(word) for word in words(text)]
    joined = f" {' '.join(tokens)} "
    found = []
    for name in dict.fromkeys(names):
        own = words(name)
        if not own:
            if name.strip() and name.strip() in text:  # a name without letters, such as "★"
                found.append(Leak(name, "verbatim"))
            continue
        if _ordinary(own):
            if _as_written(text, name):
                found.append(Leak(name, "verbatim"))
        elif f" {' '.join(_stem(word) for word in own)} " in joined:
            found.append(Leak(name, "name"))
        elif person and len(own) > 1 and len(own[-1]) >= _SURNAME_LETTERS and not _ordinary(own[-1:]):
            bare = words(name.partition(" (")[0].partition(",")[0])
            if bare and f" {_stem(bare[-1])} " in joined and not _ordinary(bare[-1:]):
                found.append(Leak(name, "surname"))
    return tuple(found)


def _stem(word: str) -> str:
    """A folded token without plural or possessive ending; the same rule on both sides, so its errors cancel out."""
    bare = word.rstrip("s")
    if len(bare) > 3 and bare.endswith("e") and bare[-2] in "sxzh":
        bare = bare[:-1].rstrip("s")
    return bare or word


def _ordinary(tokens: Sequence[str]) -> bool:
    common = table().common_words
    return all(token in common for token in tokens)


def _as_written(text: str, name: str) -> bool:
    if name == name.lower():
        return False
    for found in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text):
        before = text[: found.start()].rstrip()
        if before and before[-1] not in ".?!":
            return True
    return False
