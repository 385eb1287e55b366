"""Fakes at the protocols that tools stand on; shared by the tests of tools, server and toolbox."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from opensearch_vl.images import ImageBank, ImageStore
from opensearch_vl.protocols import Page, Passage, TextBlock, ToolContext, VisualMatch


@dataclass
class FakeSearch:
    passages: list[Passage] = field(default_factory=list)
    name: str = "fake-search"
    error: Exception | None = None
    calls: list[tuple[str, int, str]] = field(default_factory=list)

    async def search(self, query: str, top_k: int, lang: str = "en") -> list[Passage]:
        self.calls.append((query, top_k, lang))
        if self.error:
            raise self.error
        return self.passages


@dataclass
class FakeIndex:
    matches: list[VisualMatch] = field(default_factory=list)
    name: str = "fake-index"
    seen: list[bytes] = field(default_factory=list)

    async def search(self, image: bytes, top_k: int) -> list[VisualMatch]:
        self.seen.append(image)
        return self.matches


@dataclass
class FakeSummariser:
    name: str = "fake-summariser"
    error: Exception | None = None
    empty: bool = False

    async def summarise(self, page: Page, query: str, max_sentences: int = 4) -> str:
        if self.error:
            raise self.error
        return "" if self.empty else f"About {query}: {page.text}"


@dataclass
class FakeReader:
    pages: dict[str, Page | Exception] = field(default_factory=dict)
    name: str = "fake-reader"

    async def read(self, url: str) -> Page:
        found = self.pages[url]
        if isinstance(found, Exception):
            raise found
        return found


@dataclass
class FakeOcr:
    blocks: list[TextBlock] = field(default_factory=list)
    name: str = "fake-ocr"
    flags: list[tuple[bool, bool]] = field(default_factory=list)

    async def read(self, image: bytes, *, orient: bool = False, charts: bool = False) -> list[TextBlock]:
        self.flags.append((orient, charts))
        await asyncio.sleep(0)
        return self.blocks


@dataclass
class NearestUpscaler:
    name: str = "nearest"
    describes: str = "nearest-neighbour copying"

    def upscale(self, image: Image.Image, scale: int) -> Image.Image:
        return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)


def picture(width: int = 320, height: int = 200, seed: int = 0) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (max(height // 8, 2), max(width // 8, 2), 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def context(root: Path, *pictures: Image.Image) -> ToolContext:
    store = ImageStore(root)
    return ToolContext(ImageBank(tuple(store.put(p) for p in pictures or (picture(),))), store)
