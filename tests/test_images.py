"""Safe decoding, storage and ingestion of pictures of every kind and in every shape, generated here."""

import base64
import io
import json
import struct
import threading
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin

from opensearch_vl import images
from opensearch_vl.decoding import check_size, to_rgb
from opensearch_vl.errors import BadInput, ImageError, StorageFull
from opensearch_vl.images import ImageBank, ImageStore, decode, encode_jpeg, encode_png, fit_pixels, ingest, ingest_all
from opensearch_vl.types import ImageRef


def picture(width: int = 40, height: int = 24, seed: int = 0) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, rows: bytes, depth: int = 8, colour: int = 2, extra: bytes = b"") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def close(found: Image.Image, wanted: Image.Image, tolerance: float) -> bool:
    assert found.mode == "RGB"
    if found.size != wanted.size:
        return False
    difference = np.abs(np.asarray(found, dtype=int) - np.asarray(wanted.convert("RGB"), dtype=int))
    return float(difference.mean()) <= tolerance


# ---------------------------------------------------------------------------------------------- decoding


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [
        ("PNG", {}, 0), ("BMP", {}, 0), ("TIFF", {}, 0), ("TIFF", {"compression": "tiff_lzw"}, 0), ("PPM", {}, 0),
        ("WEBP", {"lossless": True}, 0), ("JPEG", {"quality": 95}, 6), ("JPEG", {"quality": 95, "progressive": True}, 6),
        ("WEBP", {"quality": 90}, 8), ("GIF", {}, 8), ("PNG", {"interlace": 1}, 0),
    ],
)  # fmt: skip
def test_every_accepted_format_decodes(kind: str, options: dict[str, Any], tolerance: float) -> None:
    assert close(decode(encoded(picture(), kind, **options)), picture(), tolerance)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr", "LA", "RGBA"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    source = picture().convert("L").convert(mode) if mode in ("1", "L", "LA") else picture().convert(mode)
    kind = "TIFF" if mode in ("CMYK", "YCbCr") else "PNG"
    assert close(decode(encoded(source, kind)), source.convert("RGB"), 2)


def test_cmyk_jpeg_keeps_its_colours() -> None:
    assert close(decode(encoded(picture().convert("CMYK"), "JPEG", quality=95)), picture(), 8)


def test_transparency_is_laid_over_white() -> None:
    clear = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    half = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
    assert decode(encoded(clear, "PNG")).getpixel((0, 0)) == (255, 255, 255)
    assert abs(decode(encoded(half, "PNG")).getpixel((0, 0))[0] - 127) <= 1
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([255, 0, 0] + [0] * 765)
    assert decode(encoded(palette, "PNG", transparency=0)).getpixel((0, 0)) == (255, 255, 255)
    assert decode(encoded(palette, "PNG", transparency=b"\x00")).getpixel((0, 0)) == (255, 255, 255)
    assert decode(encoded(palette, "GIF", transparency=0)).getpixel((0, 0)) == (255, 255, 255)
    keyed = Image.new("RGB", (8, 8), (1, 2, 3))
    assert decode(encoded(keyed, "PNG", transparency=(1, 2, 3))).getpixel((0, 0)) == (255, 255, 255)


