"""Handicapped solvers: honest attackers that may use no tool, one text search, one image search, or one of each.

The filter uses one pair of them, the audit another set with other strategies, so that the audit does not merely repeat
what the filter has already removed. Each implements `Solver`: it sees the question and the picture, never the gold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from opensearch_vl.errors import ToolError
from opensearch_vl.images import ImageStore
from opensearch_vl.protocols import ImageIndex, PageReader, SearchEngine, VisualMatch
from opensearch_vl.questions.answers import transformed
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.reading import (
    Document,
    answer_from,
    read_value,
    reduce,
    replace_picture,
    settled,
    understand,
    without_brackets,
)
from opensearch_vl.seeds import derive
from opensearch_vl.text import words
from opensearch_vl.types import Observation, Step, TaskView, Termination, ToolCall, Trajectory

_NO_ANSWER = "I could not find an answer."
_MAX_SHOWN = 2_000


class _Notes:
    """Builds the trajectory of a solver as it goes."""

    def __init__(self, name: str, task: TaskView, seed: int, tools: tuple[str, ...]) -> None:
        self._name, self._task, self._seed, self._tools = name, task, seed, tools
        self._steps: list[Step] = []

    def call(self, tool: str, argument: str, shown: str) -> None:
        """Note one call and what came back."""
        self._steps.append(
            Step(
                index=len(self._steps),
                call=ToolCall(name=tool, arguments={"q" if tool == "text_search" else "url": argument}),
                observation=Observation(text=shown[:_MAX_SHOWN]),
            )
        )

    def answer(self, text: str | None) -> Trajectory:
        """End with a response."""
        last = Step(index=len(self._steps), response=text or _NO_ANSWER)
        return self._trajectory((*self._steps, last), Termination.ANSWERED)

    def failed(self, error: Exception) -> Trajectory:
        """End because a backend failed: the verdict will be unscored."""
        return self._trajectory(tuple(self._steps), Termination.ERROR, str(error))

    def _trajectory(self, steps: tuple[Step, ...], end: Termination, error: str = "") -> Trajectory:
        return Trajectory(
            id=f"{self._task.id}#{self._name}",
            task_id=self._task.id,
            seed=self._seed,
            steps=steps,
            termination=end,
            tools=self._tools,
            model=self._name,
            error=error,
        )


def common_values(facts: Facts) -> dict[str, str]:
    """The most common value of every infobox key of a wiki: what somebody who knows the table would guess."""
    rows = facts.wiki.sql().execute("SELECT key, value, count(*) FROM infobox GROUP BY key, value").fetchall()
    best: dict[str, tuple[int, str]] = {}
    for key, value, num in rows:
        if key not in best or (num, value) > best[key]:
            best[key] = (num, value)
    return {key: value for key, (_, value) in best.items()}


class GuessCommonValue:
    """No tools: the most common value of the asked attribute (filter)."""

    name = "no_tools"

    def __init__(self, prior: Mapping[str, str]) -> None:
        self._prior = dict(prior)

    async def solve(self, task: TaskView, seed: int) -> Trajectory:
        """Guess."""
        notes = _Notes(self.name, task, seed, ())
        asked = understand(task.question, self._prior)
        value = self._prior.get(asked.key) if asked is not None else None
        return notes.answer(transformed(value, asked.form) if asked is not None and value else None)


class GuessFromMemory:
    """No tools: the answer of the most similar question in a memory of other questions (audit).

    Args:
        memory: Pairs of question and answer, as a model trained on such a set would have seen; a pair whose question
            equals the one asked is not used.
    """

    name = "no_tools"

    def __init__(self, memory: Sequence[tuple[str, str]]) -> None:
        self._memory = [(question, set(words(question)), answer) for question, answer in memory]

    async def solve(self, task: TaskView, seed: int) -> Trajectory:
        """Recall."""
        notes = _Notes(self.name, task, seed, ())
        own = set(words(task.question))
        likeness: dict[str, float] = defaultdict(float)
        for question, tokens, answer in self._memory:
            if question != task.question:
                likeness[answer] += len(own & tokens) / max(1, len(own | tokens)) ** 2
        best = max(likeness.items(), key=lambda pair: (pair[1], derive(seed, pair[0])), default=("", 0.0))
        return notes.answer(best[0] or None)


class OneImageSearch:
    """One image search: read the asked attribute off the best match's opening (filter)."""

    name = "one_image_search"

    def __init__(self, index: ImageIndex, store: ImageStore, top_k: int = 5) -> None:
        self._index, self._store, self._top_k = index, store, top_k

    async def solve(self, task: TaskView, seed: int) -> Trajectory:
        """Search the picture once, read the first match that states what is asked."""
        notes = _Notes(self.name, task, seed, ("image_search",))
        try:
            matches = await _image_search(self._index, self._store, task, self._top_k)
        except ToolError as error:
            return notes.failed(error)
        notes.call("image_search", "img_1", "\n".join(match.title for match in matches))
        documents = [Document.of(match.title, match.snippet, rank) for rank, match in enumerate(matches)]
        asked = understand(task.question, (key for document in documents for key in document.lines))
        values = (read_value(document, asked) for document in documents) if asked is not None else iter(())
        return notes.answer(next((value for value in values if value), None))


