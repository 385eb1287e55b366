"""Reading a judge's reply: the one parser that training and evaluation share.

Judges write ``correct: yes``, ``**Correct:** [no]``, JSON, a reason first and a verdict last, or a bare ``INCORRECT``.
Whatever is ambiguous (both findings, an echo of the form ``yes|no``, a score outside its range) is None, so that the
caller asks again or reports the case as unscored. Only words are compared, whole: `incorrect` never reads as `correct`.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

T = TypeVar("T")

_YES = frozenset({"yes", "true", "correct", "right", "y", "1", "是", "正确", "对"})
_NO = frozenset(
    {"no", "false", "incorrect", "wrong", "n", "0", "not correct", "not right", "否", "错误", "不正确", "不是"}
)
_VALUE = r"not\s+correct|not\s+right|不正确|不是|[^\W_]+"
_KEYS = (
    r"correct|correctness|is_correct|iscorrect|verdict|judge?ment|final\s+(?:verdict|judge?ment|decision|answer)|"
    r"decision|grade|conclusion|正确|判断|结论"
)
_LABEL = re.compile(rf"(?<![^\W_])({_KEYS})\s*[:=]\s*({_VALUE})(?![^\W_])", re.IGNORECASE)
_ECHO = re.compile(r"\s*(?:\||/|,?\s*\bor\b)\s*(?:yes|no|true|false|correct|incorrect)(?![^\W_])", re.IGNORECASE)
_OPENING = re.compile(rf"({_VALUE})\s*(?:[,.;!-]|(?<=yes):|(?<=no):)", re.IGNORECASE)
_SENTENCE = re.compile(
    r"\b(?:is|was|are|be|as|appears|therefore|thus)\s+((?:definitely|clearly|indeed|fully|factually)\s+)?"
    r"(not\s+correct|incorrect|correct|not\s+right|wrong|right)\b(?!\s+(?:to|answer\s+(?:is|was|would)))",
    re.IGNORECASE,
)
_NUMBER = r"[+-]?(?:\d+(?:[.,]\d+)?|[.,]\d+)"
_SCORE_LABEL = re.compile(
    rf"(?<![^\W_])(?:score|rating|overall|评分|得分)\s*(?:is\b|[:=])\s*({_NUMBER})\s*(%|/\s*\d+(?:[.,]\d+)?|out\s+of\s+\d+(?:\.\d+)?)?",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\s*(?:-|–|—|to|\.\.)\s*\d", re.IGNORECASE)
_BARE_NUMBER = re.compile(rf"({_NUMBER})\s*(%|/\s*\d+(?:[.,]\d+)?|out\s+of\s+\d+(?:\.\d+)?)?\.?", re.IGNORECASE)
_THINK = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPEN_THINK = re.compile(r"^.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_UNFINISHED_THINK = re.compile(r"<think(?:ing)?>.*", re.DOTALL | re.IGNORECASE)
_DECORATION = re.compile(r"[*_`#<>\[\](){}\"'“”‘’«»]+")

MAX_CHARS = 20_000
"""Longer replies are read at both ends only; a verdict in the middle of such a reply is not looked for."""


def parse_correct(reply: str) -> bool | None:
    """Whether the judge found the answer right; None if the reply does not say so clearly."""
    text = _clean(reply)
    from_json = _agreed(_json_values(text, ("correct", "is_correct", "verdict", "judgement", "judgment"), _as_bool))
    if from_json is not None:
        return from_json
    lines = [_plain(line) for line in text.splitlines()]
    starts = [match for line in lines if (match := _LABEL.match(line))]
    anywhere = [match for line in lines for match in _LABEL.finditer(line)]
    for matches in (starts, anywhere):
        values = [value for match in matches if (value := _label_value(match)) != "unknown"]
        if values:
            return _agreed(values)
    return _bare_verdict([line for line in lines if line])


def parse_score(reply: str) -> float | None:
    """The score in [0, 1]; `7/10` and `70%` are scaled. None if there is none, several, or one out of range."""
    text = _clean(reply)
    from_json = _agreed(_json_values(text, ("score", "rating"), _as_score))
    if from_json is not None:
        return from_json
    lines = [_plain(line) for line in text.splitlines()]
    starts = [match for line in lines if (match := _SCORE_LABEL.match(line))]
    anywhere = [match for line in lines for match in _SCORE_LABEL.finditer(line)]
    for matches in (starts, anywhere):
        matches = [match for match in matches if not _RANGE.match(match.string, match.end())]
        if matches:
            return _agreed([_scaled(match[1], match[2]) for match in matches])
    bare = [match for line in lines if line and (match := _BARE_NUMBER.fullmatch(line))]
    return _scaled(bare[0][1], bare[0][2]) if len(bare) == 1 else None


def _clean(reply: str) -> str:
    if len(reply) > MAX_CHARS:
        reply = reply[: MAX_CHARS // 2] + "\n" + reply[-MAX_CHARS // 2 :]
    text = _THINK.sub("\n", unicodedata.normalize("NFKC", reply))
    text = _OPEN_THINK.sub("", text)
    return _UNFINISHED_THINK.sub("", text).strip()  # cut off while thinking: not a verdict yet


def _plain(line: str) -> str:
    """The line without Markdown, brackets and quotes, and without list markers in front."""
    line = " ".join(_DECORATION.sub(" ", line).split())
    return re.sub(r"^(?:[-•·]|\d+[.)]|reply:|output:)\s+", "", line, flags=re.IGNORECASE).replace(" :", ":").strip()


def _json_values(text: str, keys: tuple[str, ...], read: Callable[[Any], T | None]) -> list[T | None]:
    found: list[T | None] = []
    for item in _json_objects(text):
        folded = {str(key).casefold(): value for key, value in item.items()}
        found.extend(read(folded[key]) for key in keys if key in folded)
    return found


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            if isinstance(value, dict):
                yield value
        place = text.find("{", end)


def _as_bool(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, list) and len(value) == 1:
        return _as_bool(value[0])
    return _word_value(str(value)) if isinstance(value, str | int) else None


def _word_value(word: str) -> bool | None:
    key = " ".join(word.casefold().split())
    return True if key in _YES else False if key in _NO else None


def _label_value(match: re.Match[str]) -> bool | Literal["unknown"] | None:
    """The finding behind a label; None for an echo of the form asked for (`yes|no`)."""
    if _ECHO.match(match.string, match.end()):
        return None
    value = _word_value(match[2])
    return "unknown" if value is None else value


def _bare_verdict(lines: list[str]) -> bool | None:
    """A reply without a label: a lone word, a first or last word set off by punctuation, or a plain sentence."""
    edges = [lines[0], lines[-1]] if lines else []
    alone = [value for line in edges if (value := _word_value(line.strip(" .!"))) is not None]
    if alone:
        return _agreed(alone)
    opening = [
        value for line in edges if (match := _OPENING.match(line)) and (value := _word_value(match[1])) is not None
    ]
    if opening:
        return _agreed(opening)
    return _agreed([_word_value(match[2]) for line in lines for match in _SENTENCE.finditer(line)])


def _agreed(values: Sequence[T | None]) -> T | None:
    return values[0] if values and all(value == values[0] for value in values) else None


def _as_score(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _in_range(float(value))
    if isinstance(value, str) and (match := _BARE_NUMBER.fullmatch(value.strip())):
        return _scaled(match[1], match[2])
    return None


def _scaled(number: str, scale: str | None) -> float | None:
    value = float(number.replace(",", "."))
    if scale == "%":
        value /= 100
    elif scale:
        top = float(re.sub(r"[^\d.]", "", scale.replace(",", ".")))
        value = value / top if top > 0 else math.nan
    return _in_range(value)


def _in_range(value: float) -> float | None:
    return value if 0 <= value <= 1 else None
