"""Source-anchored grounding: a picture of the *anchor*, never of the answer (paper, section 3.4).

Up to eight pictures of the anchor's page are ranked by their similarity to a short description of it when a
CLIP-class embedder is at hand (threshold 0.28); otherwise the infobox picture comes first and the provenance says
that no similarity was measured. What identifies the anchor is noted, its appearance or lettering that OCR can read; a
picture that neither its look nor its lettering tells apart from others is turned away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal

import numpy as np

from opensearch_vl.images import decode, encode_png
from opensearch_vl.protocols import ImageEmbedder, ImageIndex, OcrEngine, Upscaler
from opensearch_vl.questions.facts import Facts, display_name
from opensearch_vl.questions.phrases import noun
from opensearch_vl.questions.repairs import REPAIR, RepairTool, repair
from opensearch_vl.questions.settings import AnchorSettings
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.text import words
from opensearch_vl.types import ImageRef, PictureSource
from opensearch_vl.wiki.tables import PageImage

_MIN_LETTERS = 4
"""Shorter names must be read exactly, as a token of their own."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The chosen picture and where it comes from."""

    ref: ImageRef
    source: PictureSource


def choose_picture(
    facts: Facts, anchor: int, settings: AnchorSettings, min_image_px: int, embedder: ImageEmbedder | None
) -> Picture | Rejection:
    """The best picture of the anchor's page.

    Args:
        facts: The wiki.
        anchor: Page id of the anchor.
        settings: Thresholds.
        min_image_px: Shortest side that a picture must have.
        embedder: Ranks the candidates; None keeps the page's order.

    Rejects `no_picture` (none is large enough) and `low_similarity` (none shows what the page is about).
    """
    page = facts.page(anchor)
    candidates = large_enough(facts, anchor, min_image_px)[: settings.max_candidates]
    if not candidates:
        return Rejection("anchor", "no_picture", page.title)
    pictures = [
        Picture(image.ref, PictureSource(file=image.file, page=page.title, licence=image.licence, author=image.author))
        for image in candidates
    ]
    if embedder is None:
        return pictures[0]
    description = f"{display_name(page.title)}, {noun(page.infobox_type, page.domain)}"
    similarities = _similarities(embedder, description, [facts.wiki.images.read(p.ref) for p in pictures])
    best = int(np.argmax(similarities))
    if similarities[best] < settings.min_similarity:
        return Rejection("anchor", "low_similarity", f"{similarities[best]:.3f}")
    chosen = pictures[best]
    return replace(chosen, source=chosen.source.model_copy(update={"similarity": float(similarities[best])}))


def large_enough(facts: Facts, page_id: int, min_image_px: int) -> list[PageImage]:
    """The pictures of a page whose shorter side is at least so long, in the page's order."""
    return [
        image
        for image in facts.wiki.page_images(page_id)
        if min(image.ref.width_px, image.ref.height_px) >= min_image_px
    ]


def _similarities(embedder: ImageEmbedder, text: str, images: Sequence[bytes]) -> list[float]:
    of_text = np.asarray(embedder.embed_texts([text]))[0]
    return [float(row @ of_text) for row in np.asarray(embedder.embed_images(images))]


Identity = Literal["appearance", "lettering", "unknown"]


@dataclass(frozen=True, slots=True)
class Identified:
    """What tells which page a picture shows.

    Attributes:
        by: Its look, or lettering that OCR reads; unknown where neither could be checked.
        tool: The repair without which the lettering is not readable; empty if it is readable as it stands.
        rivals: How many other pages a reverse image search cannot tell from the anchor.
    """

    by: Identity
    tool: RepairTool | Literal[""] = ""
    rivals: int = 0


async def identify(
    data: bytes,
    names: Sequence[str],
    url: str,
    *,
    index: ImageIndex | None,
    ocr: OcrEngine | None,
    upscaler: Upscaler | None,
    settings: AnchorSettings,
) -> Identified | Rejection:
    """What identifies the anchor in its picture.

    A reverse image search that puts the anchor clearly first settles it: `appearance`. Where look-alikes tie with it,
    its name must be legible, as it stands or after one repair. Without an index, legible lettering alone decides.

    Args:
        data: The picture.
        names: Title and aliases of the anchor.
        url: Address of its page.
        index: Reverse image search over the wiki's own pictures.
        ocr: Reads lettering.
        upscaler: One of the repairs.
        settings: Margin of a tie, tolerance of reading.

    Rejects `picture_not_identifying` (neither its look nor its lettering tells which page it shows).
    """
    rivals = 0
    if index is not None:
        matches = await index.search(data, settings.max_candidates)
        own = next((match.score for match in matches if match.url == url), None)
        rivals = sum(match.url != url and match.score >= (own or 0.0) - settings.tie_margin for match in matches)
        if own is not None and rivals == 0:
            return Identified("appearance")
    if ocr is None:
        return Identified("unknown", rivals=rivals)
    if await reads_name(ocr, data, names, settings.letters_ratio):
        return Identified("lettering", rivals=rivals)
    if index is None:
        return Identified("appearance")
    image = decode(data)
    for kind, tool in REPAIR.items():
        mended = await asyncio.to_thread(repair, image, kind, upscaler)
        if mended is not None and await reads_name(ocr, encode_png(mended), names, settings.letters_ratio):
            return Identified("lettering", tool, rivals)
    return Rejection("anchor", "picture_not_identifying", f"{rivals} look-alikes")


async def reads_name(ocr: OcrEngine, data: bytes, names: Sequence[str], ratio: float) -> bool:
    """Whether OCR reads one of the names off a picture."""
    blocks = await ocr.read(data)
    return name_in([block.text for block in blocks], names, ratio)


def name_in(lines: Sequence[str], names: Sequence[str], ratio: float) -> bool:
    """Whether recognised lines show one of the names, a few letters being allowed to be wrong.

    Args:
        lines: What was recognised, in reading order.
        names: Title and aliases.
        ratio: Share of the letters that must agree, in [0, 1] (`difflib` ratio over the best window).
    """
    tokens = [word for line in lines for word in words(line)]
    text = "".join(tokens)
    for name in names:
        own = words(display_name(name))
        letters = "".join(own)
        if len(letters) < _MIN_LETTERS:
            if letters and any(tokens[i : i + len(own)] == own for i in range(len(tokens))):
                return True
        elif letters in text or _close(letters, text, ratio):
            return True
    return False


def _close(letters: str, text: str, ratio: float) -> bool:
    size = len(letters)
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(letters)
    for start in range(max(1, len(text) - size + 1)):
        matcher.set_seq1(text[start : start + size])
        if matcher.real_quick_ratio() >= ratio and matcher.quick_ratio() >= ratio and matcher.ratio() >= ratio:
            return True
    return False
