"""The ordinary reader understands the miniature: every relation, attribute, alias, kind, picture and licence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.miniature import plan_world, write_miniature
from opensearch_vl.wiki.miniature.pictures.plan import Album
from opensearch_vl.wiki.miniature.world import World
from opensearch_vl.wiki.tables import WikiFolder

PAGES, SEED, PICTURED = 600, 7, 24


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[WikiFolder, World, Album]:
    out: Path = tmp_path_factory.mktemp("read")
    info = write_miniature(out, pages=PAGES, seed=SEED, max_pictures=PICTURED, workers=1)
    world, _ = plan_world(PAGES, SEED)
    return build_wiki(info.dump, out / "wiki", images=info.images), world, Album(world, PICTURED)


def _pages(built: tuple[WikiFolder, World, Album]) -> list[int]:
    wiki, world, _ = built
    found = [wiki.resolve(title) for title in world.titles]
    assert None not in found
    return [page for page in found if page is not None]


def test_pages_and_kinds(built) -> None:
    wiki, world, _ = built
    assert len(wiki) == PAGES
    kinds = Counter(page.kind for page in wiki.pages())
    assert kinds["disambiguation"] == len(world.shared) == PAGES // 40
    assert kinds["list"] == PAGES // 50
    assert wiki.meta["base"] == "https://miniature.invalid/wiki/"


def test_domains(built) -> None:
    wiki, world, _ = built
    wrong = [
        (world.titles[entity], row.domain)
        for entity, page in zip(world, _pages(built), strict=True)
        if not world.stub[entity] and (row := wiki.page(page)).domain != world.kind(entity).domain
    ]
    assert len(wrong) <= 0.01 * PAGES, wrong


def test_relations_and_attributes(built) -> None:
    wiki, world, _ = built
    pages = _pages(built)
    checked = 0
    for entity in world:
        if world.stub[entity]:
            continue
        items = wiki.infobox(pages[entity])
        links = {(item.key, item.target_id) for item in items}
        values = {(item.key, item.value) for item in items}
        for relation, target in world.relations_of(entity):
            assert (relation.key, pages[target]) in links, (world.titles[entity], relation.key)
            checked += 1
        for attribute, value in world.attributes_of(entity):
            assert (attribute.key, value.plain) in values, (world.titles[entity], attribute.key, value.wikitext)
            checked += 1
    assert checked > 2000


def test_aliases_and_redirects(built) -> None:
    wiki, world, _ = built
    pages = _pages(built)
    assert len(world.aliases) > 100
    for entity, aliases in world.aliases.items():
        known = set(wiki.aliases(pages[entity]))
        for alias in aliases:
            assert wiki.resolve(alias.title) == pages[entity]
            assert alias.title in known


def test_pictures_with_author_and_licence(built) -> None:
    wiki, world, album = built
    pages = _pages(built)
    seen = 0
    for entity in world:
        wanted, got = album.of(entity), wiki.page_images(pages[entity])
        assert [picture.file for picture in got] == [spec.file for spec in wanted]
        for spec, picture in zip(wanted, got, strict=True):
            assert picture.author == spec.author
            assert picture.licence.casefold() == spec.licence.casefold()
            assert (picture.ref.width_px, picture.ref.height_px) == (spec.width_px, spec.height_px)
            seen += 1
    assert seen >= 12


def test_hazards_leave_no_trace_in_the_text(built) -> None:
    wiki, world, _ = built
    for entity, page in zip(world, _pages(built), strict=True):
        text = wiki.text(page)
        assert "<!--" not in text and "<ref" not in text and "{|" not in text, world.titles[entity]


def test_the_answer_stands_on_the_page_and_the_way_back_in_its_prose(built) -> None:
    wiki, world, _ = built
    pages = _pages(built)
    stated = mentioned = edges = 0
    for source, _, target in world.edges.tolist():
        edges += 1
        stated += world.name(target) in wiki.document(pages[source])
        mentioned += pages[source] in wiki.neighbours(pages[target]).tolist()
    assert stated / edges > 0.9
    assert 0.78 < mentioned / edges < 0.93
