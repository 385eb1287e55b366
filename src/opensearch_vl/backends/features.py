"""Local features of a picture: RootSIFT, the same for indexing and for queries.

SIFT, because its keypoints carry a scale: blurred and down-sampled copies keep the coarse ones (recall by distortion
is in docs/log.md; of binary features only ORB's speed was timed, not its recall). A picture is first shrunk to
`WORKING_PX`, which takes most of the harm out of blur and noise and bounds the time; coarse keypoints, which survive
blur and down-sampling, are always kept, fine ones fill what is left.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

WORKING_PX = 400
"""Longest side at which features are taken."""
MAX_FEATURES = 400
DESCRIPTOR_SIZE = 128
_COARSE_SIZE_PX = 8.0  # diameter of a keypoint's neighbourhood from which it counts as coarse
_CONTRAST = 0.015  # half of OpenCV's default: blurred pictures have little contrast left
_EDGE = 12.0
_SCALE = 512.0  # RootSIFT entries rarely exceed one half: eight bits suffice


@dataclass(frozen=True, slots=True)
class Features:
    """Features of one picture.

    Attributes:
        points: ``[N, 4]`` float32: x, y in working pixels, neighbourhood diameter, angle in degrees.
        descriptors: ``[N, 128]`` uint8 RootSIFT times 512.
        width_px: Width of the picture at working size.
        height_px: Its height.
    """

    points: NDArray[np.float32]
    descriptors: NDArray[np.uint8]
    width_px: int
    height_px: int

    def __len__(self) -> int:
        return len(self.points)


def extract(image: Image.Image, max_features: int = MAX_FEATURES) -> Features:
    """Features of a picture, at most `max_features`. Makes its own detector: safe in any thread."""
    cv2: Any = importlib.import_module("cv2")  # its stubs lack SIFT
    grey: Any = np.asarray(image.convert("L"))
    scale = WORKING_PX / max(grey.shape)
    size = (max(8, round(grey.shape[1] * scale)), max(8, round(grey.shape[0] * scale)))
    if size != (grey.shape[1], grey.shape[0]):
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    grey = _stretch(grey)
    detector = cv2.SIFT_create(0, 3, _CONTRAST, _EDGE, 1.6)
    keypoints = detector.detect(grey, None)
    keypoints = _choose(keypoints, max_features)
    if not keypoints:
        return Features(np.zeros((0, 4), np.float32), np.zeros((0, DESCRIPTOR_SIZE), np.uint8), *size)
    keypoints, raw = detector.compute(grey, keypoints)
    points = np.array([(*k.pt, k.size, k.angle) for k in keypoints], np.float32)
    return Features(points, _root(raw), *size)


def _stretch(grey: Any) -> Any:
    """Spread the grey levels: the detector's contrast threshold is absolute."""
    low, high = np.percentile(grey, (1, 99))
    if high - low < 8:
        return grey
    return np.clip((grey.astype(np.float32) - low) * (255.0 / (high - low)), 0, 255).astype(np.uint8)


def _choose(keypoints: Any, limit: int) -> list[Any]:
    ordered = sorted(keypoints, key=lambda k: (-k.response, k.pt, k.angle))
    coarse = [k for k in ordered if k.size >= _COARSE_SIZE_PX][: limit // 2]
    kept = {id(k) for k in coarse}
    return coarse + [k for k in ordered if id(k) not in kept][: limit - len(coarse)]


def _root(raw: NDArray[np.float32]) -> NDArray[np.uint8]:
    """RootSIFT (Arandjelović and Zisserman, 2012): L1-normalise, square root; dot products are Hellinger kernels."""
    rooted = np.sqrt(raw / np.maximum(raw.sum(axis=1, keepdims=True), 1e-9))
    return np.asarray(np.clip(np.rint(rooted * _SCALE), 0, 255), np.uint8)


def unit(descriptors: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Stored descriptors as unit vectors, ``[N, 128]`` float32."""
    vectors = descriptors.astype(np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return vectors
