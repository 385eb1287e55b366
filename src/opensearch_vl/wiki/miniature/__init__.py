"""The miniature encyclopedia: a fictional Wikipedia with pictures, written as an ordinary MediaWiki dump.

The project ships no third-party text. This package writes the world that the offline pipeline runs on: entities of the
five seed domains, their relations in infoboxes and prose, redirects, disambiguation and list pages, hubs, and a picture
for a part of the entities. Nothing downstream knows that it is not Wikipedia. Same arguments, same bytes.

```
names, values, schema, kinds*   the vocabulary        world, hubs       the facts
markup, prose, article, support the pages             export            the dump
pictures/                       what the pictures show and how they are drawn
```
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opensearch_vl.errors import ConfigError
from opensearch_vl.wiki.miniature.article import article
from opensearch_vl.wiki.miniature.export import write_export
from opensearch_vl.wiki.miniature.hubs import Hubs
from opensearch_vl.wiki.miniature.pictures import draw_all
from opensearch_vl.wiki.miniature.pictures.plan import Album
from opensearch_vl.wiki.miniature.support import (
    ListPlan,
    Page,
    disambiguation_page,
    file_page,
    hub_page,
    list_page,
    list_plans,
    noise_pages,
    redirect_pages,
)
from opensearch_vl.wiki.miniature.world import World

__all__ = ["MiniatureInfo", "plan_world", "write_miniature"]

MIN_PAGES, MAX_PAGES = 100, 2_000_000


@dataclass(frozen=True, slots=True)
class MiniatureInfo:
    """What was written.

    Args:
        dump: The MediaWiki export.
        images: Folder with one PNG a picture, named like its File page.
        num_pages: Pages of the article namespace that are no redirects: articles, lists, disambiguation.
        num_pictures: Pictures with a File page (drawn unless `pictures` was off).
        counts: Pages by sort, e.g. ``{"article": …, "redirect": …, "hub": …}``, and pictured entities.
    """

    dump: Path
    images: Path
    num_pages: int
    num_pictures: int
    counts: dict[str, int]


def write_miniature(
    out: Path,
    *,
    pages: int = 2000,
    seed: int = 0,
    compress: bool = True,
    pictures: bool = True,
    max_pictures: int = 3000,
    workers: int | None = None,
) -> MiniatureInfo:
    """Write ``OUT/dump.xml.bz2`` (or ``.xml``) and ``OUT/images/``.

    Args:
        out: Folder; created when missing.
        pages: Number of article, list and disambiguation pages; redirects, files and the rest come on top.
        seed: Everything derives from it.
        compress: bzip2 the dump.
        pictures: Draw the pictures. The dump is the same either way.
        max_pictures: Most pictured entities, about; what lies above is left without a picture.
        workers: Processes that draw; None takes one a CPU, 1 draws in this process.

    Raises:
        ConfigError: If `pages` is out of range.
    """
    world, plans = plan_world(pages, seed)
    album = Album(world, max_pictures)
    out = Path(out)
    images = out / "images"
    images.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()

    def everything() -> Iterator[Page]:
        for sort, page in _pages(world, album, [list_page(world, plan) for plan in plans]):
            counts[sort] += 1
            yield page

    dump = out / ("dump.xml.bz2" if compress else "dump.xml")
    write_export(dump, everything(), compress=compress)
    counts["pictured"] = len(album)
    if pictures:
        draw_all(list(album.specs()), images, workers)
    num_pages = sum(counts[sort] for sort in ("article", "stub", "hub", "list", "disambiguation"))
    return MiniatureInfo(dump, images, num_pages, counts["file"], dict(counts))


def plan_world(pages: int, seed: int) -> tuple[World, list[ListPlan]]:
    """The facts and the list pages of a miniature of `pages` pages: what its dump will say.

    Raises:
        ConfigError: If `pages` is out of range.
    """
    if not MIN_PAGES <= pages <= MAX_PAGES:
        raise ConfigError(f"pages = {pages}: the miniature has between {MIN_PAGES} and {MAX_PAGES:,} pages.")
    hubs = Hubs(pages, seed)
    plans = list_plans(tuple(country.title for country in hubs.countries), max(4, min(pages // 50, 200)))
    num_shared = max(2, pages // 40)
    return World(pages - len(hubs.pages()) - len(plans) - num_shared, num_shared, seed, hubs), plans


def _pages(world: World, album: Album, lists: list[Page]) -> Iterator[tuple[str, Page]]:
    """(sort, page) of the whole encyclopedia, in the order of the dump."""
    for hub in world.hubs.pages():
        yield "hub", hub_page(world, hub)
    for entity in world:
        pictures = album.of(entity)
        sort = "stub" if world.stub[entity] else "article"
        yield sort, Page(world.titles[entity], 0, article(world, entity, pictures))
        for redirect in redirect_pages(world, entity):
            yield "redirect", redirect
        for picture in pictures:
            yield "file", file_page(picture)
    for surname in world.shared:
        yield "disambiguation", disambiguation_page(world, surname)
    for page in lists:
        yield "list", page
    for page in noise_pages(world):
        yield "other", page
