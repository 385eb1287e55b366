"""Coined names: pronounceable words from eight invented languages, so that no name means anything outside this world.

A language model cannot have seen these words, hence cannot answer from memory; the tools are the only way in. Two
languages can be written in Greek or Cyrillic letters, most use accents, and every word comes from the generator that
is passed in, so the same seed gives the same names.
"""

from __future__ import annotations

import random
import re
import unicodedata
from dataclasses import dataclass

_CRUDE = re.compile(
    r"nig|fuc|fuk|shit|cun|rap[ei]|penis|anal|tit|cum|dick|kak|slut|nazi|pis|poo|sex|hor[eé]|bast|kike|coon|ass$"
)
"""Letter runs that a pronounceable-word generator produces by accident and nobody wants in an encyclopedia."""


@dataclass(frozen=True, slots=True)
class Language:
    """The sounds of one invented language.

    Args:
        name: Its name, also the demonym of its country.
        onsets: Openings of a syllable.
        vowels: Nuclei; repeated ones are more frequent.
        codas: Closings of an inner syllable; "" is frequent.
        places: Endings of place names.
        surnames: Endings of family names.
        women: Endings of women's given names.
        men: Endings of men's given names.
        script: "Latin", or the second script that titles may use.
    """

    name: str
    onsets: tuple[str, ...]
    vowels: tuple[str, ...]
    codas: tuple[str, ...]
    places: tuple[str, ...]
    surnames: tuple[str, ...]
    women: tuple[str, ...]
    men: tuple[str, ...]
    script: str = "Latin"


def _language(name: str, *sounds: str, script: str = "Latin") -> Language:
    onsets, vowels, codas, places, surnames, women, men = (
        tuple("" if sound == "-" else sound for sound in group.split()) for group in sounds
    )
    return Language(name, onsets, vowels, codas, places, surnames, women, men, script)


LANGUAGES = (
    _language("Ostrian", "b br d dr f g gr h kl l m n r s st t v", "a e i o u a e o ö ä", "- - l n r rn ld lm st",
              "holm vik mark ness dal gård", "sen qvist mann rud feldt", "a e ine hild", "ar in ulf e mund"),
    _language("Velian", "b c d f g l m n p r s t v gl tr", "a e i o ia a o", "- - - n r l",
              "ano etto ara iglia ona", "elli oni ucci ardo esi", "ina etta ia ora", "io o ando ino"),
    _language("Karvic", "b br č d dr k kr l m n pr r s š t v z ž", "a e i o u y", "- - n r l sk v",
              "grad ice ovo any ets", "ović enko ský ak ev", "a ena ka ina", "ir an slav ek"),
    _language("Toluan", "h k l m n p t v w", "a e i o u ā ō", "- - - -",
              "loa nui tapu ree vao", "hina kolo ʻe mana toa", "lei na mea", "ko ru nalu tane"),
    _language("Gwynthic", "b br c d g gw ll m n p r rh t th", "a e i o w y ae", "- n r dd th l s",
              "wydd mor llan eth an", "ys wen rhys gar eg", "wen a eth is", "yn or an wy"),
    _language("Azmeri", "b d g h j k kh m n q r sh t z y", "a i u e ü ö", "- n r m l z",
              "abad an ure kale ız", "oğlu zade i ani er", "a iye ü an", "ur im ed al"),
    _language("Thessic", "d g k l m n p r s t th x z", "a e i o y ei", "- - n r s l",
              "polis ea ion os ai", "akis idou ides os oulos", "ia e o ina", "as on is os", script="Greek"),
    _language("Ruvenian", "b d g k l m n p r s t v z sv gr", "a e i o u ya", "- - n r l m",
              "ovsk ino gorsk ets aya", "ov in sky enko uk", "a iya ina usha", "im ei or il", script="Cyrillic"),
)  # fmt: skip

