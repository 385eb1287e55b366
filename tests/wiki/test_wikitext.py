import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wiki.reference import reference_links

from opensearch_vl.wiki.export import Export
from opensearch_vl.wiki.page import parse_page, redirect_target
from opensearch_vl.wiki.sentences import sentence_spans
from opensearch_vl.wiki.templates import expand, top_level
from opensearch_vl.wiki.titles import Site
from opensearch_vl.wiki.wikitext import Markup, hide

SITE = Site(lang="en", namespaces={"file": 6, "category": 14, "wikipedia": 4, "user": 2, "template": 10})
DATA = Path(os.environ.get("OSVL_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data") / "wiki-xml"


def links(text: str, site: Site = SITE) -> list[tuple[str, str]]:
    return [(link.title, link.anchor) for link in parse_page("Here", text, site).links]


def text(wikitext: str, site: Site = SITE) -> str:
    return parse_page("Here", wikitext, site).text


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("[[Bus]]", [("Bus", "Bus")]),
        ("[[bus]]es run", [("Bus", "buses")]),
        ("[[bus|coach]]es run", [("Bus", "coaches")]),
        ("[[Bus#Types|kinds]]", [("Bus", "kinds")]),
        ("[[Bus_stop]]", [("Bus stop", "Bus stop")]),
        ("[[  bus   stop ]]", [("Bus stop", "bus stop")]),
        ("[[#Types|below]]", []),
        ("[[Bus (vehicle)|]]", [("Bus (vehicle)", "Bus")]),
        ("[[File:A.jpg|thumb|A [[bus]] and [[tram|streetcar]]]]", [("Bus", "bus"), ("Tram", "streetcar")]),
        ("[[File:A.jpg|thumb|Nested [[File:B.jpg|with [[tram]]]] [[bus]]]]", [("Bus", "bus"), ("Tram", "tram")]),
        ("[[File:A.jpg|A [[bus]]|thumb|alt=a bus]]", [("Bus", "bus")]),
        ("[[Image:A.jpg]] [[Category:Buses]] [[de:Bus]] [[wikt:bus|bus]]", []),
        ("[[:Category:Buses|buses]] [[:de:Bus]] [[User:X|x]]", []),
        ("[[Star Trek: Picard]]", [("Star Trek: Picard", "Star Trek: Picard")]),
        ("<nowiki>[[Bus]]</nowiki> <!-- [[Tram]] --> <pre>[[Ship]]</pre>", []),
        ("a<ref>see [[Bus]]</ref> b<ref name=x /> [[Tram]]", [("Tram", "Tram")]),
        ("<math>[[Bus]]</math> <syntaxhighlight lang=c>a[[0]]</syntaxhighlight>", []),
        ("{{main|[[Bus]]}} [[Tram]]", [("Tram", "Tram")]),
        ("{{a|{{b|[[Bus]]}} }} {{{1|[[Ship]]}}} [[Tram]]", [("Tram", "Tram")]),
        ("{{nowrap|[[Bus]] stop}}", [("Bus", "Bus")]),
        ("{{never closed [[Bus]]", [("Bus", "Bus")]),
        ("[[never closed [[Bus]]", [("Bus", "Bus")]),
        ("[[Outer [[Bus]] text]]", [("Bus", "Bus")]),
        ("[[[Bus]]]", [("Bus", "Bus")]),
        ("[http://x.org a [[Bus]] b]", [("Bus", "Bus")]),
        ("[[Bus|''the'' '''big''' <small>one</small>]]", [("Bus", "the big one")]),
        ("[[AT&amp;T]] [[Caf%C3%A9]]", [("AT&T", "AT&T"), ("Café", "Caf%C3%A9")]),
        ("[[A<b]] [[]] [[|x]] [[a{b}]]", []),
        ("&#91;&#91;Bus]] &lsqb;&lsqb;Bus]]", []),
        ("<gallery>\nFile:A.jpg|an [[old]] bus\nB.jpg|[[new|New]] one\n</gallery>", [("Old", "old"), ("New", "New")]),
        ("{|\n! [[Head]]\n|-\n| style=x | [[Cell]] || [[Other|o]]\n|}", [("Head", "Head"), ("Cell", "Cell"), ("Other", "o")]),
        ("[[émile]] [[ÉMILE]]", [("Émile", "émile"), ("ÉMILE", "ÉMILE")]),
    ],
)  # fmt: skip
def test_links_of_a_page(wikitext: str, expected: list[tuple[str, str]]) -> None:
    assert links(wikitext) == expected


