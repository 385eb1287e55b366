"""Reverse image search: recall under distortion, honest silence and ambiguity, appending, crashes, exclusion."""

import asyncio
import errno
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from backends.fake_wiki import FakePage, FakeWiki
from backends.pictures import DISTORTIONS, encoded, facade
from PIL import Image, ImageFilter

from opensearch_vl.backends import features, geometry, vocabulary
from opensearch_vl.backends.corpus import INDEX_VERSION
from opensearch_vl.backends.image_index import LocalImageIndex, Showing, picture_folder
from opensearch_vl.errors import BadInput, DataError, ImageError, StorageFull

SIGNS = ("Kelmora Hall", "Vanbri House", "Dunolo Baths")
PAGES = [
    FakePage(f"House {n}", "A long story. " * 100, {"built": "1900"}, pictures={f"House {n}.png": facade(n)})
    for n in range(10)
] + [FakePage(sign, "Text.", pictures={f"{sign}.png": facade(77, sign)}) for sign in SIGNS]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> LocalImageIndex:
    root = tmp_path_factory.mktemp("pictures")
    return LocalImageIndex.build(FakeWiki(PAGES, root), root / "index")


@pytest.mark.parametrize("kind", list(DISTORTIONS))
def test_finds_the_page_under_distortion(index: LocalImageIndex, kind: str) -> None:
    for number in (0, 4, 9):
        found = asyncio.run(index.search(DISTORTIONS[kind](facade(number)), 5))
        assert [match.title for match in found] == [f"House {number}"], kind
        assert found[0].exact and 0.4 < found[0].score <= 1.0


def test_a_match_tells_page_address_source_and_opening(index: LocalImageIndex) -> None:
    match = index.search_now(encoded(facade(3)), 1)[0]
    assert match.url == "https://fake.invalid/wiki/House_3" and match.source == "House 3.png"
    assert match.snippet.startswith("Built: 1900") and len(match.snippet) == 600


def test_unknown_pictures_have_no_confident_match(index: LocalImageIndex) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (400, 400, 3), np.uint8)
    unknown = [
        facade(500),
        facade(501),
        Image.fromarray(noise),
        Image.new("RGB", (300, 200), "white"),
        Image.new("RGB", (1, 1)),
    ]
    assert [index.search_now(encoded(image), 5) for image in unknown] == [[]] * 5


def test_mirrored_pictures_are_not_the_same_picture(index: LocalImageIndex) -> None:
    assert index.search_now(encoded(facade(2).transpose(Image.Transpose.FLIP_LEFT_RIGHT)), 5) == []


def test_pictures_that_differ_only_in_lettering_are_all_named(index: LocalImageIndex) -> None:
    blurred = facade(77, SIGNS[1]).filter(ImageFilter.GaussianBlur(3))
    found = index.search_now(encoded(blurred), 5)
    assert {match.title for match in found} == set(SIGNS)
    scores = [match.score for match in found]
    assert max(scores) - min(scores) < 0.1


def test_top_k_and_nonsense(index: LocalImageIndex) -> None:
    assert len(index.search_now(encoded(facade(77, SIGNS[0])), 2)) == 2
    assert index.search_now(encoded(facade(0)), 0) == []
    with pytest.raises(BadInput):
        index.search_now(b"not a picture", 5)


def test_excluded_pages_stay_hidden(index: LocalImageIndex) -> None:
    blinded = LocalImageIndex(index.path, exclude={3, "https://fake.invalid/wiki/House_4"})
    assert blinded.search_now(encoded(facade(3)), 5) == [] and blinded.search_now(encoded(facade(4)), 5) == []
    assert blinded.search_now(encoded(facade(5)), 5)


def test_one_picture_on_two_pages_gives_both(tmp_path: Path) -> None:
    data = encoded(facade(1))
    shown = [(data, Showing("A", "http://a.invalid", "x.png")), (data, Showing("B", "http://b.invalid", "x.png"))]
    built = LocalImageIndex.build_from_pictures(shown, tmp_path / "index")
    assert len(built) == 1 and [m.title for m in built.search_now(data, 5)] == ["A", "B"]


def test_append_adds_and_knows_what_it_has(tmp_path: Path) -> None:
    first = [(encoded(facade(n)), Showing(str(n), f"http://p.invalid/{n}", f"{n}.png")) for n in range(2)]
    more = [(encoded(facade(n)), Showing(str(n), f"http://p.invalid/{n}", f"{n}.png")) for n in range(1, 9)]
    built = LocalImageIndex.build_from_pictures(first, tmp_path / "index")
    assert built.search_now(encoded(facade(7)), 1) == []
    assert built.append(more) == 7 and len(built) == 9
    for opened in (built, LocalImageIndex(tmp_path / "index")):
        assert [opened.search_now(encoded(facade(n)), 1)[0].title for n in (0, 1, 7)] == ["0", "1", "7"]


def test_an_append_that_dies_half_way_changes_nothing(tmp_path: Path) -> None:
    def dying():
        yield encoded(facade(5)), Showing("5", "http://p.invalid/5", "5.png")
        raise DataError("the list is torn")

    built = LocalImageIndex.build_from_pictures(
        [(encoded(facade(0)), Showing("0", "http://p.invalid/0", "0.png"))], tmp_path / "i"
    )
    with pytest.raises(DataError, match="torn"):
        built.append(dying())
    with open(tmp_path / "i" / "descriptors.u8", "ab") as handle:
        handle.write(b"torn")  # what a kill between two writes leaves
    assert len(built) == 1 and built.search_now(encoded(facade(5)), 1) == []
    built.append([(encoded(facade(6)), Showing("6", "http://p.invalid/6", "6.png"))])
    assert (
        built.search_now(encoded(facade(6)), 1)[0].title == "6"
        and built.search_now(encoded(facade(0)), 1)[0].title == "0"
    )


