"""Trajectories told again under other names, so that a small policy learns to copy names instead of learning them.

An encyclopedia of some thousand pages holds few names, and a policy that is trained from nothing meets each of them in
every epoch: it learns them by heart, and garbles those of an encyclopedia that it has not seen (docs/log.md). In a
copy, every name and every number of a trajectory is another one, the same throughout: in the question, the replies and
what the tools said. What is to be learnt stays, namely which part of what is on the page goes where. A number keeps its
first digits, so that years stay years of their century, and a month becomes another month: a policy that meets the same
picture and question in every copy would learn the date of the answer by heart.

Pictures stay as they are. Lettering in them no longer agrees with the text, which a policy that sees a picture at 192
by 192 pixels could not read anyway; do not rename for a policy that reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from random import Random
from typing import Any

from opensearch_vl.questions.answers import MONTHS
from opensearch_vl.seeds import generator
from opensearch_vl.types import RolloutRecord, Step, Task

_WORD = re.compile(r"[^\W\d_]{3,}|(?<![\d_])\d{2,}(?![\d\]])")
"""Words and numbers; no digits of picture ids (``img_12``) and of headings (``[Passage 10]``)."""
_MONTHS = tuple(sorted(MONTHS))
_COMMON = 0.02
"""A word with a capital that more than this share of the trajectories hold is no name but wording ("Summary", "Order",
months). In 600 trajectories of a miniature of 4,000 pages, months were in 4 to 6 %, the most frequent names in 2 %."""
_FEW = 3
"""Words of at most so many trajectories may be names, however few trajectories there are."""
_TRIES = 50
"""Draws for a name that the trajectory does not have yet."""


@dataclass(frozen=True, slots=True)
class Names:
    """Words that are names, and the halves that new ones are joined from."""

    words: frozenset[str]
    heads: tuple[str, ...]
    tails: tuple[str, ...]

    @classmethod
    def found_in(cls, documents: Iterable[Iterable[str]]) -> Names:
        """Words with a capital that few documents hold and that none writes without; a document is its texts."""
        num, capital, small = 0, Counter[str](), set[str]()
        for texts in documents:
            num += 1
            words = {word for text in texts for word in _WORD.findall(text)}
            capital.update(word for word in words if word[0].isupper())
            small |= {word for word in words if word[0].islower()}
        bound = max(_COMMON * num, _FEW)
        names = sorted(word for word, count in capital.items() if count <= bound and word.lower() not in small)
        halves = [((len(name) + 1) // 2, name) for name in names]
        return cls(
            frozenset(names), tuple(name[:half] for half, name in halves), tuple(name[half:] for half, name in halves)
        )


def renamed_copies(records: Callable[[], Iterator[RolloutRecord]], num: int, seed: int) -> Iterator[RolloutRecord]:
    """Each trajectory `num` times under other names, copy after copy of all of them; 0 gives them as they are.

    A trajectory that comes twice is another one each time, so that naming a run twice gives it twice the weight.

    Args:
        records: Reads the trajectories; called anew for every copy.
        num: Copies.
        seed: The same seed, the same names.
    """
    if not num:
        yield from records()
        return
    names = Names.found_in(map(texts_of, records()))
    number = 0
    for _ in range(num):
        for record in records():
            yield renamed(record, names, generator("renaming", seed, number), f"{record.id}~{number}")
            number += 1


def renamed(record: RolloutRecord, names: Names, rng: Random, new_id: str) -> RolloutRecord:
    """A trajectory under other names. Numbers that a call passes as numbers, such as boxes, stay."""
    stay = {digits for step in record.trajectory.steps if step.call for digits in _numbers(step.call.arguments)}
    told = Telling(names, lambda word: rng, stay)
    steps = tuple(_step(step, told) for step in record.trajectory.steps)
    trajectory = record.trajectory.model_copy(update={"id": new_id, "steps": steps})
    return record.model_copy(update={"id": new_id, "task": renamed_task(record.task, told), "trajectory": trajectory})


def renamed_task(task: Task, told: Callable[[str], str]) -> Task:
    """Question and reference answer under other names; the provenance, which no agent sees, stays."""
    gold = task.gold
    gold = gold.model_copy(update={"answer": told(gold.answer), "aliases": tuple(map(told, gold.aliases))})
    return task.model_copy(update={"question": told(task.question), "gold": gold})


class Telling:
    """Gives each name and number of one trajectory another one; no two the same while there are others left.

    Args:
        names: What is a name, and what new ones are made of.
        draws: Where the choice for a word comes from. A generator of each word's own makes the choice independent of
            the order in which words come.
        stay: Numbers that stay as they are.
    """

    def __init__(self, names: Names, draws: Callable[[str], Random], stay: Set[str] = frozenset()) -> None:
        self.names, self.draws, self.stay = names, draws, stay
        self._new: dict[str, str] = {}
        self._old: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """The text under the other names."""
        return _WORD.sub(lambda match: self._other(match[0]), text)

    def original(self, text: str) -> str:
        """The text as it was before; words that were never told stay as they are."""
        return _WORD.sub(lambda match: self._old.get(match[0], match[0]), text)

    def _other(self, word: str) -> str:
        if word in self.stay or not (word.isdigit() or word in self.names.words or word in _MONTHS):
            return word
        if word not in self._new:
            self._new[word] = self._choose(word)
            self._old.setdefault(self._new[word], word)
        return self._new[word]

    def _choose(self, word: str) -> str:
        other, rng = word, self.draws(word)
        for _ in range(_TRIES):
            if word.isdigit():
                kept = word[: len(word) // 2]
                other = kept + "".join(rng.choices("0123456789", k=len(word) - len(kept)))
            elif word in _MONTHS:
                other = rng.choice(_MONTHS)
            else:
                other = rng.choice(self.names.heads) + rng.choice(self.names.tails)
            if other not in self._old:
                break
        return other


def _step(step: Step, told: Callable[[str], str]) -> Step:
    update: dict[str, Any] = {"text": told(step.text), "thought": told(step.thought), "sampled": None}
    if step.call is not None:
        update["call"] = step.call.model_copy(update={"arguments": each_text(step.call.arguments, told)})
    if step.response is not None:
        update["response"] = told(step.response)
    if step.observation is not None:
        update["observation"] = step.observation.model_copy(update={"text": told(step.observation.text)})
    return step.model_copy(update=update)


def each_text(value: Any, told: Callable[[str], str]) -> Any:
    """A call's arguments with every string in them told anew."""
    if isinstance(value, str):
        return told(value)
    if isinstance(value, dict):
        return {key: each_text(item, told) for key, item in value.items()}
    if isinstance(value, list):
        return [each_text(item, told) for item in value]
    return value


def _numbers(value: Any) -> Iterator[str]:
    """Digits of the numbers in a call's arguments, as they stand in its text."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield from re.findall(r"\d{2,}", repr(value))


def texts_of(record: RolloutRecord) -> Iterator[str]:
    """What is read and said in a trajectory."""
    yield record.task.question
    for step in record.trajectory.steps:
        yield step.text
        if step.observation is not None:
            yield step.observation.text
