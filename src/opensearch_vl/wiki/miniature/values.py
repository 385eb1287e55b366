"""Attribute values: dates with day, measures, catalogue numbers, coined words, mottoes.

Every maker draws from so many values that a guess cannot be right by luck, and none exceeds six tokens, the recipe's
limit for an answer (section 3.1). A value has two faces: the wikitext of the infobox and the plain text of the prose.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from opensearch_vl.wiki.miniature import names

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
_VIRTUES = ("patience", "light", "bread", "honour", "salt", "iron", "mercy", "harvest", "silence", "courage", "rain",
            "memory", "labour", "stone", "wind", "honey", "order", "embers", "tide", "thread")  # fmt: skip
_MOODS = ("before", "above", "through", "beyond", "without", "against", "after", "beside")
_COLOURS = ("Silver", "Golden", "Crimson", "White", "Azure", "Green", "Black", "Copper", "Ivory", "Amber")
_EMBLEMS = ("Heron", "Anchor", "Lantern", "Oak", "Compass", "Lynx", "Falcon", "Thistle", "Bell", "Otter", "Star", "Key")
_STREETS = ("Street", "Lane", "Quay", "Row", "Square", "Steps", "Gate", "Hill")


@dataclass(frozen=True, slots=True)
class Value:
    """An attribute's value as `wikitext` (infobox) and as `plain` text (prose, at most six tokens)."""

    wikitext: str
    plain: str


@dataclass(frozen=True, slots=True)
class Context:
    """What a maker may know of its entity: the year it belongs to, its language and its coined stem."""

    year: int
    language: names.Language
    stem: str


Maker = Callable[[random.Random, Context], Value]


def _same(text: str) -> Value:
    return Value(text, text)


def day(shift: int, spread: int, template: str = "") -> Maker:
    """A date with day, about `shift` ± `spread` years from the entity's year, in `template` or written out."""

    def make(rng: random.Random, context: Context) -> Value:
        year = context.year + shift + rng.randint(-spread, spread)
        month, number = rng.randint(1, 12), rng.randint(1, 28)
        text = f"{number} {MONTHS[month - 1]} {year}"
        if not template or rng.random() < 0.25:
            return _same(text)
        tail = "|df=y" if rng.random() < 0.5 else ""
        return Value(f"{{{{{template}|{year}|{month}|{number}{tail}}}}}", text)

    return make


def measure(low: float, high: float, unit: str, digits: int = 1, convert_to: str = "") -> Maker:
    """A number with a unit; one in six uses {{convert}} where the template knows the target unit."""

    def make(rng: random.Random, context: Context) -> Value:
        number = f"{rng.uniform(low, high):,.{digits}f}"
        text = f"{number} {unit}"
        if convert_to and "," not in number and rng.random() < 0.16:
            return Value(f"{{{{convert|{number}|{unit}|{convert_to}}}}}", text)
        return Value(f"{number}&nbsp;{unit}" if rng.random() < 0.3 else text, text)

    return make


def count(low: int, high: int, noun: str = "") -> Maker:
    """A whole number with thousands separators, perhaps with a noun."""

    def make(rng: random.Random, context: Context) -> Value:
        number = f"{rng.randint(low, high):,}"
        return _same(f"{number} {noun}".strip())

    return make


def code(prefix: str, digits: int = 5) -> Maker:
    """A catalogue or register number."""

    def make(rng: random.Random, context: Context) -> Value:
        letters = "".join(rng.choice("ABCDEFGHJKLMNPRSTVWXZ") for _ in range(2))
        number = rng.randrange(10 ** (digits - 1), 10**digits)
        return _same(f"{prefix} {letters}-{number}".strip())

    return make


def coined(pattern: str = "{}", syllables: int = 3) -> Maker:
    """A coined word in a pattern such as ``"{} escapement"``."""

    def make(rng: random.Random, context: Context) -> Value:
        word = names.coin(rng, context.language, syllables)
        return _same(pattern.format(word[0].upper() + word[1:]))

    return make


def person_name(female_share: float = 0.5) -> Maker:
    """A full name that belongs to no page."""

    def make(rng: random.Random, context: Context) -> Value:
        first = names.given(rng, context.language, rng.random() < female_share)
        return _same(f"{first} {names.surname(rng, context.language)}")

    return make


def motto(rng: random.Random, context: Context) -> Value:
    """A motto in English of three to five words with a coined word, in quotation marks in the infobox."""
    word = names.coin(rng, context.language, 2).capitalize()
    text = f"{rng.choice(_VIRTUES).capitalize()} {rng.choice(_MOODS)} {rng.choice(_VIRTUES)}, {word}"
    return Value(f"''{text}''" if rng.random() < 0.5 else text, text)


def order(rng: random.Random, context: Context) -> Value:
    """A decoration with its year."""
    return _same(f"Order of the {rng.choice(_COLOURS)} {rng.choice(_EMBLEMS)}, {context.year + rng.randint(-5, 25)}")


def address(rng: random.Random, context: Context) -> Value:
    """A street address."""
    word = names.coin(rng, context.language, 2).capitalize()
    return _same(f"{rng.randint(1, 320)} {word} {rng.choice(_STREETS)}")


def span(length: int) -> Maker:
    """A span of years around the entity's year."""

    def make(rng: random.Random, context: Context) -> Value:
        first = context.year - rng.randint(0, length // 2)
        return _same(f"{first}–{first + rng.randint(3, length)}")

    return make


def words(*choices: str) -> Maker:
    """One of a few words: realistic, too common to be asked for on its own."""

    def make(rng: random.Random, context: Context) -> Value:
        return _same(rng.choice(choices))

    return make


def light(rng: random.Random, context: Context) -> Value:
    """The characteristic of a lighthouse, e.g. ``Fl(3) W 17.5s``."""
    return _same(f"{rng.choice(('Fl', 'Oc', 'Iso', 'LFl'))}({rng.randint(1, 6)}) {rng.choice('WRG')} "
                 f"{rng.randint(40, 300) / 10:.1f}s")  # fmt: skip


def binomial(rng: random.Random, context: Context) -> Value:
    """An invented scientific name."""
    genus = names.ascii_title(names.coin(rng, context.language, 2)).capitalize() + rng.choice(("us", "ia", "is", "ops"))
    species = names.plain(names.coin(rng, context.language, 2)) + rng.choice(("ensis", "alis", "atus", "ana"))
    text = f"{genus} {species}".replace("ʻ", "")
    return Value(f"''{text}''", text)
