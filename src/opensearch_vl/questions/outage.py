"""What to do with walks that the model server failed: hold their records back until it is clear what was wrong.

A server that fails one walk and serves the next has trouble with that walk, which ends with its reason. A server that
fails several in a row is down: nothing of it may be recorded, or the questions would be lost for good. So from the
first failure on all records are held back; either the server serves again and they are let go, or the build stops, and
resuming starts from before the first failure.
"""

from __future__ import annotations

from opensearch_vl.errors import ModelUnreachable
from opensearch_vl.questions.paid import Ledger
from opensearch_vl.types import QuestionRecord

SERVER_REASONS = frozenset({"model_unreachable", "model_refused"})
"""Reasons that say nothing of the question: the server could not, or would not, take the request."""


class Outage:
    """The failures in a row so far.

    Args:
        give_up_after: Walks in a row that the server may fail.
        ledger: Tells whether the server has replied since; None without a model.
    """

    def __init__(self, give_up_after: int, ledger: Ledger | None) -> None:
        self._give_up_after, self._ledger = give_up_after, ledger
        self._held: list[QuestionRecord] = []
        self._failures, self._failed_at = 0, 0

    @staticmethod
    def caused(record: QuestionRecord) -> bool:
        """Whether it was the server that ended a walk."""
        return record.stage == "write" and record.reason in SERVER_REASONS

    def noted(self, record: QuestionRecord) -> QuestionRecord:
        """The record; if the server ended the walk, when it did so. Walks before this one may still be under way."""
        if self.caused(record):
            self._failed_at = self._num_replies
        return record

    def failed(self, record: QuestionRecord) -> None:
        """Hold the record of a failed walk back.

        Raises:
            ModelUnreachable: It was the last that the server may fail.
        """
        self._failures += 1
        self._held.append(record)
        if self._failures >= self._give_up_after:
            raise ModelUnreachable(
                f"The model server failed {self._failures} walks in a row ({record.reason}: {record.draft['detail']}).",
                "Look at the server, then continue with --resume.",
            )

    def holds(self, record: QuestionRecord) -> bool:
        """Hold any other record back while the server fails; False if there is no reason to."""
        if self._failures:
            self._held.append(record)
        return self._failures > 0

    @property
    def over(self) -> bool:
        """Whether the server has replied since it last failed."""
        return self._num_replies > self._failed_at

    def release(self) -> list[QuestionRecord]:
        """What was held back, in order; the count starts anew."""
        held, self._held, self._failures = self._held, [], 0
        return held

    @property
    def _num_replies(self) -> int:
        return 0 if self._ledger is None else self._ledger.num_replies
