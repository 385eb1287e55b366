"""From a walk to a grounded question: the rule-based stages in their order, without pictures or models.

relations → compose → fuzz → leak. Pure: the same walk, settings and seed give the same draft.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from opensearch_vl.questions.compose import Answer, canonical_question, extract_answer
from opensearch_vl.questions.facts import Facts, display_name
from opensearch_vl.questions.fuzz import Description, describe_path, rewrite
from opensearch_vl.questions.leak import leaks
from opensearch_vl.questions.phrases import anchor_phrase
from opensearch_vl.questions.relations import relate
from opensearch_vl.questions.settings import QuestionSettings
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.seeds import derive
from opensearch_vl.text import fold
from opensearch_vl.types import Descriptor, PathHop, Provenance
from opensearch_vl.wiki.walks import Walk


@dataclass(frozen=True, slots=True)
class Draft:
    """A question that has passed the rule-based stages.

    Attributes:
        walk: The path.
        hops: One per edge.
        answer: What is asked of the answer node.
        canonical: The question with the bridges' real names.
        question: The question after fuzzing and grounding.
        descriptors: Of the answer node, then of ``v(h-1) … v1``, then of the anchor where a picture stands for it.
        grounded: Whether the question speaks of the anchor's picture; otherwise it names the anchor.
    """

    walk: Walk
    hops: tuple[PathHop, ...]
    answer: Answer
    canonical: str
    question: str
    descriptors: tuple[Descriptor, ...]
    grounded: bool = True

    def provenance(self, facts: Facts) -> Provenance:
        """Everything the draft knows of why the question exists."""
        return Provenance(
            corpus="wiki",
            path=tuple(facts.page(node).title for node in self.walk.nodes),
            hops=self.hops,
            attribute=self.answer.key,
            canonical=self.canonical,
            descriptors=self.descriptors,
            domain=self.walk.domain,
            seed=self.walk.seed,
            extra={"answer_form": self.answer.form, "answer_value": self.answer.value, **self._reading()},
        )

    def _reading(self) -> dict[str, str]:
        """What no table states says so: the exact checks do not apply to it."""
        return {"answer_source": "prose", "answer_quote": self.answer.quote} if self.answer.source == "prose" else {}


def draft(
    facts: Facts,
    walk: Walk,
    settings: QuestionSettings,
    seed: int,
    taken: Collection[str] = (),
    *,
    grounded: bool = True,
) -> Draft | Rejection:
    """Run the rule-based stages over a walk.

    Args:
        facts: The wiki.
        walk: The path.
        settings: All rules.
        seed: Seed of this attempt; the choice of attribute and wording derives from it.
        taken: Keys that other questions have asked of the answer page.
        grounded: Whether a picture will stand for the anchor; otherwise its title stays in the question.
    """
    hops = relate(facts, walk, settings)
    if isinstance(hops, Rejection):
        return hops
    shallow = len(hops) == 2 and _shown_at_anchor(facts, walk, settings.opening_chars)
    if shallow and grounded and not settings.shallow_first_hop:  # no picture, no opening shown by a search for it
        return Rejection("relations", "shallow_first_hop", hops[0].target)
    answer = extract_answer(facts, walk, settings, derive(seed, "compose"), taken)
    if isinstance(answer, Rejection):
        return answer
    descriptions = describe_path(facts, walk, hops, answer.key, settings)
    if isinstance(descriptions, Rejection):
        return descriptions
    canonical = canonical_question(answer, hops, descriptions[-1].phrase)
    fuzzed = rewrite(canonical, hops, descriptions)
    question = fuzzed[-1].question if fuzzed else canonical
    descriptors = (_of_answer(hops, descriptions), *(step.descriptor for step in fuzzed))
    if grounded:
        question, anchor = ground(facts, walk, question)
        descriptors = (*descriptors, anchor)
    else:
        question = name_anchor(facts, walk, question)
    spoken = tuple(
        hop.model_copy(update={"phrase": description.phrase})
        for hop, description in zip(hops, descriptions, strict=True)
    )
    if leak := _leak(facts, walk, question, answer, grounded):
        return leak
    return Draft(walk, spoken, answer, canonical, question, descriptors, grounded)


def ground(facts: Facts, walk: Walk, question: str) -> tuple[str, Descriptor]:
    """Replace the anchor's name by a visual referring expression (paper, section 3.4)."""
    page = facts.page(walk.nodes[0])
    phrase = anchor_phrase(page.infobox_type, page.domain)
    return question.replace(display_name(page.title), phrase), Descriptor(entity=page.title, phrase=phrase)


def name_anchor(facts: Facts, walk: Walk, question: str) -> str:
    """Give the anchor its whole title: what is in brackets tells it from its namesakes, as no picture will."""
    title = facts.page(walk.nodes[0]).title
    return question.replace(display_name(title), title)


def _of_answer(hops: tuple[PathHop, ...], descriptions: tuple[Description, ...]) -> Descriptor:
    last = descriptions[-1]
    phrase = last.phrase.replace("{X}", display_name(hops[-1].source))
    return Descriptor(entity=hops[-1].target, phrase=phrase, predicates=last.predicates, matches=last.matches)


def _shown_at_anchor(facts: Facts, walk: Walk, opening_chars: int) -> bool:
    opening = facts.opening(walk.nodes[0], opening_chars)
    return any(fold(name) in opening for name in facts.names(walk.nodes[1]))


def _leak(facts: Facts, walk: Walk, question: str, answer: Answer, grounded: bool) -> Rejection | None:
    for place, node in enumerate(walk.nodes):
        if place == 0 and not grounded:
            continue
        found = leaks(question, facts.names(node), person=facts.page(node).domain == "Person")
        if found:
            which = "anchor" if place == 0 else "answer_page" if place == len(walk.nodes) - 1 else "bridge"
            return Rejection("leak", f"{which}_named", f"{found[0].name} ({found[0].how})")
    if leaks(question, (answer.text,)):
        return Rejection("leak", "answer_in_question", answer.text)
    return None
