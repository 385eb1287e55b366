import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from wiki.wikitool import write

from opensearch_vl.config import load_config
from opensearch_vl.errors import ConfigError
from opensearch_vl.wiki.dump import build_wiki
from opensearch_vl.wiki.schema import INFOBOX_SECTION
from opensearch_vl.wiki.tables import WikiFolder
from opensearch_vl.wiki.walks import (
    BLOCKS,
    Dropped,
    Graph,
    Walk,
    WalkRules,
    draw_hops,
    eligible_seeds,
    resolve_rules,
    sample_walks,
    stated_edges,
    try_walk,
    walk_graph,
)


def graph_of(edges: set[tuple[int, int]], size: int, blocked: dict[int, str] | None = None) -> Graph:
    rows = [sorted(target for source, target in edges if source == node) for node in range(size)]
    marks = np.zeros(size, dtype=np.int8)
    for node, why in (blocked or {}).items():
        marks[node] = BLOCKS.index(why)
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return Graph(indptr, np.array([target for row in rows for target in row], dtype=np.int32), marks)


# ------------------------------------------------------------------------------------------- one walk


def test_rules_by_hand() -> None:
    """0→1→{0 cycle, 2 list, 3 hub, 4}→…: only 4 is left at each step."""
    edges = {(0, 1), (1, 0), (1, 2), (1, 3), (1, 4), (4, 5)}
    graph = graph_of(edges, 6, {2: "list", 3: "hub"})
    reasons: Counter[str] = Counter()
    assert try_walk(graph, 0, 3, random.Random(0), reasons) == (0, 1, 4, 5)
    assert reasons == {"skip_cycle": 1, "skip_list": 1, "skip_hub": 1}
    assert try_walk(graph, 0, 4, random.Random(0), reasons) is None
    assert reasons["no_neighbour"] == 1


@pytest.mark.parametrize(("chord", "expected"), [((0, 2), None), ((2, 0), None), ((1, 0), (0, 1, 2))])
def test_the_end_may_not_touch_the_start(chord: tuple[int, int], expected: tuple[int, ...] | None) -> None:
    graph = graph_of({(0, 1), (1, 2), chord}, 3)
    reasons: Counter[str] = Counter()
    found = {try_walk(graph, 0, 2, random.Random(seed), reasons) for seed in range(20)}
    assert found - {None} == ({expected} - {None})
    if expected is None:
        assert reasons["skip_chord"] > 0
        assert {try_walk(graph, 0, 2, random.Random(seed), Counter(), no_chord=False) for seed in range(20)} >= {
            (0, 1, 2)
        }


GRAPHS = st.integers(3, 14).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.sets(
            st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda e: e[0] != e[1]), max_size=60
        ),
        st.dictionaries(st.integers(0, size - 1), st.sampled_from(BLOCKS[1:]), max_size=4),
    )
)


@settings(max_examples=300, deadline=None)
@given(GRAPHS, st.integers(0, 10**6), st.integers(2, 4), st.booleans())
def test_walks_on_random_graphs_keep_every_rule(
    drawn: tuple[int, set[tuple[int, int]], dict[int, str]], seed: int, hops: int, no_chord: bool
) -> None:
    size, edges, blocked = drawn
    graph = graph_of(edges, size, blocked)
    reasons: Counter[str] = Counter()
    path = try_walk(graph, 0, hops, random.Random(seed), reasons, no_chord=no_chord)
    assert path == try_walk(graph, 0, hops, random.Random(seed), Counter(), no_chord=no_chord)
    if path is None:
        assert reasons["no_neighbour"] == 1
        return
    assert len(path) == hops + 1
    assert len(set(path)) == len(path)
    assert set(pairwise(path)) <= edges
    assert not set(path[1:]) & set(blocked)
    if no_chord:
        assert (path[0], path[-1]) not in edges
        assert (path[-1], path[0]) not in edges


