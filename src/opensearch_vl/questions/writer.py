"""The language-model twin of the rule-based writer: natural wording, relations from prose, a second opinion.

Rules decide *what* is said (path, attribute, predicates, exact counts); the model decides *how*. Each of its replies is
held against the rules again: a rewrite that names a page of the path, gives the answer away or changes it is asked for
once more and then turned away with its reason (paper, section 3.3: rewriting one entity at a time, from the bridge
before the answer back to the anchor).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import BaseModel, Field

from opensearch_vl import prompts
from opensearch_vl.questions.asking import Asker, StageFailed
from opensearch_vl.questions.compose import canonical_question
from opensearch_vl.questions.draft import Draft, name_anchor
from opensearch_vl.questions.facts import Facts, display_name
from opensearch_vl.questions.leak import leaks
from opensearch_vl.questions.phrases import noun, spoken
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.text import contains_words, normalise_answer, words
from opensearch_vl.types import PathHop

_MAX_QUESTION_CHARS = 1_000
_MAX_FACTS_CHARS = 6_000
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
        tries: How often a rewrite that breaks a rule is asked for again, differently.
    """

    def __init__(self, asker: Asker, facts: Facts, tries: int = 2) -> None:
        self.asker, self._facts, self._tries = asker, facts, tries

    @property
    def prompt_hash(self) -> str:
        """Identifies the wording of all prompts, for manifests."""
        names = ("relation", "canonical", "descriptor", "visual", "unique")
        return prompts.prompt_hash(*(prompts.template(f"question_{name}") for name in names))

    async def write(self, made: Draft) -> Draft | Rejection:
        """The draft in the model's words, every rule checked again.

        Rejects `prose_not_stated` (a link's sentence states no relation), `canonical_refused`, `rewrite_refused`,
        `grounding_refused` (no rewrite kept the rules), `judged_not_unique`, `answer_changed`, `model_unreachable` and
        `reply_invalid`.
        """
        try:
            worded = await self._relations(made)
            if isinstance(worded, Rejection):
                return worded
            canonical = await self._canonical(worded)
            question = await self._fuzz(worded, canonical)
            if made.grounded:
                question = await self._ground(worded, question)
            else:
                question = name_anchor(self._facts, made.walk, question)
            return await self._evaluate(replace(worded, canonical=canonical, question=question))
        except StageFailed as failure:
            return Rejection("write", failure.reason, failure.detail)

    async def _relations(self, made: Draft) -> Draft | Rejection:
        """Word the hops that only prose states."""
        hops: list[PathHop] = []
        for hop, link, node in zip(made.hops, made.walk.links, made.walk.nodes[1:], strict=True):
            if hop.direction != "prose":
                hops.append(hop)
                continue
            found = await self.asker.ask(
                "relation",
                prompts.fill(
                    "question_relation",
                    source=hop.source,
                    target=hop.target,
                    noun=self._noun(node),
                    anchor=link.anchor,
                    sentence=link.sentence,
                ),
                Relation,
            )
            if not found.stated or found.phrase.count("{X}") != 1:
                return Rejection("write", "prose_not_stated", link.sentence[:300])
            hops.append(hop.model_copy(update={"phrase": found.phrase}))
        if tuple(hops) == made.hops:
            return made
        canonical = canonical_question(made.answer, tuple(hops), hops[-1].phrase)
        return replace(made, hops=tuple(hops), canonical=canonical)

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
            return self._gives_away(text, hidden, made)

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
            keep = words(display_name(hop.source))

            def keeps(text: str, hidden: Sequence[int] = hidden, keep: list[str] = keep) -> str:
                if not contains_words(words(text), keep):
                    return f"it must name {' '.join(keep)}"
                return self._gives_away(text, hidden, made)

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
            return self._gives_away(text, made.walk.nodes, made)

        return await self._rewritten("visual", prompt, keeps, "grounding_refused")

    async def _rewritten(self, stage: str, prompt: str, keeps: Callable[[str], str], reason: str) -> str:
        trouble = ""
        for _ in range(self._tries):
            again = f"\n\nAn earlier attempt was refused: {trouble}." if trouble else ""
            text = " ".join((await self.asker.ask(stage, prompt + again, Question)).question.split())
            trouble = keeps(text) or ("" if text.endswith("?") else "it must end in a question mark")
            if not trouble:
                return text
        raise StageFailed(reason, trouble)

    def _gives_away(self, text: str, hidden: Sequence[int], made: Draft) -> str:
        for node in hidden:
            person = self._facts.page(node).domain == "Person"
            if found := leaks(text, self._facts.names(node), person):
                return f"it must not name {found[0].name}"
        return "it must not state the answer" if leaks(text, (made.answer.text,)) else ""

    async def _evaluate(self, made: Draft) -> Draft | Rejection:
        """A second opinion: what does the question lead to, and is it the only thing that fits?"""
        excerpts = [self._facts.wiki.document(node) for node in made.walk.nodes]
        size = _MAX_FACTS_CHARS // len(excerpts)
        titles = [self._facts.page(node).title for node in made.walk.nodes]
        shown = "\n\n".join(f"{title}\n{text[:size]}" for title, text in zip(titles, excerpts, strict=True))
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
