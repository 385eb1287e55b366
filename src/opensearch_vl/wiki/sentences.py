"""Sentence boundaries in a paragraph, good enough to show the words around a link. No model, one linear sweep."""

from __future__ import annotations

import re
from functools import cache

from opensearch_vl.wiki.language import language, read_data

_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s)|[。！？]+[」』）”’]*+|[।؟۔]")
_LAST_WORD = re.compile(r"(?:^|[\s(\[\"'“„«])([^\s(\[\"'“„«]{1,12})$")
_MAX_SENTENCE = 1_000
"""Longer "sentences" are cut at a space: a table dumped into one paragraph must not be stored once per link."""


def sentence_spans(text: str, lang: str = "en") -> list[tuple[int, int]]:
    """Spans ``[start, end)`` that cover `text` in order, one per sentence."""
    ordinal_dot = language(lang).ordinal_dot
    spans: list[tuple[int, int]] = []
    start = 0
    for mark in _END.finditer(text):
        end = mark.end()
        if mark[0][0] == "." and _not_an_end(text, mark.start(), end, ordinal_dot):
            continue
        start = _add(spans, text, start, end)
    _add(spans, text, start, len(text))
    return spans


def _not_an_end(text: str, dot: int, end: int, ordinal_dot: bool) -> bool:
    following = text[end : end + 2].lstrip()
    if following and (following[0].islower() or following[0] in ",;:"):
        return True
    word = _LAST_WORD.search(text, max(0, dot - 14), dot)
    if word is None:
        return False
    last = word[1]
    single_initial = len(last) == 1 and last.isupper()
    ordinal = ordinal_dot and last.isdecimal() and len(last) <= 2
    return single_initial or ordinal or last.lower() in _abbreviations()


def _add(spans: list[tuple[int, int]], text: str, start: int, end: int) -> int:
    while end - start > _MAX_SENTENCE:
        cut = text.rfind(" ", start + _MAX_SENTENCE // 2, start + _MAX_SENTENCE)
        cut = cut if cut > 0 else start + _MAX_SENTENCE
        spans.append((start, cut))
        start = cut
    if end > start:
        spans.append((start, end))
    return end


@cache
def _abbreviations() -> frozenset[str]:
    return frozenset(read_data("languages")["abbreviations"])
