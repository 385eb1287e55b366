"""One page: wikitext in, everything the tables need out. A pure function, so pages can be read in any process."""

from __future__ import annotations

from dataclasses import dataclass

from opensearch_vl.wiki.domain import domain_of
from opensearch_vl.wiki.infobox import Infobox, find_infoboxes, read_infoboxes
from opensearch_vl.wiki.language import language
from opensearch_vl.wiki.prose import ProseLink, prose
from opensearch_vl.wiki.schema import INFOBOX_SECTION, Domain, Kind
from opensearch_vl.wiki.templates import Template, expand, top_level
from opensearch_vl.wiki.titles import Site, TargetKind
from opensearch_vl.wiki.wikitext import Markup, bold_names, hide, tidy

_MAX_NAMES = 6  # bold names kept per page


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """What one page holds. Links name normalised titles; nothing is resolved yet.

    Attributes:
        text: Plain prose.
        names: Bold names in the lead.
        files: Pictures in the order of the page, infobox pictures left out.
        num_file_links: Distinct pictures the page shows, infobox included.
    """

    kind: Kind
    domain: Domain
    text: str
    infobox: Infobox
    links: tuple[ProseLink, ...]
    names: tuple[str, ...]
    files: tuple[str, ...]
    num_file_links: int


def parse_page(title: str, wikitext: str, site: Site) -> ParsedPage:
    """Read a page. Never raises on any input; time is linear in its length."""
    tables = language(site.lang)
    source = hide(wikitext)
    calls = list(top_level(source))
    boxes = find_infoboxes(source, calls, tables)
    infobox = read_infoboxes(source, boxes, site) if boxes else Infobox()
    markup = Markup(site)
    marked = markup.link(_without(source, boxes))
    names = bold_names(marked.partition("\n==")[0])
    body = prose(tidy(marked), markup)
    files = tuple(dict.fromkeys(file for file in markup.files if file not in infobox.files))
    kind = _kind(title, source, calls, site)
    links = (
        *(ProseLink(link.title, link.anchor, f"{link.key}: {link.value}", INFOBOX_SECTION) for link in infobox.links),
        *body.links,
    )
    return ParsedPage(
        kind=kind,
        domain=domain_of(infobox.type, {item.key for item in infobox.items}) if kind == "article" else "",
        text=body.text,
        infobox=infobox,
        links=links,
        names=tuple(name for name in names if name.casefold() != title.casefold())[:_MAX_NAMES],
        files=files,
        num_file_links=len({*files, *infobox.files}),
    )


def _without(source: str, boxes: list[Template]) -> str:
    pieces: list[str] = []
    place = 0
    for box in boxes:
        pieces.append(source[place : box.start])
        place = box.end
    pieces.append(source[place:])
    return expand("".join(pieces))


def _kind(title: str, source: str, calls: list[Template], site: Site) -> Kind:
    tables = language(site.lang)
    names = {call.name for call in calls}
    if names & tables.disambiguation or "__DISAMBIG__" in source or title.endswith(tables.disambiguation_suffix):
        return "disambiguation"
    if names & tables.set_index or tables.is_list_title(title):
        return "list"
    return "article"


def redirect_target(text: str, site: Site) -> str | None:
    """Target of a ``#REDIRECT [[…]]`` first line; None if the text is no redirect. Empty if its target is no article.

    Only for exports that lack the `<redirect>` element.
    """
    opening = text.lstrip()[:400]
    lowered = opening.lower()
    word = next((word for word in language(site.lang).redirect if lowered.startswith(word)), None)
    if word is None:
        return None
    rest = opening[len(word) :].lstrip(" \t:").lstrip()
    if not rest.startswith("[["):
        return None
    target = site.parse(rest[2:].partition("]]")[0].partition("|")[0])
    return target.title if target.kind is TargetKind.ARTICLE else ""
