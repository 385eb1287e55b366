"""Text comparison shared by judges, leak checks and search: folding, tokens, and answer normalisation."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"\w+", re.UNICODE)
_FIRST_COMBINING = "\u0300"
_ARTICLES = frozenset({"a", "an", "the"})


def fold(text: str) -> str:
    """Case- and accent-folded text: `"Ångström"` becomes `"angstrom"`. Letters without a base form stay."""
    if text.isascii():
        return text.casefold()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    decomposed = unicodedata.normalize("NFKD", decomposed.casefold())  # compatibility forms may open into capitals
    bare = "".join(ch for ch in decomposed if ch < _FIRST_COMBINING or not unicodedata.combining(ch))
    return unicodedata.normalize("NFC", bare)


def encodable(text: str) -> str:
    """Text without half characters (lone surrogates), which JSON of others may hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def words(text: str) -> list[str]:
    """Folded word tokens, in order."""
    return _WORD.findall(fold(text))


def normalise_answer(text: str) -> str:
    """Answer text for comparison: folded, no punctuation, no English articles, single spaces (SQuAD's rule)."""
    return " ".join(word for word in words(text) if word not in _ARTICLES)


def contains_words(haystack: list[str], needle: list[str]) -> bool:
    """Whether `needle` occurs in `haystack` as a contiguous run of whole tokens; an empty needle never does."""
    size = len(needle)
    return size > 0 and any(haystack[i : i + size] == needle for i in range(len(haystack) - size + 1))
