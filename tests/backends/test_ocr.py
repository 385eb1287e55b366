"""OCR: reading drawn pages offline, orientation, columns, hostile input."""

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest
from backends.pictures import encoded, font
from PIL import Image, ImageDraw

from opensearch_vl.backends import ocr
from opensearch_vl.backends.ocr import MODELS, RapidOcr, unturn
from opensearch_vl.errors import BackendDown, BadInput

TEXT = ("The quick brown fox", "jumps over the lazy dog", "in September 1993.")


def page(lines: tuple[str, ...] = TEXT, size: int = 30) -> Image.Image:
    image = Image.new("RGB", (560, 80 + 50 * len(lines)), "white")
    draw = ImageDraw.Draw(image)
    for number, text in enumerate(lines):
        draw.text((30, 40 + 50 * number), text, fill="black", font=font(size))
    return image


@pytest.fixture(scope="module")
def engine() -> RapidOcr:
    return RapidOcr(threads=2)


def read(engine: RapidOcr, image: Image.Image, orient: bool = False) -> str:
    return "\n".join(block.text for block in engine.read_now(encoded(image), orient))


def test_reads_a_page_without_a_network(engine: RapidOcr, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("OCR went to the network"))
    found = asyncio.run(RapidOcr(threads=1).read(encoded(page())))
    assert "\n".join(block.text for block in found) == "\n".join(TEXT)
    assert all(block.confidence > 0.8 for block in found)
    left, top, right, bottom = found[0].box_px
    assert 15 < left < 45 and 25 < top < 60 and right > 300 and bottom > top


def test_the_wheel_carries_the_models_we_name() -> None:
    import rapidocr

    folder = Path(rapidocr.__file__).parent / "models"
    assert all((folder / name).stat().st_size > 100_000 for name in MODELS.values())


def test_a_wheel_without_models_is_refused_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "MODELS", {**MODELS, "Rec": "absent.onnx"})
    with pytest.raises(BackendDown, match=r"absent\.onnx"):
        RapidOcr(threads=1).read_now(encoded(page()))


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_orient_turns_a_page_upright_and_boxes_stay_in_the_original(engine: RapidOcr, turns: int) -> None:
    upright = engine.read_now(encoded(page()))
    turned = Image.fromarray(np.rot90(np.asarray(page()), turns))
    found = engine.read_now(encoded(turned), True)
    assert [block.text for block in found] == [block.text for block in upright]
    width, height = turned.size
    back = (4 - turns) % 4
    for one, other in zip(found, upright, strict=True):
        assert np.allclose(one.box_px, unturn(other.box_px, back, width, height), atol=6)


def test_unturn_undoes_a_turn() -> None:
    marks = np.zeros((40, 60), np.uint8)
    marks[5:10, 20:50] = 1
    for turns in range(4):
        rows, columns = np.nonzero(np.rot90(marks, turns))
        box = (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1)
        assert unturn(box, turns, 60, 40) == (20, 5, 50, 10)


def test_pictures_without_text_have_no_blocks(engine: RapidOcr) -> None:
    for image in (Image.new("RGB", (200, 100), "white"), Image.new("RGB", (1, 1)), Image.new("RGB", (199, 1))):
        assert engine.read_now(encoded(image)) == []


def test_what_is_no_picture_is_bad_input(engine: RapidOcr) -> None:
    with pytest.raises(BadInput):
        engine.read_now(b"%PDF-1.7")


def test_the_same_picture_is_read_once_by_many_threads(engine: RapidOcr, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = engine._run
    monkeypatch.setattr(engine, "_run", lambda *arguments: calls.append(1) or original(*arguments))
    image = encoded(page(("Only once",)))
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(engine.read_now(image)[0].text)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["Only once"] * 4 and len(calls) == 1


def test_a_part_is_read_at_the_scale_of_the_whole_and_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part's own short side is not enlarged to `least_side_px`, which would undo what reading a part spares."""
    engine, sizes = RapidOcr(threads=1, least_side_px=512), []
    lines = RapidOcr._lines

    def noted(self: RapidOcr, pixels, *, use_cls: bool, least_side_px: int | None = None):
        sizes.append((pixels.shape[:2], least_side_px))
        return lines(self, pixels, use_cls=use_cls, least_side_px=least_side_px)

    monkeypatch.setattr(RapidOcr, "_lines", noted)
    data = encoded(page((TEXT[0], *[""] * 5)).resize((400, 256)))
    (first,) = asyncio.run(engine.read(data))
    left, top, right, bottom = first.box_px
    box = left - 12, top - 12, right + 12, bottom + 12
    found = asyncio.run(engine.read_part(data, box))
    assert [block.text for block in found] == [TEXT[0]]
    assert abs(found[0].box_px[0] - left) < 8 and abs(found[0].box_px[1] - top) < 8
    (whole, _), (part, least) = sizes
    assert least == 2 * min(part)  # the whole picture, 256 high, is enlarged twofold
    assert 3 * part[0] * part[1] < whole[0] * whole[1]
    assert asyncio.run(engine.read(data))[0] == first  # the limit of parts does not stick
    assert asyncio.run(engine.read_part(data, (-50, -50, 0, 0))) == []