def test_trail_letters_follow_the_language() -> None:
    assert links("[[дом]]а", Site(lang="ru")) == [("Дом", "дома")]
    assert links("[[дом]]а", Site(lang="en")) == [("Дом", "дом")]
    assert links("[[日本]]人", Site(lang="ja")) == [("日本", "日本")]


def test_case_sensitive_wiki_keeps_first_letters() -> None:
    site = Site(lang="en", first_letter=False)
    assert links("[[bus]] [[Bus]]", site) == [("bus", "bus"), ("Bus", "Bus")]


def test_sentence_and_section_of_a_link() -> None:
    page = parse_page(
        "Here",
        "Lead of St. Mary by J. R. Smith. It has a [[tower]], built c. 1900. It fell.\n\n== History ==\nOnce.\n"
        "* item with [[bell]]\n=== Later ''times'' ===\nThe [[organ]]? Yes.",
        SITE,
    )
    assert [(link.title, link.section, link.sentence) for link in page.links] == [
        ("Tower", "", "It has a tower, built c. 1900."),
        ("Bell", "History", "item with bell"),
        ("Organ", "Later times", "The organ?"),
    ]


def test_prose_is_plain_paragraphs_with_headings() -> None:
    wikitext = (
        "{{Short description|x}}\n'''Here''' is ''a'' place&nbsp;( ) in [[Land]].<ref>no</ref>\nSame paragraph.\n\n"
        "[[File:A.jpg|thumb|A caption]]Next&mdash;one.<br>Line\n== Empty ==\n{{reflist}}\n==Full==\n# one\n# two\n\n"
        "{| class=x\n|+ Title\n! a !! b\n|-\n| 1 || 2\n|}\n----\nEnd __NOTOC__ {{convert|5|–|6|km|mi}} {{unknown|x}}.\n[[Category:X]]"
    )
    assert text(wikitext) == (
        "Here is a place in Land. Same paragraph.\n\nNext—one. Line\n\nA caption\n\n== Full ==\n\none\ntwo\n\nTitle\na | b\n1 | 2\n\nEnd 5–6 km."
    )  # fmt: skip


def test_marks_in_the_input_cannot_forge_links() -> None:
    forged = "\ue0000\ue001Bus\ue002 [[Tram]] \ue0035\ue004 &#xE000;0&#xE001;x&#xE002;"
    assert links(forged) == [("Tram", "Tram")]
    assert "\ue000" not in text(forged)


def test_nested_templates_and_runs_of_braces() -> None:
    assert [call.name for call in top_level("{{a|{{b}}}} x {{{1}}} {{ c_d |e}} }} {{")] == ["a", "", "c d"]
    assert (
        expand("{{birth date|1931|5|15}} {{lang|fr|la ''mer''}} {{small|{{circa|1900}}}} {{x}}")
        == "15 May 1931 la ''mer'' c. 1900 "
    )


@pytest.mark.parametrize(
    ("code", "text", "target"),
    [
        ("en", "#REDIRECT [[bus stop#x]]", "Bus stop"),
        ("de", "#WEITERLEITUNG [[Bus]] x", "Bus"),
        ("ru", "#перенаправление: [[Автобус]]", "Автобус"),
        ("fr", "#REDIRECT[[Bus]]", "Bus"),
        ("en", "#REDIRECT [[Category:Buses]]", ""),
        ("en", "#REDIRECTED is a film", None),
        ("en", "Text #REDIRECT [[Bus]]", None),
        ("xx", "#WEITERLEITUNG [[Bus]]", None),
    ],
)
def test_redirect_lines(code: str, text: str, target: str | None) -> None:
    assert redirect_target(text, Site(lang=code)) == target


