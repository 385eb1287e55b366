"""Comparing answers by value: is the reference among the things a text states?

Names and texts are compared by whole folded words, dates and numbers by value whatever their notation. A mention that
is directly negated (``not Paris``) does not count. What a text offers besides is counted, because "the answer occurs in
the response" rewards listing candidates.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal

from opensearch_vl.text import fold, words

MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH_NUMBER = {name[:size]: n for n, name in enumerate(MONTHS, 1) for size in (3, len(name))} | {"sept": 9}
_M = "(?:" + "|".join(sorted(_MONTH_NUMBER, key=len, reverse=True)) + r")\b\.?"
_D = r"(?:0?[1-9]|[12]\d|3[01])"
_Y = r"\d{3,4}"
_ERA = r"(?:\s*(?:b\.?c\.?(?:e\.?)?|a\.?d\.?|c\.?e\.?)(?!\w))?"
_DATE = re.compile(
    rf"(?<![\w.,-])(?:"
    rf"(?P<y1>{_Y})-(?P<m1>\d\d?)-(?P<d1>\d\d?)"
    rf"|(?P<y2>{_Y})[/.](?P<m2>\d\d?)[/.](?P<d2>\d\d?)"
    rf"|(?P<a3>\d\d?)(?P<sep>[/.-])(?P<b3>\d\d?)(?P=sep)(?P<y3>\d{{4}})"
    rf"|(?P<d4>{_D})(?:st|nd|rd|th)?(?:\s+of)?\s+(?P<m4>{_M})(?:,?\s+(?:of\s+)?(?P<y4>{_Y}){_ERA})?"
    rf"|(?P<m5>{_M})\s+(?:the\s+)?(?P<d5>{_D})(?:st|nd|rd|th)?(?!\d)(?:,?\s+(?P<y5>{_Y}){_ERA})?"
    rf"|(?P<m6>{_M}),?\s+(?:of\s+)?(?P<y6>{_Y}){_ERA}"
    rf"|(?:(?:ad|anno domini)\s+)?(?P<y7>{_Y}|\d{{1,2}}(?=\s*b\.?c)){_ERA}"
    rf")(?![\w-]|[.,]\d)"
)
_NUMBER = re.compile(
    r"(?<![\w.,])(?<![^\W\d_][-–])(?P<sign>[-−–+]?)\s?(?:"
    r"(?P<comma>(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))(?!\d|,\d))"
    r"|(?P<grouped>\d{1,3}(?:[,'’ \u00a0\u202f]\d{3})+(?!\d)(?:\.\d+)?|\d{1,3}(?:\.\d{3}){2,}(?!\d))"
    r"|(?P<plain>\d+(?:\.\d+)?|\.\d+))"
)
_UNIT = re.compile(r"[\s\u00a0\u202f-]*([^\W\d_]+[²³]?|%|°[cf]?|\$|€|£)")
_GLUED = re.compile(r"(?!(?:st|nd|rd|th)\b)[^\W\d_²³]")
_NEGATION = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot be|isn't|wasn't|isn’t|wasn’t|rather than|instead of|other than|except)"
    r"(?:\s+(?:the|a|an|on|in|at|by|of|from|to|for|even|necessarily))*)[\s\"'“‘(*]*$"
)
_LIST_LINE = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+\S")
_SEPARATOR = re.compile(r"\s*(?:;|/|\||,|\bor\b|\band/or\b)\s*")

_UNITS = {
    "m": "m metre metres meter meters",
    "km": "km kilometre kilometres kilometer kilometers",
    "cm": "cm centimetre centimetres centimeter centimeters",
    "mm": "mm millimetre millimetres millimeter millimeters",
    "ft": "ft foot feet",
    "mi": "mi mile miles",
    "kg": "kg kilogram kilograms kilogramme kilogrammes",
    "g": "g gram grams gramme grammes",
    "t": "t tonne tonnes",
    "lb": "lb lbs pound pounds",
    "year": "year years yr yrs",
    "%": "% percent",
    "km²": "km² km2 sqkm",
    "m²": "m² m2 sqm",
}
_UNIT_OF = {word: unit for unit, spellings in _UNITS.items() for word in spellings.split()}


@dataclass(frozen=True, slots=True)
class PartialDate:
    """A calendar date with any of its parts unknown; years before our era are negative (2 BC is -2)."""

    year: int | None = None
    month: int | None = None
    day: int | None = None

    def states(self, reference: PartialDate) -> bool:
        """Whether this date says everything that `reference` says: 15 May 1931 states 1931, not the reverse."""
        pairs = ((reference.year, self.year), (reference.month, self.month), (reference.day, self.day))
        return any(want is not None for want, _ in pairs) and all(want is None or want == got for want, got in pairs)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number, and the unit behind it where that is one we know."""

    value: Decimal
    unit: str = ""

    def states(self, reference: Quantity) -> bool:
        """Equal in value, and no clash of two known units. No tolerance and no conversion."""
        return self.value == reference.value and (self.unit == reference.unit or "" in (self.unit, reference.unit))


@dataclass(frozen=True, slots=True)
class Found:
    """What a text states: whether the reference is among it, and how many candidates it offers."""

    matched: bool
    num_candidates: int


