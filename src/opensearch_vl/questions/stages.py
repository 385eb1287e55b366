"""The stages in their order, and the table that counts what came in and what each one turned away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Stage = Literal["relations", "compose", "fuzz", "leak", "write", "anchor", "dedupe", "screen"]
STAGES: tuple[Stage, ...] = ("relations", "compose", "fuzz", "leak", "write", "anchor", "dedupe", "screen")
"""What a walk passes through; `final` stands for having passed them all."""
FINAL = "final"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a walk stopped at a stage. `reason` is one of a small set of words; `detail` says what was found."""

    stage: Stage
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StageRow:
    """One line of the table: `came_in = passed + sum(reasons)`."""

    stage: Stage
    came_in: int
    passed: int
    reasons: dict[str, int]


@dataclass(slots=True)
class StageTable:
    """Counts by stage and reason. Every walk is counted exactly once, at the stage where it ended."""

    ended: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count(self, stage: str, reason: str = "") -> None:
        """Note where a walk ended: at a stage with a reason, or at `final`."""
        if stage != FINAL and stage not in STAGES:
            raise ValueError(f"There is no stage {stage!r}; stages: {', '.join(STAGES)}, {FINAL}.")
        self.ended[stage, reason if stage != FINAL else ""] += 1

    @property
    def total(self) -> int:
        """How many walks came in."""
        return sum(self.ended.values())

    @property
    def final(self) -> int:
        """How many became questions."""
        return self.ended[FINAL, ""]

    def rows(self) -> tuple[StageRow, ...]:
        """The table, top to bottom."""
        rows = []
        came_in = self.total
        for stage in STAGES:
            reasons = {reason: n for (at, reason), n in sorted(self.ended.items()) if at == stage and n}
            passed = came_in - sum(reasons.values())
            rows.append(StageRow(stage, came_in, passed, reasons))
            came_in = passed
        return tuple(rows)

    def as_dict(self) -> list[dict[str, object]]:
        """The table as plain data, for manifests and reports."""
        return [
            {"stage": row.stage, "came_in": row.came_in, "passed": row.passed, "reasons": row.reasons}
            for row in self.rows()
        ]

    @classmethod
    def of(cls, ended: Iterable[tuple[str, str]]) -> StageTable:
        """Rebuild the table from the (stage, reason) pairs of stored records."""
        table = cls()
        for stage, reason in ended:
            table.count(stage, reason)
        return table
