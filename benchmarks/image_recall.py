"""Recall of the reverse image search under distortion, and its processor time next to OCR of the same picture.

The pictures are those of a fresh miniature and, where there are any, photographs under `images/` of the folder
`OSVL_TEST_DATA` (default: `shared/data` next to the checkout). All of them are indexed together; queries are an evenly
spaced part of each of the two sorts, all of them unless `RECALL_QUERIES` says how many. A query counts as found when
the first match is the very picture it was made from. Every distortion is taken at the far end of what has to be borne:
30 % of the area, σ = 4 px, half the size, 20° about both axes, JPEG 40, no colour, and a photograph of a screen.

Figures, over all queries and as `NAME.KIND.miniature` and `NAME.KIND.photographs`:
`image_recall`; `image_recall_top5` (among the first five: pictures of one template differ in lettering alone, and blur
takes that away); `image_no_match` (an empty answer: what is missing from top 5 and from here is a wrong answer).
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import TypeVar

import cv2
import numpy as np
from backends.pictures import encoded, tilt
from PIL import Image, ImageFilter

from opensearch_vl.backends.image_index import LocalImageIndex, Showing, picture_folder
from opensearch_vl.backends.ocr import RapidOcr
from opensearch_vl.images import decode
from opensearch_vl.scoring.metrics import wilson
from opensearch_vl.seeds import generator
from opensearch_vl.wiki.miniature import write_miniature

SMALL = os.environ.get("SIZE") == "small"
DATA = Path(os.environ.get("OSVL_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
SEED = 0
PAGES, MAX_PICTURED = (120, 30) if SMALL else (2_000, 3_000)
MAX_PHOTOGRAPHS = 10 if SMALL else 1_000
QUERIES = int(os.environ.get("RECALL_QUERIES") or (16 if SMALL else 10_000))
TIMED = 8 if SMALL else 40
"""Pictures whose processor time is taken."""

CROP_AREA = 0.3
BLUR_SIGMA_PX = 4.0
TILT_DEG = 20.0
JPEG_QUALITY = 40
SCREEN_PX, SHOT_SIZE_PX, SCREEN_TILT_DEG, SCREEN_GAMMA = 1024, (1280, 960), 15.0, 1.3
APERTURE_DOTS = 0.8
"""Blur of a sensor's pixel that is about three dots wide: w/√12. It leaves a moiré of some 7 %."""


def clean(image: Image.Image, rng: Random) -> bytes:
    return encoded(image)


def crop(image: Image.Image, rng: Random) -> bytes:
    """A part of `CROP_AREA` of the area with the picture's proportions, anywhere in it."""
    width, height = (round(side * CROP_AREA**0.5 + 0.5) for side in image.size)
    left, top = rng.randint(0, image.width - width), rng.randint(0, image.height - height)
    return encoded(image.crop((left, top, left + width, top + height)))


def blur(image: Image.Image, rng: Random) -> bytes:
    return encoded(image.filter(ImageFilter.GaussianBlur(BLUR_SIGMA_PX)))


def down(image: Image.Image, rng: Random) -> bytes:
    return encoded(image.resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC))


def perspective(image: Image.Image, rng: Random) -> bytes:
    """The picture turned by `TILT_DEG` about both axes, towards one of the four corners."""
    yaw, pitch = rng.choice((-TILT_DEG, TILT_DEG)), rng.choice((-TILT_DEG, TILT_DEG))
    return encoded(tilt(image, yaw, pitch, image.size))


def jpeg(image: Image.Image, rng: Random) -> bytes:
    return encoded(image, quality=JPEG_QUALITY)


def grey(image: Image.Image, rng: Random) -> bytes:
    return encoded(image.convert("L").convert("RGB"))


def panel(image: Image.Image) -> Image.Image:
    """A screen that shows the picture `SCREEN_PX` long, 3×3 dots a pixel: stripes of the three colours, dark rows."""
    scale = SCREEN_PX / max(image.size)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC))
    dots = np.repeat(np.repeat(pixels, 3, axis=0), 3, axis=1)
    mask = np.full((3, 3, 3), 0.55, np.float32)  # rows, columns, colours
    mask[:, range(3), range(3)] = 1.0
    mask[2] *= 0.7
    lit = cv2.multiply(dots, np.tile(mask, (size[1], size[0], 1)), dtype=cv2.CV_8U)
    return Image.fromarray(cv2.GaussianBlur(lit, (0, 0), APERTURE_DOTS))


def screen(image: Image.Image, rng: Random) -> bytes:
    """A photograph of a screen: the camera samples its dots too coarsely (moiré), at an angle, with another gamma.

    Glare, noise and JPEG 75 come on top.
    """
    yaw, pitch = (rng.uniform(-SCREEN_TILT_DEG, SCREEN_TILT_DEG) for _ in range(2))
    shot = np.asarray(tilt(panel(image), yaw, pitch, SHOT_SIZE_PX, 0.85)).astype(np.float32) / 255
    shot = (shot * 1.3).clip(0, 1) ** SCREEN_GAMMA
    width, height = SHOT_SIZE_PX
    y, x = np.ogrid[:height, :width]
    glare_x, glare_y = rng.uniform(0.2, 0.8) * width, rng.uniform(0.2, 0.8) * height
    shot += 0.25 * np.exp(-((x - glare_x) ** 2 + (y - glare_y) ** 2) / (0.1 * width) ** 2).astype(np.float32)[..., None]
    shot += np.random.default_rng(rng.getrandbits(32)).normal(0, 0.02, shot.shape).astype(np.float32)
    return encoded(Image.fromarray((shot.clip(0, 1) * 255).astype(np.uint8)), quality=75)


