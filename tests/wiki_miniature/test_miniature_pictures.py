"""The pictures: every painter, their sizes, enough corners, and lettering that can be read."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops

from opensearch_vl.images import encode_png
from opensearch_vl.wiki.miniature.pictures import PAINTERS, draw, draw_all
from opensearch_vl.wiki.miniature.pictures.canvas import fit
from opensearch_vl.wiki.miniature.pictures.lettering import SCENES
from opensearch_vl.wiki.miniature.pictures.plan import Album, PictureSpec

MAX_PNG_BYTES = 150_000


def _spec(painter: str, seed: int = 3, **changes: object) -> PictureSpec:
    spec = PictureSpec("x.png", painter, seed, 576, 512, "", "", 0, "x", "x", "someone", "cc0")
    return replace(spec, **changes)  # type: ignore[arg-type]


def test_the_number_of_pictures_is_as_planned(mini) -> None:
    assert 400 <= mini.info.num_pictures <= 700
    lettered = [spec for spec in mini.album.specs() if spec.lettering]
    assert 0.14 < len(lettered) / len(mini.album) < 0.26
    assert {spec.lettering for spec in lettered} == {"clean", "small", "blurred", "skewed"}
    assert {mini.world.kind(e).domain for e in mini.world if mini.album.series_of(e) is not None} == {
        "Building", "Location", "Artifact"
    }  # fmt: skip
    assert len({spec.file for spec in mini.album.specs()}) == mini.info.num_pictures


def test_fewer_pictures_on_request(mini) -> None:
    assert 60 <= len(Album(mini.world, 100)) <= 140
    assert len(Album(mini.world, 0)) == 0


@pytest.mark.parametrize("painter", [*PAINTERS, *SCENES])
def test_a_picture_is_small_and_full_of_corners(painter: str) -> None:
    import cv2

    lettering = {"text": "Velmora Hall", "lettering": "clean"} if painter in SCENES else {}
    image = draw(_spec(painter, **lettering))
    assert image.size == (576, 512) and image.mode == "RGB"
    assert len(encode_png(image)) < MAX_PNG_BYTES
    grey = cv2.cvtColor(np.asarray(image), cv2.COLOR_RGB2GRAY)
    assert len(cv2.ORB_create(nfeatures=800).detect(grey, None)) >= 200


@pytest.mark.parametrize("painter", PAINTERS)
def test_two_entities_look_different(painter: str) -> None:
    first, second = (np.asarray(draw(_spec(painter, seed)), dtype=float) for seed in (10, 11))
    assert np.abs(first - second).mean() > 8


def test_a_second_view_differs_from_the_first() -> None:
    assert draw(_spec("mammal")).tobytes() != draw(_spec("mammal", view=1)).tobytes()


@pytest.mark.parametrize("scene", SCENES)
def test_members_of_a_series_differ_in_the_sign_only(scene: str) -> None:
    first, second = (draw(_spec(scene, text=text, lettering="clean")) for text in ("Velmora Hall", "Ostrin Tower"))
    box = ImageChops.difference(first, second).getbbox()
    assert box is not None
    assert (box[2] - box[0]) * (box[3] - box[1]) < 0.35 * first.width * first.height


@pytest.fixture(scope="module")
def ocr():
    from rapidocr import RapidOCR

    logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
    return RapidOCR()


def _read(engine, image: Image.Image) -> str:
    words = engine(np.asarray(image)[:, :, ::-1]).txts or ()
    return "".join("".join(words).lower().split())


@pytest.mark.parametrize("scene", SCENES)
def test_clean_lettering_is_readable(mini, ocr, scene: str) -> None:
    spec = next(s for s in mini.album.specs() if s.painter == scene and s.lettering == "clean")
    assert "".join(spec.text.lower().split()) in _read(ocr, draw(spec))


def test_small_lettering_is_small(ocr) -> None:
    clean, small = (
        np.asarray(draw(_spec("station_sign", text="Velmora station", lettering=kind)).convert("L"), dtype=int)
        for kind in ("clean", "small")
    )
    rows = np.flatnonzero(np.abs(clean - small).max(axis=1) > 60)
    assert rows.size > 24  # the clean sign's capitals reach far beyond the small ones'


def test_a_skewed_plaque_is_a_bright_quadrilateral_on_dark_ground() -> None:
    import cv2

    image = draw(_spec("plaque", text="Velmora Museum", lettering="skewed", width_px=720, height_px=540))
    grey = cv2.cvtColor(np.asarray(image), cv2.COLOR_RGB2GRAY)
    assert grey[:8].max() < 70 and grey[-8:].max() < 70
    _, bright = cv2.threshold(grey, 90, 255, cv2.THRESH_BINARY)
    contours, _ = cv2.findContours(bright, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    largest = max(contours, key=cv2.contourArea)
    corners = cv2.approxPolyDP(largest, 0.02 * cv2.arcLength(largest, True), True)
    assert len(corners) == 4
    heights = sorted(
        abs(int(a[0][1]) - int(b[0][1])) for a in corners for b in corners if abs(int(a[0][0]) - int(b[0][0])) < 80
    )
    assert heights[-1] > 200


@pytest.mark.parametrize("text", ["A", "Museum of Gerghumwydd", "The Most Extraordinarily Long Name Ever", "x" * 60])
def test_lettering_fits_its_box(text: str) -> None:
    rows, size = fit(text, 300, 80)
    assert " ".join(rows) == text
    assert len(rows) * size * 1.25 <= 80.01 and size >= 1


def test_pictures_are_the_same_from_a_pool(tmp_path: Path, mini, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [spec for spec in mini.album.specs() if not spec.lettering][:4]
    monkeypatch.setattr("opensearch_vl.wiki.miniature.pictures.MIN_POOL", 1)
    for name, workers in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        draw_all(specs, tmp_path / name, workers)
    for spec in specs:
        assert (tmp_path / "one" / spec.file).read_bytes() == (tmp_path / "two" / spec.file).read_bytes()
