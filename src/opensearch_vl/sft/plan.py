"""The scripted expert's plan: from the picture along the path to the answer, one tool call at a time.

A plan is a generator: it yields moves and is sent the text of each observation. It knows which relations the path has
(`Provenance`), but every name after the picture and the answer itself are cut out of observations. The path's titles
serve to *recognise* the right one among the names that an observation offers; a name that no observation shows is
never used, so with the answer page gone from the index the plan ends in an honest "could not verify".
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from opensearch_vl.sft.phrases import Voice
from opensearch_vl.sft.reading import (
    SIMILAR,
    Hit,
    bare,
    hits,
    is_ambiguous,
    is_passing_failure,
    lettering,
    mentions,
    new_image_id,
    resemblance,
    same_name,
    value_of,
)
from opensearch_vl.text import contains_words, words
from opensearch_vl.types import PathHop, Task, ToolCall
from opensearch_vl.wiki.tables import label as label_of

REPAIRS = ("super_resolution", "sharpen", "perspective_correct")
"""What is tried, in this order, when lettering cannot be read and nothing says why."""
_USUAL_FACTS = "birth date, occupation, location, height, date"


@dataclass(frozen=True, slots=True)
class Ask:
    """A tool call with its thought."""

    thought: str
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Broken:
    """A call whose JSON is cut off: what a noisy expert writes now and then."""

    thought: str
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Say:
    """The final response with its thought."""

    thought: str
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """A value and the title of the page that states it."""

    value: str
    page: str


Move = Ask | Broken | Say
Plan = Generator[Move, str, None]
Search = Generator[Move, str, str | None]
Call = Generator[Move, str, str]


@dataclass(slots=True)
class Investigator:
    """One run through a task.

    Attributes:
        task: The task with its provenance.
        voice: Words the thoughts.
        rng: Picks among equivalent wordings of a query.
        can_visit: Whether the `visit` tool is on offer.
        brief: One short wording of each query and answer, for policies with a small context.
    """

    task: Task
    voice: Voice
    rng: random.Random
    can_visit: bool = False
    brief: bool = False

    def run(self) -> Plan:
        """All moves of the investigation; the last is a `Say`."""
        source = self.task.provenance
        entity = yield from self._identify()
        for place, hop in enumerate(source.hops, 1):
            if entity is not None:
                entity = yield from self._follow(entity, hop, source.path[place])
        if entity is not None:
            label = label_of(source.attribute)
            thought = self.voice_of("attribute", entity, label)
            found = yield from self._look_up(entity, source.path[-1], label, thought)
            if found is not None:
                thought = self.voice.say("answer", entity=found.page, label=label.lower(), value=found.value)
                yield Say(thought, self._wording(found.page, label, found.value))
                return
        yield Say(self.voice.say("give_up"), "I could not verify the answer from the sources I was able to search.")

    def voice_of(self, key: str, entity: str, label: str) -> str:
        """A thought about a label of an entity."""
        return self.voice.say(key, entity=entity, label=label.lower())

    def _wording(self, entity: str, label: str, value: str) -> str:
        if self.brief:
            return f"It is {value}."
        return self.rng.choice(
            (
                f"{value}",
                f"The {label.lower()} of {entity} is {value}.",
                f"According to the page on {entity}, its {label.lower()} is {value}.",
            )
        )

    # ----------------------------------------------------------------------------- what the picture shows

    def _identify(self) -> Search:
        """The name of the anchor, from the picture."""
        source = self.task.provenance
        if not self.task.images:
            named = source.path[0] if source.path else ""
            return named if mentions(self.task.question, named) else None
        by_sign = source.picture is not None and source.picture.identified_by == "lettering"
        if by_sign or source.degradation is not None:
            name = yield from self._identify_by_sign(())
            if name is not None:
                return name
        text = yield from self._call("image_search", self.voice.say("look"), url="img_1")
        titles = list(dict.fromkeys(hit.title for hit in hits(text)))
        if titles and not is_ambiguous(text):
            return titles[0]
        name = None
        if not by_sign:
            name = yield from self._identify_by_sign(tuple(titles))
        return name or (titles[0] if titles else None)

    def _identify_by_sign(self, titles: tuple[str, ...]) -> Search:
        """Read the lettering and find the page of that name; repair the picture first where it needs it.

        Args:
            titles: Titles of look-alikes that an image search gave, if one was made.
        """
        damage = self.task.provenance.degradation
        if damage is None:
            attempts: tuple[str, ...] = ("", *REPAIRS) if not titles else ("",)
        else:
            attempts = (damage.repair_tool, *(tool for tool in REPAIRS if tool != damage.repair_tool))
        tried: set[str] = set()
        for repair in attempts:
            image: str | None = "img_1"
            if repair:
                thought = self.voice.say(f"repair_{repair}", image="img_1")
                image = new_image_id((yield from self._call(repair, thought, image="img_1")))
            if image is None:
                continue
            sign = lettering(
                (yield from self._call("layout_parsing", self.voice.say("read", image=image), image=image))
            )
            known = _best(list(titles), sign)
            if known is not None:
                return known
            if not sign or sign in tried:
                continue
            tried.add(sign)
            text = yield from self._call("text_search", self.voice.say("name", sign=sign), q=sign[:200], top_k=5)
            name = _best([hit.title for hit in hits(text)], sign)
            if name is not None:
                return name
        return None

    # ------------------------------------------------------------------------------------ along the path

    def _follow(self, entity: str, hop: PathHop, title: str) -> Search:
        """The next entity of the path. `title` is only compared with what observations show."""
        label = label_of(hop.relation)
        if hop.direction == "inverse":
            return (yield from self._follow_back(entity, hop, label))
        if hop.direction == "prose":
            return (yield from self._follow_prose(entity, title, hop.relation))
        thought = self.voice_of("follow", entity, label)
        found = yield from self._look_up(entity, hop.source, label, thought, named=title)
        if found is None:
            return None
        names = (name for name in (title, hop.written) if name and mentions(found.value, name))
        return next(names, found.value.split(", ")[0])

    def _look_up(
        self, entity: str, title: str, label: str, thought: str, *, named: str = ""
    ) -> Generator[Move, str, Found | None]:
        """The value of a label on the page of an entity, which `title` also names.

        Prose on that page that speaks the name `named` will do as well.
        """
        url = ""
        for attempt, query in enumerate(self._queries(entity, label)):
            text = yield from self._call("text_search", thought, q=query, top_k=10 if attempt else 5)
            pages = [hit for hit in hits(text) if same_name(hit.title, entity) or hit.title == title]
            for hit in sorted(pages, key=lambda hit: hit.title != title):
                value = value_of(hit.body, label)
                if value is None and named and mentions(hit.body, named):
                    value = named
                if value is not None:
                    return Found(value, hit.title)
                url = url or hit.url
            thought = self.voice.say("again")
        if url and self.can_visit:
            thought = self.voice.say("visit", entity=entity)
            page = yield from self._call("visit", thought, url=url, goal=f"{label} of {entity}")
            value = value_of(page, label)
            return Found(value, entity) if value is not None else None
        return None

    def _follow_back(self, entity: str, hop: PathHop, label: str) -> Search:
        """The page whose facts name `entity` under `label`.

        What else the question says of that page goes into the query. A hit that the observation cuts off is believed by
        its title.
        """
        page, title, written = hop.source, hop.target, hop.written or hop.source
        details = ", ".join(
            bare(predicate.value)
            for descriptor in self.task.provenance.descriptors
            if descriptor.entity == title
            for predicate in descriptor.predicates
            if predicate.value != page
        )
        thought = self.voice_of("inverse", entity, label)
        for attempt in range(3):
            named = f"{label}: {entity}{', ' if details else ''}{details}"
            query = (named, f"Name, {named}", f"Facts: {named}, name, {_USUAL_FACTS}")[attempt]
            found = hits((yield from self._call("text_search", thought, q=query, top_k=10 if attempt else 5)))
            if any(hit.title == title and (hit.cut_off or _relates(hit, label, page, written)) for hit in found):
                return title
            if any(hit.title == page and mentions(hit.body, title) for hit in found):
                return title
            if any(hit.title == page for hit in found):
                entity = bare(page)  # what the entity is called in full
            thought = self.voice.say("again")
        return None

    def _follow_prose(self, entity: str, title: str, relation: str) -> Search:
        """The entity that some sentence near `entity` links to; no infobox states the relation."""
        thought = self.voice_of("follow", entity, relation)
        for query in (f"{entity} {relation}", entity):
            text = yield from self._call("text_search", thought, q=query, top_k=5)
            if mentions(text, title):
                return title
            thought = self.voice.say("again")
        return None

    def _queries(self, entity: str, label: str) -> tuple[str, ...]:
        """Queries for a label of an entity; the later ones are worded so that the page's table of facts fits best."""
        name = label.lower()
        wordings = (f"{name} of {entity}", f"{entity} {name}", f"{entity}: {name}")
        return (
            wordings[0] if self.brief else self.rng.choice(wordings),
            f"Facts about {entity}: name, {name}, {_USUAL_FACTS}",
            f"Name: {entity}. {label}:",
        )

    def _call(self, name: str, thought: str, **arguments: Any) -> Call:
        """What a tool returns; asked once more if it failed for a passing reason."""
        if self.brief:
            arguments.pop("top_k", None)  # few results are shown whatever is asked for
        call = ToolCall(name=name, arguments=arguments)
        text = yield Ask(thought, call)
        if is_passing_failure(text):
            text = yield Ask(self.voice.say("retry"), call)
        return text


def _relates(hit: Hit, label: str, entity: str, written: str) -> bool:
    """Whether a hit states the relation: as a line of facts, or in prose that speaks both the entity and the label."""
    name = words(bare(entity))[-1:]
    value = value_of(hit.body, label)
    if value is not None:
        return contains_words(words(value), name) or mentions(value, written)
    stem = label.lower().split()[-1][:5]
    return contains_words(words(hit.body), name) and any(word.startswith(stem) for word in words(hit.body))


def _best(titles: list[str], sign: str) -> str | None:
    """The title that the lettering holds best, if it holds one well enough; longer titles win a tie."""
    ranked = sorted(titles, key=lambda title: (-resemblance(title, sign), -len(title)))
    return ranked[0] if ranked and resemblance(ranked[0], sign) >= SIMILAR else None