BUILDERS = {
    "braces": "{{" * 100_000,
    "closed braces": "{{" * 50_000 + "}}" * 50_000,
    "rendered templates": "{{nowrap|" * 30_000 + "}}" * 30_000,
    "infobox braces": "{{Infobox x\n|a=" + "{{b|" * 20_000 + "}}" * 20_000 + "}}",
    "infobox brackets": "{{Infobox x\n|a=" + "[[" * 20_000 + "\n|b=" + "{{" * 20_000 + "\n}}",
    "infobox many keys": "{{Infobox x\n" + "|k=[[A]], [[B]]<br>\n" * 4_000 + "}}",
    "brackets": "[[" * 1_000_000,
    "named brackets": "[[a|" * 300_000,
    "closed brackets": "[[a|" * 100_000 + "]]" * 100_000,
    "files": "[[File:a|" * 100_000 + "]]" * 100_000,
    "long target": "[[" + "a" * 2_000_000 + "]]",
    "spaces in a pipe trick": "[[a" + " " * 500_000 + "b|]]",
    "unclosed comments": "<!-- a " * 200_000,
    "unclosed refs": "<ref>a " * 200_000,
    "unclosed tags": "<ref " * 200_000 + "<nowiki" * 100_000,
    "angle brackets": "<a" * 500_000,
    "quotes": "'" * 500_000 + "''a" * 200_000,
    "punctuation": "[[a]] " + "." * 500_000 + "x" + "!\"" * 200_000,
    "headings": "=" * 500_000 + "\n" + "= " * 200_000 + "x",
    "entities": "&" * 300_000 + "&#99999999;" * 50_000 + "&" + "a" * 300_000,
    "tables": "{|\n" * 100_000 + "|\n" * 100_000,
    "cells": "{|\n|" + "||" * 300_000 + "!!" * 300_000,
    "links in one sentence": "word [[a]] " * 50_000,
    "external": "[http://" * 200_000 + "[//x " * 200_000,
    "lists": "*" * 500_000 + "\n" + "*\n" * 200_000,
    "parentheses": "(" * 500_000 + " " * 500_000 + "(,;" * 200_000,
    "digits in a caption": "[[File:a.png|" + "1" * 500_000 + "]]",
    "capitals": "__" + "A" * 500_000 + "_" * 500_000,
    "nothing": "\0\x01" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDERS)
def test_hostile_pages_take_linear_time(name: str) -> None:
    started = time.process_time()
    parse_page("Here", BUILDERS[name], SITE)
    assert time.process_time() - started < 6.0


def test_ten_megabytes_of_open_brackets() -> None:
    started = time.process_time()
    parse_page("Here", "[[" * 5_000_000, SITE)
    assert time.process_time() - started < 60.0


PIECES = st.sampled_from(
    ["[[", "]]", "{{", "}}", "|", "a", "Bus", " ", "\n", "'''", "''", "<ref>", "</ref>", "<nowiki>", "</nowiki>", "<!--", "-->", "==", "{|", "|}",
     "|-", "*", "File:", "Category:", "#", "&amp;", "&#91;", "infobox x", "=", "<br>", "<gallery>", "</gallery>", "é", "[http://x ", "]", "\ue000", "__TOC__", "<"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=60).map("".join))
def test_any_page_parses_and_leaves_no_marks(wikitext: str) -> None:
    page = parse_page("Here", wikitext, SITE)
    everything = [
        page.text,
        *page.names,
        *(link.anchor + link.sentence for link in page.links),
        *(item.value for item in page.infobox.items),
    ]
    assert not any(ch in part for part in everything for ch in "\ue000\ue001\ue002\ue003\ue004")
    assert all(link.anchor.strip() for link in page.links)


TITLES = st.sampled_from(["Bus", "tram line", "Émile", "Rēzne (upe)", "日本", "A&B", "X: y"])
ANCHORS = st.sampled_from(["", "shown", "''it''", "two words", "a'b"])
LINKS = st.builds(lambda title, anchor: f"[[{title}|{anchor}]]" if anchor else f"[[{title}]]", TITLES, ANCHORS)


