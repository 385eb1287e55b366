"""How a rule-based attacker reads: what a question asks, what documents state, and which relation leads where.

Used by the handicapped solvers. The reader knows the writer's wordings (the strongest assumption an auditor can make
of a rule-written set), understands ``Label: value`` lines, and can follow relations through whatever it has retrieved.
It never sees the reference answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from opensearch_vl.questions.answers import transformed
from opensearch_vl.questions.facts import display_name
from opensearch_vl.questions.phrases import Form, questions_for, relation_phrase, statement, table
from opensearch_vl.text import fold, words

_MAX_REDUCTIONS = 8
_PICTURE = re.compile(
    r"\bthe (?:(?!(?:the|an?|who|whose|that|which)\b)[\w'’-]+ ){1,5}in the (?:picture|image|photo|photograph)\b",
    re.IGNORECASE,
)
_END = r"(?![\w-])(?! and (?:who|whose|that)\b)"
"""A phrase ends with a whole word, and no further clause tells the same thing more narrowly."""
_LINE = re.compile(r"([^\W\d_][^:\n]{0,60}): (\S.*)")


@dataclass(frozen=True, slots=True)
class Document:
    """A page or a part of one, with its ``Label: value`` lines."""

    title: str
    text: str
    rank: int = 0
    lines: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, title: str, text: str, rank: int = 0) -> Document:
        """Parse the lines. Keys are infobox keys (`birth_date`), guessed back from the labels."""
        lines: dict[str, str] = {}
        for raw in text.splitlines():
            if found := _LINE.fullmatch(raw.strip()):
                lines.setdefault("_".join(fold(found[1]).split()), found[2].strip())
        return cls(title, text, rank, lines)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question asks: a key, how much of its value, and the words for whom or what.

    Several keys may be worded alike ("area" of a town, of a lake); `synonyms` are the others.
    """

    key: str
    form: Form
    subject: str
    synonyms: tuple[str, ...] = ()


def understand(question: str, keys: Iterable[str]) -> Asked | None:
    """Find the asked key among those that documents state; the longest wording wins.

    Falls back on the key whose words come first in the question.
    """
    best, longest = list[Asked](), 0
    candidates = sorted(set(keys) | set(table().attributes))
    for key in candidates:
        for form in ("plain", "year", "day"):
            for ask in questions_for(key, form):
                head, _, tail = ask.partition("{X}")
                weight = len(head) + len(tail)
                if (
                    weight >= longest
                    and question.startswith(head)
                    and question.endswith(tail)
                    and len(question) > weight
                ):
                    best = [
                        *(best if weight == longest else ()),
                        Asked(key, form, question[len(head) : len(question) - len(tail)]),
                    ]
                    longest = weight
    if best:
        return replace(best[0], synonyms=tuple(asked.key for asked in best[1:] if asked.form == best[0].form))
    text = f" {' '.join(words(question))} "
    places = [(text.find(f" {key.replace('_', ' ')} "), key) for key in candidates]
    found = sorted((place, -len(key), key) for place, key in places if place >= 0)
    return Asked(found[0][2], "plain", question) if found else None


def read_value(document: Document, asked: Asked) -> str | None:
    """The asked value as the document states it, or None."""
    stated = (document.lines.get(key) for key in (asked.key, *asked.synonyms))
    value = next((value for value in stated if value is not None), None)
    return transformed(value, asked.form) if value is not None else None


def without_brackets(question: str) -> str:
    """The question without its bracketed explanations: what is worth typing into a search box."""
    while (shorter := re.sub(r" \([^()]*\)", "", question)) != question:
        question = shorter
    return question


def replace_picture(question: str, name: str) -> str:
    """The question with its visual referring expression replaced by a name."""
    return _PICTURE.sub(lambda _: name, question)


def reduce(question: str, documents: Sequence[Document]) -> str:
    """Follow stated relations: replace every phrase that a document resolves by the name it resolves to.

    "the spouse of the architect of Foo Hall" becomes "the spouse of Ann Roe" if the document *Foo Hall* states its
    architect, or if the document *Ann Roe* states that she is known for it.
    """
    for _ in range(_MAX_REDUCTIONS):
        shorter = _reduce_once(question, documents)
        if shorter == question:
            break
        question = shorter
    return question


