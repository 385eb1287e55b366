"""Coined names: never crude, never twice, in the scripts the font covers."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.wiki.miniature import names, plan_world

SEEDS = st.integers(0, 2**32)
LANGUAGES = st.sampled_from(names.LANGUAGES)


@given(SEEDS, LANGUAGES)
def test_names_are_words_without_crude_runs(seed: int, language: names.Language) -> None:
    rng = random.Random(seed)
    for word in (names.place(rng, language), names.surname(rng, language), names.given(rng, language, True)):
        assert word[0].isupper() and len(word) >= 4
        assert not names._CRUDE.search(names.plain(word))


@given(SEEDS, LANGUAGES, st.integers(1, 4))
def test_stems_end(seed: int, language: names.Language, syllables: int) -> None:
    assert names.coin(random.Random(seed), language, syllables).islower()


@given(SEEDS, LANGUAGES)
def test_a_misspelling_keeps_the_first_letter(seed: int, language: names.Language) -> None:
    rng = random.Random(seed)
    word = names.place(rng, language)
    assert names.misspell(rng, word)[0] == word[0]


@given(SEEDS)
def test_second_scripts_leave_no_latin_letter(seed: int) -> None:
    for language in names.LANGUAGES:
        if language.script != "Latin":
            word = names.transliterate(names.place(random.Random(seed), language), language.script)
            assert not any("a" <= ch <= "z" for ch in names.plain(word)), word


def test_ascii_titles_are_ascii() -> None:
    world, _ = plan_world(600, 2)
    assert all(names.ascii_title(title).isascii() for title in world.titles)


def test_no_two_titles_or_aliases_collide() -> None:
    world, plans = plan_world(1500, 4)
    everything = [*world.titles, *world.hubs.titles(), *(plan.title for plan in plans), *world.shared]
    everything += [alias.title for aliases in world.aliases.values() for alias in aliases]
    assert len({title.casefold() for title in everything}) == len(everything)
