"""Pictures: safe decoding, a content-addressed store, and the bank of `img_1`, `img_2`, … of one rollout.

Whatever a dataset or a tool hands over (path, bytes, base64, data URL, dict, list) becomes an `ImageRef` through
`ingest`. Stored bytes are always a plain 8-bit RGB or grey PNG or JPEG, upright (EXIF rotation applied), of one frame.
Tools work on the stored original; how much of it a model sees is the business of whoever builds the messages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image

from opensearch_vl.decoding import (
    FORMATS,
    MAX_ASPECT,
    MAX_BYTES,
    MAX_PIXELS,
    MODEL_MAX_PIXELS,
    MODEL_PATCH,
    check_size,
    decode,
    decode_as_stored,
    encode_jpeg,
    encode_png,
    fit_pixels,
    to_rgb,
)
from opensearch_vl.errors import BadInput, ImageError, StorageFull
from opensearch_vl.types import ImageRef

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "FORMATS",
    "MAX_ASPECT",
    "MAX_BYTES",
    "MAX_PIXELS",
    "MODEL_MAX_PIXELS",
    "MODEL_PATCH",
    "Fetch",
    "ImageBank",
    "ImageStore",
    "decode",
    "encode_jpeg",
    "encode_png",
    "fit_pixels",
    "ingest",
    "ingest_all",
]

_MAX_NESTING = 8
_MAX_PATH = 4096
_URL_SAFE = str.maketrans("-_", "+/")
_BASE64_STARTS = (b"data:image/", b"iVBORw0KGgo", b"/9j/", b"UklGR", b"R0lGOD", b"Qk0", b"SUkq", b"TU0A")
"""How base64 text of PNG, JPEG, WebP, GIF, BMP and TIFF begins; no picture itself begins like this."""


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
        check_size(*image.size)
        rgb = image if image.mode in ("RGB", "L") and "transparency" not in image.info else to_rgb(image)
        data = encode_png(rgb) if mime == "image/png" else encode_jpeg(rgb)
        return self._write(data, mime, rgb.size)

    def put_bytes(self, data: bytes) -> ImageRef:
        """Store encoded bytes. A plain upright RGB or grey PNG or JPEG is kept as it is; anything else is re-encoded.

        Raises:
            ImageError: If `decode` refuses the bytes.
        """
        image, kept = decode_as_stored(data)
        if kept in ("png", "jpeg"):
            return self._write(data, "image/png" if kept == "png" else "image/jpeg", image.size)
        return self.put(image, "image/jpeg" if kept == "encode_jpeg" else "image/png")

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

    Accepts an `ImageRef`, a decoded Pillow picture or ``[H, W, 3]`` array, bytes, a path, base64 text, a data URL, an
    http(s) URL, a dict with `bytes`, `path`, `url`, `image` or `image_url`, JSON text of these, and a list or array
    holding exactly one of them.

    Args:
        obj: The picture.
        store: Where it goes.
        base: Folder that relative paths are resolved in and may not leave. Paths come from the operator or a dataset,
            never from a model.
        fetch: How to get an http(s) URL; the caller's fetcher applies the address guard. None refuses URLs.

    Raises:
        ImageError: If nothing in `obj` is a picture we accept.
    """
    for _ in range(_MAX_NESTING):
        match obj:
            case ImageRef():
                return obj
            case Image.Image():
                return store.put(obj)
            case bytes() | bytearray() | memoryview():
                return store.put_bytes(_unarmoured(bytes(obj)))
            case Path():
                return store.put_bytes(_read_file(_inside(obj, base)))
            case str() if obj.lstrip()[:1] in ("[", "{"):
                obj = _from_json(obj)
            case str():
                return _ingest_text(obj.strip(), store, base, fetch)
            case Mapping():
                obj = _pick(obj)
            case list() | tuple() if len(obj) == 1:
                obj = obj[0]
            case list() | tuple():
                raise ImageError(f"Expected one picture, got a list of {len(obj)}; use ingest_all.")
            case _ if _is_array(obj):
                obj = _from_array(obj)
            case _:
                raise ImageError(f"Cannot read a picture from {type(obj).__name__}.")
    raise ImageError(f"The picture is wrapped in more than {_MAX_NESTING} lists or dicts.")


