"""The links of a page according to mwparserfromhell, to hold our scanner against."""

import mwparserfromhell
from mwparserfromhell.nodes import Comment, ExternalLink, Heading, Tag, Template, Wikilink
from mwparserfromhell.wikicode import Wikicode

from opensearch_vl.wiki.titles import Site, TargetKind
from opensearch_vl.wiki.wikitext import _DROPPED, _VERBATIM

HIDDEN = {*_DROPPED, *_VERBATIM, "gallery"}


def reference_links(wikitext: str, site: Site) -> list[str]:
    """Targets of links outside templates, references and verbatim regions, in order."""
    found: list[str] = []
    _walk(mwparserfromhell.parse(wikitext), site, found)
    return found


def _walk(code: Wikicode, site: Site, found: list[str]) -> None:
    for node in code.nodes:
        match node:
            case Wikilink():
                target = site.parse(str(node.title))
                if target.kind is TargetKind.ARTICLE:
                    found.append(target.title)
                elif node.text is not None:
                    _walk(node.text, site, found)
            case Template() | Comment():
                continue
            case Tag() if str(node.tag).strip().lower() in HIDDEN:
                continue
            case Tag() if node.contents is not None:
                _walk(node.contents, site, found)
            case Heading():
                _walk(node.title, site, found)
            case ExternalLink() if node.title is not None:
                _walk(node.title, site, found)
