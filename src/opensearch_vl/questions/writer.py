"""The language-model twin of the rule-based writer: natural wording, relations and answers from prose, a second look.

Rules decide *what* is said (path, attribute, predicates, exact counts); the model decides *how*. Each of its replies is
held against the rules again: a rewrite that names a page of the path, gives the answer away or changes it, drops a
condition that the exact count rests on, or carries markup is asked for once more and then turned away with its reason
(paper, section 3.3: rewriting one entity at a time, from the bridge before the answer back to the anchor).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel, Field

from opensearch_vl import prompts
from opensearch_vl.questions.asking import Asker, StageFailed
from opensearch_vl.questions.compose import canonical_question
from opensearch_vl.questions.draft import Draft, name_anchor
from opensearch_vl.questions.extract import Extracted, accept, plain
from opensearch_vl.questions.facts import Facts, display_name
from opensearch_vl.questions.leak import leaks
from opensearch_vl.questions.phrases import noun, spoken
from opensearch_vl.questions.settings import AnswerSettings
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.text import contains_words, normalise_answer, words
from opensearch_vl.types import PathHop

M = TypeVar("M", bound=BaseModel)

_ANSWERS = AnswerSettings()
_MAX_QUESTION_CHARS = 1_000
_MAX_FACTS_CHARS = 6_000
_MAX_PAGE_CHARS = 4_000
"""How much of a page is read for an answer: infobox and lead."""
_PARTS = {"plain": "", "year": ", and of that only the year", "day": ", and of that only the day and the month"}


class Relation(BaseModel):
    """What a link states."""

    stated: bool
    phrase: str = Field("", max_length=200)


class Question(BaseModel):
    """A question as a model wrote it."""

    question: str = Field(min_length=10, max_length=_MAX_QUESTION_CHARS)


class Uniqueness(BaseModel):
    """What a model found when it followed the question."""

    unique: bool
    fitting: list[str] = Field(default_factory=list, max_length=50)
    answer: str = Field("", max_length=300)


class LlmWriter:
    """Rewords drafts with a chat model.

    Args:
        asker: Puts the prompts.
        facts: The wiki.
        answers: What may be asked for, where the model reads answers off the page.
        tries: How often a reply that breaks a rule is asked for again, differently.
    """

    def __init__(self, asker: Asker, facts: Facts, answers: AnswerSettings = _ANSWERS, tries: int = 2) -> None:
        self.asker, self._facts, self._answers, self._tries = asker, facts, answers, tries

    @property
    def prompt_hash(self) -> str:
        """Identifies the wording of all prompts, for manifests."""
        names = ("answer", "relation", "canonical", "descriptor", "visual", "unique")
        return prompts.prompt_hash(*(prompts.template(f"question_{name}") for name in names))

    async def write(self, made: Draft) -> Draft | Rejection:
        """The draft in the model's words, every rule checked again.

        Rejects `prose_not_stated` (a link's sentence states no relation), `relation_refused`, `canonical_refused`,
        `rewrite_refused`, `grounding_refused` (no wording kept the rules), `judged_not_unique`, `answer_changed`, the
        reasons of `extract.accept`, and `model_unreachable`, `model_refused` and `reply_invalid`.
        """
        try:
            if made.answer.source == "pending":
                made = await self._answer(made)
            worded = await self._relations(made)
            canonical = await self._canonical(worded)
            question = await self._fuzz(worded, canonical)
            if made.grounded:
                question = await self._ground(worded, question)
            else:
                question = name_anchor(self._facts, made.walk, question)
            return await self._evaluate(replace(worded, canonical=canonical, question=question))
        except StageFailed as failure:
            return Rejection("write", failure.reason, failure.detail)

    async def _answer(self, made: Draft) -> Draft:
        """Read an answer off the last page."""
        node = made.walk.nodes[-1]
        prompt = prompts.fill(
            "question_answer",
            title=self._facts.page(node).title,
            noun=self._noun(node),
            text=self._facts.wiki.document(node)[:_MAX_PAGE_CHARS],
            max_words=str(self._answers.max_tokens),
            names="; ".join(name for node in made.walk.nodes for name in self._facts.names(node)),
        )

        def check(found: Extracted) -> tuple[str, str] | None:
            answer = accept(found, self._facts, made.walk, made.canonical, self._answers)
            return answer if isinstance(answer, tuple) else None

        found = await self._kept("answer", prompt, Extracted, check)
        answer = accept(found, self._facts, made.walk, made.canonical, self._answers)
        assert not isinstance(answer, tuple)
        canonical = canonical_question(answer, made.hops, made.hops[-1].phrase)
        return replace(made, answer=answer, canonical=canonical)

    async def _relations(self, made: Draft) -> Draft:
        """Word the hops that only prose states."""
        hops: list[PathHop] = []
        descriptors = list(made.descriptors)
        for place, (hop, link) in enumerate(zip(made.hops, made.walk.links, strict=True)):
            if hop.direction == "prose":
                hop = hop.model_copy(update={"phrase": await self._relation(made, hop, link.anchor, link.sentence)})
                at = len(made.hops) - 1 - place
                phrase = hop.phrase.replace("{X}", display_name(hop.source))
                descriptors[at] = descriptors[at].model_copy(update={"phrase": phrase})
            hops.append(hop)
        if tuple(hops) == made.hops:
            return made
        canonical = canonical_question(made.answer, tuple(hops), hops[-1].phrase)
        return replace(made, hops=tuple(hops), canonical=canonical, descriptors=tuple(descriptors))

    async def _relation(self, made: Draft, hop: PathHop, anchor: str, sentence: str) -> str:
        place = made.hops.index(hop)
        prompt = prompts.fill(
            "question_relation",
            source=hop.source,
            target=hop.target,
            noun=self._noun(made.walk.nodes[place + 1]),
            anchor=anchor,
            sentence=sentence,
        )

        def check(found: Relation) -> tuple[str, str] | None:
            if not found.stated:
                return None
            phrase = found.phrase.replace("{X}", "", 1)
            if found.phrase.count("{X}") != 1 or not plain(phrase) or not words(phrase):
                return "relation_refused", "the phrase must be plain words with {X} in it once"
            trouble = self._gives_away(phrase, made.walk.nodes, made)
            return ("relation_refused", trouble) if trouble else None

        found = await self._kept("relation", prompt, Relation, check)
        if not found.stated:
            raise StageFailed("prose_not_stated", sentence[:300])
        return " ".join(found.phrase.split())

    async def _canonical(self, made: Draft) -> str:
        steps = []
        for hop in made.hops:
            last = hop is made.hops[-1]
            steps.append(
                f"- {hop.phrase.replace('{X}', hop.source)}{'' if last else f' is {display_name(hop.target)}'}"
            )
        prompt = prompts.fill(
            "question_canonical",
            anchor=display_name(made.hops[0].source),
            steps="\n".join(steps),
            attribute=spoken(made.answer.key),
            part=_PARTS[made.answer.form],
            kind=made.answer.kind,
            draft=made.canonical,
        )
        bridge = words(display_name(made.hops[-1].source))
        hidden = made.walk.nodes[-1:]

        def keeps(text: str) -> str:
            if not contains_words(words(text), bridge):
                return f"it must name {display_name(made.hops[-1].source)}"
            return _drops(text, made, 1) or self._gives_away(text, hidden, made)

        return await self._rewritten("canonical", prompt, keeps, "canonical_refused")

    async def _fuzz(self, made: Draft, question: str) -> str:
        """Replace ``v(h-1) … v1``, one at a time."""
        for place in range(len(made.hops) - 1, 0, -1):
            hop, hidden = made.hops[place - 1], made.walk.nodes[place:]
            prompt = prompts.fill(
                "question_descriptor",
                question=question,
                entity=display_name(hop.target),
                description=hop.phrase.replace("{X}", display_name(hop.source)),
                hidden="; ".join(self._facts.names(hidden[0])),
            )
            keep, described = words(display_name(hop.source)), len(made.hops) - place + 1

            def keeps(
                text: str, hidden: Sequence[int] = hidden, keep: list[str] = keep, described: int = described
            ) -> str:
                if not contains_words(words(text), keep):
                    return f"it must name {' '.join(keep)}"
                return _drops(text, made, described) or self._gives_away(text, hidden, made)

            question = await self._rewritten("descriptor", prompt, keeps, "rewrite_refused")
        return question

    async def _ground(self, made: Draft, question: str) -> str:
        prompt = prompts.fill(
            "question_visual",
            question=question,
            entity=display_name(made.hops[0].source),
            noun=self._noun(made.walk.nodes[0]),
        )

        def keeps(text: str) -> str:
            if not {"picture", "image", "photo", "photograph"} & set(words(text)):
                return "it must point at the picture"
            return _drops(text, made, len(made.hops)) or self._gives_away(text, made.walk.nodes, made)

        return await self._rewritten("visual", prompt, keeps, "grounding_refused")

    async def _rewritten(self, stage: str, prompt: str, keeps: Callable[[str], str], reason: str) -> str:
        def check(found: Question) -> tuple[str, str] | None:
            text = " ".join(found.question.split())
            if not plain(text):
                return reason, "it must be plain text without markup"
            trouble = keeps(text) or ("" if text.endswith("?") else "it must end in a question mark")
            return (reason, trouble) if trouble else None

        found = await self._kept(stage, prompt, Question, check)
        return " ".join(found.question.split())

    async def _kept(self, stage: str, prompt: str, shape: type[M], check: Callable[[M], tuple[str, str] | None]) -> M:
        """A reply that keeps the rules; one that does not is asked for again, with what was wrong."""
        refused = ("", "")
        for _ in range(self._tries):
            again = f"\n\nAn earlier attempt was refused: {refused[1]}." if refused[1] else ""
            found = await self.asker.ask(stage, prompt + again, shape)
            trouble = check(found)
            if trouble is None:
                return found
            refused = trouble
        raise StageFailed(*refused)

    def _gives_away(self, text: str, hidden: Sequence[int], made: Draft) -> str:
        for node in hidden:
            person = self._facts.page(node).domain == "Person"
            if found := leaks(text, self._facts.names(node), person):
                return f"it must not name {found[0].name}"
        return "it must not state the answer" if leaks(text, (made.answer.text,)) else ""

    async def _evaluate(self, made: Draft) -> Draft | Rejection:
        """A second opinion: what does the question lead to, and is it the only thing that fits?"""
        size = _MAX_FACTS_CHARS // len(made.walk.nodes)
        titles = [self._facts.page(node).title for node in made.walk.nodes]
        prose = [
            link.sentence if hop.direction == "prose" else ""
            for hop, link in zip(made.hops, made.walk.links, strict=True)
        ]
        documents = [self._facts.wiki.document(node) for node in made.walk.nodes]
        shown = "\n\n".join(
            f"{title}\n{_excerpt(text, size, needed)}"
            for title, text, needed in zip(
                titles, documents, [*prose, made.answer.quote or made.answer.value], strict=True
            )
        )
        prompt = prompts.fill("question_unique", anchor=display_name(titles[0]), question=made.question, facts=shown)
        found = await self.asker.ask("unique", prompt, Uniqueness)
        if not found.unique:
            return Rejection("write", "judged_not_unique", "; ".join(found.fitting)[:300])
        right = [normalise_answer(text) for text in (made.answer.text, made.answer.value, *made.answer.gold.aliases)]
        if normalise_answer(found.answer) not in right:
            return Rejection("write", "answer_changed", found.answer)
        judged = tuple(
            descriptor if descriptor.entity == titles[0] else descriptor.model_copy(update={"judged_unique": True})
            for descriptor in made.descriptors
        )
        return replace(made, descriptors=judged)

    def _noun(self, node: int) -> str:
        page = self._facts.page(node)
        return noun(page.infobox_type, page.domain)


def _drops(text: str, made: Draft, described: int) -> str:
    """Which condition a wording has lost, of those that tell the last `described` pages of the path apart.

    The count of a descriptor is exact only for all its predicates together. The first one is the relation, which may be
    worded freely; the values of the others have to stand.
    """
    said = words(text)
    for descriptor in made.descriptors[:described]:
        for predicate in descriptor.predicates[1:]:
            value = display_name(predicate.value) if predicate.kind == "rel" else predicate.value
            if words(value) and not contains_words(said, words(value)):
                return f"it must keep the condition {value}"
    return ""


def _excerpt(document: str, size: int, needed: str) -> str:
    """The opening of a page, and what of it the question needs from further down."""
    opening = document[:size]
    if not words(needed) or contains_words(words(opening), words(needed)):
        return opening
    lines = [line for line in document[size:].splitlines() if contains_words(words(line), words(needed))]
    return f"{opening} […]\n{lines[0][:600] if lines else needed}"
