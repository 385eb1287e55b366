"""What was asked and paid for: the replies of a run on disk, and the ledger of what they cost.

A reply is on disk before anything is made of it, so a run that is killed and resumed asks again only what was under
way.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from opensearch_vl.types import Usage

_COLUMNS = (
    "key TEXT PRIMARY KEY, content TEXT NOT NULL, stage TEXT NOT NULL DEFAULT '', "
    "prompt_tokens INTEGER NOT NULL DEFAULT 0, completion_tokens INTEGER NOT NULL DEFAULT 0, "
    "cost REAL NOT NULL DEFAULT 0"
)


@dataclass(slots=True)
class Ledger:
    """What was asked and spent, by stage.

    Attributes:
        before: What earlier sittings of the run have spent, in US dollars.
        num_replies: Replies that came in, of all stages.
    """

    calls: Counter[str] = field(default_factory=Counter)
    cached: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    usage: dict[str, Usage] = field(default_factory=dict)
    before: float = 0.0
    num_replies: int = 0

    def pay(self, stage: str, usage: Usage) -> None:
        """Note what a reply took."""
        self.num_replies += 1
        self.usage[stage] = self.usage.get(stage, Usage()) + usage

    @property
    def cost(self) -> float:
        """US dollars spent by this process."""
        return sum(usage.cost for usage in self.usage.values())

    def as_dict(self) -> dict[str, dict[str, float]]:
        """One row per stage."""
        return {
            stage: {
                "calls": self.calls[stage],
                "cached": self.cached[stage],
                "invalid": self.invalid[stage],
                "waits": self.waits[stage],
                "prompt_tokens": self.usage.get(stage, Usage()).prompt_tokens,
                "completion_tokens": self.usage.get(stage, Usage()).completion_tokens,
                "cost": self.usage.get(stage, Usage()).cost,
            }
            for stage in sorted({*self.calls, *self.cached})
        }


class ReplyCache:
    """Replies on disk, in SQLite; one process writes at a time."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._connect()) as db, db:
            db.execute(f"CREATE TABLE IF NOT EXISTS replies ({_COLUMNS})")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    def get(self, key: str) -> str | None:
        """The reply kept under a key."""
        with closing(self._connect()) as db:
            row = db.execute("SELECT content FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, content: str, stage: str = "", usage: Usage = Usage()) -> None:
        """Keep a reply and what it took."""
        row = (key, _storable(content), stage, usage.prompt_tokens, usage.completion_tokens, usage.cost)
        with closing(self._connect()) as db, db:
            db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?, ?)", row)

    def spent(self) -> tuple[float, float]:
        """US dollars: what all kept replies have cost together, and the dearest of them."""
        with closing(self._connect()) as db:
            total, most = db.execute("SELECT coalesce(sum(cost), 0), coalesce(max(cost), 0) FROM replies").fetchone()
        return float(total), float(most)


def _storable(text: str) -> str:
    """SQLite keeps no half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")
