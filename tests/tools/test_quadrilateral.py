"""Perspective correction on rendered pages whose corners are known."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensearch_vl.tools.quadrilateral import correct_perspective, find_quadrilateral, warp

W, H = 640, 480
LETTERS = list("abcdefghij klmno")


def page(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """A sheet with lines of lettering, a red block at the top left and a blue one at the top right."""
    sheet = np.full((height, width, 3), 245, np.uint8)
    for y in range(70, height - 20, 28):
        line = "".join(rng.choice(LETTERS, width // 16))
        cv2.putText(sheet, line, (24, y), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (30, 30, 30), 1, cv2.LINE_AA)
    sheet[16:46, 16:66] = (200, 30, 30)
    sheet[16:46, width - 66 : width - 16] = (30, 30, 200)
    return sheet


def ground(rng: np.random.Generator, clutter: int) -> np.ndarray:
    coarse = rng.integers(0, 60, (H // 16, W // 16, 3)).astype(np.uint8)
    scene = cv2.add(
        np.full((H, W, 3), rng.integers(20, 120, 3), np.uint8),
        cv2.resize(coarse, (W, H), interpolation=cv2.INTER_CUBIC),
    )
    for _ in range(clutter):
        start = rng.integers(0, [W, H])
        end = start + rng.integers(-200, 200, 2)
        cv2.line(
            scene, start.tolist(), end.tolist(), rng.integers(0, 256, 3).tolist(), int(rng.integers(1, 6)), cv2.LINE_AA
        )
        cv2.rectangle(
            scene, end.tolist(), (end + rng.integers(8, 60, 2)).tolist(), rng.integers(0, 200, 3).tolist(), -1
        )
    return scene


def paste(scene: np.ndarray, sheet: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """`sheet` warped onto `corners` (pixel centres at whole numbers) with antialiased edges."""
    height, width = sheet.shape[:2]
    over = 4
    outline = (np.array([[0, 0], [width, 0], [width, height], [0, height]]) - 0.5).astype(np.float32)
    matrix = cv2.getPerspectiveTransform(outline, corners.astype(np.float32))
    larger = np.array([[over, 0, (over - 1) / 2], [0, over, (over - 1) / 2], [0, 0, 1]]) @ matrix
    size = (scene.shape[1] * over, scene.shape[0] * over)
    small = (scene.shape[1], scene.shape[0])
    drawn = cv2.resize(cv2.warpPerspective(sheet, larger, size), small, interpolation=cv2.INTER_AREA).astype(float)
    mask = (
        cv2.resize(cv2.warpPerspective(np.full_like(sheet, 255), larger, size), small, interpolation=cv2.INTER_AREA)
        / 255.0
    )
    return np.clip(drawn + scene * (1 - mask), 0, 255).astype(np.uint8)


def corners_of(rng: np.random.Generator, fill: float, turn_deg: float = 20) -> tuple[np.ndarray, np.ndarray]:
    """A sheet and where it lies: at most `fill` of the frame, skewed, turned, somewhere inside."""
    width, height = [(300, 390), (420, 260)][int(rng.integers(2))]
    half = np.array([[-width, -height], [width, -height], [width, height], [-width, height]]) / 2
    half = half * fill * min(W / width, H / height) * (1 + rng.uniform(-0.15, 0.15, (4, 2)))
    turn = np.radians(rng.uniform(-turn_deg, turn_deg))
    half = half @ np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    room = np.maximum(0, np.array([W, H]) / 2 - np.abs(half).max(axis=0) - 6)
    return page(rng, width, height), half + np.array([W, H]) / 2 + rng.uniform(-1, 1, 2) * room


def noisy(scene: np.ndarray, rng: np.random.Generator, sigma: float = 3) -> np.ndarray:
    return np.clip(scene + rng.normal(0, sigma, scene.shape), 0, 255).astype(np.uint8)


def error_px(found: np.ndarray | None, corners: np.ndarray) -> float:
    return float("inf") if found is None else float(np.linalg.norm(found - corners, axis=1).max())


@pytest.mark.parametrize(
    ("kind", "fill", "clutter"), [("plain", 0.7, 0), ("small", 0.25, 0), ("cluttered", 0.6, 15), ("large", 0.85, 0)]
)
def test_corners_are_found_within_two_pixels(kind: str, fill: float, clutter: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        sheet, corners = corners_of(rng, fill)
        scene = noisy(paste(ground(rng, clutter), sheet, corners), rng)
        assert error_px(find_quadrilateral(scene), corners) <= 2.0, (kind, seed)


@pytest.mark.parametrize("damage", ["corner", "side", "blur", "dim"])
def test_a_damaged_page_is_still_found(damage: str) -> None:
    rng = np.random.default_rng(5)
    sheet, corners = corners_of(rng, 0.7)
    scene = paste(ground(rng, 0), sheet, corners)
    allowed = 2.0
    if damage == "corner":  # a thumb over a corner: it is found where the sides would meet
        cv2.circle(scene, corners[0].astype(int).tolist(), 25, (190, 150, 120), -1, cv2.LINE_AA)
    elif damage == "side":
        cv2.circle(scene, ((corners[0] + corners[1]) / 2).astype(int).tolist(), 25, (190, 150, 120), -1, cv2.LINE_AA)
    elif damage == "blur":
        scene, allowed = cv2.GaussianBlur(scene, (0, 0), 3), 3.0
    else:
        scene = (scene * 0.35).astype(np.uint8)
    assert error_px(find_quadrilateral(noisy(scene, rng, 2)), corners) <= allowed


def test_of_several_the_largest_is_taken() -> None:
    rng = np.random.default_rng(7)
    scene = ground(rng, 0)
    small = np.array([[40, 60], [180, 50], [190, 200], [50, 210]], float)
    large = np.array([[260, 70], [600, 90], [580, 420], [250, 400]], float)
    scene = paste(paste(scene, page(rng, 200, 200), small), page(rng, 340, 340), large)
    assert error_px(find_quadrilateral(scene), large) <= 2.0


def test_a_frame_inside_a_page_does_not_win() -> None:
    rng = np.random.default_rng(8)
    sheet, corners = corners_of(rng, 0.8)
    height, width = sheet.shape[:2]
    cv2.rectangle(sheet, (30, 60), (width - 30, height - 30), (0, 0, 0), 3)
    assert error_px(find_quadrilateral(paste(ground(rng, 0), sheet, corners)), corners) <= 2.0


def test_a_page_cut_off_by_the_frame_is_straightened_as_far_as_it_shows() -> None:
    rng = np.random.default_rng(9)
    corners = np.array([[150, -80], [500, -60], [540, 400], [120, 380]], float)
    found = find_quadrilateral(paste(ground(rng, 0), page(rng, 350, 450), corners))
    assert found is not None
    assert np.linalg.norm(found[2:] - corners[2:], axis=1).max() <= 2.0
    assert np.abs(found[:2, 1]).max() <= 3.0, "the top runs along the frame"


@pytest.mark.parametrize("turn", [-40, 0, 40])
def test_the_result_is_neither_mirrored_nor_turned(turn: float) -> None:
    rng = np.random.default_rng(10)
    sheet = page(rng, 300, 220)
    half = np.array([[-150, -110], [150, -110], [150, 110], [-150, 110]], float)
    angle = np.radians(turn)
    corners = half @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) + [W / 2, H / 2]
    flat, found = correct_perspective(paste(ground(rng, 0), sheet, corners))
    assert found and abs(flat.shape[1] - 300) <= 3 and abs(flat.shape[0] - 220) <= 3
    difference = np.abs(cv2.resize(flat, (300, 220)).astype(int) - sheet.astype(int))
    assert difference.mean() < 8
    assert np.argmax(flat[30, 40]) == 0 and np.argmax(flat[30, flat.shape[1] - 40]) == 2, "red stays left, blue right"


@pytest.mark.parametrize("kind", ["flat", "noise", "gradient", "circle", "triangle", "tiny"])
def test_without_a_quadrilateral_the_original_comes_back(kind: str) -> None:
    rng = np.random.default_rng(11)
    scene = np.full((H, W, 3), 120, np.uint8)
    if kind == "noise":
        scene = rng.integers(0, 256, (H, W, 3), dtype=np.uint8)
    elif kind == "gradient":
        scene[:] = np.linspace(0, 255, W).astype(np.uint8)[None, :, None]
    elif kind == "circle":
        cv2.circle(scene, (320, 240), 150, (250, 250, 250), -1, cv2.LINE_AA)
    elif kind == "triangle":
        cv2.fillPoly(scene, [np.array([[320, 60], [560, 420], [80, 420]])], (250, 250, 250), cv2.LINE_AA)
    elif kind == "tiny":
        scene = scene[:8, :8]
    same, found = correct_perspective(scene)
    assert not found and same is scene


def test_finding_is_deterministic_and_leaves_the_picture_alone() -> None:
    rng = np.random.default_rng(12)
    sheet, corners = corners_of(rng, 0.6)
    scene = noisy(paste(ground(rng, 10), sheet, corners), rng)
    before = scene.copy()
    first, second = find_quadrilateral(scene), find_quadrilateral(scene)
    assert first is not None and second is not None and np.array_equal(first, second) and np.array_equal(scene, before)


def test_a_large_picture_is_refined_at_full_size() -> None:
    rng = np.random.default_rng(13)
    sheet, corners = corners_of(rng, 0.7)
    scene = cv2.resize(paste(ground(rng, 0), sheet, corners), (W * 4, H * 4), interpolation=cv2.INTER_CUBIC)
    assert error_px(find_quadrilateral(scene), (corners + 0.5) * 4 - 0.5) <= 2.0


def test_warp_is_the_exact_inverse_of_a_known_homography() -> None:
    rng = np.random.default_rng(14)
    sheet = cv2.GaussianBlur(page(rng, 300, 220), (0, 0), 1.5)
    corners = np.array([[100, 60], [520, 90], [500, 430], [80, 380]], float)
    flat = warp(paste(np.zeros((H, W, 3), np.uint8), sheet, corners), corners)
    inner = (slice(8, 212), slice(8, 292))
    assert (
        np.abs(cv2.resize(flat, (300, 220), interpolation=cv2.INTER_AREA)[inner].astype(int) - sheet[inner]).mean() < 4
    )


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(8, 120), st.integers(8, 120), st.integers(1, 9))
def test_any_picture_gives_a_picture(seed: int, width: int, height: int, blocks: int) -> None:
    rng = np.random.default_rng(seed)
    scene = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    for _ in range(blocks):
        x, y = int(rng.integers(width)), int(rng.integers(height))
        scene[y : y + int(rng.integers(1, 80)), x : x + int(rng.integers(1, 80))] = rng.integers(0, 256, 3)
    flat, found = correct_perspective(scene)
    assert flat.dtype == np.uint8 and flat.ndim == 3 and flat.size > 0
    assert max(flat.shape) <= 2 * max(scene.shape)
    assert found or flat is scene
