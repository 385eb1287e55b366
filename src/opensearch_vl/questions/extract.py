"""Answers that only prose states: a language model reads the page, and what it found is held against the page.

Paper, section 3.2: the answer comes from infobox or lead. A model that reads may misread or make up, so an answer
counts only if the page of the answer node says it literally, in the sentence that the model quotes, and no page before
it on the path says it too. What an infobox states as well is tied to its key, so that the exact checks apply; for the
rest they report `not_applicable`.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, Field

from opensearch_vl.questions.answers import informative, read_date
from opensearch_vl.questions.compose import Answer, askable, stated_on
from opensearch_vl.questions.facts import Facts, same_value
from opensearch_vl.questions.leak import leaks
from opensearch_vl.questions.settings import AnswerSettings
from opensearch_vl.text import contains_words, words
from opensearch_vl.tools.scrub import scrub
from opensearch_vl.wiki.walks import Walk

AnswerType = Literal["date", "number", "name", "place", "other"]
_MAX_ATTRIBUTE_WORDS = 8
_YEAR = re.compile(r"\b\d{3,4}\b")


class Extracted(BaseModel):
    """What a model read off a page. `attribute` completes "What is the … of it?"; all empty if there is nothing."""

    quote: str = Field("", max_length=600)
    attribute: str = Field("", max_length=120)
    answer: str = Field("", max_length=120)
    type: AnswerType = "other"


def plain(text: str) -> bool:
    """Whether a model's text is one line of ordinary text: no markup, no control tokens, nothing unseen."""
    return scrub(text) == text and "\n" not in text and not re.search(r"[{}<>|`]", text)


def accept(
    found: Extracted, facts: Facts, walk: Walk, spoken: str, settings: AnswerSettings
) -> Answer | tuple[str, str]:
    """The answer, or the reason why it is refused and what was wrong, in words a model can act on.

    Args:
        found: What the model replied.
        facts: The wiki.
        walk: The path; its last page is the one that was read.
        spoken: The question so far, which must not give the answer away.
        settings: What may be asked for.

    Reasons: `no_prose_answer`, `answer_not_plain`, `answer_unusable` (too long, or says nothing), `answer_type`,
    `answer_not_on_page`, `answer_not_in_quote`, `answer_names_path`, `answer_on_path`, `answer_in_question`,
    `attribute_unusable`, `answer_guessable` (an infobox value that the rules would not ask for either).
    """
    answer, attribute = " ".join(found.answer.split()), " ".join(found.attribute.split())
    if not answer:
        return "no_prose_answer", "the page gave no answer"
    if not plain(answer) or not plain(attribute):
        return "answer_not_plain", "answer and attribute must be plain text"
    if not informative(answer, settings.max_tokens):
        return "answer_unusable", f"the answer must have at most {settings.max_tokens} words and say something"
    if not _is_typed(answer, found.type):
        return "answer_type", f"{answer} is no {found.type}"
    page, before = walk.nodes[-1], walk.nodes[:-1]
    candidate = Answer(_slug(attribute), answer, "plain", f"What is the {attribute} of {{X}}?", "prose", found.quote)
    if not stated_on(facts, page, candidate):
        return "answer_not_on_page", f"the page does not say {answer}"
    said = words(found.quote)
    if not contains_words(said, words(answer)) or f" {' '.join(said)} " not in facts.document_words(page):
        return "answer_not_in_quote", "the quote must be copied from the page and hold the answer"
    names = [name for node in walk.nodes for name in facts.names(node)]
    if _overlaps(answer, names):
        return "answer_names_path", f"{answer} is a name of this article or of one that leads to it"
    if any(stated_on(facts, node, candidate) for node in before):
        return "answer_on_path", f"a page that leads to this one also says {answer}"
    if leaks(spoken, (answer,)):
        return "answer_in_question", f"the question already says {answer}"
    named = any(leaks(attribute, facts.names(node), facts.page(node).domain == "Person") for node in walk.nodes)
    if not 0 < len(words(attribute)) <= _MAX_ATTRIBUTE_WORDS or named or leaks(attribute, (answer,)):
        return "attribute_unusable", "the attribute must be a few words, without names and without the answer"
    return _tied(candidate, facts, walk, settings)


def _is_typed(answer: str, kind: AnswerType) -> bool:
    if kind == "date":
        return read_date(answer) is not None or _YEAR.search(answer) is not None
    if kind == "number":
        return any(ch.isdigit() for ch in answer)
    return kind == "other" or any(ch.isalpha() for ch in answer)


def _overlaps(answer: str, names: list[str]) -> bool:
    """Whether the answer is part of a name, or a name part of it."""
    own = words(answer)
    return any(contains_words(own, words(name)) or contains_words(words(name), own) for name in names)


def _tied(answer: Answer, facts: Facts, walk: Walk, settings: AnswerSettings) -> Answer | tuple[str, str]:
    """The answer under the infobox key that states it too, where there is exactly one."""
    same = [item for item in facts.items(walk.nodes[-1]) if same_value(item.value) == same_value(answer.value)]
    if not same:
        return answer
    usable = [item for item in same if askable(facts, item, walk, settings)]
    if not usable:
        return "answer_guessable", f"{answer.value} is too common, or not asked for"
    if len(usable) > 1:
        return answer
    return Answer(usable[0].key, usable[0].value, "plain", answer.ask, "infobox", answer.quote)


def _slug(attribute: str) -> str:
    return "_".join(words(attribute))
