"""Short typed answers: which infobox values can be asked for, and what the answer side may be turned into.

An answer has at most six words (paper, section 3.2), is stated once under its key, cannot be guessed from how often its
value occurs, and gives no page of the path away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from opensearch_vl.questions.phrases import Form

Kind = Literal["text", "name", "date", "number"]

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_MONTH = "|".join(MONTHS)
_DAY_FIRST = re.compile(rf"(\d{{1,2}}) ({_MONTH}),? (\d{{3,4}})")
_MONTH_FIRST = re.compile(rf"({_MONTH}) (\d{{1,2}}),? (\d{{3,4}})")
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_NUMBER = re.compile(r"[-−+]?\d[\d,.\u00a0\u202f ]*\s*(?:[^\W\d]{1,12}\.?|[%°²³/µ]+[^\W\d]{0,6}){0,3}")
_EMPTY = frozenset(
    {"", "yes", "no", "none", "unknown", "n/a", "na", "various", "see below", "present", "tba", "-", "–"}
)

_BOX = re.compile(r"\\f?boxed\s*\{")
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")
_ESCAPED = re.compile(r"\\([%$&#_{} ,])")


@dataclass(frozen=True, slots=True)
class Date:
    """A day of the calendar as an infobox states it."""

    day: int
    month: int
    year: int


def read_date(value: str) -> Date | None:
    """A complete date, or None. The value must be nothing but the date."""
    text = value.strip()
    if found := _DAY_FIRST.fullmatch(text):
        day, month, year = int(found[1]), MONTHS.index(found[2]) + 1, int(found[3])
    elif found := _MONTH_FIRST.fullmatch(text):
        day, month, year = int(found[2]), MONTHS.index(found[1]) + 1, int(found[3])
    elif found := _ISO.fullmatch(text):
        day, month, year = int(found[3]), int(found[2]), int(found[1])
    else:
        return None
    return Date(day, month, year) if 1 <= day <= 31 and 1 <= month <= 12 else None


def kind_of(value: str) -> Kind:
    """How an answer is compared: as a date, a number with or without a unit, a name, or text."""
    if read_date(value) is not None:
        return "date"
    if _NUMBER.fullmatch(value.strip()):
        return "number"
    tokens = value.split()
    if tokens and not any(ch.isdigit() for ch in value) and all(token[:1].isupper() for token in tokens):
        return "name"
    return "text"


def informative(value: str, max_tokens: int) -> bool:
    """Whether a value could be an answer at all: short, with content, and not a bare number below a hundred."""
    text = value.strip()
    if text.casefold() in _EMPTY or len(text.split()) > max_tokens or len(text) > 80:
        return False
    if not any(ch.isalnum() for ch in text) or len(text) < 2:
        return False
    return not (text.isdigit() and len(text) < 3)


def transformed(value: str, form: Form) -> str | None:
    """The gold answer of a form of question: the value itself, or the year, or the day and month of a date."""
    if form == "plain":
        return value.strip()
    date = read_date(value)
    if date is None:
        return None
    return str(date.year) if form == "year" else f"{date.day} {MONTHS[date.month - 1]}"


def other_forms(value: str, form: Form) -> tuple[str, ...]:
    """Other ways of writing the gold answer that are equally right."""
    date = read_date(value)
    if date is None or form == "year":
        return ()
    month = MONTHS[date.month - 1]
    if form == "day":
        return (f"{month} {date.day}", f"{date.month:02d}-{date.day:02d}")
    forms = (
        f"{date.day} {month} {date.year}",
        f"{month} {date.day}, {date.year}",
        f"{date.year:04d}-{date.month:02d}-{date.day:02d}",
    )
    return tuple(text for text in forms if text != value.strip())


def answer_kind(value: str, form: Form) -> Kind:
    """How the gold answer of a form is compared."""
    if form == "year":
        return "number"
    return "text" if form == "day" else kind_of(value)


def boxed(text: str) -> str | None:
    r"""What the last ``\boxed{…}`` of a text holds, braces balanced and text commands taken off; None without one.

    ``"So \boxed{\text{Ana Boro}}."`` gives ``"Ana Boro"``.
    """
    for start in reversed([found.end() for found in _BOX.finditer(text)]):
        depth = 1
        for end in range(start, len(text)):
            escaped = text[end - 1] == "\\"
            depth += 0 if escaped else (text[end] == "{") - (text[end] == "}")
            if depth == 0:
                inner = _ESCAPED.sub(r"\1", _WRAPPED.sub(r"\1", text[start:end])).strip().strip("$").strip()
                if inner:
                    return inner
                break
    return None