@settings(max_examples=200, deadline=None)
@given(GRAPHS, st.data(), st.integers(2, 4))
def test_walks_keep_to_stated_edges_and_lose_no_other_rule(
    drawn: tuple[int, set[tuple[int, int]], dict[int, str]], data: st.DataObject, hops: int
) -> None:
    """Chords are told from all edges: an unstated link from start to end is a shortcut all the same."""
    size, edges, blocked = drawn
    order = sorted(edges)
    stated = data.draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
    graph = replace(graph_of(edges, size, blocked), stated=np.array(stated, dtype=bool))
    allowed = {edge for edge, kept in zip(order, stated, strict=True) if kept}
    reasons: Counter[str] = Counter()
    path = try_walk(graph, 0, hops, random.Random(data.draw(st.integers(0, 99))), reasons)
    unstated_first = sum(source == 0 for source, _ in edges - allowed)
    assert reasons["skip_unstated"] >= unstated_first
    if path is None:
        return
    assert set(pairwise(path)) <= allowed
    assert len(set(path)) == len(path) == hops + 1
    assert not set(path[1:]) & set(blocked)
    assert not {(path[0], path[-1]), (path[-1], path[0])} & edges


def test_each_step_is_uniform() -> None:
    graph = graph_of({(0, 1), (1, 2), (1, 3), (1, 4), (1, 5)}, 6, {5: "disambiguation"})
    rng = random.Random(1)
    ends = Counter(path[-1] for path in (try_walk(graph, 0, 2, rng, Counter()) for _ in range(6_000)) if path)
    assert set(ends) == {2, 3, 4}
    assert all(abs(count / 6_000 - 1 / 3) < 0.03 for count in ends.values())


def test_lengths_follow_the_probabilities() -> None:
    rng = random.Random(0)
    counts = Counter(draw_hops((0.4, 0.4, 0.2), rng) for _ in range(20_000))
    assert all(abs(counts[hops] / 20_000 - p) < 0.015 for hops, p in {2: 0.4, 3: 0.4, 4: 0.2}.items())


# ----------------------------------------------------------------------------------------- whole wikis


def entity(number: int, kind: str, links: list[int]) -> str:
    targets = " ".join(f"[[E{target}]]" for target in links)
    return f"{{{{Infobox {kind}|image=E{number}.png|mate=[[E{links[0]}]]}}}} Text {targets} [[Hub]]."


KINDS = ("person", "building", "settlement", "taxobox", "artifact")


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> WikiFolder:
    """120 entities of five kinds, each linking to six others; a hub; pages that are no seeds for one reason each."""
    root = tmp_path_factory.mktemp("walks")
    size = 120
    rng = random.Random(5)
    pages = {f"E{n}": entity(n, KINDS[n % 5], rng.sample([k for k in range(size) if k != n], 6)) for n in range(size)}
    pages |= {
        "Hub": "Everything: [[E1]]",
        "No box": "Text [[E1]]",
        "No domain": "{{Infobox company|image=E1.png}}",
        "No picture": "{{Infobox person|image=None.png|a=b}}",
        "Small picture": "{{Infobox person|image=Small.png|a=b}}",
        "Lonely": "{{Infobox person|image=E1.png|a=b}}",
        "E (disambiguation)": "{{disambiguation}} [[E1]]",
        "List of E": "[[E1]] [[E2]]",
        "Entry point": "[[No domain]] [[No picture]] [[Small picture]] [[E (disambiguation)]] [[List of E]]",
    }
    (root / "images").mkdir()
    for n in range(size):
        Image.new("RGB", (512, 520), (n, 0, 0)).save(root / "images" / f"E{n}.png", compress_level=1)
    Image.new("RGB", (511, 900)).save(root / "images" / "Small.png")
    return build_wiki(write(root / "d.xml", pages), root / "wiki", images=root / "images")


@pytest.fixture(scope="module")
def rules(wiki: WikiFolder) -> WalkRules:
    return resolve_rules(wiki, WalkRules())


def test_auto_thresholds_on_a_small_graph(wiki: WikiFolder, rules: WalkRules) -> None:
    assert rules.hub == 20
    assert rules.min_image_px == 512
    degrees = sorted(wiki.page(page).in_degree for page in range(120))
    assert rules.min_in_degree == max(1, int(np.percentile(degrees, 25)))
    assert resolve_rules(wiki, rules) == rules
    assert resolve_rules(wiki, WalkRules(hub=7, min_in_degree=3, min_image_px=64)) == WalkRules(
        hub=7, min_in_degree=3, min_image_px=64
    )


def test_unresolved_rules_are_refused(wiki: WikiFolder) -> None:
    with pytest.raises(ConfigError, match="resolve_rules"):
        eligible_seeds(wiki, WalkRules())


