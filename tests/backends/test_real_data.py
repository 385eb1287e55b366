"""Recall and reading errors on photographs and scans that are not in the repository; skipped where they are absent.

`OSVL_TEST_DATA` names the folder; `images/gcompris` and `ocr/tesseract` of it are used.
"""

import difflib
import os
from pathlib import Path

import pytest
from backends.pictures import DISTORTIONS
from PIL import Image

from opensearch_vl.backends.image_index import LocalImageIndex, picture_folder
from opensearch_vl.backends.ocr import RapidOcr

DATA = Path(os.environ.get("OSVL_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
PHOTOS = DATA / "images" / "gcompris" / "monuments" / "france"
SCANS = DATA / "ocr" / "tesseract"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> LocalImageIndex:
    if not PHOTOS.is_dir():
        pytest.skip(f"no photographs in {PHOTOS}")
    return LocalImageIndex.build_from_pictures(picture_folder(PHOTOS), tmp_path_factory.mktemp("photos") / "index")


@pytest.mark.parametrize("kind", list(DISTORTIONS))
def test_recall_at_1_of_photographs(index: LocalImageIndex, kind: str) -> None:
    files = sorted(PHOTOS.glob("*.webp"))
    found = [index.search_now(DISTORTIONS[kind](Image.open(file).convert("RGB")), 1) for file in files]
    right = sum(bool(hits) and hits[0].title == file.stem for hits, file in zip(found, files, strict=True))
    assert right >= 0.9 * len(files)


@pytest.mark.parametrize(
    ("scan", "truth", "orient", "agreement"),
    [
        ("phototest.tif", "phototest.gold.txt", False, 0.98),
        ("phototest-rotated-R.png", "phototest.gold.txt", True, 0.98),
        ("phototest-rotated-180.png", "phototest.gold.txt", True, 0.98),
        ("eurotext.tif", "eurotext.txt", False, 0.97),
    ],
)
def test_scans_are_read(scan: str, truth: str, orient: bool, agreement: float) -> None:
    if not (SCANS / scan).is_file():
        pytest.skip(f"no scans in {SCANS}")
    blocks = RapidOcr(threads=2).read_now((SCANS / scan).read_bytes(), orient)
    read = " ".join(" ".join(block.text for block in blocks).split())
    expected = " ".join((SCANS / truth).read_text(encoding="utf-8", errors="replace").split())
    assert difflib.SequenceMatcher(None, read, expected, autojunk=False).ratio() >= agreement
