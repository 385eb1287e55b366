"""Pictures of the miniature encyclopedia: what each shows (`plan`) and how it is drawn (one painter a subject).

Flat colours, curated palettes and drawn twice as large as shown: small files with smooth edges. Every picture has
enough corners of its own (windows, motifs, markings) for local features to find it again in a crop or a blurred copy.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from PIL import Image

from opensearch_vl.images import encode_png
from opensearch_vl.seeds import generator
from opensearch_vl.wiki.miniature.pictures import (
    animals,
    buildings,
    lettering,
    places,
    portraits,
    small_life,
    things,
    waterside,
)
from opensearch_vl.wiki.miniature.pictures.canvas import Canvas, Painter
from opensearch_vl.wiki.miniature.pictures.plan import PictureSpec

__all__ = ["PAINTERS", "draw", "draw_all"]

PAINTERS: dict[str, Painter] = {
    "facade": buildings.facade,
    "bridge": waterside.bridge,
    "lighthouse": waterside.lighthouse,
    "town": places.town,
    "town_map": places.town_map,
    "landscape": places.landscape,
    "bird": animals.bird,
    "mammal": animals.mammal,
    "fish": animals.fish,
    "butterfly": small_life.butterfly,
    "flower": small_life.flower,
    "vessel": things.vessel,
    "mask": things.mask,
    "shield": things.shield,
    "clock": things.clock,
    "painting": things.painting,
    "portrait": portraits.portrait,
}
MIN_POOL = 64
"""Fewer pictures are drawn in this process: starting others would take longer."""


def draw(spec: PictureSpec) -> Image.Image:
    """The picture, RGB. Same spec, same pixels."""
    rng = generator(spec.seed, "paint", spec.view if not spec.lettering else 0)
    if spec.lettering:
        return lettering.lettered(spec.painter, rng, spec.width_px, spec.height_px, spec.text, spec.lettering)
    canvas = Canvas(spec.width_px, spec.height_px)
    PAINTERS[spec.painter](canvas, rng, spec.view)
    return canvas.finish()


def draw_all(specs: list[PictureSpec], folder: Path, workers: int | None) -> None:
    """Draw every picture into `folder`, named like its File page.

    Args:
        specs: The pictures.
        folder: Where the PNG files go.
        workers: Processes; None takes one a CPU. Worker processes import the package afresh, so a script that calls
            this must guard its main code as `multiprocessing` asks.
    """
    workers = workers or os.cpu_count() or 1
    if workers == 1 or len(specs) < MIN_POOL:
        for spec in specs:
            _write(spec, folder)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for _ in pool.map(_write, specs, [folder] * len(specs), chunksize=8):
            pass


def _write(spec: PictureSpec, folder: Path) -> None:
    (folder / spec.file).write_bytes(encode_png(draw(spec)))