def test_seeds_and_why_others_are_none(wiki: WikiFolder, rules: WalkRules) -> None:
    seeds, reasons = eligible_seeds(wiki, rules)
    assert set(seeds) == {"Person", "Building", "Location", "Organism", "Artifact"}
    for domain, pages in seeds.items():
        assert pages == sorted(pages)
        for page in map(wiki.page, pages):
            assert (page.domain, page.kind) == (domain, "article")
            assert int(rules.min_in_degree) <= page.in_degree <= int(rules.hub)
    low = sum(wiki.page(n).in_degree < int(rules.min_in_degree) for n in range(120))
    assert reasons == {
        "no_infobox": 3, "no_domain": 1, "no_image": 1, "image_too_small": 1, "in_degree_low": low + 1, "disambiguation": 1, "list": 1,
    }  # fmt: skip
    assert sum(map(len, seeds.values())) + sum(reasons.values()) == len(wiki)


def test_pictures_need_not_be_there(wiki: WikiFolder, rules: WalkRules) -> None:
    seeds, reasons = eligible_seeds(wiki, rules.model_copy(update={"require_image": False, "min_in_degree": 0}))
    assert "no_image" not in reasons
    assert wiki.resolve("No picture") in seeds["Person"]


def test_sampled_walks_keep_every_rule(wiki: WikiFolder, rules: WalkRules) -> None:
    seeds, _ = eligible_seeds(wiki, rules)
    graph = walk_graph(wiki, rules)
    outcomes = list(sample_walks(wiki, rules, 3, None))
    assert len(outcomes) == sum(map(len, seeds.values()))
    walks = [outcome for outcome in outcomes if isinstance(outcome, Walk)]
    assert len(walks) > 40
    assert len({walk.nodes[0] for walk in walks}) == len(walks)
    hub = wiki.resolve("Hub")
    for walk in walks:
        assert walk.nodes[0] in seeds[walk.domain]
        assert len(set(walk.nodes)) == len(walk.nodes) in (3, 4, 5)
        assert hub not in walk.nodes
        assert not graph.has_edge(walk.nodes[0], walk.nodes[-1])
        assert not graph.has_edge(walk.nodes[-1], walk.nodes[0])
        for link, (source, target) in zip(walk.links, pairwise(walk.nodes), strict=True):
            assert (link.src, link.dst) == (source, target)
            stated = any(item.target_id == target for item in wiki.infobox(source))
            assert (link.section == "infobox") == stated


def test_stated_edges_by_hand(tmp_path: Path) -> None:
    """A names B in its box; C names A in its own and is linked from A in prose; D is prose alone."""
    pages = {
        "A": "{{Infobox person|spouse=[[B]]}} [[C]] [[D]]",
        "B": "[[A]] [[D]]",
        "C": "{{Infobox person|parent=[[A]]}}",
        "D": "[[A]]",
    }
    wiki = build_wiki(write(tmp_path / "d.xml", pages), tmp_path / "wiki")
    mask = stated_edges(wiki)
    edges = [(wiki.page(n).title, wiki.page(int(to)).title) for n in range(len(wiki)) for to in wiki.neighbours(n)]
    assert len(edges) == len(mask)
    assert {edge for edge, kept in zip(edges, mask, strict=True) if kept} == {
        ("A", "B"),
        ("A", "C"),
        ("B", "A"),
        ("C", "A"),
    }


def test_sampled_walks_keep_to_stated_edges(wiki: WikiFolder, rules: WalkRules) -> None:
    assert walk_graph(wiki, rules).stated is None
    only = rules.model_copy(update={"edges": "stated"})
    walks = [outcome for outcome in sample_walks(wiki, only, 3, None) if isinstance(outcome, Walk)]
    assert len(walks) > 10
    for link in (link for walk in walks for link in walk.links):
        inverse = any(item.target_id == link.src for item in wiki.infobox(link.dst))
        assert link.section == INFOBOX_SECTION or inverse


def test_walks_are_stratified(wiki: WikiFolder, rules: WalkRules) -> None:
    walks = [outcome for outcome in sample_walks(wiki, rules, 3, 25) if isinstance(outcome, Walk)]
    assert len(walks) == 25
    counts = Counter(walk.domain for walk in walks)
    assert set(counts) == {"Person", "Building", "Location", "Organism", "Artifact"}
    assert max(counts.values()) - min(counts.values()) <= 1