def find(reference: str, aliases: tuple[str, ...], kind: str, text: str) -> Found:
    """Look for the reference, or an alias, in a text.

    Args:
        reference: The reference answer. A `date` or `number` that cannot be read as one is compared as text.
        aliases: Other right answers.
        kind: `text`, `name`, `date` or `number`.
        text: Where to look.
    """
    wanted = (reference, *aliases)
    if kind == "date" and (days := [date for item in wanted for date in dates(item)[:1]]):
        stated = dates(text)
        matched = any(date.states(day) for date in stated for day in days)
        return Found(matched or _any_words(aliases, text), len(set(stated)))
    if kind == "number" and (amounts := [number for item in wanted for number in numbers(item)[:1]]):
        quantities = numbers(text)
        matched = any(quantity.states(amount) for quantity in quantities for amount in amounts)
        return Found(matched or _any_words(aliases, text), len(set(quantities)))
    return Found(_any_words(wanted, text), _num_listed(text))


def dates(text: str) -> list[PartialDate]:
    """All dates of a text that are not negated, in order.

    ``05/06/1931`` may be read either way and gives both readings; ``05.06.1931`` has the day first.
    """
    folded = _folded(text)
    found: list[PartialDate] = []
    for match in _DATE.finditer(folded):
        if not _is_negated(folded, match.start()):
            found.extend(date for date in _read_date(match) if _exists(date))
    return found


def numbers(text: str) -> list[Quantity]:
    """All numbers of a text that are not negated, in order. ``1,234``, ``1 234`` and ``1234.0`` are equal.

    A comma before three digits groups thousands, elsewhere, and after a single zero, it is a decimal comma.
    """
    folded = _folded(text)
    found = []
    for match in _NUMBER.finditer(folded):
        if _is_negated(folded, match.start()):
            continue
        value = _decimal(match)
        behind = _UNIT.match(folded, match.end())
        unit = _UNIT_OF.get(behind[1], "") if behind else ""
        if not unit and _GLUED.match(folded, match.end()):
            continue  # part of a code such as "12C"
        found.append(Quantity(-value if match["sign"] in ("-", "−") else value, unit))
    return found


def _decimal(match: re.Match[str]) -> Decimal:
    if match["comma"]:
        return Decimal(match["comma"].replace(",", "."))
    if match["grouped"]:
        text = re.sub(r"[,'’\s]", "", match["grouped"])
        return Decimal(text.replace(".", "") if text.count(".") > 1 else text)
    return Decimal(match["plain"])


def _folded(text: str) -> str:
    # No NFKC here: it would turn "10²" into "102". Accents go, so that "août" and "1er" simply fail to read.
    decomposed = unicodedata.normalize("NFD", text.casefold())
    return "".join(ch for ch in decomposed if not unicodedata.combining(ch))


def _read_date(match: re.Match[str]) -> list[PartialDate]:
    parts = match.groupdict()
    era = -1 if re.search(r"\bb\.?c\.?", match[0]) else 1
    if parts["a3"]:
        year, a, b = int(parts["y3"]), int(parts["a3"]), int(parts["b3"])
        day_first = PartialDate(year, b, a)
        return [day_first] if parts["sep"] != "/" or a == b else [day_first, PartialDate(year, a, b)]
    year_text = next((parts[f"y{n}"] for n in range(1, 8) if n != 3 and parts[f"y{n}"]), None)
    month_text = next((parts[f"m{n}"] for n in (1, 2, 4, 5, 6) if parts[f"m{n}"]), None)
    day_text = next((parts[f"d{n}"] for n in (1, 2, 4, 5) if parts[f"d{n}"]), None)
    month = None
    if month_text is not None:
        month = int(month_text) if month_text.isdigit() else _MONTH_NUMBER[month_text.rstrip(".")]
    return [
        PartialDate(
            era * int(year_text) if year_text is not None else None,
            month,
            int(day_text) if day_text is not None else None,
        )
    ]


def _exists(date: PartialDate) -> bool:
    longest = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if date.month is not None and not 1 <= date.month <= 12:
        return False
    return date.day is None or 1 <= date.day <= (longest[date.month - 1] if date.month else 31)


def _any_words(needles: tuple[str, ...], text: str) -> bool:
    return any(_states_words(needle, text) for needle in needles)


def _states_words(needle: str, text: str) -> bool:
    """Whether the needle occurs as a run of whole words, at least once not negated. English articles are optional."""
    folded = fold(text)
    tokens = [word for word in words(needle) if word not in ("a", "an", "the")] or words(needle)
    if not tokens:
        return bool(needle.strip()) and needle.strip() in text
    gap = r"[\W_]+(?:(?:a|an|the)[\W_]+)*"
    pattern = re.compile(r"(?<!\w)" + gap.join(map(re.escape, tokens)) + r"(?!\w)")
    return any(not _is_negated(folded, match.start()) for match in pattern.finditer(folded))


def _is_negated(folded: str, start: int) -> bool:
    """Whether what begins at `start` is directly negated by the words before it."""
    return _NEGATION.search(folded, max(0, start - 80), start) is not None


def _num_listed(text: str) -> int:
    """How many alternatives a response lists: the longest of its bullet list and its widest enumeration."""
    lines = [line for line in text.splitlines() if line.strip()]
    bullets = sum(bool(_LIST_LINE.match(line)) for line in lines)
    widest = max((len(_SEPARATOR.split(part)) for line in lines for part in re.split(r"[.!?:]\s", line)), default=0)
    return max(bullets, widest)
