"""Reverse image search by look, with a fake embedder: colours as vectors."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from opensearch_vl.backends import embedding_index
from opensearch_vl.backends.embedding_index import UNCALIBRATED, EmbeddingImageIndex
from opensearch_vl.backends.image_folder import Showing
from opensearch_vl.backends.image_index import LocalImageIndex
from opensearch_vl.errors import BadInput, DataError
from opensearch_vl.images import decode, encode_png

Colour = tuple[int, int, int]
RED, GREEN, BLUE, GREY = (250, 5, 5), (5, 250, 5), (5, 5, 250), (90, 90, 90)


class Colours:
    """A picture is its mean colour, as a unit vector."""

    name = "colours"

    def __init__(self, fingerprint: str = "v1") -> None:
        self.fingerprint = fingerprint
        self.checkpoint = Path("colours")
        self.num_embedded = 0

    def embed_images(self, images: list[bytes]) -> Any:
        self.num_embedded += len(images)
        rows = np.array([np.asarray(decode(i).convert("RGB"), np.float32).mean((0, 1)) for i in images])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def png(colour: Colour, size: int = 8) -> bytes:
    return encode_png(Image.new("RGB", (size, size), colour))


def shown(name: str, page_id: int = -1) -> Showing:
    return Showing(name, f"w://{name}", f"{name}.png", f"About {name}.", page_id)


def pictures() -> Iterator[tuple[bytes, Showing]]:
    for page_id, (name, colour) in enumerate({"red": RED, "green": GREEN, "blue": BLUE, "grey": GREY}.items()):
        yield png(colour), shown(name, page_id)


@pytest.fixture
def index(tmp_path: Path) -> EmbeddingImageIndex:
    return EmbeddingImageIndex.build_from_pictures(pictures(), tmp_path / "index", Colours())


async def test_a_picture_that_looks_alike_is_found_and_never_called_the_same(index: EmbeddingImageIndex) -> None:
    match, *_ = await index.search(png((250, 12, 9), 20), 5)
    assert (match.title, match.url, match.source, match.snippet) == ("red", "w://red", "red.png", "About red.")
    assert match.score > 0.99 and not match.exact


async def test_what_looks_like_nothing_stored_has_no_confident_match(index: EmbeddingImageIndex) -> None:
    # the nearest other picture of each is at most grey, at a cosine of 0.60: that is what a match has to beat
    assert index.threshold == pytest.approx(0.60, abs=0.01)
    assert await index.search(png((250, 250, 0)), 5) != []  # yellow: 0.82 to grey
    strict = EmbeddingImageIndex(index.path, index.embedder, min_similarity=0.9)
    assert await strict.search(png((250, 250, 0)), 5) == []


def test_a_collection_of_look_alikes_asks_for_more(tmp_path: Path) -> None:
    close = [(png((250, n, 0)), shown(str(n))) for n in range(0, 60, 10)]
    index = EmbeddingImageIndex.build_from_pictures(close, tmp_path / "index", Colours())
    assert index.threshold > 0.999
    assert [m.title for m in index.search_now(png((250, 20, 0)), 5)][:1] == ["20"]
    assert index.search_now(png((250, 120, 0)), 5) == []


def test_one_page_says_nothing_about_what_is_similar(tmp_path: Path) -> None:
    two_of_one = [(png(RED), shown("red")), (png((240, 40, 5)), shown("red"))]
    index = EmbeddingImageIndex.build_from_pictures(two_of_one, tmp_path / "index", Colours())
    assert index.threshold == UNCALIBRATED
    assert index.search_now(png(BLUE), 3) == []


def test_an_empty_index(tmp_path: Path) -> None:
    index = EmbeddingImageIndex.build_from_pictures([], tmp_path / "index", Colours())
    assert len(index) == 0 and index.search_now(png(RED), 3) == []
    assert index.append(pictures()) == 4 and index.search_now(png(RED), 1)[0].title == "red"


def test_appending_embeds_only_what_is_new_and_adds_pages(index: EmbeddingImageIndex) -> None:
    before = index.embedder.num_embedded
    more = [(png(RED), shown("crimson")), (png((250, 250, 0)), shown("yellow")), (png((250, 250, 0)), shown("lemon"))]
    assert index.append(more) == 1 and len(index) == 5
    assert index.embedder.num_embedded == before + 1
    assert {match.title for match in index.search_now(png(RED), 5)} == {"red", "crimson"}
    assert {match.title for match in index.search_now(png((250, 250, 0)), 2)} == {"yellow", "lemon"}


def test_an_append_that_was_cut_off_leaves_no_trace(index: EmbeddingImageIndex) -> None:
    def broken() -> Iterator[tuple[bytes, Showing]]:
        yield from ((png((n, 200, 7)), shown(f"n{n}")) for n in range(80))  # more than a batch
        raise RuntimeError("cut off")

    with pytest.raises(RuntimeError):
        index.append(broken())
    again = EmbeddingImageIndex(index.path, Colours())
    assert len(again) == 4
    assert again.append([(png((5, 250, 250)), shown("cyan"))]) == 1
    assert again.search_now(png((5, 250, 250)), 1)[0].title == "cyan"
    assert (index.path / "vectors.f32").stat().st_size == 5 * 3 * 4


def test_hidden_pages_are_not_found(index: EmbeddingImageIndex) -> None:
    for hidden in (0, "w://red"):
        found = EmbeddingImageIndex(index.path, Colours(), exclude=[hidden]).search_now(png(RED), 5)
        assert "red" not in {match.title for match in found}


async def test_what_is_refused(index: EmbeddingImageIndex, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        await index.search(b"not a picture", 3)
    with pytest.raises(DataError, match="another model"):
        EmbeddingImageIndex(index.path, Colours("v2"))
    with pytest.raises(DataError, match="not a image_embedding index"):
        LocalImageIndex.build_from_pictures([], tmp_path / "features")
        EmbeddingImageIndex(tmp_path / "features", Colours())
    with pytest.raises(DataError, match="not a image index"):
        LocalImageIndex(index.path)


class ExactGraph:
    """What is used of `usearch.index.Index`, by comparing with all."""

    saved: ClassVar[dict[str, Any]] = {}
    num_searches = 0

    def __init__(self, ndim: int, metric: str, dtype: str) -> None:
        assert (metric, dtype) == ("cos", "f32")

    def add(self, keys: Any, vectors: Any) -> None:
        self.vectors = vectors

    def save(self, path: Path) -> None:
        path.write_bytes(b"graph")
        ExactGraph.saved[str(path.name)] = self

    @classmethod
    def restore(cls, path: Path, view: bool) -> "ExactGraph":
        assert path.is_file() and view
        found: ExactGraph = cls.saved[path.name]
        return found

    def search(self, query: Any, count: int) -> Any:
        ExactGraph.num_searches += 1
        return SimpleNamespace(keys=np.argsort(-(self.vectors @ query))[:count])


def test_large_collections_go_through_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_index, "_usearch", lambda: SimpleNamespace(Index=ExactGraph))
    monkeypatch.setattr(embedding_index, "GRAPH_FROM", 4)
    index = EmbeddingImageIndex.build_from_pictures(pictures(), tmp_path / "index", Colours())
    assert index.search_now(png(BLUE), 1)[0].title == "blue" and ExactGraph.num_searches == 1
    index.append([(png((5, 250, 250)), shown("cyan"))])
    assert index.search_now(png((5, 250, 250)), 1)[0].title == "cyan" and ExactGraph.num_searches == 2
    monkeypatch.setattr(embedding_index, "_usearch", lambda: None)  # written with usearch, read without
    assert EmbeddingImageIndex(index.path, Colours()).search_now(png(BLUE), 1)[0].title == "blue"
