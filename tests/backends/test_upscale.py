"""Upscalers: sizes, honesty, tiles without seams, limits, files that are no networks."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from backends.pictures import facade
from backends.tiny_onnx import resize_model
from PIL import Image

from opensearch_vl.backends.upscale import LanczosUpscaler, OnnxUpscaler
from opensearch_vl.errors import BadInput, DataError, TooLarge


@pytest.fixture
def network(tmp_path: Path) -> OnnxUpscaler:
    file = tmp_path / "tiny_x2.onnx"
    file.write_bytes(resize_model(2))
    return OnnxUpscaler(file, threads=1)


def test_lanczos_says_that_it_adds_no_detail() -> None:
    upscaler = LanczosUpscaler()
    image = Image.new("L", (10, 7), 90)
    grown = upscaler.upscale(image, 4)
    assert grown.size == (40, 28) and grown.mode == "RGB" and set(np.asarray(grown).ravel()) == {90}
    assert upscaler.describes == "Lanczos interpolation, adds no detail"


def test_a_network_reports_scale_and_weights(network: OnnxUpscaler) -> None:
    assert network.scale == 2
    assert network.sha256 == hashlib.sha256(resize_model(2)).hexdigest()
    assert network.sha256[:12] in network.describes and "2×" in network.describes


def test_tiles_leave_no_seams(network: OnnxUpscaler) -> None:
    image = facade(1, size=(431, 397))
    grown = np.asarray(network.upscale(image, 2))
    assert np.array_equal(grown, np.asarray(image).repeat(2, axis=0).repeat(2, axis=1))


@pytest.mark.parametrize(("scale", "size"), [(1, (30, 20)), (3, (90, 60)), (4, (120, 80))])
def test_other_scales_are_reached(network: OnnxUpscaler, scale: int, size: tuple[int, int]) -> None:
    image = Image.new("RGB", (30, 20), (10, 200, 30))
    assert network.upscale(image, scale).size == size


def test_the_value_range_is_the_networks(tmp_path: Path) -> None:
    file = tmp_path / "n.onnx"
    file.write_bytes(resize_model(2))
    image = facade(2, size=(40, 30))
    assert np.array_equal(OnnxUpscaler(file, value_range=255).upscale(image, 2), OnnxUpscaler(file).upscale(image, 2))


def test_limits(network: OnnxUpscaler) -> None:
    for upscaler in (LanczosUpscaler(), network):
        for scale in (0, -1, 9):
            with pytest.raises(BadInput):
                upscaler.upscale(Image.new("RGB", (4, 4)), scale)
        with pytest.raises(TooLarge, match="Crop"):
            upscaler.upscale(Image.new("RGB", (4000, 3000)), 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a model", "not an ONNX model"),
        (resize_model(1.5), "no whole enlargement"),
        (resize_model(2, [1, 3, 64, 64]), "one size only"),
        (resize_model(2, [1, 1, "h", "w"]), "1 channels"),
    ],
)
def test_unfit_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "bad.onnx"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        OnnxUpscaler(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.onnx"):
        OnnxUpscaler(tmp_path / "gone.onnx")