def test_sixteen_bits_are_scaled_to_eight() -> None:
    ramp = np.linspace(0, 65535, 64).astype(np.uint16)[None, :].repeat(4, axis=0)
    shown = np.asarray(decode(encoded(Image.fromarray(ramp), "PNG")))[0, :, 0]
    assert np.abs(shown - np.linspace(0, 255, 64)).max() <= 1
    dark = np.asarray(decode(encoded(Image.fromarray(ramp // 300), "PNG")))
    assert dark.max() <= 1, "a dark 16-bit picture is not mistaken for an 8-bit one"
    rows = b"".join(b"\0" + struct.pack(">3H", 65535, 32768, 0) * 5 for _ in range(3))
    assert decode(png(5, 3, rows, depth=16)).getpixel((2, 1)) == (255, 128, 0)


@pytest.mark.parametrize("top", [1.0, 200.0, 60000.0, 1e6])
def test_floating_point_is_scaled_by_its_range(top: float) -> None:
    samples = np.linspace(0, top, 64, dtype=np.float32)[None, :].repeat(4, axis=0)
    samples[0, 0] = np.nan
    shown = np.asarray(decode(encoded(Image.fromarray(samples), "TIFF")))[1, :, 0]
    assert shown[0] == 0 and shown[-1] >= 190 and (np.diff(shown.astype(int)) >= 0).all()


@pytest.mark.parametrize("orientation", range(9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_rotation_is_applied(orientation: int, kind: str) -> None:
    source = picture(40, 24)
    inverse = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    stored = source.transpose(inverse[orientation]) if orientation in inverse else source
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert close(decode(encoded(stored, kind, exif=exif)), source, 8)


def test_damaged_exif_does_not_cost_the_picture(tmp_path: Path) -> None:
    for block in (
        b"Exif\0\0garbage",
        b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\xff" * 40,
        b"Exif\0\0II*\0\xff\xff\xff\xff",
    ):
        data = encoded(picture(), "JPEG", exif=block, quality=95)
        assert close(decode(data), picture(), 6)
        assert ImageStore(tmp_path).put_bytes(data).width_px == 40


def test_of_an_animation_or_a_document_the_first_frame_is_taken(tmp_path: Path) -> None:
    frames = [picture(seed=n) for n in range(3)]
    for kind, options in (("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {}), ("TIFF", {})):
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert close(decode(data), frames[0], 8), kind
        ref = ImageStore(tmp_path).put_bytes(data)
        with Image.open(ImageStore(tmp_path).path(ref)) as stored:
            assert getattr(stored, "n_frames", 1) == 1 and stored.mode == "RGB", kind


# ------------------------------------------------------------------------------------------ hostile bytes


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Not a picture"),
        (b"hello", "Not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>", "SVG"),
        (b"  <?xml version='1.0'?><svg/>", "SVG"),
        (b"%PDF-1.7", "vector"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "vector"),
        (b"\x89PNG\r\n\x1a\n", "damaged|Not a picture"),
        (b"GIF89a", "damaged|Not a picture"),
        (b"\xff\xd8\xff\xe0", "damaged|Not a picture"),
        (b"BM" + b"\0" * 60, "damaged|Not a picture|empty"),
        (b"P6\n99999999999 99999999999\n255\n", "too large|at most|damaged|Not"),
        (png(0, 5, b""), "damaged|empty|Not"),
        (png(50_000, 50_000, b"\0"), "at most|too large"),
        (png(12_000, 9_000, b"\0"), "at most"),
        (png(20_000, 10, b"\0"), "too thin"),
        (png(10, 20_000, b"\0"), "too thin"),
    ],
)  # fmt: skip
def test_what_is_no_safe_picture_is_refused_with_a_reason(data: bytes, message: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ImageError, match=message):
            decode(data)


def test_too_many_bytes_are_refused_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opensearch_vl.decoding.MAX_BYTES", 100)
    with pytest.raises(ImageError, match="at most 100"):
        decode(encode_png(picture()))


def test_a_bomb_of_compressed_text_is_refused() -> None:
    bomb = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"a" * 80_000_000, 9))
    with pytest.raises(ImageError):
        decode(png(2, 2, b"\0" * 14, extra=bomb))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"])
def test_a_truncated_picture_is_refused(kind: str) -> None:
    data = encoded(picture(200, 160, 3), kind)
    for part in (0.1, 0.5, 0.9):
        with pytest.raises(ImageError):
            decode(data[: int(len(data) * part)])


def test_a_corrupted_chunk_is_refused() -> None:
    data = bytearray(encode_png(picture(200, 160)))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(ImageError):
        decode(bytes(data))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "PPM"]),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=8),
    st.integers(0, 40),
)
def test_damaged_bytes_give_a_picture_or_an_image_error(kind: str, changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(encoded(picture(24, 16), kind))
    for at, value in changes:
        data[at % min(len(data), 400)] = value
    try:
        found = decode(bytes(data[: len(data) - cut]))
    except ImageError as error:
        assert str(error)
    else:
        assert found.mode == "RGB" and found.width * found.height <= images.MAX_PIXELS


@given(st.binary(max_size=300))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    with pytest.raises(ImageError):
        decode(data)


def test_decoding_in_many_threads_leaves_the_warning_filters_alone() -> None:
    before = list(warnings.filters)
    data, failures = encode_png(picture()), []

    def work() -> None:
        try:
            for _ in range(20):
                decode(data)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and list(warnings.filters) == before


def test_sizes() -> None:
    check_size(10_000, 10_000)
    for size in ((0, 5), (5, 0), (10_001, 10_000), (201, 1)):
        with pytest.raises(ImageError):
            check_size(*size)
    assert to_rgb(Image.new("I;16", (2, 2), 65535)).getpixel((0, 0)) == (255, 255, 255)


# --------------------------------------------------------------------------------------------- the store


def test_plain_pictures_are_kept_byte_for_byte_and_others_encoded_anew(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    grey = picture().convert("L")
    rows16 = b"".join(b"\0" + struct.pack(">3H", 1, 2, 3) * 4 for _ in range(4))
    cases = [
        (encode_png(picture()), True), (encode_jpeg(picture()), True), (encode_png(grey), True), (encoded(grey, "JPEG"), True),
        (encoded(picture().convert("CMYK"), "JPEG"), False), (encoded(picture(), "JPEG", exif=exif), False),
        (encoded(picture().convert("P"), "PNG"), False), (encoded(picture().convert("RGBA"), "PNG"), False),
        (encoded(picture().convert("1"), "PNG"), False), (png(4, 4, rows16, depth=16), False),
        (encoded(picture(), "WEBP"), False), (encoded(picture(), "GIF"), False), (encoded(picture(), "BMP"), False),
    ]  # fmt: skip
    for data, kept in cases:
        ref = store.put_bytes(data)
        assert (store.read(ref) == data) == kept
        with Image.open(io.BytesIO(store.read(ref))) as stored:
            assert stored.format in ("PNG", "JPEG") and stored.mode in ("RGB", "L")
            assert (ref.width_px, ref.height_px) == stored.size
            assert ref.mime == f"image/{stored.format.lower()}"
        assert np.array_equal(np.asarray(store.open(ref)), np.asarray(decode(store.read(ref))))
        assert store.put_bytes(store.read(ref)) == ref, "storing again changes nothing"


def test_one_picture_has_one_file_and_no_leftovers(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    refs = {store.put(picture()) for _ in range(3)} | {store.put(picture(seed=1))}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(refs) == len(files) == 2
    assert all(path.parent.name == path.name[:2] and path.suffix == ".png" for path in files)


def test_many_threads_storing_one_picture(tmp_path: Path) -> None:
    store, refs = ImageStore(tmp_path), []
    threads = [threading.Thread(target=lambda: refs.append(store.put(picture(300, 200)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(refs)) == 1 and len(refs) == 8
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_a_missing_picture_names_itself(tmp_path: Path) -> None:
    ref = ImageStore(tmp_path / "a").put(picture())
    with pytest.raises(ImageError, match=ref.sha256[:12]):
        ImageStore(tmp_path / "b").read(ref)
    assert ref in ImageStore(tmp_path / "b", (ImageStore(tmp_path / "a"),))


def test_a_full_disk_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageFull, match="No space left"):
        ImageStore(tmp_path).put(picture())


def test_a_picture_that_could_not_be_read_back_is_not_stored(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="thin"):
        ImageStore(tmp_path).put(Image.new("RGB", (1000, 2)))


def test_the_bank_only_knows_its_own_ids(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    bank = ImageBank((store.put(picture()),))
    assert bank.add(store.put(picture(seed=1))) == "img_2" and bank.ids() == ["img_1", "img_2"] and len(bank) == 2
    assert bank.get("img_2") == list(bank)[1] == bank.get("2")
    for wrong in ("img_3", "img_0", "", "/etc/passwd", "img_1.5", "img_²", "img_" + "9" * 5000):
        with pytest.raises(BadInput, match="img_1, img_2"):
            bank.get(wrong)


# ------------------------------------------------------------------------------------------------- ingest


def shapes(folder: Path) -> dict[str, Any]:
    data = encode_png(picture())
    text = base64.b64encode(data).decode()
    (folder / "a b é.png").write_bytes(data)
    path = folder / "a b é.png"
    return {
        "bytes": data, "bytearray": bytearray(data), "memoryview": memoryview(data), "numpy bytes": np.bytes_(data),
        "row of bytes": np.frombuffer(data, np.uint8), "decoded": picture(), "pixels": np.asarray(picture()),
        "path": path, "path text": str(path), "relative text": "a b é.png", "numpy text": np.str_(str(path)),
        "base64": text, "base64 lines": base64.encodebytes(data).decode(), "base64 unpadded": text.rstrip("="),
        "base64 url-safe": base64.urlsafe_b64encode(data).decode(), "base64 bytes": text.encode(),
        "data url": f"data:image/png;base64,{text}", "data url upper": f"DATA:image/PNG;BASE64,{text}",
        "data url bytes": f"data:image/png;base64,{text}".encode(), "wrong mime": f"data:image/jpeg;base64,{text}",
        "url": "https://a.example/x.png", "dict bytes": {"bytes": data, "path": None}, "dict path": {"bytes": None, "path": str(path)},
        "dict both": {"bytes": data, "path": "gone.png"}, "dict base64": {"bytes": text}, "dict url": {"url": f"data:image/png;base64,{text}"},
        "chat part": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}}, "dict image": {"image": picture()},
        "list": [data], "tuple": (path,), "nested": [[{"image": [data]}]], "array of dicts": np.array([{"bytes": data}], dtype=object),
        "array of text": np.array([str(path)]), "json list": json.dumps([str(path)]), "json dict": json.dumps({"path": str(path)}),
    }  # fmt: skip


def test_every_shape_of_a_picture_gives_the_same_reference(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    expected = store.put(picture())
    for name, shape in shapes(tmp_path).items():
        found = ingest(shape, store, base=tmp_path, fetch=lambda url: encode_png(picture()))
        assert found == expected, name
    assert ingest(expected, store) == expected


def test_columns_of_none_one_and_several(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    data = encode_png(picture())
    for nothing in (None, "", [], (), b"", np.array([], dtype=object), "[]"):
        assert ingest_all(nothing, store) == ()
    for one in (data, [data], {"bytes": data}, np.array([data], dtype=object), np.asarray(picture()), picture()):
        assert len(ingest_all(one, store)) == 1
    two = [{"bytes": data}, {"bytes": encode_png(picture(seed=1))}]
    assert len(set(ingest_all(two, store))) == len(set(ingest_all(np.array(two, dtype=object), store))) == 2
    (tmp_path / "x.png").write_bytes(data)
    assert len(ingest_all('["x.png", "x.png"]', store, base=tmp_path)) == 2


@pytest.mark.parametrize(
    "shape",
    [
        None, 5, 1.5, True, object(), {}, {"bytes": None}, {"caption": "x"}, [], [1, 2], "", "no such file.png", "x" * 300, "/" * 5000,
        "A" * 400, "a/" * 2000, "file:///etc/passwd", "data:image/png,abc", "data:image/png;base64,@@@", "http://a.example/x.png", "{broken", "[1, 2",
        "\0", "nul\0inside.png", "/dev/zero", "/dev/null", ".", "/", b"x", np.zeros((2, 2, 7), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 0, 3), np.uint8),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_picture_is_an_image_error(tmp_path: Path, shape: Any) -> None:
    with pytest.raises(ImageError):
        ingest(shape, ImageStore(tmp_path), base=tmp_path)


def test_endless_files_and_wrappers_end(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    for path in (Path("/dev/zero"), tmp_path, tmp_path / "gone.png"):
        with pytest.raises(ImageError):
            ingest(path, store)
    wrapped: Any = encode_png(picture())
    for _ in range(5000):
        wrapped = {"image": [wrapped]}
    with pytest.raises(ImageError, match="wrapped"):
        ingest(wrapped, store)
    with pytest.raises(ImageError):
        ingest("[" * 100_000, store)


def test_a_relative_path_cannot_leave_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(encode_png(picture()))
    inside = tmp_path / "data"
    (inside / "sub").mkdir(parents=True)
    (inside / "x.png").write_bytes(encode_png(picture()))
    store = ImageStore(tmp_path / "store")
    assert ingest("sub/../x.png", store, base=inside)
    for escape in ("../secret.png", "sub/../../secret.png", Path("../secret.png"), {"path": "../secret.png"}):
        with pytest.raises(ImageError, match="leaves the folder"):
            ingest(escape, store, base=inside)


def test_short_base64_is_not_taken_for_a_file_name(tmp_path: Path) -> None:
    tiny = encode_png(Image.new("RGB", (1, 1)))
    assert ingest(base64.b64encode(tiny).decode(), ImageStore(tmp_path)).width_px == 1
    middling = base64.b64encode(encode_png(picture())).decode()
    assert 255 < len(middling) < 4096 and ingest(middling, ImageStore(tmp_path)).width_px == 40


def test_a_picture_of_a_tiff_with_strange_tags(tmp_path: Path) -> None:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[65000] = "x" * 1000
    assert ImageStore(tmp_path).put_bytes(encoded(picture(), "TIFF", tiffinfo=tags)).width_px == 40


# ------------------------------------------------------------------------------------ what a model is shown


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((512, 512), (512, 512)), ((1024, 1024), (512, 512)), ((640, 480), (576, 416)), ((1920, 1080), (672, 384)),
        ((30, 30), (32, 32)), ((1, 1), (32, 32)), ((100, 40), (96, 32)), ((20_000, 100), (7232, 32)), ((512, 511), (512, 512)),
    ],
)  # fmt: skip
def test_the_size_that_a_model_is_shown(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert fit_pixels(size) == expected


@given(st.integers(1, 30_000), st.integers(1, 30_000), st.integers(1, 2_000_000), st.sampled_from([14, 16, 28, 32]))
def test_the_size_fits_in_whole_patches_and_keeps_proportions(width: int, height: int, most: int, patch: int) -> None:
    shown = fit_pixels((width, height), most, patch)
    assert min(shown) >= patch and shown[0] % patch == shown[1] % patch == 0
    assert shown[0] * shown[1] <= max(most, patch * patch)
    assert fit_pixels((height, width), most, patch) == shown[::-1]
    if min(shown) >= 8 * patch:
        assert abs(shown[0] / shown[1] / (width / height) - 1) < 0.2
    assert fit_pixels(shown, most, patch) == shown, "fitting twice changes nothing"


def test_an_image_reference_is_frozen(tmp_path: Path) -> None:
    ref = ImageStore(tmp_path).put(picture())
    with pytest.raises(ValueError, match="frozen"):
        ref.width_px = 5  # type: ignore[misc]
    with pytest.raises(ValueError, match="sha256"):
        ImageRef(sha256="../../etc/passwd", mime="image/png", width_px=1, height_px=1)
