"""Pictures: safe decoding, a content-addressed store, and the bank of `img_1`, `img_2`, … of one rollout.

Whatever a dataset or a tool hands over (path, bytes, base64, data URL, dict, list) becomes an `ImageRef` through
`ingest`. Stored bytes are always a plain 8-bit RGB or grey PNG or JPEG, upright (EXIF rotation applied), of one frame.
Tools work on the stored original; how much of it a model sees is the business of whoever builds the messages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from PIL import Image, ImageOps, UnidentifiedImageError

from opensearch_vl.errors import BadInput, ImageError, StorageFull
from opensearch_vl.types import ImageRef

MAX_BYTES = 50_000_000
"""Encoded pictures above this are refused."""
MAX_PIXELS = 100_000_000
"""Decoded pictures above this are refused before any pixel is unpacked (a 100-megapixel camera is the limit)."""
MAX_ASPECT = 200.0
"""Longest side over shortest side; Qwen-VL processors refuse more than 200."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Pillow decoders we let near untrusted bytes. SVG, EPS and the like can run code or read files: refused."""

_JPEG_QUALITY = 95


def decode(data: bytes) -> Image.Image:
    """Decode untrusted bytes into an upright 8-bit RGB picture of one frame.

    Transparent pixels are laid over white; 16-bit samples are scaled to 8 bits; an animation gives its first frame.

    Raises:
        ImageError: Not a picture, a format outside `FORMATS`, truncated, or over a size limit.
    """
    if len(data) > MAX_BYTES:
        raise ImageError(f"The picture has {len(data):,} bytes; at most {MAX_BYTES:,} are accepted.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
        _check_size(*image.size)
        image.load()
        image = ImageOps.exif_transpose(image) or image
        return _to_rgb(image)
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        what = data[:16].lstrip()[:5]
        hint = "SVG and other vector formats are refused." if what.startswith((b"<svg", b"<?xml")) else ""
        raise ImageError(f"Not a picture in one of {', '.join(FORMATS)}. {hint}".strip()) from error
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, AttributeError) as error:
        raise ImageError(f"The picture is damaged or truncated: {error}.") from error