def _reduce_once(question: str, documents: Sequence[Document]) -> str:
    for document in documents:
        name = display_name(document.title)
        if name not in question:
            continue
        bare = _without_brackets(question, name)
        if bare != question:
            return bare
        for key, value in document.lines.items():
            shorter = _apply(question, relation_phrase(key, "forward", ""), name, value.split(", ")[0])
            if shorter != question:
                return shorter
    for document in documents:
        shorter = _apply_own(question, document)
        if shorter != question:
            return shorter
    for document in documents:
        for key, value in document.lines.items():
            for name in value.split(", "):
                if name in question:
                    shorter = _apply_inverse(question, relation_phrase(key, "inverse", "\x00"), name, document.title)
                    if shorter != question:
                        return shorter
    return question


def _without_brackets(question: str, name: str) -> str:
    """Drop the explanation that follows a name in brackets."""
    found = re.search(rf"{re.escape(name)} (\((?:[^()]|\([^()]*\))*\))", question)
    return question[: found.start(1) - 1] + question[found.end(1) :] if found else question


def _apply(question: str, phrase: str, name: str, value: str) -> str:
    spoken = phrase.replace("{X}", name)
    if spoken in question:
        return question.replace(spoken, display_name(value), 1)
    rest = spoken.removeprefix("the ")
    if rest not in question:  # a pattern costs a compilation, and most relations are not spoken
        return question
    narrowed = re.compile(
        rf"the [\w ]+? (?:whose|born|made|who|in|built) [^?]*? and (?:who|that) is an? {re.escape(rest)}"
    )
    return narrowed.sub(lambda _: display_name(value), question, count=1)


def _apply_own(question: str, document: Document) -> str:
    """Put the title for a phrase that only states what the document states of itself: "the person whose … is …"."""
    spoken = [(key, value) for key, value in document.lines.items() if value in question]
    clauses = {statement(key, value, animate) for key, value in spoken for animate in (True, False)}
    clauses = {clause for clause in clauses if clause in question}
    if not clauses:
        return question
    one = "|".join(re.escape(clause) for clause in sorted(clauses, key=len, reverse=True))
    pattern = rf"the (?:[\w-]+ ){{1,4}}(?:{one})(?: and (?:{one}))*{_END}"
    return re.sub(pattern, lambda _: display_name(document.title), question, count=1)


def _apply_inverse(question: str, phrase: str, name: str, value: str) -> str:
    spoken = phrase.replace("{X}", name)
    if not all(part in question for part in spoken.split("\x00")):
        return question
    pattern = re.escape(spoken).replace("\x00", r"[\w ]+?") + _END
    return re.sub(pattern, lambda _: display_name(value), question, count=1)


def overlap(question: str, document: Document) -> float:
    """Share of the question's content words that the document contains, in [0, 1]."""
    wanted = {word for word in words(question) if len(word) > 2 and word not in table().common_words}
    if not wanted:
        return 0.0
    return len(wanted & set(words(document.text))) / len(wanted)


def settled(question: str, documents: Sequence[Document]) -> str | None:
    """The answer, if following the stated relations leads to a document that states it; never a guess."""
    asked = understand(question, (key for document in documents for key in document.lines))
    if asked is None:
        return None
    subject = fold(reduce(asked.subject, documents).strip(" ,"))
    found = (read_value(document, asked) for document in documents if fold(display_name(document.title)) == subject)
    return next((value for value in found if value), None)


def answer_from(question: str, documents: Sequence[Document]) -> str | None:
    """The best answer that the documents give.

    First the page that the relations lead to; failing that, the page that states the asked key, shares most words with
    the question and came first, pages that the question names itself coming last.
    """
    asked = understand(question, (key for document in documents for key in document.lines))
    if asked is None:
        return None
    if value := settled(question, documents):
        return value
    ranked = sorted(
        documents,
        key=lambda d: (display_name(d.title) in question, -overlap(question, d), d.rank),
    )
    for document in ranked:
        if value := read_value(document, asked):
            return value
    return None
