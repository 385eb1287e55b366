"""Source-anchored grounding: a picture of the *anchor*, never of the answer (paper, section 3.4).

Up to eight pictures of the anchor's page are ranked by their similarity to a short description of it when a
CLIP-class embedder is at hand (threshold 0.28); otherwise the infobox picture comes first and the provenance says
that no similarity was measured. What identifies the anchor is noted: lettering that OCR can read, or its appearance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import numpy as np

from opensearch_vl.protocols import ImageEmbedder, OcrEngine
from opensearch_vl.questions.facts import Facts, display_name
from opensearch_vl.questions.phrases import noun
from opensearch_vl.questions.settings import AnchorSettings
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.text import words
from opensearch_vl.types import ImageRef, PictureSource

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
    candidates = [
        image
        for image in facts.wiki.page_images(anchor)
        if min(image.ref.width_px, image.ref.height_px) >= min_image_px
    ][: settings.max_candidates]
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


def _similarities(embedder: ImageEmbedder, text: str, images: Sequence[bytes]) -> list[float]:
    of_text = np.asarray(embedder.embed_texts([text]))[0]
    return [float(row @ of_text) for row in np.asarray(embedder.embed_images(images))]


async def identify(picture: Picture, data: bytes, names: Sequence[str], ocr: OcrEngine | None, ratio: float) -> Picture:
    """Note what identifies the anchor: `lettering` if OCR reads one of its names, else `appearance`.

    Without an OCR engine it stays `unknown`.
    """
    if ocr is None:
        return picture
    lettered = await reads_name(ocr, data, names, ratio)
    how = "lettering" if lettered else "appearance"
    return replace(picture, source=picture.source.model_copy(update={"identified_by": how}))


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
