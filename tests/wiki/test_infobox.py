import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensearch_vl.wiki.domain import domain_of
from opensearch_vl.wiki.export import Export
from opensearch_vl.wiki.infobox import find_infoboxes, parameters, parsed_parameters
from opensearch_vl.wiki.language import language
from opensearch_vl.wiki.page import parse_page
from opensearch_vl.wiki.templates import top_level
from opensearch_vl.wiki.titles import Site
from opensearch_vl.wiki.wikitext import hide

DATA = Path(os.environ.get("OSVL_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data") / "wiki-xml"
SITE = Site(lang="en", namespaces={"file": 6})


def items(value: str) -> list[tuple[str, str]]:
    box = parse_page("Here", f"{{{{Infobox person\n| name = Here\n| Key One = {value}\n}}}}\nText.", SITE).infobox
    return [(item.value, item.target) for item in box.items if item.key == "key_one"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", [("plain", "")]),
        ("[[Paris]]", [("Paris", "Paris")]),
        ("[[Paris|the city]]", [("the city", "Paris")]),
        ("''[[Hamlet]]'' (1600)", [("Hamlet (1600)", "Hamlet")]),
        ("12 km from [[Paris]]", [("12 km from Paris", "")]),
        ("[[A]]<br>[[B]]<br/>c", [("A", "A"), ("B", "B"), ("c", "")]),
        ("[[A]], [[B]], and [[C]]", [("A", "A"), ("B", "B"), ("C", "C")]),
        ("[[Essendon, Victoria|Essendon]], Victoria", [("Essendon, Victoria", "Essendon, Victoria")]),
        ("{{plainlist|\n* [[A]]\n* b\n}}", [("A", "A"), ("b", "")]),
        ("\n* [[A]]\n* b", [("A", "A"), ("b", "")]),
        ("{{ubl|[[A]]|b}}", [("A", "A"), ("b", "")]),
        ("{{Unbulleted list|[[A]]|b}}", [("A", "A"), ("b", "")]),
        ("{{hlist|a|[[B]]}}", [("a", ""), ("B", "B")]),
        ("{{birth date|1931|5|15}}", [("15 May 1931", "")]),
        ("{{Birth date and age|df=yes|1931|05|15}}", [("15 May 1931", "")]),
        ("{{death date and age|1990|1|2|1931|5|15}}", [("2 January 1990", "")]),
        ("{{start date|1889}}", [("1889", "")]),
        ("{{convert|12.5|m|ft}}", [("12.5 m", "")]),
        ("{{circa|1900}}", [("c. 1900", "")]),
        ("{{marriage|[[Bob]]|1992|2006}}", [("Bob", "Bob")]),
        ("{{flag|France}}", [("France", "France")]),
        ("{{nowrap|[[A]] {{small|(x)}}}}", [("A (x)", "A")]),
        ("{{unknown|x}}", []),
        ("a &amp; b&nbsp;c", [("a & b c", "")]),
        ("<!-- none -->", []),
        ("x<ref>[[Y]]</ref>", [("x", "")]),
        ("[[File:Flag.svg|20px]] [[France]]", [("France", "France")]),
        ("1 {{=}} 2", [("1 = 2", "")]),
        ("[[broken", [("[[broken", "")]),
    ],
)
def test_values(value: str, expected: list[tuple[str, str]]) -> None:
    assert items(value) == expected


def test_repeated_keys_number_on_and_empty_ones_vanish() -> None:
    box = parse_page(
        "Here", "{{Infobox x|a=1<br>2|b=|image=A b.png|image_size=9|caption=[[C]]|native_name={{lang|fr|Ici}}}}", SITE
    ).infobox
    assert [(i.key, i.value, i.ord) for i in box.items] == [("a", "1", 0), ("a", "2", 1), ("native_name", "Ici", 0)]
    assert box.files == ("A b.png",)
    assert box.type == "x"


def test_embedded_infoboxes_are_read_too() -> None:
    nested = "{{Infobox person|name=Here|a=[[A]]{{Infobox officeholder|embed=yes|office=[[Mayor]]}}|module={{Infobox scientist|embed=yes|field=[[Law]]}}}}"
    box = parse_page("Here", nested, SITE).infobox
    assert box.type == "person"
    assert [(i.key, i.value, i.target) for i in box.items] == [
        ("name", "Here", ""),
        ("a", "A", "A"),
        ("office", "Mayor", "Mayor"),
        ("field", "Law", "Law"),
    ]


def test_links_in_the_infobox() -> None:
    page = parse_page("Here", "{{Infobox x\n|architect=[[Ann|A.]] and [[Bob]]\n}}\n'''Here''' is by [[Ann]].", SITE)
    assert [(k.title, k.anchor, k.sentence, k.section) for k in page.links] == [
        ("Ann", "A.", "architect: A. and Bob", "infobox"),
        ("Bob", "Bob", "architect: A. and Bob", "infobox"),
        ("Ann", "Ann", "Here is by Ann.", ""),
    ]
    assert "architect" not in page.text


@pytest.mark.parametrize(
    "value",
    [
        "image = Nice view.JPG",
        "image = File:nice view.JPG",
        "image = [[File:Nice_view.JPG|250px]]",
        "photo = {{small|[[Image:nice view.JPG]]}}",
    ],
)
def test_infobox_pictures(value: str) -> None:
    page = parse_page("Here", f"{{{{Infobox x|{value}}}}} [[File:Other.png|thumb]] [[File:Nice view.JPG]]", SITE)
    assert page.infobox.files == ("Nice view.JPG",)
    assert page.files == ("Other.png",)
    assert page.num_file_links == 2


