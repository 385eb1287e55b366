"""How relations, attributes and kinds of things are worded by the rule-based writer (English).

The table is data (`phrases.yaml`); a key that is not in it falls back to its humanised form, so any infobox can be
spoken. Phrases are *noun phrases* with one slot ``{X}`` for the entity nearer the anchor, so they nest:
"the spouse of the architect of the building in the picture".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from opensearch_vl.seeds import derive

Direction = Literal["forward", "inverse"]
Form = Literal["plain", "year", "day"]
"""How much of a value is asked for: all of it, or the year or the day and month of a date."""


class Relation(BaseModel):
    """Wording of one infobox key as a relation.

    Attributes:
        forward: The value's side, seen from the page that holds the key: "the architect of {X}".
        clause: The holder's side, as what follows a noun: "designed by {X}"; empty means "whose <label> is {X}".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    forward: str
    clause: str = ""


class Attribute(BaseModel):
    """Wording of one infobox key as something asked for.

    Attributes:
        ask: Questions with the slot ``{X}``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ask: tuple[str, ...]


class Phrases(BaseModel):
    """The whole table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    relations: dict[str, Relation]
    attributes: dict[str, Attribute]
    generic_ask: tuple[str, ...]
    plural_ask: tuple[str, ...]
    year_ask: tuple[str, ...]
    day_ask: tuple[str, ...]
    nouns: dict[str, str]
    domain_nouns: dict[str, str]
    labels: dict[str, str]
    never_asked: frozenset[str]
    never_stated: frozenset[str]
    common_words: frozenset[str]


@cache
def table() -> Phrases:
    """The shipped table, read once."""
    text = resources.files(__package__).joinpath("phrases.yaml").read_text(encoding="utf-8")
    return Phrases.model_validate(yaml.safe_load(text))


_COUNTER = re.compile(r"(?<!km)(?<!mi)(?<!_m)(?<!_ft)_?\d+$")

_CLAUSE_WORDS = frozenset({"who", "that", "whose", "with"})
_PLURAL = re.compile(r"[^suia]s$")


@lru_cache(maxsize=20_000)
def base_key(key: str) -> str:
    """A key without its counter: `architect2` and `architect_2` become `architect`."""
    return _COUNTER.sub("", key) or key


def spoken(key: str) -> str:
    """A key as words inside a sentence: `birth_date` becomes "date of birth" or, unlisted, its words."""
    key = base_key(key)
    return table().labels.get(key) or " ".join(key.replace("-", "_").split("_")).strip().lower() or key


def relation_phrase(key: str, direction: Direction, noun: str) -> str:
    """The noun phrase of a hop, with the slot ``{X}``.

    Args:
        key: The infobox key that states the edge.
        direction: `forward` if the page nearer the anchor holds the key, else `inverse`.
        noun: What the target is ("building"); used on the inverse side, where the target holds the key.
    """
    entry = table().relations.get(base_key(key))
    if direction == "forward":
        return entry.forward if entry is not None else f"the {spoken(key)} of {{X}}"
    if entry is not None and entry.clause:
        return f"the {noun} {entry.clause}"
    return f"the {noun} whose {spoken(key)} is {{X}}"


def statement(key: str, value: str, animate: bool) -> str:
    """An attribute as a relative clause: "whose occupation is botanist", "that is discovered by Ann Roe"."""
    entry = table().relations.get(base_key(key))
    if entry is not None and entry.clause:
        clause = entry.clause.replace("{X}", value)
        pronoun = "who" if animate else "that"
        return clause if clause.partition(" ")[0] in _CLAUSE_WORDS else f"{pronoun} is {clause}"
    return f"whose {spoken(key)} is {value}"


def narrowed(phrase: str, direction: Direction, clauses: Sequence[str], noun: str, animate: bool) -> str:
    """A relation phrase that several entities fit, told apart by clauses; ``{X}`` stays last, so it nests safely.

    "the student of {X}" becomes "the person whose field is botany and who is a student of {X}"; "the building
    designed by {X}" becomes "the building whose style is Gothic and that is designed by {X}".
    """
    if not clauses:
        return phrase
    pronoun = "who" if animate else "that"
    rest = phrase.removeprefix("the ")
    if direction == "forward":
        last = f"{pronoun} is {'an' if rest[:1] in 'aeiou' else 'a'} {rest}"
    else:
        own = rest.removeprefix(f"{noun} ")
        last = own if own.partition(" ")[0] in _CLAUSE_WORDS else f"{pronoun} is {own}"
    return f"the {noun} {' and '.join((*clauses, last))}"


@cache
def questions_for(key: str, form: Form) -> tuple[str, ...]:
    """All wordings that ask for a key, with the slot ``{X}``, best first."""
    words = table()
    label = spoken(key)
    if form == "year":
        return tuple(ask.replace("{label}", label) for ask in words.year_ask)
    if form == "day":
        return tuple(ask.replace("{label}", label) for ask in words.day_ask)
    entry = words.attributes.get(base_key(key))
    if entry is not None:
        return entry.ask
    generic = words.plural_ask if _PLURAL.search(label) else words.generic_ask
    return tuple(ask.replace("{label}", label) for ask in generic)


def question(key: str, form: Form, seed: int) -> str:
    """One wording for a key, chosen by seed, with the slot ``{X}``; the first character is a capital."""
    options = questions_for(key, form)
    return options[derive(seed, key, form) % len(options)]


def noun(infobox_type: str, domain: str) -> str:
    """What a thing is called: "museum", "building", or "subject" when nothing is known about it."""
    words = table()
    kind = " ".join(infobox_type.lower().replace("_", " ").split()).removeprefix("infobox").strip()
    return words.nouns.get(kind) or words.domain_nouns.get(domain) or words.domain_nouns[""]


def anchor_phrase(infobox_type: str, domain: str) -> str:
    """The visual referring expression that stands for the anchor (paper, section 3.4)."""
    return f"the {noun(infobox_type, domain)} in the picture"
