"""Accuracy with its uncertainty, and paired comparisons of two systems on the same cases.

A case whose judge failed is *unscored*: it leaves the rate, and it is counted and shown beside it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opensearch_vl.types import Verdict

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def wilson(correct: int, n: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval of a proportion (Wilson 1927), in [0, 1].

    Args:
        correct: Successes, 0 to `n`.
        n: Trials. With none, nothing is known: (0, 1).
        z: Normal quantile; the default gives 95 %.

    Raises:
        ValueError: If `correct` is not within 0 … `n`.
    """
    if not 0 <= correct <= n:
        raise ValueError(f"{correct} correct of {n} is impossible.")
    if n == 0:
        return 0.0, 1.0
    rate = correct / n
    centre = rate + z * z / (2 * n)
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if correct == 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if correct == n else min(1.0, (centre + spread) / scale)
    return low, high


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Accuracy over the scored cases with its 95 % Wilson interval.

    Attributes:
        correct: Cases judged right.
        scored: Cases that were judged at all.
        unscored: Cases whose judge failed; not part of the rate.
        rate: ``correct / scored``; NaN when nothing was scored.
        low: Lower bound of the interval.
        high: Upper bound of the interval.
    """

    correct: int
    scored: int
    unscored: int
    rate: float
    low: float
    high: float

    def __str__(self) -> str:
        shown = "n/a" if self.scored == 0 else f"{self.rate:.1%} [{self.low:.1%}, {self.high:.1%}]"
        return f"{shown} ({self.correct}/{self.scored}, {self.unscored} unscored)"


def accuracy(verdicts: Iterable[Verdict | None]) -> Accuracy:
    """Accuracy of a set of verdicts; None counts as unscored."""
    decided = [None if verdict is None else verdict.correct for verdict in verdicts]
    scored = [value for value in decided if value is not None]
    correct = sum(scored)
    low, high = wilson(correct, len(scored))
    rate = correct / len(scored) if scored else math.nan
    return Accuracy(correct, len(scored), len(decided) - len(scored), rate, low, high)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Two systems on the same cases: ``second - first`` in accuracy.

    Attributes:
        n: Cases that both systems have scored.
        only_first: Cases that only the first got right.
        only_second: Cases that only the second got right.
        difference: Difference of the rates, in [-1, 1]; 0 without cases.
        low: Lower 95 % bound by bootstrap over cases.
        high: Upper 95 % bound.
        p_value: McNemar's exact two-sided test.
    """

    n: int
    only_first: int
    only_second: int
    difference: float
    low: float
    high: float
    p_value: float


def paired_difference(
    first: Sequence[bool | None], second: Sequence[bool | None], *, resamples: int = 2000, seed: int = 0
) -> PairedDifference:
    """Compare two systems case by case; a case that either left unscored is left out.

    Args:
        first: ``[N]`` outcomes of the first system.
        second: ``[N]`` outcomes of the second, in the same order.
        resamples: Bootstrap resamples.
        seed: Seed of the bootstrap.

    Raises:
        ValueError: If the lengths differ.
    """
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    deltas = [int(b) - int(a) for a, b in pairs]
    only_first, only_second = deltas.count(-1), deltas.count(1)
    if not deltas:
        return PairedDifference(0, 0, 0, 0.0, 0.0, 0.0, 1.0)
    rng = random.Random(seed)
    means = sorted(sum(rng.choices(deltas, k=len(deltas))) / len(deltas) for _ in range(resamples))
    low = means[int(0.025 * (resamples - 1))]
    high = means[math.ceil(0.975 * (resamples - 1))]
    difference = sum(deltas) / len(deltas)
    return PairedDifference(
        len(deltas), only_first, only_second, difference, low, high, mcnemar(only_first, only_second)
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value of McNemar's test: a fair coin over the discordant cases."""
    n = only_first + only_second
    tail = sum(math.comb(n, k) for k in range(min(only_first, only_second) + 1))
    return min(1.0, tail / (1 << (n - 1))) if n else 1.0
