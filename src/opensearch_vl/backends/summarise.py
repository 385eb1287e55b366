"""Summaries of a page towards a query: by counting words, or by a chat model.

The paper summarises each search hit with a model. `ExtractiveSummariser` needs none: it picks the sentences that
together cover the query's words best, rare words first, and returns them in the page's order, so that it can only
say what the page says. An infobox line counts as a sentence of its own.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from dataclasses import dataclass

from opensearch_vl.backends.sentences import STOPWORDS, heading, sentences, terms
from opensearch_vl.errors import BackendDown, ModelError, ModelRateLimited, ModelUnreachable, RateLimited, ToolTimeout
from opensearch_vl.prompts import fill
from opensearch_vl.protocols import ChatModel, Message, Page, Sampling, TextPart

MAX_CHARS = 900
"""Longest extractive summary; about 200 tokens, so that five hits stay near a thousand."""
MAX_PAGE_CHARS = 200_000
_MAX_SENTENCE_CHARS = 400
_LABEL = re.compile(r"[^\W\d_][^\n:.!?]{0,48}: \S")
_LABEL_WEIGHT = 2.0  # a query word in the label of an infobox line: the line answers the query, prose mentions it
_SAME = {"born": "birth", "died": "death", "wife": "spouse", "husband": "spouse", "married": "spouse"}
"""Words of questions and the labels of infoboxes that answer them."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    place: int
    text: str
    words: frozenset[str]
    label: frozenset[str]


class ExtractiveSummariser:
    """Picks sentences by how much of the query they cover, weighing words by their rarity in the page.

    Args:
        max_chars: No summary is longer; a sentence that does not fit is cut at a word.
    """

    name = "extractive"

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self.max_chars = max_chars

    async def summarise(self, page: Page, query: str, max_sentences: int = 4) -> str:
        """At most `max_sentences` sentences of the page, in its order; the opening when nothing fits the query."""
        if len(page.text) > 20_000:
            return await asyncio.to_thread(self.summarise_now, page, query, max_sentences)
        return self.summarise_now(page, query, max_sentences)

    def summarise_now(self, page: Page, query: str, max_sentences: int = 4) -> str:
        """`summarise` for callers without an event loop."""
        found = _sentences_of(page.text[:MAX_PAGE_CHARS])
        name = {_stem(word) for word in terms(page.title)}
        chosen = _choose(found, _asked(query, name), max(1, max_sentences), self.max_chars)
        return _cut(" ".join(sentence.text for sentence in chosen), self.max_chars)


def _asked(query: str, name: set[str]) -> set[str]:
    """Words of the query worth covering: no stop words, and not the page's own name unless nothing else is asked."""
    spoken = [word for word in terms(query) if word not in STOPWORDS]
    words = {_stem(word) for word in spoken} | {_stem(_SAME[word]) for word in spoken if word in _SAME}
    return (words - name) or words


