"""The dump: valid, complete, deterministic, and saying what the world says."""

from __future__ import annotations

import bz2
import hashlib
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import mwparserfromhell
import pytest

from opensearch_vl.errors import ConfigError
from opensearch_vl.wiki.miniature import plan_world, write_miniature
from opensearch_vl.wiki.miniature.export import NAMESPACES
from opensearch_vl.wiki.miniature.markup import listing
from opensearch_vl.wiki.miniature.schema import Kind

NS = "{http://www.mediawiki.org/xml/export-0.11/}"


def test_it_has_exactly_the_pages_asked_for(mini) -> None:
    assert len(mini.text) == mini.info.num_pages == 2000
    assert len(mini.files) == mini.info.num_pictures
    assert mini.info.counts["redirect"] == len(mini.redirects) > 1000


@pytest.mark.parametrize("pages", [100, 137, 400, 999])
def test_small_worlds_have_exactly_the_pages_asked_for(tmp_path: Path, pages: int) -> None:
    assert write_miniature(tmp_path, pages=pages, pictures=False).num_pages == pages


@pytest.mark.parametrize("pages", [0, 99, 3_000_000])
def test_sizes_out_of_range_are_refused(tmp_path: Path, pages: int) -> None:
    with pytest.raises(ConfigError, match=r"between 100 and 2,000,000"):
        write_miniature(tmp_path / "new", pages=pages)
    assert not (tmp_path / "new").exists()


def test_the_site_names_its_base_and_namespaces(mini) -> None:
    site = ET.parse(mini.info.dump).getroot().find(f"{NS}siteinfo")
    assert site is not None
    assert site.findtext(f"{NS}base") == "https://miniature.invalid/wiki/Main_Page"
    spaces = {int(space.attrib["key"]): space.text or "" for space in site.iter(f"{NS}namespace")}
    assert spaces == NAMESPACES
    for title, number in mini.namespaces.items():
        assert number == 0 or title.startswith(NAMESPACES[number] + ":")


def test_redirects_reach_a_page_and_some_form_chains(mini) -> None:
    assert all(mini.follow(title) in mini.text for title in mini.redirects)
    chains = [title for title, target in mini.redirects.items() if target in mini.redirects]
    assert len(chains) >= 20


def test_titles_use_several_scripts_and_surnames_are_shared(mini) -> None:
    everything = [*mini.text, *mini.redirects]
    assert any(re.search("[α-ω]", title) for title in everything)
    assert any(re.search("[а-я]", title) for title in everything)
    assert sum(not title.isascii() for title in mini.text) > 100
    disambiguation = [title for title, text in mini.text.items() if "{{disambiguation" in text]
    assert len(disambiguation) == mini.info.counts["disambiguation"] == 50
    for title in disambiguation:
        assert sum(linked.split(" (")[0].endswith(title) for linked in mini.links(title)) >= 2


def _template(mini, entity: int):
    code = mwparserfromhell.parse(mini.text[mini.world.titles[entity]])
    wanted = mini.world.kind(entity).template.lower()
    return next(t for t in code.filter_templates() if str(t.name).strip().lower() == wanted)


def test_infoboxes_state_every_relation_and_attribute(mini) -> None:
    world, checked = mini.world, 0
    for entity in range(0, world.num_entities, 9):
        if world.stub[entity]:
            assert "Infobox" not in mini.text[world.titles[entity]]
            continue
        box = _template(mini, entity)
        for relation, target in world.relations_of(entity):
            links = [mini.follow(str(link.title)) for link in box.get(relation.key).value.filter_wikilinks()]
            assert world.titles[target] in links, (world.titles[entity], relation.key)
            checked += 1
        for attribute, value in world.attributes_of(entity):
            assert value.wikitext in str(box.get(attribute.key).value)
            checked += 1
    assert checked > 900


def test_answers_are_short_and_mostly_different(mini) -> None:
    seen: Counter[str] = Counter()
    for entity in mini.world:
        for _, value in mini.world.attributes_of(entity):
            assert 0 < len(value.plain.split()) <= 6
            seen[value.plain] += 1
    assert len(seen) / seen.total() > 0.8
    assert seen.most_common(1)[0][1] / seen.total() < 0.02