def _check_size(width_px: int, height_px: int) -> None:
    if width_px <= 0 or height_px <= 0:
        raise ImageError(f"The picture is empty: {width_px}×{height_px} pixels.")
    if width_px * height_px > MAX_PIXELS:
        raise ImageError(f"The picture has {width_px}×{height_px} pixels; at most {MAX_PIXELS:,} are accepted.")
    if max(width_px, height_px) / min(width_px, height_px) > MAX_ASPECT:
        raise ImageError(f"The picture is too thin: {width_px}×{height_px} pixels (at most {MAX_ASPECT:.0f} to 1).")


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I", "F"):
        import numpy as np

        samples = np.asarray(image, dtype=np.float64)
        top = 65535.0 if image.mode.startswith("I") and samples.max(initial=0) > 255 else 255.0
        if image.mode.startswith("I;16"):
            top = 65535.0
        image = Image.fromarray(np.clip(np.nan_to_num(samples) * (255.0 / top), 0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        ground = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        ground.alpha_composite(rgba)
        image = ground
    return image.convert("RGB")


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


class ImageStore:
    """A folder of pictures named by the SHA-256 of their bytes: ``ROOT/ab/<sha256>.png|jpg``.

    Two rollouts that produce the same picture share one file; different pictures can never collide.

    Args:
        root: The folder (``RUN/images``). Created on the first write.
        fallbacks: Stores that are read, never written, when a picture is not in `root`.
    """

    def __init__(self, root: Path | str, fallbacks: tuple[ImageStore, ...] = ()) -> None:
        self.root = Path(root)
        self.fallbacks = fallbacks

    def put(self, image: Image.Image, mime: Literal["image/png", "image/jpeg"] = "image/png") -> ImageRef:
        """Store a decoded picture and return its reference."""
        rgb = image if image.mode in ("RGB", "L") else _to_rgb(image)
        data = encode_png(rgb) if mime == "image/png" else encode_jpeg(rgb)
        return self._write(data, mime, rgb.size)

    def put_bytes(self, data: bytes) -> ImageRef:
        """Store encoded bytes. A plain upright RGB PNG or JPEG is kept as it is; anything else is re-encoded.

        Raises:
            ImageError: If `decode` refuses the bytes.
        """
        image = decode(data)
        with Image.open(io.BytesIO(data), formats=FORMATS) as raw:
            plain = raw.mode == "RGB" and getattr(raw, "n_frames", 1) == 1 and "transparency" not in raw.info
            upright = raw.getexif().get(0x0112, 1) == 1
            if plain and upright and raw.format == "PNG":
                return self._write(data, "image/png", image.size)
            if plain and upright and raw.format == "JPEG":
                return self._write(data, "image/jpeg", image.size)
            lossy = raw.format in ("JPEG", "WEBP")
        return self.put(image, "image/jpeg" if lossy else "image/png")

    def adopt(self, ref: ImageRef, source: ImageStore) -> None:
        """Copy a picture of another store under the same hash, if this folder does not hold it yet.

        Raises:
            ImageError: If `source` does not have it.
        """
        if not self._path(ref.sha256, ref.mime).exists():
            self._write(source.read(ref), ref.mime, (ref.width_px, ref.height_px))

    def path(self, ref: ImageRef) -> Path:
        """Where the picture lies.

        Raises:
            ImageError: If neither this store nor a fallback has it.
        """
        for store in (self, *self.fallbacks):
            candidate = store._path(ref.sha256, ref.mime)
            if candidate.exists():
                return candidate
        raise ImageError(f"Picture {ref.sha256[:12]}… is not in the store.", f"Was the folder {self.root} moved?")

    def read(self, ref: ImageRef) -> bytes:
        """The stored bytes."""
        return self.path(ref).read_bytes()

    def open(self, ref: ImageRef) -> Image.Image:
        """The decoded picture."""
        return decode(self.read(ref))

    def __contains__(self, ref: ImageRef) -> bool:
        return any(store._path(ref.sha256, ref.mime).exists() for store in (self, *self.fallbacks))

    def _path(self, sha256: str, mime: str) -> Path:
        return self.root / sha256[:2] / f"{sha256}{'.png' if mime == 'image/png' else '.jpg'}"

    def _write(self, data: bytes, mime: Literal["image/png", "image/jpeg"], size: tuple[int, int]) -> ImageRef:
        sha256 = hashlib.sha256(data).hexdigest()
        ref = ImageRef(sha256=sha256, mime=mime, width_px=size[0], height_px=size[1])
        target = self._path(sha256, mime)
        if target.exists():
            return ref
        scratch = target.with_name(f".{sha256}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_bytes(data)
            scratch.replace(target)
        except OSError as error:
            scratch.unlink(missing_ok=True)
            raise StorageFull(
                f"Could not store a picture of {len(data):,} bytes in {self.root}: {error.strerror}.",
                "Free some space or choose another --out, then --resume.",
            ) from error
        return ref


class ImageBank:
    """The pictures of one rollout, addressable as `img_1`, `img_2`, … in order of appearance. It only grows."""

    def __init__(self, images: tuple[ImageRef, ...] = ()) -> None:
        self._refs: list[ImageRef] = list(images)

    def add(self, ref: ImageRef) -> str:
        """Append a picture and return its id."""
        self._refs.append(ref)
        return f"img_{len(self._refs)}"

    def get(self, image_id: str) -> ImageRef:
        """Look a picture up by its id.

        Raises:
            BadInput: If there is no such picture; the message lists those there are.
        """
        number = image_id.strip().removeprefix("img_")
        if number.isascii() and number.isdigit() and len(number) < 6 and 1 <= int(number) <= len(self._refs):
            return self._refs[int(number) - 1]
        known = ", ".join(self.ids()) or "none"
        raise BadInput(f"There is no picture {image_id[:80]!r}. Pictures in this conversation: {known}.")

    def ids(self) -> list[str]:
        """All ids, in order."""
        return [f"img_{n}" for n in range(1, len(self._refs) + 1)]

    def __len__(self) -> int:
        return len(self._refs)

    def __iter__(self) -> Iterator[ImageRef]:
        return iter(self._refs)


Fetch = Callable[[str], bytes]


def ingest(obj: Any, store: ImageStore, *, base: Path | None = None, fetch: Fetch | None = None) -> ImageRef:
    """Store a picture of any shape that datasets use and return its reference.

    Accepts an `ImageRef`, a decoded Pillow picture, bytes, a path, base64 text, a data URL, an http(s) URL, a dict with
    `bytes`, `path`, `url`, `image` or `image_url`, and a list holding exactly one of these.

    Args:
        obj: The picture.
        store: Where it goes.
        base: Folder that relative paths are resolved in. Paths come from the operator or a dataset, never from a model.
        fetch: How to get an http(s) URL; the caller's fetcher applies the address guard. None refuses URLs.

    Raises:
        ImageError: If nothing in `obj` is a picture we accept.
    """
    match obj:
        case ImageRef():
            return obj
        case Image.Image():
            _check_size(*obj.size)
            return store.put(obj)
        case bytes() | bytearray() | memoryview():
            return store.put_bytes(bytes(obj))
        case Path():
            return store.put_bytes(_read_file(obj, base))
        case str():
            return _ingest_text(obj, store, base, fetch)
        case Mapping():
            for key in ("bytes", "path", "url", "image", "image_url"):
                if obj.get(key) is not None:
                    return ingest(obj[key], store, base=base, fetch=fetch)
            raise ImageError(f"A picture dict needs one of bytes, path, url, image; this has {sorted(map(str, obj))}.")
        case list() | tuple() if len(obj) == 1:
            return ingest(obj[0], store, base=base, fetch=fetch)
        case list() | tuple():
            raise ImageError(f"Expected one picture, got a list of {len(obj)}; use ingest_all.")
        case _:
            raise ImageError(f"Cannot read a picture from {type(obj).__name__}.")


def ingest_all(
    obj: Any, store: ImageStore, *, base: Path | None = None, fetch: Fetch | None = None
) -> tuple[ImageRef, ...]:
    """Like `ingest` for a column that may hold none, one or several pictures."""
    if obj is None or obj == "" or obj == []:
        return ()
    items = obj if isinstance(obj, list | tuple) else [obj]
    return tuple(ingest(item, store, base=base, fetch=fetch) for item in items)


def _ingest_text(text: str, store: ImageStore, base: Path | None, fetch: Fetch | None) -> ImageRef:
    if text.startswith("data:"):
        header, comma, payload = text.partition(",")
        if not comma or not header.endswith(";base64"):
            raise ImageError("A data URL of a picture must be base64-encoded (data:image/png;base64,…).")
        return store.put_bytes(_from_base64(payload))
    if text.startswith(("http://", "https://")):
        if fetch is None:
            raise ImageError(f"Pictures are not fetched from the network here: {text[:120]}")
        return store.put_bytes(fetch(text))
    if text.startswith("file://"):
        raise ImageError("file:// addresses are refused; give a plain path.")
    if len(text) < 4096 and "\0" not in text:
        path = (base / text) if base is not None else Path(text)
        if path.is_file():
            return store.put_bytes(_read_file(path, None))
    if len(text) >= 64:
        return store.put_bytes(_from_base64(text))
    raise ImageError(f"No picture file at {text!r}.")


def _read_file(path: Path, base: Path | None) -> bytes:
    full = base / path if base is not None else path
    try:
        if full.stat().st_size > MAX_BYTES:
            raise ImageError(f"{full} has {full.stat().st_size:,} bytes; at most {MAX_BYTES:,} are accepted.")
        return full.read_bytes()
    except OSError as error:
        raise ImageError(f"Cannot read the picture {full}: {error.strerror}.") from error


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError("The text is neither a path to a picture nor base64 of one.") from error
