"""Choosing the anchor's picture, and noting what identifies it."""

import numpy as np
import pytest
from PIL import Image

from opensearch_vl.images import encode_png
from opensearch_vl.protocols import TextBlock, VisualMatch
from opensearch_vl.questions.anchor import Identified, Picture, choose_picture, identify, name_in
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.settings import AnchorSettings
from opensearch_vl.questions.stages import Rejection


class Colours:
    """Embeds a picture by its mean colour, a text by the colour it names."""

    name = "colours"

    def __init__(self, store):
        self.store = store

    def embed_images(self, images):
        import io

        means = [np.asarray(Image.open(io.BytesIO(data))).reshape(-1, 3).mean(0) for data in images]
        return np.array([m / np.linalg.norm(m) for m in means])

    def embed_texts(self, texts):
        return np.array([[0.0, 1.0, 0.0] for _ in texts])


class Reads:
    name = "reads"

    def __init__(self, *lines):
        self.lines = lines

    async def read(self, image, *, orient=False, charts=False):
        return [TextBlock(line, "text", (0, 0, 1, 1), 0.9) for line in self.lines]


@pytest.fixture
def pictures(store):
    sizes = {"red": (600, 600), "green": (520, 530), "blue": (900, 300)}
    return {colour: store.put(Image.new("RGB", size, colour)) for colour, size in sizes.items()}


def choose(make_wiki, entries, refs, embedder=None, **settings):
    wiki = make_wiki(entries, {"Orla Zoo": refs})
    return choose_picture(Facts(wiki), 0, AnchorSettings(**settings), 512, embedder)


def test_without_an_embedder_the_infobox_picture_comes_first(make_wiki, zoo, pictures) -> None:
    chosen = choose(make_wiki, zoo.entries, (pictures["red"], pictures["green"]))
    assert isinstance(chosen, Picture)
    assert chosen.ref == pictures["red"]
    assert chosen.source.similarity is None
    assert (chosen.source.licence, chosen.source.author, chosen.source.page) == ("CC0", "Ann", "Orla Zoo")


def test_small_pictures_do_not_qualify(make_wiki, zoo, pictures) -> None:
    assert choose(make_wiki, zoo.entries, (pictures["blue"], pictures["green"])).ref == pictures["green"]
    refused = choose(make_wiki, zoo.entries, (pictures["blue"],))
    assert refused == Rejection("anchor", "no_picture", "Orla Zoo")


def test_an_embedder_ranks_and_refuses(make_wiki, zoo, pictures, store) -> None:
    chosen = choose(make_wiki, zoo.entries, (pictures["red"], pictures["green"]), Colours(store))
    assert chosen.ref == pictures["green"]
    assert chosen.source.similarity == pytest.approx(1.0)
    refused = choose(make_wiki, zoo.entries, (pictures["red"],), Colours(store))
    assert isinstance(refused, Rejection)
    assert refused.reason == "low_similarity"
    only_first = choose(
        make_wiki, zoo.entries, (pictures["red"], pictures["green"]), Colours(store), max_candidates=1, min_similarity=0
    )
    assert only_first.ref == pictures["red"]


@pytest.mark.parametrize(
    ("lines", "names", "found"),
    [
        (["ORLA", "ZOO"], ["Orla Zoo"], True),
        (["Welcome to Orla Z0o!"], ["Orla Zoo"], True),
        (["Welcome to Olra Zo"], ["Orla Zoo"], False),
        (["RUNO MOLLE"], ["Rúnö Mølle (mill)"], True),
        (["a bee"], ["Be"], False),
        (["to be"], ["Be"], True),
        ([], ["Orla Zoo"], False),
        (["anything"], ["—"], False),
    ],
)
def test_names_in_lettering(lines, names, found) -> None:
    assert name_in(lines, names, 0.85) is found


class Finds:
    """An image index with fixed matches."""

    name = "finds"

    def __init__(self, *scores):
        self.scores = scores

    async def search(self, image, top_k):
        return [VisualMatch(url, url, "memory", score=score, exact=True) for url, score in self.scores]


class Sharpened:
    """Reads the name only off a picture other than the one first shown."""

    name = "sharpened"

    def __init__(self):
        self.first = None

    async def read(self, image, *, orient=False, charts=False):
        self.first = self.first or image
        return [] if image == self.first else [TextBlock("Orla Zoo", "text", (0, 0, 1, 1), 0.9)]


async def who(index, ocr):
    noise = encode_png(Image.effect_noise((64, 64), 60).convert("RGB"))
    return await identify(
        noise, ["Orla Zoo"], "own", index=index, ocr=ocr, upscaler=None, settings=AnchorSettings(tie_margin=0.05)
    )


@pytest.mark.parametrize(
    ("index", "ocr", "found"),
    [
        (None, Reads("ORLA ZOO"), Identified("lettering")),
        (None, Reads("EXIT"), Identified("appearance")),
        (None, None, Identified("unknown")),
        (Finds(("own", 0.97), ("other", 0.8)), Reads("ORLA ZOO"), Identified("appearance")),
        (Finds(("own", 0.97), ("other", 0.95)), Reads("ORLA ZOO"), Identified("lettering", "", 1)),
        (Finds(("own", 0.97), ("other", 0.95)), None, Identified("unknown", "", 1)),
        (Finds(("own", 0.97), ("other", 0.95)), Sharpened(), Identified("lettering", "sharpen", 1)),
        (Finds(("other", 0.97)), Reads("EXIT"), Rejection("anchor", "picture_not_identifying", "1 look-alikes")),
        (Finds(), Reads("EXIT"), Rejection("anchor", "picture_not_identifying", "0 look-alikes")),
    ],
)
async def test_what_identifies_the_anchor(index, ocr, found) -> None:
    assert await who(index, ocr) == found
