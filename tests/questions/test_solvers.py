"""The attackers are strong and honest: each solves exactly what its tools let it, and none sees the gold."""

import hashlib

import pytest
from questions.worlds import MemoryWiki

from opensearch_vl.errors import BackendDown
from opensearch_vl.protocols import Page, Passage, Solver, VisualMatch
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.reading import Document, answer_from, reduce, replace_picture, understand
from opensearch_vl.questions.solvers import (
    GuessCommonValue,
    GuessFromMemory,
    ImageThenText,
    OneImageSearch,
    OneTextSearch,
    ReadImageMatches,
    common_values,
)
from opensearch_vl.text import words
from opensearch_vl.types import TaskView, Termination


class WordSearch:
    """Ranks documents by how many of the query's words they contain."""

    name = "word-search"

    def __init__(self, wiki: MemoryWiki):
        self.wiki, self.queries = wiki, []

    async def search(self, query, top_k, lang="en"):
        self.queries.append(query)
        scored = []
        for n in range(len(self.wiki)):
            tokens = set(words(self.wiki.page(n).title + " " + self.wiki.document(n)))
            scored.append((-sum(len(w) > 3 and w in tokens for w in set(words(query))), n))
        return [
            Passage(self.wiki.page(n).title, self.wiki.url(n), self.wiki.document(n), -score)
            for score, n in sorted(scored)[:top_k]
            if score
        ]


class Reader:
    name = "reader"

    def __init__(self, wiki):
        self.wiki = wiki

    async def read(self, url):
        n = self.wiki.page_at(url)
        return Page(self.wiki.page(n).title, url, self.wiki.document(n))


class KnownPictures:
    """Knows whose picture is whose, by its bytes."""

    name = "known-pictures"

    def __init__(self, wiki, titles):
        self.wiki = wiki
        self.pages = {}
        for title in titles:
            for image in wiki.page_images(wiki.id(title)):
                self.pages[hashlib.sha256(wiki.images.read(image.ref)).hexdigest()] = title

    async def search(self, image, top_k):
        title = self.pages.get(hashlib.sha256(image).hexdigest())
        if title is None:
            return []
        n = self.wiki.id(title)
        return [VisualMatch(title, self.wiki.url(n), "memory", self.wiki.document(n)[:600], 0.9, True)]


class Broken:
    name = "broken"

    async def search(self, *args, **kwargs):
        raise BackendDown("no answer")


FULL = "What is the birth date of the spouse of the manager of the zoo in the picture?"
NAMED = "What is the birth date of the spouse of Stefan Irvald (the manager of Orla Zoo)?"


@pytest.fixture
def picture(zoo):
    return zoo.page_images(zoo.id("Orla Zoo"))[0].ref


async def response(solver: Solver, question, images=()):
    trajectory = await solver.solve(TaskView(id="t", question=question, images=tuple(images)), seed=1)
    assert trajectory.task_id == "t"
    return trajectory.response


async def test_one_text_search_needs_names(zoo) -> None:
    solver = OneTextSearch(WordSearch(zoo), Reader(zoo), top_k=3)
    assert await response(solver, NAMED) == "20 July 1964"
    assert await response(solver, FULL) != "20 July 1964"


async def test_one_image_search_reads_the_page_it_finds(zoo, picture) -> None:
    index = KnownPictures(zoo, ["Orla Zoo"])
    for solver in (OneImageSearch(index, zoo.images), ReadImageMatches(index, zoo.images)):
        assert await response(solver, "When did the zoo in the picture open?", [picture]) is not None
        assert "3 June 1970" in await response(solver, "What is the opened of the zoo in the picture?", [picture])
        assert "1964" not in await response(solver, FULL, [picture])
        assert "could not" in await response(solver, FULL)


async def test_image_then_text_gains_a_hop_by_reading_the_opening(zoo, picture) -> None:
    index, engine = KnownPictures(zoo, ["Orla Zoo"]), WordSearch(zoo)
    deep = ImageThenText(index, engine, zoo.images, Reader(zoo), top_k=2)
    assert await response(deep, FULL, [picture]) == "20 July 1964"
    assert engine.queries == ["What is the birth date of the spouse of Stefan Irvald?"]
    plain = ImageThenText(index, engine, zoo.images, Reader(zoo), read_opening=False, top_k=1)
    await response(plain, FULL, [picture])
    assert engine.queries[-1] == "What is the birth date of the spouse of the manager of Orla Zoo?"


