"""Character error rate of reading scans: as they are, damaged, and mended by the tools with their default arguments.

Scans with their text come from `ocr/` of the folder `OSVL_TEST_DATA` (default: `shared/data` next to the checkout);
without it nothing is measured. The rate is the edit distance between what was read, blocks in reading order, and the
true text, over the length of the latter; both in NFKC with runs of white space as one space. It is not capped. The
true text of `linn` was itself read by a machine (bullets as zeros), and line-end hyphens count as they stand.

Figures: `ocr_cer.clean`; `ocr_cer.DAMAGE.degraded` and `ocr_cer.DAMAGE.repaired` (errors over characters of all scans
together), and the same for every scan as `ocr_cer.DAMAGE.STAGE.SCAN`. A repair that makes it worse is kept, and
`ocr_cer_worse` counts those rows of `ocr_cer_rows`. Where the tool finds nothing to mend, the damaged picture stays as
it is for the reader, and `ocr_cer_untouched` counts the row.
"""

import os
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from backends.pictures import encoded, tilt
from PIL import Image

from opensearch_vl.backends.ocr import RapidOcr
from opensearch_vl.backends.upscale import LanczosUpscaler
from opensearch_vl.images import decode
from opensearch_vl.questions.degrade import damage
from opensearch_vl.questions.repairs import Kind, repair

SMALL = os.environ.get("SIZE") == "small"
DATA = Path(os.environ.get("OSVL_TEST_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "ocr"
SEED = 0
SCANS = {
    "phototest": ("tesseract/phototest.tif", "tesseract/phototest.gold.txt"),
    "eurotext": ("tesseract/eurotext.tif", "tesseract/eurotext.txt"),
    "8071_093": ("tesseract/8071_093.3B.tif", "tesseract/8071_093.3B.txt"),
    "8087_054": ("tesseract/8087_054.3B.tif", "tesseract/8087_054.3B.txt"),
    "linn": ("ocrmypdf/linn.png", "ocrmypdf/linn.txt"),
}
NUM_SCANS = 2 if SMALL else len(SCANS)


def tilted(image: Image.Image) -> Image.Image:
    """The sheet turned by 20° about both axes on a dark table, in a frame of its own size."""
    return tilt(image, 20, -20, image.size, 0.94)


@dataclass(frozen=True)
class Damage:
    """`mends` names the tool's damage; None for a turned page, which `layout_parsing` turns back when asked to."""

    make: Callable[[Image.Image], Image.Image]
    mends: Kind | None


DAMAGES = {
    "blur_2": Damage(lambda image: damage(image, "blur", 2.0, SEED), "blur"),
    "blur_4": Damage(lambda image: damage(image, "blur", 4.0, SEED), "blur"),
    "down_2": Damage(lambda image: damage(image, "downsample", 2.0, SEED), "downsample"),
    "down_3": Damage(lambda image: damage(image, "downsample", 3.0, SEED), "downsample"),
    "perspective_20": Damage(tilted, "perspective"),
    "turned_90": Damage(lambda image: image.transpose(Image.Transpose.ROTATE_90), None),
}


def normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def edit_distance(first: str, second: str) -> int:
    """Levenshtein distance, a row at a time."""
    codes = np.array([ord(char) for char in second], np.int64)
    steps = np.arange(len(second) + 1)
    row = steps
    for number, char in enumerate(first, 1):
        kept = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(char)))
        row = np.concatenate([[number], kept])
        row = np.minimum.accumulate(row - steps) + steps  # insertions: the best of all cells to the left
    return int(row[-1])


def read(ocr: RapidOcr, image: Image.Image, orient: bool = False) -> str:
    return normal("\n".join(block.text for block in ocr.read_now(encoded(image), orient)))


def mended_text(ocr: RapidOcr, image: Image.Image, mends: Kind | None) -> str | None:
    """What is read after the repair; None where the tool found nothing to mend."""
    if mends is None:
        return read(ocr, image, orient=True)
    mended = repair(image, mends, LanczosUpscaler())
    return None if mended is None else read(ocr, mended)


def bench_ocr(figures: dict[str, float]) -> None:
    scans = {name: files for name, files in list(SCANS.items())[:NUM_SCANS] if (DATA / files[0]).is_file()}
    if not scans:
        sys.stderr.write(f"No scans in {DATA}: set OSVL_TEST_DATA.\n")
        return
    ocr = RapidOcr(threads=2)
    errors: dict[str, int] = {}
    characters = rows = worse = untouched = 0

    def count(row: str, scan: str, text: str, truth: str) -> int:
        wrong = edit_distance(text, truth)
        errors[row] = errors.get(row, 0) + wrong
        figures[f"ocr_cer.{row}.{scan}"] = wrong / len(truth)
        return wrong

    for scan, (picture, text) in scans.items():
        truth = normal((DATA / text).read_text(encoding="utf-8"))
        characters += len(truth)
        image = decode((DATA / picture).read_bytes())
        count("clean", scan, read(ocr, image), truth)
        for name, kind in DAMAGES.items():
            damaged = kind.make(image)
            before = read(ocr, damaged)
            after = mended_text(ocr, damaged, kind.mends)
            rows, untouched = rows + 1, untouched + (after is None)
            wrong_before = count(f"{name}.degraded", scan, before, truth)
            wrong_after = count(f"{name}.repaired", scan, before if after is None else after, truth)
            worse += wrong_after > wrong_before
    figures |= {f"ocr_cer.{row}": wrong / characters for row, wrong in errors.items()}
    figures |= {
        "ocr_cer_rows": rows,
        "ocr_cer_worse": worse,
        "ocr_cer_untouched": untouched,
        "ocr_cer_scans": len(scans),
    }
