"""Parsing the articles of a dump, in this process or in several; the results come in the order of the dump."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from opensearch_vl.wiki.page import ParsedPage, parse_page
from opensearch_vl.wiki.titles import Site

_BATCH_CHARS, _BATCH_PAGES = 500_000, 200
"""Pages sent to a process at once: large enough to hide the cost of sending."""
_AHEAD = 2  # batches in flight per process


@dataclass(frozen=True, slots=True)
class Article:
    """An article to be parsed."""

    page_id: int
    title: str
    dump_id: int
    wikitext: str


def parse_all(
    articles: Iterable[Article], site: Callable[[], Site], workers: int = 1
) -> Iterator[tuple[Article, ParsedPage]]:
    """Parse articles in order. `articles` is drawn from as needed: at most a few batches per process are held.

    Args:
        articles: What to parse.
        site: Asked once the first article is there.
        workers: Number of processes; 1 parses in this one. More need an importable main module (`spawn`).
    """
    if workers <= 1:
        for article in articles:
            yield article, parse_page(article.title, article.wikitext, site())
        return
    waiting: deque[tuple[list[Article], Future[list[ParsedPage]]]] = deque()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    try:
        for batch in _batches(articles):
            work = [(article.title, article.wikitext) for article in batch]
            waiting.append((batch, pool.submit(_parse_batch, work, site())))
            if len(waiting) >= workers * _AHEAD:
                yield from _next(waiting)
        while waiting:
            yield from _next(waiting)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _next(
    waiting: deque[tuple[list[Article], Future[list[ParsedPage]]]],
) -> Iterator[tuple[Article, ParsedPage]]:
    batch, future = waiting.popleft()
    yield from zip(batch, future.result(), strict=True)


def _batches(articles: Iterable[Article]) -> Iterator[list[Article]]:
    batch: list[Article] = []
    chars = 0
    for article in articles:
        batch.append(article)
        chars += len(article.wikitext)
        if chars >= _BATCH_CHARS or len(batch) >= _BATCH_PAGES:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _parse_batch(work: list[tuple[str, str]], site: Site) -> list[ParsedPage]:
    return [parse_page(title, wikitext, site) for title, wikitext in work]