def test_a_bad_picture_names_itself_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="bad\\.png"):
        LocalImageIndex.build_from_pictures([(b"junk", Showing("t", "u", "bad.png"))], tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_apart_from_a_damaged_input(tmp_path: Path) -> None:
    def failing(number: int):
        yield encoded(facade(0)), Showing("0", "http://p.invalid/0", "0.png")
        raise OSError(number, "what happened")

    with pytest.raises(StorageFull):
        LocalImageIndex.build_from_pictures(failing(errno.ENOSPC), tmp_path / "index")
    with pytest.raises(DataError, match="what happened"):
        LocalImageIndex.build_from_pictures(failing(errno.EIO), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_index_finds_nothing(tmp_path: Path) -> None:
    built = LocalImageIndex.build_from_pictures([], tmp_path / "index")
    assert built.search_now(encoded(facade(0)), 5) == []


def test_refuses_folders_that_are_no_index(tmp_path: Path, index: LocalImageIndex) -> None:
    with pytest.raises(DataError, match="is not a image index"):
        LocalImageIndex(tmp_path)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "index.json").write_text(
        json.dumps({"schema_version": INDEX_VERSION, "kind": "image", "generation": 1, "seed": 0})
    )
    with pytest.raises(DataError, match="damaged"):
        LocalImageIndex(broken).search_now(encoded(facade(0)), 1)


def test_a_plain_folder_with_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    facade(1).save(folder / "a.png")
    facade(2).save(folder / "b.jpg", quality=90)
    row = {"file": "a.png", "title": "My house", "url": "https://me.invalid/a", "snippet": "Ours."}
    (folder / "metadata.jsonl").write_text(json.dumps(row) + "\n")
    built = LocalImageIndex.build_from_pictures(picture_folder(folder), tmp_path / "index")
    first, second = built.search_now(encoded(facade(1)), 1)[0], built.search_now(encoded(facade(2)), 1)[0]
    assert (first.title, first.url, first.snippet) == ("My house", "https://me.invalid/a", "Ours.")
    assert (second.title, second.source) == ("b", "b.jpg")
    with pytest.raises(DataError, match="no pictures"):
        list(picture_folder(tmp_path / "index"))


def test_two_builds_agree_and_threads_too(tmp_path: Path, index: LocalImageIndex) -> None:
    again = LocalImageIndex.build(FakeWiki(PAGES, tmp_path), tmp_path / "index")
    queries = [DISTORTIONS["blur"](facade(n)) for n in (1, 77)]
    expected = [index.search_now(query, 5) for query in queries]
    seen: list[bool] = []
    threads = [
        threading.Thread(target=lambda: seen.append([again.search_now(q, 5) for q in queries] == expected))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 4


def test_geometry_recovers_a_known_map() -> None:
    rng = np.random.default_rng(1)
    points = np.column_stack(
        [rng.uniform(20, 460, (120, 2)), rng.uniform(4, 30, 120), rng.uniform(0, 360, 120)]
    ).astype(np.float32)
    moved = points.copy()
    moved[:, :2] = points[:, :2] @ np.array([[0.8, 0.1], [-0.1, 0.8]]) + 30
    turn = np.degrees(np.arctan2(0.1, 0.8))
    moved[:, 2] *= np.hypot(0.8, 0.1)
    moved[:, 3] = (moved[:, 3] + turn) % 360
    moved[80:, :2] = rng.uniform(0, 480, (40, 2))  # a third of the matches are wrong
    blank = np.zeros((120, 128), np.uint8)
    query, stored = features.Features(points, blank, 480, 480), features.Features(moved, blank, 480, 480)
    fit = geometry.fit(query, stored, np.arange(120), np.arange(120))
    assert fit is not None and 78 <= fit.inliers <= 84 and fit.coverage > 0.5
    assert np.allclose(fit.homography[:2, :2] / fit.homography[2, 2], [[0.8, -0.1], [0.1, 0.8]], atol=0.01)


def test_geometry_refuses_chance_and_mirrors() -> None:
    rng = np.random.default_rng(2)
    blank = np.zeros((100, 128), np.uint8)
    points = np.column_stack([rng.uniform(0, 480, (100, 2)), np.full(100, 8), np.zeros(100)]).astype(np.float32)
    other = np.column_stack([rng.uniform(0, 480, (100, 2)), np.full(100, 8), np.zeros(100)]).astype(np.float32)
    mirrored = points * np.array([-1, 1, 1, 1], np.float32) + np.array([480, 0, 0, 0], np.float32)
    query = features.Features(points, blank, 480, 480)
    for stored in (other, mirrored):
        assert geometry.fit(query, features.Features(stored, blank, 480, 480), np.arange(100), np.arange(100)) is None


def test_vocabulary_survives_tiny_and_degenerate_collections() -> None:
    same = np.full((5, 128), 40, np.uint8)
    centres = vocabulary.train(same, 32, 0)
    postings = vocabulary.Postings.make(centres, same, np.array([2, 3], np.int32), 0)
    assert set(postings.vote(same[:1], 5)) <= {0, 1}
    assert vocabulary.num_words(0) == 32 and vocabulary.num_words(10**9) == 8192
