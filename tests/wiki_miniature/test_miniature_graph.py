"""The graph properties that the recipe lives on, measured with a reader of the tests' own."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest


@pytest.fixture(scope="module")
def out_links(mini) -> dict[str, set[str]]:
    return {title: mini.links(title) for title in mini.text}


@pytest.fixture(scope="module")
def in_degree(out_links) -> Counter[str]:
    return Counter(target for targets in out_links.values() for target in targets)


def test_there_are_hubs_far_above_all_others(mini, in_degree) -> None:
    hubs = {page.title for page in mini.world.hubs.pages()}
    above = [title for title, degree in in_degree.items() if degree > 100]
    assert len(above) >= 10 and set(above) <= hubs
    entities = [in_degree[title] for title in mini.world.titles]
    assert in_degree.most_common(1)[0][1] > 4 * max(entities)


def test_pictured_entities_have_a_spread_in_degree(mini, in_degree) -> None:
    world, album = mini.world, mini.album
    degrees = [in_degree[world.titles[entity]] for entity in world if album.of(entity)]
    assert sum(degree >= 5 for degree in degrees) / len(degrees) > 0.8
    assert max(degrees) > 5 * statistics.median(degrees)


def test_every_domain_has_pictured_seeds(mini, in_degree) -> None:
    world, album = mini.world, mini.album
    seeds: Counter[str] = Counter()
    for entity in world:
        pictures = album.of(entity)
        if pictures and min(pictures[0].width_px, pictures[0].height_px) >= 512:
            seeds[world.kind(entity).domain] += in_degree[world.titles[entity]] >= 5
    assert set(seeds) == {"Person", "Building", "Location", "Organism", "Artifact"}
    assert min(seeds.values()) >= 50
    small = [spec for spec in album.specs() if min(spec.width_px, spec.height_px) < 512]
    assert 5 <= len(small) <= 60


def _paths(world, entity: int, length: int) -> int:
    ends = {(entity,)}
    for _ in range(length):
        ends = {(*path, t) for path in ends for _, t in world.relations_of(path[-1]) if t not in path}
    return len(ends)


@pytest.mark.parametrize(("length", "median"), [(2, 6), (3, 12), (4, 30)])
def test_many_infobox_paths_start_at_a_picture(mini, length: int, median: int) -> None:
    pictured = [entity for entity in mini.world if mini.album.of(entity)][::4]
    assert statistics.median(_paths(mini.world, entity, length) for entity in pictured) >= median


def test_prose_answers_back_but_does_not_look_two_hops_ahead(mini, out_links) -> None:
    world = mini.world
    back = two_hops = edges = pairs = 0
    for source, _, target in world.edges.tolist():
        edges += 1
        back += world.titles[source] in out_links[world.titles[target]]
        for _, end in world.relations_of(target):
            if end != source:
                pairs += 1
                two_hops += world.titles[source] in out_links[world.titles[end]]
    assert 0.8 < back / edges < 0.92
    assert two_hops / pairs < 0.04


def test_most_relations_are_functional_and_some_are_not(mini) -> None:
    per_key = Counter(
        (entity, relation.key) for entity in mini.world for relation, _ in mini.world.relations_of(entity)
    )
    share = sum(number == 1 for number in per_key.values()) / len(per_key)
    assert 0.85 < share < 0.99


def test_anchors_vary(mini) -> None:
    everything = "\n".join(mini.text.values())
    piped = everything.count("|")
    assert piped > 1000
    through_redirects = sum(f"[[{title}" in everything for title in list(mini.redirects)[:200])
    assert through_redirects > 20


def test_lists_disambiguation_and_stubs_are_there(mini) -> None:
    for opening in ("List of", "Timeline of", "Outline of", "Index of"):
        assert any(title.startswith(opening) for title in mini.text), opening
    assert mini.info.counts["stub"] > 20
