"""Tools that look things up: text search, reverse image search, reading a page (paper, section 2).

Every title, address and summary is put on one line, so that a page cannot forge the block headings of an observation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from opensearch_vl.errors import Blocked, ModelError, ToolError
from opensearch_vl.images import decode
from opensearch_vl.prompts import template
from opensearch_vl.protocols import (
    ImageIndex,
    Page,
    PageReader,
    Passage,
    SearchEngine,
    Summariser,
    ToolContext,
    ToolOutput,
    VisualMatch,
)
from opensearch_vl.tools.arguments import Arguments, Text, Whole
from opensearch_vl.tools.offload import offload
from opensearch_vl.tools.scrub import scrub_line
from opensearch_vl.tools.visual import IMAGE_NAMES, find_image
from opensearch_vl.types import Observation

_log = logging.getLogger(__name__)

ImageFetch = Callable[[str], Awaitable[bytes]]
"""Gets a picture by its address; the implementation applies the address guard."""

MAX_TOP_K = 10
"""Most results of one search; the paper's default is 5."""
MAX_PAGES = 5
"""Most pages one `visit` reads."""
RETRIEVAL_TIMEOUT_S = 60.0
SUMMARY_SENTENCES = 4
"""A passage's summary has 2-4 sentences (paper, section 2)."""
EVIDENCE_SENTENCES = 12
"""What `visit` tells of a page."""
AMBIGUITY_MARGIN = 0.05
"""Matches whose score is this close to the best one's count as equally good."""
_SUMMARY_CHARS, _SNIPPET_CHARS, _EVIDENCE_CHARS = 1_000, 600, 3_000
BRIEF_TOP_K, BRIEF_SENTENCES, BRIEF_CHARS = 2, 1, 120
"""Results, sentences and characters of a summary for a model with little room (prompt profile `miniature`)."""


class TextSearchArguments(Arguments):
    """Arguments of `text_search`."""

    q: Text = Field(
        validation_alias=AliasChoices("q", "query", "queries", "search_query", "keyword", "keywords"),
        description="What to look for, in plain words.",
    )
    hl: str = Field(
        default="en",
        max_length=20,
        validation_alias=AliasChoices("hl", "lang", "language"),
        description="Language of the pages, as a two-letter code.",
    )
    top_k: Whole = Field(
        default=5,
        ge=1,
        validation_alias=AliasChoices("top_k", "topk", "k", "num", "num_results", "n"),
        description=f"How many passages, at most {MAX_TOP_K}.",
    )


class TextSearchTool:
    """Search text; each hit with a summary that bears on the query.

    Args:
        engine: Where to search.
        summariser: Condenses what is found.
        timeout_s: Time limit of a call in seconds.
        brief: Few results, short summaries, no addresses.
    """

    name = "text_search"
    aliases: tuple[str, ...] = ("web_search", "search", "google_search")
    arguments: type[BaseModel] = TextSearchArguments

    def __init__(
        self,
        engine: SearchEngine,
        summariser: Summariser,
        timeout_s: float = RETRIEVAL_TIMEOUT_S,
        *,
        brief: bool = False,
    ) -> None:
        self.engine = engine
        self.summariser = summariser
        self.timeout_s = timeout_s
        self.brief = brief
        self.most = BRIEF_TOP_K if brief else MAX_TOP_K
        self.description = template("tool_text_search")

    async def run(self, arguments: TextSearchArguments, context: ToolContext) -> ToolOutput:
        """Search, then summarise all hits at once. Finding nothing is not a failure."""
        top_k = min(arguments.top_k, self.most)
        passages = (await self.engine.search(arguments.q, top_k, arguments.hl))[:top_k]
        if not passages:
            text = f'No passage was found for "{scrub_line(arguments.q)}". Try fewer or other words.'
            return ToolOutput(Observation(text=text), provider=self.engine.name)
        blocks = await asyncio.gather(*(self._block(n, p, arguments.q) for n, p in enumerate(passages, 1)))
        if arguments.top_k > MAX_TOP_K and not self.brief:
            blocks.append(f"Note: at most {MAX_TOP_K} passages are returned.")
        return ToolOutput(Observation(text="\n\n".join(blocks)), provider=self.engine.name)

    async def _block(self, number: int, passage: Passage, query: str) -> str:
        page = Page(passage.title, passage.url, passage.text)
        if self.brief:
            summary = await _summary(self.summariser, page, query, BRIEF_SENTENCES, BRIEF_CHARS)
            return _lines(f"[Passage {number}]", Title=passage.title, Summary=summary)
        summary = await _summary(self.summariser, page, query, SUMMARY_SENTENCES, _SUMMARY_CHARS)
        return _lines(f"[Passage {number}]", Title=passage.title, URL=passage.url, Summary=summary)


class ImageSearchArguments(Arguments):
    """Arguments of `image_search`; released checkpoints write the picture's id into `url`."""

    url: Text = Field(
        validation_alias=AliasChoices("url", *(name for name in IMAGE_NAMES if name != "url")),
        description="Id of a picture in this conversation, such as img_1.",
    )
    top_k: Whole = Field(
        default=5,
        ge=1,
        validation_alias=AliasChoices("top_k", "topk", "k", "num", "num_results", "n"),
        description=f"How many matches, at most {MAX_TOP_K}.",
    )


