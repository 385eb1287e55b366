"""A deterministic score of a sequence of searches, after the rubric of the query judge (`prompts/judge_query.md`).

Five features in [0, 1], each a ratio of countable things:

- *relevance*: calls that worked and found something, over all calls;
- *progression*: retrieval calls that brought a page or text not seen before, over retrieval calls;
- *complementarity*: whether both the picture and the text index were asked (pictures only count where there is one);
- *evidence*: calls whose outcome was used, over all calls: a later query or the answer takes up a name or number that
  this call brought up first, a later call takes its picture, or it holds the reference answer;
- *repetition*: one minus the share of calls that repeat an earlier one.

Where nothing that came back was of use, the score is 0 whatever the other features say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from opensearch_vl.protocols import JudgedCase
from opensearch_vl.scoring.answers import find
from opensearch_vl.text import fold, normalise_answer, words
from opensearch_vl.types import Observation, Step, ToolCall, Trajectory

WEIGHTS = {"relevance": 0.15, "progression": 0.15, "complementarity": 0.15, "evidence": 0.4, "repetition": 0.15}
"""Our choice; the rubric names the features and leaves their weights open."""

TEXT_TOOLS = frozenset({"text_search", "web_search", "visit"})
PICTURE_TOOLS = frozenset({"image_search", "layout_parsing"})
_TITLE = re.compile(r"^Title:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
_WORD = re.compile(r"\w{2,}")
_QUOTED = re.compile(r"“([^”\n]+)”|\"([^\"\n]+)\"")


@dataclass(frozen=True, slots=True)
class SearchQuality:
    """The features and their weighted mean, all in [0, 1]."""

    relevance: float
    progression: float
    complementarity: float
    evidence: float
    repetition: float
    num_calls: int

    @property
    def score(self) -> float:
        """The weighted mean, rounded to four digits; 0 if nothing was of use."""
        if self.evidence == 0:
            return 0.0
        return round(sum(weight * float(getattr(self, name)) for name, weight in WEIGHTS.items()), 4)

    def explain(self) -> str:
        """The features as ``name=value``."""
        if self.num_calls == 0:
            return "no tool call"
        return ", ".join(f"{name}={getattr(self, name):.2f}" for name in WEIGHTS)


def call_key(call: ToolCall) -> str:
    """What makes two calls the same: the name and the arguments, whatever their order."""
    return json.dumps([call.name, call.arguments], sort_keys=True, ensure_ascii=False, default=str)


def search_quality(case: JudgedCase, trajectory: Trajectory) -> SearchQuality:
    """Score the calls of a trajectory (or of the prefix of a fatal one)."""
    calls = [(step, step.call) for step in trajectory.steps if step.call is not None]
    if not calls:
        return SearchQuality(0, 0, 0, 0, 0, 0)
    worked = [step for step, _ in calls if step.failure is None and _found(step)]
    retrieval = [step for step, call in calls if call.name in TEXT_TOOLS | PICTURE_TOOLS]
    names = {step.call.name for step in worked if step.call is not None}
    wanted = [TEXT_TOOLS] if case.extra.get("num_images", 1) == 0 else [TEXT_TOOLS, PICTURE_TOOLS]
    return SearchQuality(
        relevance=len(worked) / len(calls),
        progression=_num_new(retrieval) / len(retrieval) if retrieval else 0.0,
        complementarity=sum(bool(names & group) for group in wanted) / len(wanted),
        evidence=_num_used(worked, trajectory, case) / len(calls),
        repetition=len({call_key(call) for _, call in calls}) / len(calls),
        num_calls=len(calls),
    )


def _found(step: Step) -> bool:
    """Whether a successful call brought anything: a picture, a hit with a title, or quoted text."""
    if step.observation is None:
        return False
    return step.observation.image is not None or bool(_finds(step))


def _finds(step: Step) -> list[str]:
    """What a step brought up: titles of hits, recognised lettering, or else the text of a page."""
    if step.call is None or step.observation is None:
        return []
    text = step.observation.text
    if step.call.name == "layout_parsing":
        return [first or second for first, second in _QUOTED.findall(text)]
    titles = _TITLE.findall(text)
    return titles if titles or step.call.name in ("text_search", "web_search", "image_search") else [text.strip()]


def _num_new(steps: list[Step]) -> int:
    """Steps whose finds are not all known from before. The text around a title counts: two passages may share one."""
    seen: set[str] = set()
    new = 0
    for step in steps:
        if step.failure is not None or step.observation is None or not _finds(step):
            continue
        blocks = {normalise_answer(block) for block in re.split(r"\n(?=\[)", step.observation.text)}
        new += bool(blocks - seen)
        seen |= blocks
    return new


def _num_used(worked: list[Step], trajectory: Trajectory, case: JudgedCase) -> int:
    known = set(words(case.question))
    useful = {id(step) for step in worked}
    used = 0
    for place, step in enumerate(trajectory.steps, 1):
        known |= set(words(_said(step)))
        if step.observation is None:
            continue
        if id(step) in useful:
            used += _used(step, step.observation, known, trajectory.steps[place:], case)
        known |= _telling(step.observation.text)
    return used


def _used(step: Step, seen: Observation, known: set[str], later: Sequence[Step], case: JudgedCase) -> bool:
    if seen.image_id is not None:
        return any(seen.image_id in other.call.arguments.values() for other in later if other.call is not None)
    said = {word for other in later for word in words(_said(other))}
    if (_telling(" ".join([seen.text, *_finds(step)])) - known) & said:
        return True
    return find(case.reference, case.aliases, case.answer_kind, seen.text).matched


def _telling(text: str) -> set[str]:
    """Folded words that may name something: not in lower case, two characters at least."""
    return {fold(word) for word in _WORD.findall(text) if not word[0].islower()}


def _said(step: Step) -> str:
    """What the policy asked for or answered at a step; its thoughts are not evidence of use."""
    spoken = [value for value in step.call.arguments.values() if isinstance(value, str)] if step.call else []
    return " ".join([*spoken, step.response or ""])