def ingest_all(
    obj: Any, store: ImageStore, *, base: Path | None = None, fetch: Fetch | None = None
) -> tuple[ImageRef, ...]:
    """Like `ingest` for a column that may hold none, one or several pictures."""
    if isinstance(obj, str) and obj.lstrip()[:1] == "[":
        obj = _from_json(obj)
    if _is_array(obj) and obj.dtype.kind in "OUS":
        obj = obj.tolist()
    if obj is None or (isinstance(obj, str | bytes | list | tuple) and not obj):
        return ()
    items = obj if isinstance(obj, list | tuple) else [obj]
    return tuple(ingest(item, store, base=base, fetch=fetch) for item in items)


def _pick(wrapped: Mapping[Any, Any]) -> Any:
    for key in ("bytes", "path", "url", "image", "image_url"):
        if wrapped.get(key) is not None:
            return wrapped[key] if key != "path" or isinstance(wrapped[key], str | Path) else str(wrapped[key])
    keys = sorted(map(str, wrapped))[:10]
    raise ImageError(f"A picture dict needs one of bytes, path, url, image, image_url; this has {keys}.")


def _is_array(obj: Any) -> bool:
    """Whether `obj` is a NumPy array, without loading NumPy to find out."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.ndarray)


def _from_array(array: np.ndarray) -> Any:
    """An array of objects is a list, a row of bytes is an encoded picture, anything else must be pixels."""
    if array.dtype.kind in "OUS":
        return array.tolist()
    if array.dtype == "uint8" and array.ndim == 1:
        return array.tobytes()
    if array.dtype == "uint8" and (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))) and array.size:
        return Image.fromarray(array)
    raise ImageError(
        f"An array of {array.dtype} with shape {list(array.shape)} is no picture; expected uint8 [H, W, 3]."
    )


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"The text {text[:60]!r} is neither a path, nor base64, nor JSON of a picture.") from error


def _ingest_text(text: str, store: ImageStore, base: Path | None, fetch: Fetch | None) -> ImageRef:
    head = text[:8].lower()
    if head.startswith("data:"):
        header, comma, payload = text.partition(",")
        if not comma or not header.lower().endswith(";base64"):
            raise ImageError("A data URL of a picture must be base64-encoded (data:image/png;base64,…).")
        return store.put_bytes(_from_base64(payload))
    if head.startswith(("http://", "https://")):
        if fetch is None:
            raise ImageError(f"Pictures are not fetched from the network here: {text[:120]}")
        return store.put_bytes(fetch(text))
    if head.startswith("file://"):
        raise ImageError("file:// addresses are refused; give a plain path.")
    if len(text) < _MAX_PATH and "\0" not in text:
        path = _inside(Path(text), base)
        if _is_file(path):
            return store.put_bytes(_read_file(path))
    if len(text) >= 64:
        return store.put_bytes(_from_base64(text))
    raise ImageError(f"No picture file at {text!r}.")


def _inside(path: Path, base: Path | None) -> Path:
    """The path, resolved in `base`; a relative one may not climb out of it."""
    if base is None or path.is_absolute():
        return path
    full = base / path
    if ".." in path.parts and not Path(os.path.normpath(full)).is_relative_to(os.path.normpath(base)):
        raise ImageError(f"The path {str(path)[:120]!r} leaves the folder of the dataset.")
    return full


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # base64 text makes names that no file system takes
        return False


def _read_file(path: Path) -> bytes:
    if not _is_file(path):
        raise ImageError(f"There is no picture file {str(path)[:300]}.")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ImageError(f"{path} has {path.stat().st_size:,} bytes; at most {MAX_BYTES:,} are accepted.")
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"Cannot read the picture {path}: {error.strerror}.") from error


def _unarmoured(data: bytes) -> bytes:
    """Bytes of a picture; some datasets store its base64 text or data URL as bytes."""
    if not data.startswith(_BASE64_STARTS):
        return data
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        return data
    return _from_base64(text.partition(",")[2] if text.startswith("data:") else text)


def _from_base64(text: str) -> bytes:
    """Standard or URL-safe base64, with or without line breaks and padding."""
    plain = "".join(text.split()).rstrip("=").translate(_URL_SAFE)
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError("The text is neither a path to a picture nor base64 of one.") from error