def test_marriages_hold_both_ways_and_successors_are_unique(mini) -> None:
    world = mini.world
    spouses = {e: t for e in world for r, t in world.relations_of(e) if r.key == "spouse"}
    assert len(spouses) > 100
    assert all(spouses[t] == e for e, t in spouses.items() if not world.stub[t])
    heirs = Counter(t for e in world for r, t in world.relations_of(e) if r.key == "successor")
    assert max(heirs.values()) == 1


def test_pages_contain_the_hazards_of_real_wikitext(mini) -> None:
    everything = "\n".join(mini.text.values())
    for sign in ("<!--", "<nowiki>", "<ref", "{|", "{{ubl", "{{plainlist", "{{hlist", "<br>", "<gallery", "[[Category:",
                 "[[fr:", "&nbsp;", "[https://", "{{birth date", "{{convert", "#History|", "]]n ", "{{efn"):  # fmt: skip
        assert sign in everything, sign
    red = Counter(target for text in mini.text.values() for target in re.findall(r"see \[\[([^\]|]+)\]\]", text))
    assert any(mini.follow(target) is None for target in red)


def test_file_pages_name_author_and_licence(mini) -> None:
    specs = {f"File:{spec.file}": spec for spec in mini.album.specs()}
    assert specs.keys() == mini.files.keys()
    for title, text in mini.files.items():
        assert specs[title].author in text and specs[title].licence in text and "{{Information" in text
    assert {spec.licence for spec in specs.values()} >= {"cc-by-sa-4.0", "cc0", "PD-self"}


def test_compressed_and_plain_dumps_hold_the_same_text(tmp_path: Path) -> None:
    plain = write_miniature(tmp_path / "a", pages=150, pictures=False, compress=False)
    packed = write_miniature(tmp_path / "b", pages=150, pictures=False)
    assert packed.dump.suffix == ".bz2"
    assert bz2.decompress(packed.dump.read_bytes()) == plain.dump.read_bytes()


def test_another_seed_is_another_world(tmp_path: Path) -> None:
    first, _ = plan_world(300, 0)
    second, _ = plan_world(300, 1)
    assert len(set(first.titles) & set(second.titles)) < 10


def _digest(folder: Path) -> str:
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            total.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from opensearch_vl.wiki.miniature import write_miniature; "
        "write_miniature(Path(sys.argv[1]), pages=160, seed=5, workers=1, max_pictures=30)"
    )
    digests = []
    for hash_seed in ("1", "4242"):
        out = tmp_path / hash_seed
        source = Path(__file__).parents[2] / "src"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(source)}
        subprocess.run([sys.executable, "-c", code, str(out)], check=True, env=environment)
        digests.append(_digest(out))
    assert len(list((tmp_path / "1" / "images").iterdir())) > 10
    assert digests[0] == digests[1]


def test_listing_styles_keep_every_item() -> None:
    items = ["[[A]]", "[[B|b]]", "[[C]]"]
    for style in ("br", "ubl", "plainlist", "comma", "hlist"):
        assert all(item in listing(items, style) for item in items)
        assert listing(items[:1], style) == "[[A]]"


def test_every_kind_is_used_and_tables_are_consistent() -> None:
    from opensearch_vl.wiki.miniature.kinds import FIRST_RELATION, KINDS, RELATIONS, kinds_with

    for place, kind in enumerate(KINDS):
        assert isinstance(kind, Kind)
        keys = [relation.key for relation in kind.relations] + [attribute.key for attribute in kind.attributes]
        assert len(keys) == len(set(keys)), f"{kind.name} states a key twice"
        for nth, relation in enumerate(kind.relations):
            assert RELATIONS[FIRST_RELATION[place] + nth][1] is relation
            assert kinds_with(relation.tag)
            assert all("{t}" in form for form in relation.forward + relation.backward)
    world, _ = plan_world(100, 0)
    assert set(world.kind_of) == set(range(len(KINDS)))
