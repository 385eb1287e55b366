"""Writes pages as a MediaWiki XML export (schema 0.11), the format of the dumps that every Wikipedia publishes."""

from __future__ import annotations

import bz2
import hashlib
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from opensearch_vl.wiki.miniature.support import Page

NAMESPACES = {
    -2: "Media", -1: "Special", 0: "", 1: "Talk", 2: "User", 3: "User talk", 4: "Miniature", 5: "Miniature talk",
    6: "File", 7: "File talk", 8: "MediaWiki", 9: "MediaWiki talk", 10: "Template", 11: "Template talk", 12: "Help",
    13: "Help talk", 14: "Category", 15: "Category talk", 100: "Portal", 101: "Portal talk", 118: "Draft",
    119: "Draft talk", 828: "Module", 829: "Module talk",
}  # fmt: skip
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_PAIRS = tuple(first + second for first in _DIGITS for second in _DIGITS)
_STAMP = "2021-03-03T12:00:00Z"
_XMLNS = "http://www.mediawiki.org/xml/export-0.11/"


def write_export(path: Path, pages: Iterable[Page], *, compress: bool) -> int:
    """Write the dump and return the number of pages; memory use does not grow with it."""
    number = 0
    with bz2.open(path, "wb") if compress else path.open("wb") as out:
        out.write(_header().encode())
        for number, page in enumerate(pages, start=1):
            out.write(_element(page, number).encode())
        out.write(b"</mediawiki>\n")
    return number


def _header() -> str:
    spaces = "\n".join(
        f'      <namespace key="{key}" case="first-letter" />' if not name
        else f'      <namespace key="{key}" case="first-letter">{name}</namespace>'
        for key, name in NAMESPACES.items()
    )  # fmt: skip
    return (
        f'<mediawiki xmlns="{_XMLNS}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        f'xsi:schemaLocation="{_XMLNS} http://www.mediawiki.org/xml/export-0.11.xsd" version="0.11" xml:lang="en">\n'
        "  <siteinfo>\n    <sitename>Miniature</sitename>\n    <dbname>miniature</dbname>\n"
        "    <base>https://miniature.invalid/wiki/Main_Page</base>\n"
        "    <generator>opensearch-vl miniature</generator>\n"
        f"    <case>first-letter</case>\n    <namespaces>\n{spaces}\n    </namespaces>\n  </siteinfo>\n"
    )


def _element(page: Page, number: int) -> str:
    data = page.text.encode()
    sha1 = _base36(int.from_bytes(hashlib.sha1(data, usedforsecurity=False).digest(), "big"))
    redirect = f"    <redirect title={quoteattr(page.redirect)} />\n" if page.redirect is not None else ""
    form = "text/x-wiki" if page.model == "wikitext" else "text/plain"
    return (
        f"  <page>\n    <title>{escape(page.title)}</title>\n    <ns>{page.namespace}</ns>\n    <id>{number * 3}</id>\n"
        f"{redirect}    <revision>\n      <id>{number * 3 + 1_000_000}</id>\n      <timestamp>{_STAMP}</timestamp>\n"
        "      <contributor>\n        <username>Archivist</username>\n        <id>1</id>\n      </contributor>\n"
        f"      <origin>{number * 3 + 1_000_000}</origin>\n      <model>{page.model}</model>\n"
        f"      <format>{form}</format>\n"
        f'      <text bytes="{len(data)}" sha1="{sha1}" xml:space="preserve">{escape(page.text)}</text>\n'
        f"      <sha1>{sha1}</sha1>\n    </revision>\n  </page>\n"
    )


def _base36(number: int) -> str:
    """`number` in base 36, 31 digits, as MediaWiki writes SHA-1; two digits a step."""
    out = []
    for _ in range(16):
        number, rest = divmod(number, 1296)
        out.append(_PAIRS[rest])
    return "".join(reversed(out))[1:]
