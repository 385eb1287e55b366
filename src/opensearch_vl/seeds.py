"""Seeds: every random choice derives from a hash of what it belongs to, so that order and restarts do not matter."""

from __future__ import annotations

import hashlib
import random


def derive(*parts: int | str) -> int:
    """A 63-bit seed from its parts, the same on every machine and in every process.

    Rollouts use ``derive(run_seed, step, task_id, sample)`` and nothing else, so an asynchronous run resumes exactly.
    """
    joined = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(joined.encode()).digest()[:8], "big") >> 1


def generator(*parts: int | str) -> random.Random:
    """A private random generator seeded with `derive`."""
    return random.Random(derive(*parts))
