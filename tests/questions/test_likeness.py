"""Near-duplicate pictures: copies are told, other pictures are not, lettered series are left alone."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from opensearch_vl.images import encode_png
from opensearch_vl.questions.likeness import HASH_BITS, Looks, distance, look_of, noted_look, picture_hash
from opensearch_vl.types import Gold, PictureSource, Provenance, Task


def scene(seed: int, size=(640, 480)) -> Image.Image:
    """Blobs of light and dark in random places, as a photograph has them."""
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 12), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert("RGB")


def jpeg(image: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue()))


@pytest.mark.parametrize("seed", range(8))
def test_copies_are_near(seed) -> None:
    image = scene(seed)
    own = picture_hash(image)
    for copy in (jpeg(image, 40), image.resize((213, 160)), image.convert("L"), image.filter(ImageFilter.BoxBlur(2))):
        assert distance(own, picture_hash(copy)) <= 4


def test_other_pictures_are_far() -> None:
    hashes = [picture_hash(scene(seed)) for seed in range(60)]
    assert min(distance(a, b) for n, a in enumerate(hashes) for b in hashes[:n]) > 10


def test_the_hash_balances_its_bits_and_keeps_its_value() -> None:
    found = picture_hash(scene(1))
    assert 28 <= found.bit_count() <= 32  # above the median of 64 values; ties fall below
    assert look_of(encode_png(scene(1))) == f"{found:016x}"


def sign(text: str) -> Image.Image:
    image = scene(3)
    draw = ImageDraw.Draw(image)
    draw.rectangle((200, 300, 440, 360), fill="white")
    draw.text((220, 320), text, fill="black")
    return image


def test_only_lettering_that_was_read_excuses_a_twin() -> None:
    one, other = look_of(encode_png(sign("Orla"))), look_of(encode_png(sign("Brelmark")))
    for lettered in [(True, True), (True, False), (False, True), (False, False)]:
        looks = Looks(4)
        looks.add("one.png", one, lettered[0])
        assert looks.near("other.png", other, lettered[1]) == ("" if all(lettered) else "one.png")


def test_the_nearest_is_named_and_the_file_itself_is_not_its_twin() -> None:
    looks = Looks(4)
    for number in range(200):  # beyond the first block of memory
        looks.add(f"{number}.png", f"{number << 40:016x}", False)
    assert looks.near("new.png", f"{(150 << 40) | 7:016x}", False) == "150.png"
    assert looks.near("new.png", f"{(2**64 - 1) ^ (5 << 40):016x}", False) == ""
    alone = Looks(4)
    alone.add("0.png", f"{9:016x}", False)
    alone.add("0.png", f"{9:016x}", False)
    assert alone.near("0.png", f"{9:016x}", False) == ""
    assert alone.near("1.png", f"{9:016x}", False) == "0.png"


@pytest.mark.parametrize(("most", "found"), [(-1, ""), (0, ""), (1, "a"), (HASH_BITS, "a")])
def test_the_distance_is_a_bound(most, found) -> None:
    looks = Looks(most)
    looks.add("a", f"{6:016x}", False)
    assert looks.near("b", f"{7:016x}", False) == found


def test_tasks_without_a_noted_hash_say_nothing() -> None:
    bare = Task(id="a", question="?", gold=Gold(answer="x"), provenance=Provenance(corpus="other"))
    assert noted_look(bare) is None
    picture = PictureSource(file="f.png", page="P", identified_by="lettering")
    noted = Provenance(picture=picture, extra={"picture_hash": "00000000000000ff"})
    assert noted_look(bare.model_copy(update={"provenance": noted})) == ("f.png", "00000000000000ff", True)
