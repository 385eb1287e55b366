import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.errors import BadInput
from opensearch_vl.tools import pixels
from opensearch_vl.tools.pixels import crop_box, resolve_box, sharpen


def unsharp_by_the_formula(rgb: np.ndarray, amount: float, sigma: float) -> np.ndarray:
    """(1+α)·I − α·(G_σ∗I) in float64, separable convolution written out, mirrored borders."""
    radius = round(4 * sigma)
    offsets = np.arange(-radius, radius + 1)
    kernel = np.exp(-(offsets**2) / (2 * sigma**2))
    kernel /= kernel.sum()
    image = rgb.astype(np.float64)
    padded = np.pad(image, ((radius, radius), (radius, radius), (0, 0)), mode="reflect")
    height, width = rgb.shape[:2]
    rows = sum(k * padded[i : i + height] for i, k in enumerate(kernel))
    blurred = sum(k * rows[:, i : i + width] for i, k in enumerate(kernel))
    return np.clip((1 + amount) * image - amount * blurred, 0, 255)


@pytest.mark.parametrize("amount", [0.0, 0.7, 1.5, 4.0, 10.0])
@pytest.mark.parametrize("kind", ["noise", "edges", "ramp"])
def test_sharpen_equals_the_formula_to_one_level(amount: float, kind: str) -> None:
    rng = np.random.default_rng(1)
    if kind == "noise":
        rgb = rng.integers(0, 256, (90, 70, 3), dtype=np.uint8)
    elif kind == "edges":
        rgb = np.full((90, 70, 3), 30, np.uint8)
        rgb[20:60, 15:50] = (240, 120, 10)
    else:
        rgb = np.broadcast_to(np.linspace(0, 255, 70).astype(np.uint8)[None, :, None], (90, 70, 3)).copy()
    difference = np.abs(sharpen(rgb, amount).astype(float) - unsharp_by_the_formula(rgb, amount, 3.0))
    assert difference.max() <= 1.0


def test_sharpening_in_strips_gives_the_same_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    rgb = np.random.default_rng(2).integers(0, 256, (203, 61, 3), dtype=np.uint8)
    whole = sharpen(rgb, 2.0)
    monkeypatch.setattr(pixels, "_STRIP_PX", 61 * 17)
    assert np.array_equal(sharpen(rgb, 2.0), whole)


def test_sharpen_leaves_its_input_alone_and_takes_the_smallest_pictures() -> None:
    rgb = np.random.default_rng(3).integers(0, 256, (1, 1, 3), dtype=np.uint8)
    before = rgb.copy()
    assert np.array_equal(sharpen(rgb), before) and np.array_equal(rgb, before)
    assert sharpen(np.zeros((2, 40), np.uint8)).shape == (2, 40)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((10, 20, 30, 25), (10, 20, 40, 45, False)),
        ((-10, -10, 30, 40), (0, 0, 20, 30, True)),
        ((90, 0, 100, 50), (90, 0, 100, 50, True)),
        ((-5, -5, 500, 500), (0, 0, 100, 50, True)),
        ((0, 0, 100, 50), (0, 0, 100, 50, False)),
        ((9.6, 0, 30.2, 20.4), (10, 0, 40, 20, False)),
        ((1e18, 0, 1e18, 5), None),
        ((-1e308, 0, 1.7e308, 50), (0, 0, 100, 50, True)),
        ((1e308, 0, 1.7e308, 50), None),
        ((100, 0, 10, 10), None),
        ((-30, 0, 30, 10), None),
        ((0, 0, 0, 10), None),
        ((0, 0, -5, 10), None),
        ((0, 0, 3, 10), None),
        ((0, 0, 0.2, 10), None),
    ],
)
def test_boxes_are_clipped_or_refused(box: tuple[float, ...], expected: tuple[int, ...] | None) -> None:
    if expected is None:
        with pytest.raises(BadInput):
            resolve_box((100, 50), *box)
    else:
        found = resolve_box((100, 50), *box)
        assert (found.left, found.top, found.right, found.bottom, found.clipped) == expected


def test_the_grid_counts_thousandths() -> None:
    box = resolve_box((2000, 500), 100, 200, 500, 600, "grid_1000")
    assert (box.left, box.top, box.right, box.bottom, box.clipped) == (200, 100, 1200, 400, False)
    assert resolve_box((640, 480), 0, 0, 1000, 1000, "grid_1000").size == (640, 480)
    with pytest.raises(BadInput, match="grid"):
        resolve_box((640, 480), 1000, 0, 10, 10, "grid_1000")


def test_a_sliver_is_refused() -> None:
    with pytest.raises(BadInput, match="100 times"):
        resolve_box((3000, 3000), 0, 0, 3000, 5)


number = st.floats(-1e6, 1e6) | st.integers(-50, 500).map(float)


@given(
    st.tuples(st.integers(1, 400), st.integers(1, 400)),
    number,
    number,
    number,
    number,
    st.sampled_from(["pixels", "grid_1000"]),
)
def test_a_resolved_box_always_lies_inside(
    size: tuple[int, int], x: float, y: float, w: float, h: float, units: str
) -> None:
    try:
        box = resolve_box(size, x, y, w, h, units)  # type: ignore[arg-type]
    except BadInput:
        return
    assert 0 <= box.left < box.right <= size[0] and 0 <= box.top < box.bottom <= size[1]
    crop = crop_box(np.zeros((size[1], size[0], 3), np.uint8), box)
    assert (crop.shape[1], crop.shape[0]) == box.size
    assert max(box.size) <= 100 * min(box.size)


def test_a_crop_holds_exactly_the_pixels_of_the_box() -> None:
    rgb = np.arange(60 * 40 * 3, dtype=np.uint8).reshape(40, 60, 3)
    crop = crop_box(rgb, resolve_box((60, 40), 7, 5, 20, 10))
    assert np.array_equal(crop, rgb[5:15, 7:27]) and crop.base is None