_GREEK = (
    *(("th", "θ"), ("ei", "ει"), ("x", "ξ"), ("ou", "ου"), ("ph", "φ"), ("k", "κ"), ("g", "γ"), ("d", "δ"), ("h", "")),
    *zip("abeiylmnoprstzu", "αβειυλμνοπρστζυ", strict=True),
)
_CYRILLIC = (
    *(("sk", "ск"), ("ya", "я"), ("sh", "ш"), ("zh", "ж"), ("iy", "ий"), ("h", "х")),
    *zip("abvgdeziyklmnoprstuf", "абвгдезийклмнопрстуф", strict=True),
)

_VOWELS = "aeiouyöäüāōı"


def _syllables(rng: random.Random, language: Language, number: int) -> str:
    """Syllables in a row; no run of more than two consonants, no doubled consonant pair."""
    word = ""
    for nth in range(number):
        onset, vowel = rng.choice(language.onsets), rng.choice(language.vowels)
        if word and word[-1] not in _VOWELS and (len(onset) > 1 or (len(word) > 1 and word[-2] not in _VOWELS)):
            onset = onset[:1] if word[-2:-1] in _VOWELS and onset[:1] != word[-1] else ""
        word += onset + vowel
        if nth == 0 or rng.random() < 0.4:
            word += rng.choice(language.codas)
    return word


def coin(rng: random.Random, language: Language, syllables: int = 2) -> str:
    """A lower-case stem of about `syllables` syllables with nothing crude in it."""
    while True:
        word = _syllables(rng, language, syllables)
        if len(word) >= min(4, 2 * syllables) and not _CRUDE.search(plain(word)):
            return word


def place(rng: random.Random, language: Language, syllables: int = 2) -> str:
    """A place name of six letters or more: shorter ones are too often words or towns of the real world."""
    return _finish(rng, language, syllables, language.places, 6)


def surname(rng: random.Random, language: Language, syllables: int = 2) -> str:
    """A family name."""
    return _finish(rng, language, syllables, language.surnames, 5)


def given(rng: random.Random, language: Language, female: bool) -> str:
    """A given name."""
    return _finish(rng, language, 1, language.women if female else language.men, 5)


def _finish(rng: random.Random, language: Language, syllables: int, endings: tuple[str, ...], shortest: int) -> str:
    while True:
        stem, ending = _syllables(rng, language, syllables), rng.choice(endings)
        if ending[0] in _VOWELS:
            stem = stem.rstrip(_VOWELS) or stem
        elif len(stem) > 2 and stem[-1] not in _VOWELS and stem[-2] not in _VOWELS:
            stem = stem[:-1]
        word = stem + ending
        if len(word) >= shortest and not _CRUDE.search(plain(word)):
            return word[0].upper() + word[1:]


def plain(text: str) -> str:
    """Lower-case text without accents, the way a hurried author would type a title."""
    decomposed = unicodedata.normalize("NFKD", text)
    bare = "".join(ch for ch in decomposed if not unicodedata.combining(ch))
    return bare.replace("ı", "i").replace("ʻ", "").casefold()


def ascii_title(text: str) -> str:
    """The title without accents, case kept: the usual redirect from a keyboard without them."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(ch for ch in decomposed if not unicodedata.combining(ch)).replace("ı", "i").replace("ʻ", "")


def transliterate(text: str, script: str) -> str:
    """The name in the second script of its language; capitals at the starts of words are kept."""
    table = _GREEK if script == "Greek" else _CYRILLIC
    out = plain(text)
    for latin, other in table:
        out = out.replace(latin, other)
    if script == "Greek":
        out = re.sub(r"σ\b", "ς", out)
    return " ".join(word[:1].upper() + word[1:] for word in out.split(" "))


def misspell(rng: random.Random, title: str) -> str:
    """A plausible misspelling: one letter doubled, dropped or swapped with its neighbour, never the first."""
    spots = [at for at in range(1, len(title) - 1) if title[at].isalpha() and title[at + 1].isalpha()]
    if not spots:
        return title + "e"
    at = rng.choice(spots)
    match rng.randrange(3):
        case 0:
            return title[:at] + title[at] + title[at:]
        case 1:
            return title[:at] + title[at + 1 :]
        case _:
            return title[:at] + title[at + 1] + title[at] + title[at + 2 :]
