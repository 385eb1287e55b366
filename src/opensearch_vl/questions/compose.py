"""The canonical question `q_t`: the whole path spoken with its names, the answer node only through what is asked.

Paper, section 3.2. The answer `a` comes from the infobox of the last page; the canonical question is a working object
that fuzzing rewrites, not a training target.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from opensearch_vl.questions.answers import Kind, answer_kind, informative, kind_of, other_forms, transformed
from opensearch_vl.questions.facts import Facts, display_name, same_value
from opensearch_vl.questions.phrases import Form, base_key, question, table
from opensearch_vl.questions.settings import AnswerSettings, QuestionSettings, pages_bound
from opensearch_vl.questions.stages import Rejection
from opensearch_vl.seeds import generator
from opensearch_vl.text import words
from opensearch_vl.types import Gold, PathHop
from opensearch_vl.wiki.tables import InfoboxItem
from opensearch_vl.wiki.walks import Walk


@dataclass(frozen=True, slots=True)
class Answer:
    """What is asked of the answer node.

    Attributes:
        key: The infobox key.
        value: The value as the table states it.
        form: How much of it is asked for; anything but `plain` is answer-side obfuscation.
        ask: The wording, with the slot ``{X}`` for the answer node.
        source: What states it: the infobox, or only the prose; `pending` until a model has read the page.
        quote: Where in the page it is stated, if a model found it there.
    """

    key: str
    value: str
    form: Form
    ask: str
    source: Literal["infobox", "prose", "pending"] = "infobox"
    quote: str = ""

    @property
    def text(self) -> str:
        """The reference answer."""
        return transformed(self.value, self.form) or self.value

    @property
    def kind(self) -> Kind:
        """How it is compared."""
        return answer_kind(self.value, self.form)

    @property
    def gold(self) -> Gold:
        """The reference answer with its other spellings."""
        return Gold(answer=self.text, aliases=other_forms(self.value, self.form), kind=self.kind)


PENDING = Answer("", "", "plain", "What does the article on {X} state?", "pending")
"""Stands for the answer that a language model is still to read off the page (`extract`)."""


def extract_answer(
    facts: Facts, walk: Walk, settings: QuestionSettings, seed: int, taken: Collection[str] = ()
) -> Answer | Rejection:
    """Choose an attribute of the answer page, at random among those that qualify.

    Args:
        facts: The wiki.
        walk: The path.
        settings: What may be asked for.
        seed: Seed of the choice and of the wording.
        taken: Keys that other questions have asked of this page.

    Rejects `no_infobox_answer` (nothing at most six words long, stated once, that cannot be guessed), `answer_taken`
    (other questions ask all there is, or too many end here) and `answer_on_path` (every candidate is also stated on a
    page that comes before the answer page). Where the settings have a model read answers, `PENDING` comes instead.
    """
    full = len(taken) >= settings.max_per_answer_page
    if settings.answer.source == "llm":
        return Rejection("compose", "answer_taken") if full else PENDING
    found = _from_infobox(facts, walk, settings, seed, taken)
    missing = isinstance(found, Rejection) and found.reason in ("no_infobox_answer", "answer_on_path")
    return PENDING if missing and not full and settings.answer.source == "infobox_then_llm" else found


def _from_infobox(
    facts: Facts, walk: Walk, settings: QuestionSettings, seed: int, taken: Collection[str]
) -> Answer | Rejection:
    rng = generator(seed, "answer")
    candidates = [item for item in facts.items(walk.nodes[-1]) if askable(facts, item, walk, settings.answer)]
    if not candidates:
        return Rejection("compose", "no_infobox_answer")
    candidates = [item for item in candidates if item.key not in taken]
    if not candidates or len(taken) >= settings.max_per_answer_page:
        return Rejection("compose", "answer_taken")
    rng.shuffle(candidates)
    for item in candidates:
        form: Form = "plain"
        if kind_of(item.value) == "date" and rng.random() < settings.answer.obfuscate:
            form = rng.choice(("year", "day"))
        answer = Answer(item.key, item.value, form, question(item.key, form, rng.getrandbits(32)))
        if not any(stated_on(facts, page, answer) for page in walk.nodes[:-1]):
            return answer
    return Rejection("compose", "answer_on_path", candidates[0].value)


def stated_on(facts: Facts, page: int, answer: Answer) -> bool:
    """Whether a page says the answer, wherever and about whatever."""
    return f" {' '.join(words(answer.text))} " in facts.document_words(page)


def askable(facts: Facts, item: InfoboxItem, walk: Walk, settings: AnswerSettings) -> bool:
    """Whether an infobox item may be asked for: short, stated once, hard to guess, and naming no page of the path."""
    words_of = table()
    if base_key(item.key) in words_of.never_asked or not informative(item.value, settings.max_tokens):
        return False
    if item.target_id is not None and (not settings.allow_linked or item.target_id in walk.nodes):
        return False
    if facts.num_pages_with(item.key) < pages_bound(settings.min_key_pages, len(facts.wiki)):
        return False
    if sum(other.key == item.key for other in facts.items(item.page_id)) > 1:
        return False
    allowed = max(settings.max_shared, settings.max_share * facts.num_pages_with(item.key))
    if len(facts.with_value(item.key, item.value)) > allowed:
        return False
    value = f" {same_value(item.value)} "
    return not any(
        f" {same_value(name)} " in value or value in f" {same_value(name)} "
        for node in walk.nodes
        for name in facts.names(node)
    )


def spoken_bridges(hops: tuple[PathHop, ...]) -> list[str]:
    """``[h]`` the anchor and the bridges as the canonical question speaks them, by name.

    Each bridge is followed by its relation to the node before it: "Ann Roe (the architect of Foo Hall)".
    """
    spoken = [display_name(hops[0].source)]
    for hop in hops[:-1]:
        spoken.append(f"{display_name(hop.target)} ({hop.phrase.replace('{X}', spoken[-1])})")
    return spoken


def canonical_question(answer: Answer, hops: tuple[PathHop, ...], last: str) -> str:
    """The canonical question ``q_t``.

    Args:
        answer: What is asked.
        hops: The path's hops.
        last: Noun phrase of the answer node with the slot ``{X}`` for the bridge before it.
    """
    return answer.ask.replace("{X}", last.replace("{X}", spoken_bridges(hops)[-1]))