def _stem(word: str) -> str:
    """A crude stem, enough to let "architects", "founded", "founder" meet "architect", "found"."""
    for ending in ("ation", "ments", "ment", "ings", "ing", "ers", "ies", "ed", "er", "or", "es", "s", "y", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def _sentences_of(text: str) -> list[_Sentence]:
    found: list[_Sentence] = []
    for block in text.split("\n\n"):
        lines = [line for line in (raw.strip() for raw in block.splitlines()) if line and heading(line) is None]
        # A single line of that form may be prose ("Note: it rained. The fair closed."); several are a table, whatever
        # full stops ("Reg. 12") its values hold.
        boxed = all(_LABEL.match(line) for line in lines) and (len(lines) != 1 or len(sentences(lines[0])) == 1)
        for piece in lines if boxed else sentences(" ".join(lines)):
            label = piece.partition(":")[0] if boxed else ""
            whole = piece if piece[-1] in ".!?…。！？\"'”»)" else piece + "."
            found.append(
                _Sentence(
                    len(found),
                    _cut(whole, _MAX_SENTENCE_CHARS),
                    frozenset(_stem(word) for word in terms(piece)),
                    frozenset(_stem(word) for word in terms(label) if word not in STOPWORDS),
                )
            )
    return found


def _choose(found: list[_Sentence], asked: set[str], limit: int, max_chars: int) -> list[_Sentence]:
    """Greedy cover: the sentence that adds most uncovered weight next; a repeated word adds little."""
    spread = Counter(word for sentence in found for word in sentence.words & asked)
    weight = {word: math.log(1.0 + len(found) / count) for word, count in spread.items()}
    gain = dict(weight)
    chosen: list[_Sentence] = []
    left = max_chars
    candidates = [sentence for sentence in found if sentence.words & asked]
    while candidates and len(chosen) < limit:
        scored = [(_worth(sentence, asked, gain), -sentence.place, sentence) for sentence in candidates]
        worth, _, best = max(scored)
        if worth <= 0.05 * sum(weight.values()) or (chosen and len(best.text) >= left):
            break
        chosen.append(best)
        candidates.remove(best)
        left -= len(best.text) + 1
        for word in best.words & asked:
            gain[word] *= 0.25
    for sentence in found:  # the opening says what the page is about
        if len(chosen) >= min(2, limit):
            break
        if sentence not in chosen and len(sentence.text) < left:
            chosen.append(sentence)
            left -= len(sentence.text) + 1
    return sorted(chosen, key=lambda sentence: sentence.place)


def _worth(sentence: _Sentence, asked: set[str], gain: dict[str, float]) -> float:
    covered = sum(gain[word] for word in sentence.words & asked)
    labelled = sum(gain[word] for word in sentence.label & asked)
    # A label that is asked for in full beats one that merely shares a word ("Opened" before "Date opened by").
    share = len(sentence.label & asked) / len(sentence.label) if sentence.label else 0.0
    return covered + _LABEL_WEIGHT * labelled * share


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = text[: max(0, limit - 1)]
    space = head.rfind(" ")
    return (head[:space] if space > limit // 2 else head).rstrip() + "…"


# ------------------------------------------------------------------------------------------ by a model

_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
LLM_PAGE_CHARS = 24_000
"""How much of a page a model is shown: about 6,000 tokens."""


class LlmSummariser:
    """Asks a chat model for the summary, as the paper does. The page is shown as data, never as instructions.

    Args:
        chat: The model.
        max_chars: No summary is longer.
        max_tokens: Budget of the reply, thinking included.
    """

    def __init__(self, chat: ChatModel, *, max_chars: int = 1500, max_tokens: int = 1024) -> None:
        self.name = f"llm:{chat.name}"
        self._chat = chat
        self.max_chars = max_chars
        self._sampling = Sampling(temperature=0.0, max_tokens=max_tokens)

    async def summarise(self, page: Page, query: str, max_sentences: int = 4) -> str:
        """The model's summary.

        Raises:
            RateLimited, ToolTimeout, BackendDown: The model could not be used.
        """
        prompt = fill(
            "summarise_page",
            query=_defused(query)[:2000],
            title=_defused(page.title)[:300],
            url=_defused(page.url)[:500],
            text=_defused(page.text[:LLM_PAGE_CHARS]),
            max_sentences=str(max(1, max_sentences)),
        )
        try:
            reply = await self._chat.complete([Message("user", (TextPart(prompt),))], (), self._sampling)
        except ModelRateLimited as error:
            raise RateLimited("The model that summarises pages is overloaded.") from error
        except ModelUnreachable as error:
            raise ToolTimeout("The model that summarises pages did not answer.") from error
        except ModelError as error:
            raise BackendDown("The model that summarises pages cannot be used.") from error
        text = " ".join(strip_thinking(reply.content).split())
        if not text:
            raise BackendDown("The model that summarises pages returned no summary.")
        return _cut(text, self.max_chars)


def strip_thinking(text: str) -> str:
    """The reply without its reasoning: all up to the last closing tag; nothing when reasoning was never closed."""
    _, closed, after = text.rpartition(_THINK_CLOSE)
    rest = after if closed else text
    return rest.partition(_THINK_OPEN)[0].strip()


def _defused(text: str) -> str:
    """Untrusted text that cannot close the block it is quoted in."""
    return text.replace("</page>", "</ page>").replace("<page>", "< page>")