class ImageSearchTool:
    """Reverse image search.

    Args:
        index: Where to search.
        fetch: Gets pictures by address, behind the address guard; None refuses addresses.
        timeout_s: Time limit of a call in seconds.
        brief: Few results, and only their titles.
    """

    name = "image_search"
    aliases: tuple[str, ...] = ("reverse_image_search", "visual_search")
    arguments: type[BaseModel] = ImageSearchArguments

    def __init__(
        self,
        index: ImageIndex,
        fetch: ImageFetch | None = None,
        timeout_s: float = RETRIEVAL_TIMEOUT_S,
        *,
        brief: bool = False,
    ) -> None:
        self.index = index
        self.fetch = fetch
        self.timeout_s = timeout_s
        self.brief = brief
        self.description = template("tool_image_search")

    async def run(self, arguments: ImageSearchArguments, context: ToolContext) -> ToolOutput:
        """Search. An ambiguous or unconfirmed result says so; finding nothing is not a failure."""
        top_k = min(arguments.top_k, BRIEF_TOP_K if self.brief else MAX_TOP_K)
        image = await self._bytes(arguments.url, context)
        matches = (await self.index.search(image, top_k))[:top_k]
        blocks = [self._block(number, match) for number, match in enumerate(matches, 1)]
        return ToolOutput(
            Observation(text="\n\n".join([*blocks, *_cautions(matches)]) or "No confident match."),
            provider=self.index.name,
        )

    def _block(self, number: int, match: VisualMatch) -> str:
        heading = f"[Match {number}]"
        if self.brief:
            return _lines(heading, Title=match.title)
        snippet = scrub_line(match.snippet, _SNIPPET_CHARS)
        return _lines(heading, Title=match.title, Source=match.source, URL=match.url, Snippet=snippet)

    async def _bytes(self, written: str, context: ToolContext) -> bytes:
        if not written.lower().startswith(("http://", "https://")):
            return await offload(context.store.read, find_image(written, context))
        if self.fetch is None:
            known = ", ".join(context.bank.ids()) or "none"
            raise Blocked(f"Pictures are not fetched by address here. Pictures in this conversation: {known}.")
        data = await self.fetch(written)
        await offload(decode, data)  # refuses what is not a picture before an index or a service sees it
        return data


def _cautions(matches: Sequence[VisualMatch]) -> list[str]:
    """What a reader of the matches must know: several fit equally well, or none is confirmed."""
    if not matches:
        return []
    best = max(match.score for match in matches)
    close = {(match.title, match.url) for match in matches if match.score >= best - AMBIGUITY_MARGIN}
    cautions = []
    if len(close) > 1:
        cautions.append(
            f"Note: {len(close)} pictures match about equally well; lettering or other details must decide."
        )
    if not any(match.exact for match in matches):
        cautions.append("Note: these pictures look alike, but none is confirmed to show the same thing.")
    return cautions


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class VisitArguments(Arguments):
    """Arguments of `visit`."""

    url: Annotated[tuple[Text, ...], BeforeValidator(_as_list)] = Field(
        min_length=1,
        max_length=MAX_PAGES,
        validation_alias=AliasChoices("url", "urls", "link", "links", "page"),
        description=f"Address of the page, or a list of at most {MAX_PAGES}.",
    )
    goal: Text = Field(
        validation_alias=AliasChoices("goal", "query", "q", "question", "purpose"),
        description="What you want to learn from it.",
    )


class VisitTool:
    """Read pages with a goal in mind."""

    name = "visit"
    aliases: tuple[str, ...] = ("visit_page", "read_page", "browse")
    arguments: type[BaseModel] = VisitArguments

    def __init__(self, reader: PageReader, summariser: Summariser, timeout_s: float = RETRIEVAL_TIMEOUT_S) -> None:
        self.reader = reader
        self.summariser = summariser
        self.timeout_s = timeout_s
        self.description = template("tool_visit")

    async def run(self, arguments: VisitArguments, context: ToolContext) -> ToolOutput:
        """Read all pages at once. One that cannot be read is reported; if none can, the call fails."""
        urls = list(dict.fromkeys(arguments.url))
        outcomes = await asyncio.gather(*(self._read(url) for url in urls))
        if isinstance(outcomes[0], ToolError) and not any(isinstance(outcome, Page) for outcome in outcomes):
            raise outcomes[0]
        blocks = await asyncio.gather(
            *(
                self._block(n, url, outcome, arguments.goal)
                for n, (url, outcome) in enumerate(zip(urls, outcomes, strict=True), 1)
            )
        )
        return ToolOutput(Observation(text="\n\n".join(blocks)), provider=self.reader.name)

    async def _read(self, url: str) -> Page | ToolError:
        try:
            return await self.reader.read(url)
        except ToolError as error:
            return error

    async def _block(self, number: int, url: str, outcome: Page | ToolError, goal: str) -> str:
        if isinstance(outcome, ToolError):
            return _lines(f"[Page {number}]", URL=url, Unread=str(outcome))
        evidence = await _summary(self.summariser, outcome, goal, EVIDENCE_SENTENCES, _EVIDENCE_CHARS)
        return _lines(f"[Page {number}]", Title=outcome.title, URL=outcome.url, Evidence=evidence)


async def _summary(summariser: Summariser, page: Page, query: str, sentences: int, max_chars: int) -> str:
    """What `page` says about `query` on one line; its opening, and a word about it, where there is no summary."""
    try:
        summary = scrub_line(await summariser.summarise(page, query, sentences), max_chars)
        reason = "nothing in it bears on the query"
    except (ToolError, ModelError) as error:
        _log.warning("no summary of %s: %s", page.url, error)
        summary, reason = "", "no summary could be made"
    if summary:
        return summary
    opening = scrub_line(page.text, _SNIPPET_CHARS)
    return f"({reason}; the text begins:) {opening}" if opening else "(the page is empty)"


def _lines(heading: str, **fields: str) -> str:
    return "\n".join([heading, *(f"{name}: {scrub_line(value, _EVIDENCE_CHARS)}" for name, value in fields.items())])