async def test_without_a_picture_image_solvers_answer_nothing(zoo) -> None:
    index, engine = KnownPictures(zoo, ["Orla Zoo"]), WordSearch(zoo)
    named = FULL.replace("the zoo in the picture", "Orla Zoo")
    for solver in (
        OneImageSearch(index, zoo.images),
        ReadImageMatches(index, zoo.images),
        ImageThenText(index, engine, zoo.images, Reader(zoo)),
    ):
        assert "could not" in await response(solver, named, [])
    assert engine.queries == []


async def test_guesses(zoo) -> None:
    prior = common_values(Facts(zoo))
    assert prior["occupation"] == "writer"
    assert await response(GuessCommonValue(prior), "What is the occupation of the person in the picture?") == "writer"
    assert "could not" in await response(GuessCommonValue({}), "Why?")
    memory = [("Who is the mayor of it?", "Ila"), ("How tall is the tower in the picture?", "57 m"), (FULL, "own")]
    assert await response(GuessFromMemory(memory), "How tall is the tree in the picture?") == "57 m"
    assert await response(GuessFromMemory(memory), FULL) != "own"


async def test_a_broken_backend_is_a_failed_trajectory_not_a_wrong_answer(zoo, picture) -> None:
    view = TaskView(id="t", question=FULL, images=(picture,))
    for solver in (
        OneTextSearch(Broken()),
        OneImageSearch(Broken(), zoo.images),
        ReadImageMatches(Broken(), zoo.images),
        ImageThenText(Broken(), Broken(), zoo.images),
    ):
        trajectory = await solver.solve(view, 1)
        assert trajectory.termination is Termination.ERROR
        assert trajectory.response is None


@pytest.mark.parametrize(
    ("question", "key", "form", "subject"),
    [
        ("When was the spouse of Ann Roe born?", "birth_date", "plain", "the spouse of Ann Roe"),
        ("What is the roof height of Foo Hall?", "roof_height", "plain", "Foo Hall"),
        ("Which year does the birth date of Ann Roe fall in?", "birth_date", "year", "Ann Roe"),
        ("On which day and month does the birth date of Ann Roe fall?", "birth_date", "day", "Ann Roe"),
        ("Please tell me the roof height that Foo Hall has", "roof_height", "plain", "Please tell me the roof height that Foo Hall has"),
    ],
)  # fmt: skip
def test_understands_what_is_asked(question, key, form, subject) -> None:
    asked = understand(question, ["roof_height", "height", "birth_date"])
    assert asked is not None
    assert (asked.key, asked.form, asked.subject) == (key, form, subject)


def test_does_not_pretend_to_understand() -> None:
    assert understand("Why?", ["height"]) is None
    assert answer_from("Why?", [Document.of("A", "Height: 3 m")]) is None


def test_follows_relations_both_ways() -> None:
    documents = [
        Document.of("Foo Hall", "Architect: Ann Roe\nOwner: Bo Li, Cy Ma"),
        Document.of("Bar Inn", "Architect: Ann Roe\nHeight: 12 m"),
        Document.of("Dee Day", "Doctoral advisor: Ann Roe"),
    ]
    assert reduce("the spouse of the architect of Foo Hall", documents) == "the spouse of Ann Roe"
    assert reduce("the person whose doctoral advisor was Ann Roe", documents) == "Dee Day"
    narrowed = "the person whose field is botany and who is an owner of Foo Hall"
    assert reduce(narrowed, documents) == "Bo Li"


def test_replaces_the_visual_expression() -> None:
    assert replace_picture("the owner of the market hall in the picture", "Foo") == "the owner of Foo"
    assert replace_picture("no picture here", "Foo") == "no picture here"


@pytest.mark.parametrize(
    ("phrase", "found"),
    [
        ("the person whose occupation is writer and whose rank is 7", "Teresa Rainö"),
        ("the tall person whose rank is 7", "Teresa Rainö"),
        ("the person whose rank is 70", None),  # a longer value than the page states
        ("the person whose rank is 7 and who is a spouse of Bo Sand", None),  # more is said than the page states alone
        ("the person whose occupation is zookeeper", None),  # another page's
    ],
)
def test_a_description_by_attributes_alone_is_resolved_by_the_page_that_states_them_all(phrase, found) -> None:
    page = Document.of("Teresa Rainö", "Occupation: writer\nRank: 7\n\nTeresa Rainö married Stefan Irvald.")
    assert reduce(f"Who taught {phrase}?", [page]) == f"Who taught {found or phrase}?"
