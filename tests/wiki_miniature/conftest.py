from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from opensearch_vl.wiki.miniature import MiniatureInfo, plan_world, write_miniature
from opensearch_vl.wiki.miniature.pictures.plan import Album
from opensearch_vl.wiki.miniature.world import World

NS = "{http://www.mediawiki.org/xml/export-0.11/}"
LINK = re.compile(r"\[\[([^\[\]|#]+)(?:#[^\[\]|]*)?(?:\|[^\[\]]*)?\]\]")
HIDDEN = re.compile(r"<!--.*?-->|<nowiki>.*?</nowiki>|<code>.*?</code>", re.S)


@dataclass
class Read:
    """A dump read back by the simplest means, independent of the project's reader."""

    info: MiniatureInfo
    world: World
    album: Album
    text: dict[str, str] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    namespaces: dict[str, int] = field(default_factory=dict)

    def follow(self, title: str) -> str | None:
        title = title.replace("_", " ").strip()
        title = title[:1].upper() + title[1:]
        for _ in range(4):
            if title not in self.redirects:
                return title if title in self.text else None
            title = self.redirects[title]
        return None

    def links(self, title: str) -> set[str]:
        found = {self.follow(target) for target in LINK.findall(HIDDEN.sub("", self.text[title]))}
        return {target for target in found if target is not None and target != title}


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """The default miniature, 2,000 pages, pictures not drawn."""
    out: Path = tmp_path_factory.mktemp("miniature")
    info = write_miniature(out, pages=2000, compress=False, pictures=False)
    world, _ = plan_world(2000, 0)
    read = Read(info, world, Album(world, 3000))
    for page in ET.parse(info.dump).getroot().iter(f"{NS}page"):
        title = page.findtext(f"{NS}title")
        namespace = page.findtext(f"{NS}ns")
        text = page.findtext(f"{NS}revision/{NS}text")
        assert title is not None and namespace is not None and text is not None
        assert title not in read.namespaces, f"two pages are called {title!r}"
        read.namespaces[title] = int(namespace)
        redirect = page.find(f"{NS}redirect")
        if namespace == "0" and redirect is not None:
            read.redirects[title] = redirect.attrib["title"]
            assert text.lower().startswith("#redirect [[" + redirect.attrib["title"].lower())
        elif namespace == "0":
            read.text[title] = text
        elif namespace == "6":
            read.files[title] = text
    return read
