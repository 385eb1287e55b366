"""A small encyclopedia in memory with the shape of `wiki.tables.WikiFolder`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from opensearch_vl.images import ImageStore
from opensearch_vl.types import ImageRef


@dataclass(frozen=True)
class Row:
    page_id: int
    title: str


@dataclass(frozen=True)
class Item:
    key: str
    value: str


@dataclass(frozen=True)
class Picture:
    page_id: int
    file: str
    ref: ImageRef
    licence: str = "CC0"
    author: str = ""
    ord: int = 0


@dataclass
class FakePage:
    title: str
    text: str = ""
    infobox: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    pictures: dict[str, Image.Image] = field(default_factory=dict)


class FakeWiki:
    def __init__(self, pages: Sequence[FakePage], root: Path, lang: str = "en") -> None:
        self._pages = list(pages)
        self.images = ImageStore(root / "images")
        self.meta: Mapping[str, Any] = {"lang": lang}
        self._refs = [{file: self.images.put(picture) for file, picture in page.pictures.items()} for page in pages]

    def __len__(self) -> int:
        return len(self._pages)

    def pages(self) -> Iterator[Row]:
        return (Row(number, page.title) for number, page in enumerate(self._pages))

    def page(self, page_id: int) -> Row:
        return Row(page_id, self._pages[page_id].title)

    def resolve(self, title: str) -> int | None:
        wanted = title.replace("_", " ").strip()
        for number, page in enumerate(self._pages):
            if wanted == page.title or wanted in page.aliases:
                return number
        return None

    def url(self, page_id: int) -> str:
        return "https://fake.invalid/wiki/" + self._pages[page_id].title.replace(" ", "_")

    def page_at(self, url: str) -> int | None:
        prefix = "https://fake.invalid/wiki/"
        return self.resolve(url.removeprefix(prefix)) if url.startswith(prefix) else None

    def infobox(self, page_id: int) -> Sequence[Item]:
        return tuple(Item(key, value) for key, value in self._pages[page_id].infobox.items())

    def document(self, page_id: int) -> str:
        lines = [f"{i.key.replace('_', ' ').capitalize()}: {i.value}" for i in self.infobox(page_id)]
        return "\n\n".join(part for part in ("\n".join(lines), self._pages[page_id].text) if part)

    def aliases(self, page_id: int) -> Sequence[str]:
        return self._pages[page_id].aliases

    def page_images(self, page_id: int) -> Sequence[Picture]:
        refs = self._refs[page_id].items()
        return tuple(Picture(page_id, file, ref, ord=number) for number, (file, ref) in enumerate(refs))