@pytest.mark.parametrize(
    ("wikitext", "kind"),
    [
        ("{{Taxobox|genus=x}}", "taxobox"),
        ("{{Speciesbox\n|taxon=X y}}", "speciesbox"),
        ("{{Short description|x}}\n{{Ort\n| a = 1\n| b = 2\n| c = 3\n}}\nText", "ort"),
        ("Text first.\n{{Ort\n| a = 1\n| b = 2\n| c = 3\n}}", ""),
        ("{{Cite book\n| a = 1\n| b = 2\n| c = 3\n}}\nText", ""),
        ("{{Ort\n| a = 1\n| b = \n| c = \n}}\nText", ""),
        ("{{Military person infobox|a=1}}", "military person"),
    ],
)
def test_what_is_an_infobox(wikitext: str, kind: str) -> None:
    assert parse_page("Here", wikitext, SITE).infobox.type == kind


@pytest.mark.parametrize(
    "code, wikitext",
    [
        ("pt", "{{Info/Biografia|nome=x}}"),
        ("es", "{{Ficha de persona|nombre=x}}"),
        ("pl", "{{Biogram infobox|a=x}}"),
        ("ja", "{{基礎情報 国|a=x}}"),
        ("ltg", "{{Infoskreine Kolns|a=x}}"),
    ],
)
def test_infobox_names_by_language(code: str, wikitext: str) -> None:
    assert parse_page("Here", wikitext, Site(lang=code)).infobox.items
    assert not parse_page("Here", wikitext, Site(lang="xx")).infobox.items or code == "pl"


def test_an_oversized_infobox_is_skipped_and_says_so() -> None:
    page = parse_page("Here", "{{Infobox x|a=" + "y" * 200_000 + "}} Text.", SITE)
    assert (page.infobox.skipped, page.infobox.items, page.text) == ("infobox_too_long", (), "Text.")
    assert (
        parse_page("Here", "{{Infobox x|a=" + "{{b|" * 50 + "}}" * 50 + "}}", SITE).infobox.skipped
        == "infobox_nested_too_deeply"
    )


@pytest.mark.parametrize(
    ("kind", "keys", "domain"),
    [
        ("person", (), "Person"),
        ("military person", (), "Person"),
        ("football biography 2", (), "Person"),
        ("settlement", (), "Location"),
        ("uk place", (), "Location"),
        ("river", (), "Location"),
        ("museum building", (), "Building"),
        ("zoo", (), "Building"),
        ("bridge", (), "Building"),
        ("speciesbox", (), "Organism"),
        ("taxobox", (), "Organism"),
        ("dog breed", (), "Organism"),
        ("artifact", (), "Artifact"),
        ("artwork", (), "Artifact"),
        ("company", ("location",), ""),
        ("football club", (), ""),
        ("album", (), ""),
        ("musical artist", ("birth_date", "birth_place"), "Person"),
        ("musical artist", ("origin",), ""),
        ("unheard of", ("birth_date", "spouse"), "Person"),
        ("unheard of", ("architect", "floor_count"), "Building"),
        ("unheard of", ("colour",), ""),
        ("", ("birth_date",), ""),
        ("latvejis nūvods", (), "Location"),
    ],
)
def test_domains(kind: str, keys: tuple[str, ...], domain: str) -> None:
    assert domain_of(kind, keys) == domain


PIECES = st.sampled_from(
    ["a", " = ", "=", " ", "[[A]]", "[[A|b=c]]", "{{x|y=1|z}}", "{{x|[[B|c]]}}", "<br>", "<br />", "<b>", "''", "[http://x y]", "{{{1|d}}}", "é", "==", "*", "\n", "<"]
)  # fmt: skip
VALUES = st.lists(PIECES, max_size=8).map("".join)
NAMED = st.builds(
    "{}{} {}={}".format,
    st.sampled_from(["|", "\n|", "\n | "]),
    st.sampled_from(["a", "key_1", "Key two", "", "é", "2"]),
    st.just(""),
    VALUES,
)
POSITIONAL = st.builds("|{}".format, st.sampled_from(["", "a", "[[A|b=c]]", "{{x|y=1}}", "a [[b]]"]))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(st.one_of(NAMED, POSITIONAL), max_size=8).map(lambda parts: "{{Infobox x" + "".join(parts) + "}}"))
def test_the_short_cut_agrees_with_mwparserfromhell(source: str) -> None:
    slow = [
        (re.sub(r"[\s_]+", "_", name.strip().lower()).strip("_"), value) for name, value in parsed_parameters(source)
    ]
    expected = [(key, value) for key, value in slow if re.fullmatch(r"[^\W_][\w .()/\-]{0,59}", key)]
    assert parameters(source) == expected


@pytest.mark.skipif(not DATA.is_dir(), reason="real dumps are not here")
def test_the_short_cut_agrees_on_real_infoboxes() -> None:
    export = Export(DATA / "ltgwiki-201709-pages-articles.xml.bz2")
    compared = 0
    for page in export:
        if page.namespace != 0 or not page.text:
            continue
        text = hide(page.text)
        for call in find_infoboxes(text, list(top_level(text)), language("ltg")):
            source = text[call.start : call.end]
            slow = {
                re.sub(r"[\s_]+", "_", name.strip().lower()).strip("_"): value
                for name, value in parsed_parameters(source)
            }
            assert {key: value for key, value in parameters(source) if key in slow} == {
                key: slow[key] for key, _ in parameters(source)
            }
            compared += 1
    assert compared > 200
