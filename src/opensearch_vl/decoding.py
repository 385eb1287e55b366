"""Untrusted bytes to pixels, and back: the only place where Pillow meets data that we did not write.

`images` re-exports what the rest of the package uses.
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Callable
from typing import TypeVar

from PIL import Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile

from opensearch_vl.errors import ImageError

MAX_BYTES = 50_000_000
"""Encoded pictures above this are refused."""
MAX_PIXELS = 100_000_000
"""Decoded pictures above this are refused before any pixel is unpacked (a 100-megapixel camera is the limit)."""
MAX_ASPECT = 200.0
"""Longest side over shortest side; Qwen-VL processors refuse more than 200."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Pillow decoders we let near untrusted bytes. SVG, EPS and the like can run code or read files: refused."""
MODEL_MAX_PIXELS = 262_144
"""What a model is shown of a picture in training (paper, section 4)."""
MODEL_PATCH = 32
"""Side of the square that one image token of Qwen3-VL stands for: patches of 16 pixels, merged 2 × 2."""

_JPEG_QUALITY = 95
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a picture of each EXIF orientation upright (EXIF 2.32, tag 0x0112)."""
_VECTOR_STARTS = (b"<svg", b"<?xml", b"<!DOCTYPE svg", b"%PDF", b"%!PS")
T = TypeVar("T")
_header_lock = threading.Lock()  # `warnings.catch_warnings` is not thread-safe


def decode(data: bytes) -> Image.Image:
    """Decode untrusted bytes into an upright 8-bit RGB picture of one frame.

    Transparent pixels are laid over white; samples of more than 8 bits are scaled to 8; an animation or a document of
    several pages gives its first frame. Colour profiles are ignored.

    Raises:
        ImageError: Not a picture, a format outside `FORMATS`, truncated, or over a size limit.
    """
    return decode_as_stored(data)[0]


def decode_as_stored(data: bytes) -> tuple[Image.Image, str]:
    """Like `decode`, and what a store should keep.

    Returns:
        The picture, and ``"png"`` or ``"jpeg"`` if `data` already is a plain upright 8-bit RGB or grey picture of one
        frame in that format; otherwise ``"encode_png"`` or ``"encode_jpeg"``, the latter for lossy sources.
    """
    if len(data) > MAX_BYTES:
        raise ImageError(f"The picture has {len(data):,} bytes; at most {MAX_BYTES:,} are accepted.")
    try:
        image = _quietly(lambda: Image.open(io.BytesIO(data), formats=FORMATS))
        with image:
            check_size(*image.size)
            kept = _kept_format(image)
            image.load()
            turn = _TURNS.get(_quietly(lambda: _orientation(image)))  # after loading: PNG may keep it behind the pixels
            if turn is None:
                return to_rgb(image), kept
            return to_rgb(image.transpose(turn)), f"encode_{kept.removeprefix('encode_')}"
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageError(f"The picture is too large; at most {MAX_PIXELS:,} pixels are accepted.") from error
    except UnidentifiedImageError as error:
        hint = "SVG and other vector formats are refused." if data[:256].lstrip().startswith(_VECTOR_STARTS) else ""
        raise ImageError(f"Not a picture in one of {', '.join(FORMATS)}. {hint}".strip()) from error
    except Exception as error:  # the boundary to Pillow's decoders: damaged data makes them raise almost anything
        raise ImageError(f"The picture is damaged or truncated: {error or type(error).__name__}.") from error


def check_size(width_px: int, height_px: int) -> None:
    """Refuse sizes that cannot be handled.

    Raises:
        ImageError: Empty, over `MAX_PIXELS`, or thinner than `MAX_ASPECT`.
    """
    if width_px <= 0 or height_px <= 0:
        raise ImageError(f"The picture is empty: {width_px}×{height_px} pixels.")
    if width_px * height_px > MAX_PIXELS:
        raise ImageError(f"The picture has {width_px}×{height_px} pixels; at most {MAX_PIXELS:,} are accepted.")
    if max(width_px, height_px) / min(width_px, height_px) > MAX_ASPECT:
        raise ImageError(f"The picture is too thin: {width_px}×{height_px} pixels (at most {MAX_ASPECT:.0f} to 1).")


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB of a picture of any mode, transparency laid over white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = _to_8_bits(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        ground = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        ground.alpha_composite(rgba)
        image = ground
    return image if image.mode == "RGB" else image.convert("RGB")


def encode_png(image: Image.Image) -> bytes:
    """PNG bytes with fixed settings: the same pixels give the same bytes for one version of Pillow."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=6)
    return buffer.getvalue()


def encode_jpeg(image: Image.Image, quality: int = _JPEG_QUALITY) -> bytes:
    """JPEG bytes, 4:4:4."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality, subsampling=0)
    return buffer.getvalue()


def fit_pixels(
    size_px: tuple[int, int], max_pixels: int = MODEL_MAX_PIXELS, patch: int = MODEL_PATCH
) -> tuple[int, int]:
    """The size at which a model is shown a picture; tools keep working on the original.

    The rule of Qwen-VL's own processors without their lower bound, so that these leave the result as it is.

    Args:
        size_px: Width and height of the original.
        max_pixels: Most pixels of the result; at least one patch is always given.
        patch: Both sides become multiples of this, as the vision encoder needs.

    Returns:
        Width and height, each at least `patch`, with at most `max_pixels` pixels, and proportions as near to the
        original's as multiples of `patch` allow.
    """
    width, height = size_px
    if width <= 0 or height <= 0 or patch <= 0:
        raise ValueError(f"sizes must be positive: {width}×{height} pixels, patch {patch}")
    columns, rows = max(1, round(width / patch)), max(1, round(height / patch))
    most = max(1, max_pixels // (patch * patch))
    if columns * rows > most:
        shrink = math.sqrt(width * height / max_pixels)
        columns, rows = max(1, int(width / shrink / patch)), max(1, int(height / shrink / patch))
        columns, rows = min(columns, most // rows or 1), min(rows, most // min(columns, most) or 1)
    return columns * patch, rows * patch


def _quietly(read: Callable[[], T]) -> T:
    """Read a header without Pillow's warnings: sizes are checked apart, and damage shows when pixels are unpacked."""
    with _header_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read()


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; 1, which is upright, when there is none or the EXIF block is damaged."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # the boundary to Pillow's EXIF parser; a picture with a damaged tag is still a picture
        return 1
    return orientation if isinstance(orientation, int) else 1


def _kept_format(image: ImageFile) -> str:
    """As the second value of `decode_as_stored`, rotation apart; for a picture not yet loaded."""
    plain = (
        image.mode in ("RGB", "L")
        and getattr(image, "n_frames", 1) == 1
        and "transparency" not in image.info
        and not (image.format == "PNG" and image.tile[0].args != image.mode)  # 16 bits, or fewer than 8
    )
    if plain and image.format is not None and image.format in ("PNG", "JPEG"):
        return image.format.lower()
    return "encode_jpeg" if image.format in ("JPEG", "MPO", "WEBP") else "encode_png"


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Scale integer samples by their depth, and floating-point ones by the depth that their largest value suggests."""
    import numpy as np

    samples: np.ndarray = np.nan_to_num(np.asarray(image, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    largest = float(samples.max(initial=0.0))
    depths = (65535.0,) if image.mode.startswith("I;16") else (1.0, 255.0, 65535.0)
    top = next((depth for depth in depths if largest <= depth), largest)
    return Image.fromarray(np.clip(np.rint(samples * (255.0 / top)), 0, 255).astype(np.uint8))