def _wrap(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("[[File:A b.jpg|thumb|{} cap]]".format, inner),
        st.builds("{{{{tpl|{}|x={}}}}}".format, inner, inner),
        st.builds(
            "<ref>{}</ref>".format, LINKS
        ),  # MediaWiki ends a reference at the first </ref>, mwparserfromhell nests them
        st.builds("<!-- {} -->".format, LINKS),
        st.builds("'''{}'''".format, inner),
        st.builds("<div>{}</div>".format, inner),
        st.builds("<nowiki>{}</nowiki>".format, LINKS),
        st.builds("{} and {}".format, inner, inner),
        st.builds("\n== {} ==\n* {}\n".format, LINKS, inner),
        st.builds("\n{{|\n! a\n|-\n| {} || {}\n|}}\n".format, LINKS, LINKS),
    )


PAGES = st.lists(st.recursive(LINKS, _wrap, max_leaves=6), max_size=6).map(" prose. ".join)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(PAGES)
def test_the_scanner_agrees_with_mwparserfromhell_on_generated_pages(wikitext: str) -> None:
    assert sorted(_all_links(wikitext, SITE)) == sorted(reference_links(wikitext, SITE))


def _all_links(wikitext: str, site: Site) -> list[str]:
    """Links of every kind that the scanner marks, templates dropped whole as the reference does."""
    source = hide(wikitext)
    for call in reversed(list(top_level(source))):
        source = source[: call.start] + source[call.end :]
    markup = Markup(site)
    markup.link(source)
    return [anchor.title for anchor in markup.anchors]


@pytest.mark.skipif(not DATA.is_dir(), reason="real dumps are not here")
@pytest.mark.parametrize("file", ["ltgwiki-201709-pages-articles.xml.bz2", "gensim/enwiki-table-markup.xml.bz2"])
def test_the_scanner_agrees_with_mwparserfromhell_on_real_pages(file: str) -> None:
    export = Export(DATA / file)
    agreed = expected = 0
    for number, page in enumerate(export):
        if page.namespace != 0 or page.redirect is not None or not page.text or number % 4:
            continue
        reference = reference_links(page.text, export.site)
        ours = _all_links(page.text, export.site)
        for title in reference:
            expected += 1
            if title in ours:
                ours.remove(title)
                agreed += 1
    assert expected > 200
    assert agreed / expected > 0.995


def test_sentences_cover_the_text_in_order() -> None:
    text = "Dr. A. Smith came at 5 p.m. and left. “Why?” Nobody knew! 東京。大阪。"
    spans = sentence_spans(text)
    assert "".join(text[a:b] for a, b in spans) == text
    assert [text[a:b].strip() for a, b in spans] == [
        "Dr. A. Smith came at 5 p.m. and left.",
        "“Why?”",
        "Nobody knew!",
        "東京。",
        "大阪。",
    ]


def test_a_number_with_a_full_stop_is_an_ordinal_in_some_languages() -> None:
    text = "Er starb am 3. Mai 1900. Danach nichts."
    assert [text[a:b].strip() for a, b in sentence_spans(text, "de")] == ["Er starb am 3. Mai 1900.", "Danach nichts."]
    assert len(sentence_spans("He was 54. Then nothing.", "en")) == 2


@pytest.mark.parametrize(
    "option", ["rahmenlos", "Vignette", "справа", "サムネイル", "x200px", "300 px", "alternativtext=Ein Bus", "upright"]
)
def test_picture_options_of_any_language_are_no_captions(option: str) -> None:
    assert text(f"Text [[Datei:A.jpg|mini|{option}]]", Site(lang="de")) == "Text"
    assert text(f"Text [[Datei:A.jpg|{option}|Ein Bus]]", Site(lang="de")) == "Text\n\nEin Bus"


@given(st.text(max_size=300))
def test_sentences_always_cover_the_text(text: str) -> None:
    spans = sentence_spans(text)
    assert "".join(text[a:b] for a, b in spans) == text


def test_a_very_long_sentence_is_cut() -> None:
    assert max(b - a for a, b in sentence_spans("word " * 5_000)) <= 1_000