def _key(outcome: Walk | Dropped) -> tuple[object, ...]:
    return (outcome.nodes, outcome.seed) if isinstance(outcome, Walk) else (outcome.seed_page,)


def test_same_seed_same_walks_whatever_else_is_sampled(wiki: WikiFolder, rules: WalkRules) -> None:
    whole = [_key(outcome) for outcome in sample_walks(wiki, rules, 3, None)]
    assert whole == [_key(outcome) for outcome in sample_walks(WikiFolder(wiki.root), rules, 3, None)]
    few = [_key(outcome) for outcome in sample_walks(wiki, rules, 3, 10)]
    assert whole[: len(few)] == few
    assert whole != [_key(outcome) for outcome in sample_walks(wiki, rules, 4, None)]
    fewer_seeds = rules.model_copy(update={"min_in_degree": int(rules.min_in_degree) + 1})
    assert {_key(outcome) for outcome in sample_walks(wiki, fewer_seeds, 3, None)} <= set(whole)


def test_rejections_are_retried_counted_and_drop_the_seed(wiki: WikiFolder, rules: WalkRules) -> None:
    seen: Counter[int] = Counter()

    def refuse(walk: Walk) -> str | None:
        seen[walk.nodes[0]] += 1
        return "no_attribute" if walk.nodes[0] % 2 else None

    outcomes = list(sample_walks(wiki, rules, 3, None, refuse))
    for outcome in outcomes:
        if isinstance(outcome, Dropped):
            assert outcome.reasons["no_attribute"] + outcome.reasons["no_neighbour"] == rules.max_retries + 1
            assert seen[outcome.seed_page] == outcome.reasons["no_attribute"]
        else:
            assert outcome.nodes[0] % 2 == 0
            assert seen[outcome.nodes[0]] == 1
            assert outcome.retries == outcome.reasons["no_neighbour"]
    assert sum(isinstance(outcome, Dropped) for outcome in outcomes) > 20


def test_lengths_of_accepted_walks(wiki: WikiFolder, rules: WalkRules) -> None:
    many = rules.model_copy(update={"walks_per_seed": 12, "no_chord": False})
    lengths = Counter(len(walk.links) for walk in sample_walks(wiki, many, 0, None) if isinstance(walk, Walk))
    total = sum(lengths.values())
    assert total > 700
    assert all(abs(lengths[hops] / total - p) < 0.06 for hops, p in {2: 0.4, 3: 0.4, 4: 0.2}.items())


def test_excluded_prefixes(wiki: WikiFolder, rules: WalkRules) -> None:
    wider = rules.model_copy(update={"excluded_prefixes": {"en": ("E1",), "de": ("E2",)}})
    walks = [walk for walk in sample_walks(wiki, wider, 3, None) if isinstance(walk, Walk)]
    assert walks
    assert not any(wiki.page(node).title.startswith("E1") for walk in walks for node in walk.nodes)
    _, reasons = eligible_seeds(wiki, wider)
    assert reasons["excluded_prefix"] == 31


def test_no_seed_no_walk(tmp_path: Path) -> None:
    wiki = build_wiki(write(tmp_path / "d.xml", {"A": "text"}), tmp_path / "wiki")
    assert list(sample_walks(wiki, WalkRules(), 0, 5)) == []


def test_pictures_all_too_small_lower_the_bar(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for n in range(3):
        Image.new("RGB", (100 + n, 300)).save(tmp_path / "p" / f"{n}.png")
    pages = {f"P{n}": f"{{{{Infobox person|image={n}.png|a=b}}}}[[P{(n + 1) % 3}]]" for n in range(3)}
    wiki = build_wiki(write(tmp_path / "d.xml", pages), tmp_path / "wiki", images=tmp_path / "p")
    assert resolve_rules(wiki, WalkRules()).min_image_px == 101


@pytest.mark.parametrize(
    "text", ["hop_probs=[0.5, 0.5, 0.5]", "hop_probs=[1.2, -0.2, 0]", "hub=some", "max_retries=-1", "hubb=3"]
)
def test_wrong_rules_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match=text.partition("=")[0]):
        load_config(WalkRules, None, [text])