T = TypeVar("T")

DISTORTIONS: dict[str, Callable[[Image.Image, Random], bytes]] = {
    "clean": clean,
    "crop": crop,
    "blur": blur,
    "down": down,
    "perspective": perspective,
    "jpeg": jpeg,
    "grey": grey,
    "screen": screen,
}


@dataclass(frozen=True)
class Picture:
    data: bytes
    name: str
    sort: str  # "miniature" or "photographs"


def collected(folder: Path) -> list[Picture]:
    """All pictures, each once, the miniature's first; `folder` takes the miniature."""
    write_miniature(folder, pages=PAGES, seed=SEED, compress=False, max_pictures=MAX_PICTURED)
    drawn = list(picture_folder(folder / "images"))[: MAX_PICTURED if SMALL else None]
    taken = list(picture_folder(DATA / "images")) if (DATA / "images").is_dir() else []
    pictures: dict[str, Picture] = {}
    for sort, found in (("miniature", drawn), ("photographs", spaced(taken, MAX_PHOTOGRAPHS))):
        for data, shown in found:
            pictures.setdefault(sha256(data).hexdigest(), Picture(data, f"{sort}/{shown.source}", sort))
    return list(pictures.values())


def spaced(items: Sequence[T], num: int) -> list[T]:
    """`num` of the items, evenly spaced; all of them when there are no more."""
    num = min(num, len(items))
    return [items[n * len(items) // num] for n in range(num)]


def queried(pictures: Sequence[Picture]) -> list[Picture]:
    """Every sort's part of the queries, half of them photographs as long as there are that many."""
    photographs = spaced([p for p in pictures if p.sort == "photographs"], QUERIES // 2)
    return [*spaced([p for p in pictures if p.sort == "miniature"], QUERIES - len(photographs)), *photographs]


def measure_recall(index: LocalImageIndex, queries: Sequence[Picture], figures: dict[str, float]) -> None:
    for kind, distort in DISTORTIONS.items():
        first: dict[str, list[bool]] = {}
        among: dict[str, list[bool]] = {}
        empty: dict[str, list[bool]] = {}
        for picture in queries:
            query = distort(decode(picture.data), generator(SEED, kind, picture.name))
            found = [match.source for match in index.search_now(query, 5)]
            for sort in ("", f".{picture.sort}"):
                first.setdefault(sort, []).append(found[:1] == [picture.name])
                among.setdefault(sort, []).append(picture.name in found)
                empty.setdefault(sort, []).append(not found)
        for name, table in (("image_recall", first), ("image_recall_top5", among), ("image_no_match", empty)):
            figures |= {f"{name}.{kind}{sort}": sum(seen) / len(seen) for sort, seen in table.items()}
        figures[f"image_recall_low.{kind}"] = wilson(sum(first[""]), len(first[""]))[0]


def processor_ms(call: Callable[[bytes], object], pictures: Sequence[bytes]) -> float:
    """Mean processor time of a call over all its threads."""
    started = time.process_time()
    for data in pictures:
        call(data)
    return (time.process_time() - started) * 1000 / len(pictures)


def measure_time(index: LocalImageIndex, queries: Sequence[Picture], figures: dict[str, float]) -> None:
    ocr = RapidOcr(threads=1)
    blank = encoded(Image.new("RGB", (64, 64), "white"))
    index.search_now(blank, 1)  # opens the index
    ocr.read_now(blank)  # loads the models
    pictures = [picture.data for picture in spaced(queries, TIMED)]
    query_ms = processor_ms(lambda data: index.search_now(data, 5), pictures)
    ocr_ms = processor_ms(ocr.read_now, pictures)
    figures |= {
        "image_query_cpu_ms": query_ms,
        "image_ocr_cpu_ms": ocr_ms,
        "image_query_over_ocr": query_ms / ocr_ms,
        "image_timed": len(pictures),
    }


def bench_recall(figures: dict[str, float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pictures = collected(Path(folder) / "miniature")
        shown = ((picture.data, Showing(picture.name, "", picture.name)) for picture in pictures)
        started = time.process_time()
        index = LocalImageIndex.build_from_pictures(shown, Path(folder) / "index")
        figures["image_index_cpu_ms_per_picture"] = (time.process_time() - started) * 1000 / len(pictures)
        figures["image_recall_indexed"] = len(pictures)
        queries = queried(pictures)
        figures["image_recall_queries"] = len(queries)
        figures["image_recall_photographs"] = sum(picture.sort == "photographs" for picture in queries)
        measure_time(LocalImageIndex(index.path), queries, figures)
        measure_recall(index, queries, figures)