class ReadImageMatches:
    """One image search: follow the question's relations through the openings of all matches (audit)."""

    name = "one_image_search"

    def __init__(self, index: ImageIndex, store: ImageStore, top_k: int = 10) -> None:
        self._index, self._store, self._top_k = index, store, top_k

    async def solve(self, task: TaskView, seed: int) -> Trajectory:
        """Search the picture once, put the match's title into the question, and resolve it as far as that goes."""
        notes = _Notes(self.name, task, seed, ("image_search",))
        try:
            matches = await _image_search(self._index, self._store, task, self._top_k)
        except ToolError as error:
            return notes.failed(error)
        notes.call("image_search", "img_1", "\n".join(match.title for match in matches))
        if not matches:
            return notes.answer(None)
        documents = [Document.of(match.title, match.snippet, rank) for rank, match in enumerate(matches)]
        return notes.answer(answer_from(replace_picture(task.question, matches[0].title), documents))


class OneTextSearch:
    """One text search with the question as the query, bracketed explanations left out (audit).

    Args:
        engine: The search engine.
        reader: Reads the hits in full; without it the solver sees the passages alone.
    """

    name = "one_text_search"

    def __init__(self, engine: SearchEngine, reader: PageReader | None = None, top_k: int = 10) -> None:
        self._engine, self._reader, self._top_k = engine, reader, top_k

    async def solve(self, task: TaskView, seed: int) -> Trajectory:
        """Search once, read what came back, answer from it."""
        notes = _Notes(self.name, task, seed, ("text_search",))
        try:
            query = without_brackets(task.question)
            documents = await _text_search(self._engine, self._reader, query, self._top_k)
        except ToolError as error:
            return notes.failed(error)
        notes.call("text_search", query, "\n".join(document.title for document in documents))
        return notes.answer(answer_from(task.question, documents))


class ImageThenText:
    """One image search, then one text search (audit).

    The title found takes the place of the visual expression. With `read_opening`, the relations that the match's
    opening states are followed before the text search is spent, which saves the attacker a hop. Without a picture there
    is nothing to search for.
    """

    name = "image_then_text"

    def __init__(
        self,
        index: ImageIndex,
        engine: SearchEngine,
        store: ImageStore,
        reader: PageReader | None = None,
        *,
        read_opening: bool = True,
        top_k: int = 10,
    ) -> None:
        self._index, self._engine, self._store, self._reader = index, engine, store, reader
        self._read_opening, self._top_k = read_opening, top_k

    async def solve(self, task: TaskView, seed: int) -> Trajectory:
        """Search the picture, then the text, then answer from all that was seen."""
        notes = _Notes(self.name, task, seed, ("image_search", "text_search"))
        if not task.images:
            return notes.answer(None)
        try:
            matches = await _image_search(self._index, self._store, task, self._top_k)
            notes.call("image_search", "img_1", "\n".join(match.title for match in matches))
            question, opening = task.question, []
            if matches:
                question = replace_picture(question, matches[0].title)
                opening = [Document.of(matches[0].title, matches[0].snippet)]
            query = reduce(question, opening) if self._read_opening else question
            documents = await _text_search(self._engine, self._reader, query, self._top_k)
        except ToolError as error:
            return notes.failed(error)
        notes.call("text_search", query, "\n".join(document.title for document in documents))
        return notes.answer(answer_from(query, [*documents, *opening]))


class BlindAgent:
    """Many text searches and no look at the picture: is the picture needed at all? (audit)

    It searches for the question, takes every page found for the thing in the picture in turn, follows the question's
    relations through what it has read and with further searches, and answers with the first chain that resolves.
    """

    name = "blind_agent"

    def __init__(
        self, engine: SearchEngine, reader: PageReader | None = None, *, max_searches: int = 12, top_k: int = 5
    ) -> None:
        self._engine, self._reader, self._max_searches, self._top_k = engine, reader, max_searches, top_k

    async def solve(self, task: TaskView, seed: int) -> Trajectory:
        """Guess the anchor, again and again."""
        notes = _Notes(self.name, task, seed, ("text_search",))
        read: dict[str, Document] = {}
        queries = [task.question]
        done = 0
        try:
            while queries and done < self._max_searches:
                query = queries.pop(0)
                documents = await _text_search(self._engine, self._reader, query, self._top_k)
                notes.call("text_search", query, "\n".join(document.title for document in documents))
                done += 1
                fresh = [document for document in documents if document.title not in read]
                read.update((document.title, document) for document in fresh)
                for document in fresh:
                    known = list(read.values())
                    guess = reduce(replace_picture(task.question, document.title), known)
                    if answer := settled(guess, known):
                        return notes.answer(answer)
                    queries.append(guess)
        except ToolError as error:
            return notes.failed(error)
        return notes.answer(answer_from(task.question, list(read.values())))


async def _image_search(index: ImageIndex, store: ImageStore, task: TaskView, top_k: int) -> list[VisualMatch]:
    return await index.search(store.read(task.images[0]), top_k) if task.images else []


async def _text_search(engine: SearchEngine, reader: PageReader | None, query: str, top_k: int) -> list[Document]:
    documents = []
    for rank, passage in enumerate(await engine.search(query, top_k)):
        text = passage.text if reader is None else (await reader.read(passage.url)).text
        documents.append(Document.of(passage.title, text, rank))
    return documents
