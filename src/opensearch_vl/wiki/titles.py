"""Titles and namespaces: what a link target means on the wiki that it was written on.

The namespace names, the letter-case rule and the address prefix come from the export's `<siteinfo>`; the canonical
English names hold on every wiki beside the localised ones (MediaWiki manual, "Namespace" and "Page title").
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from urllib.parse import quote, unquote, urlsplit

from opensearch_vl.wiki.language import interwiki_prefixes, read_data

FILE, CATEGORY, MAIN = 6, 14, 0

CANONICAL_NAMESPACES: dict[str, int] = {
    "media": -2, "special": -1, "talk": 1, "user": 2, "user talk": 3, "project": 4, "project talk": 5, "file": 6,
    "file talk": 7, "image": 6, "image talk": 7, "mediawiki": 8, "mediawiki talk": 9, "template": 10,
    "template talk": 11, "help": 12, "help talk": 13, "category": 14, "category talk": 15,
}  # fmt: skip
"""Names that every MediaWiki understands, whatever its language."""

EXTRA_NAMESPACES: dict[str, int] = {
    "wikipedia": 4, "wp": 4, "wikipedia talk": 5, "wt": 5, "portal": 100, "portal talk": 101, "draft": 118,
    "draft talk": 119, "timedtext": 710, "module": 828, "module talk": 829,
}  # fmt: skip
"""Namespaces of Wikipedias that a cut-down export may leave out of its `<siteinfo>`."""

_SPACES = re.compile(r"[\s_\u00a0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_FORBIDDEN = re.compile(r"[\[\]{}|<>\x00-\x1f\x7f\ufffd]")
MAX_TITLE_BYTES = 255  # MediaWiki refuses longer ones
_TURKIC = frozenset({"tr", "az", "kaa"})


class TargetKind(Enum):
    """What a link points at."""

    ARTICLE = "article"
    SECTION = "section"  # of the same page
    FILE = "file"
    CATEGORY = "category"
    NAMESPACE = "namespace"
    INTERWIKI = "interwiki"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed link target.

    Attributes:
        title: Normalised, without its namespace; empty for sections and invalid targets.
        colon: Whether it was written with a leading colon, which makes a file or category an ordinary link.
    """

    kind: TargetKind
    title: str = ""
    colon: bool = False


@dataclass(frozen=True)
class Site:
    """The facts of `<siteinfo>` that reading needs.

    Attributes:
        name: Name of the wiki.
        lang: Language code of the content (`en`, `ltg`).
        base: Address prefix of pages; a title with underscores is appended.
        first_letter: Whether titles begin with a capital whatever was typed (`<case>first-letter</case>`).
        namespaces: Lower-case namespace name → number, localised names only.
        main_page: Title of the main page, which is no article though it lies among them; empty if unknown.
    """

    name: str = ""
    lang: str = "en"
    base: str = "https://wiki.invalid/wiki/"
    first_letter: bool = True
    namespaces: Mapping[str, int] = field(default_factory=dict)
    main_page: str = ""

    def namespace(self, name: str) -> int | None:
        """Number of the namespace called `name`, or None."""
        key = _SPACES.sub(" ", name).strip().lower()
        for table in (self.namespaces, CANONICAL_NAMESPACES, EXTRA_NAMESPACES):
            if key in table:
                return table[key]
        return other_names().get(key)

    def normalise(self, title: str) -> str:
        """A title as MediaWiki stores it: single spaces, NFC, first letter by the site's rule. May be empty."""
        if not title.isascii():
            title = unicodedata.normalize("NFC", _INVISIBLE.sub("", title))
        title = _SPACES.sub(" ", title).strip(" ")
        return self._upper_first(title) if self.first_letter else title

    def _upper_first(self, title: str) -> str:
        first = title[:1]
        if not first or "\u10d0" <= first <= "\u10ff":  # MediaWiki leaves Georgian as it is
            return title
        upper = "İ" if first == "i" and self.lang in _TURKIC else first.upper()
        return upper + title[1:] if len(upper) == 1 else title

    def parse(self, target: str) -> Target:
        """What `[[target]]` points at; `target` is what stands before the first pipe."""
        if "&" in target:
            target = html.unescape(target)
        if "%" in target:
            target = unquote(target, errors="replace")
        text, hash_sign, _ = target.partition("#")
        text = text.strip().replace("_", " ").strip()
        colon = text.startswith(":")
        if colon:
            text = text[1:].strip()
        if not text:
            return Target(TargetKind.SECTION if hash_sign else TargetKind.INVALID)
        if _FORBIDDEN.search(text):
            return Target(TargetKind.INVALID)
        prefix, has_prefix, rest = text.partition(":")
        if has_prefix:
            number = self.namespace(prefix)
            if number is not None and number != MAIN:
                kind = {FILE: TargetKind.FILE, CATEGORY: TargetKind.CATEGORY}.get(number, TargetKind.NAMESPACE)
                return Target(kind, file_name(rest) if number == FILE else self.normalise(rest), colon)
            if prefix.strip().lower() in interwiki_prefixes():
                return Target(TargetKind.INTERWIKI, rest.strip(), colon)
        title = self.normalise(text)
        if not title or len(title.encode("utf-8", "replace")) > MAX_TITLE_BYTES:
            return Target(TargetKind.INVALID)
        return Target(TargetKind.ARTICLE, title, colon)

    def url(self, title: str) -> str:
        """Address of a page."""
        return self.base + quote(title.replace(" ", "_"), safe="/:@!$*(),;'~-._")

    def title_at(self, url: str) -> str | None:
        """The normalised title that an address of this wiki names; None for any other address."""
        try:
            theirs, ours = urlsplit(url.strip()), urlsplit(self.base)
        except ValueError:
            return None
        if theirs.scheme not in ("http", "https") or theirs.netloc.lower() != ours.netloc.lower():
            return None
        place = theirs.path + (f"?{theirs.query}" if ours.query else "")
        prefix = ours.path + (f"?{ours.query}" if ours.query else "")
        if not place.startswith(prefix):
            return None
        return self.normalise(unquote(place[len(prefix) :], errors="replace")) or None


@cache
def other_names() -> dict[str, int]:
    """Names of the File and Category namespaces that an export does not tell, of all languages together."""
    data = read_data("languages")
    return {**dict.fromkeys(data["file_names"], FILE), **dict.fromkeys(data["category_names"], CATEGORY)}


def file_name(name: str) -> str:
    """The name of a picture without its namespace; these begin with a capital on every wiki."""
    return Site().normalise(name)


def main_page(address: str) -> str:
    """Title of the main page from its address (`<base>`)."""
    return unquote(address.removeprefix(base_prefix(address)), errors="replace").replace("_", " ") if address else ""


def base_prefix(address: str) -> str:
    """Prefix of page addresses from the address of the main page (`<base>`)."""
    for mark in ("?title=", "/wiki/", "/index.php/"):
        head, found, _ = address.partition(mark)
        if found:
            return head + found
    head, slash, _ = address.rpartition("/")
    return head + slash if slash and not head.endswith("/") else address.rstrip("/") + "/"
