"""A small memory of results by content, since the rollouts of one task send the same picture again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The last `size` values, by key. Thread-safe."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> T | None:
        """The value, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: str, value: T) -> None:
        """Remember a value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()


class Memo(Generic[T]):
    """The last `size` results of a computation, by key. Threads that miss the same key at once compute it once."""

    def __init__(self, size: int) -> None:
        self._recent: Recent[tuple[T]] = Recent(size)
        self._busy: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._generation = 0

    def get(self, key: str, compute: Callable[[], T]) -> T:
        """The remembered value of `key`, or `compute()`; an exception is passed on and not remembered."""
        known = self._recent.get(key)
        if known is not None:
            return known[0]
        with self._lock:
            turn = self._busy.setdefault(key, threading.Lock())
            generation = self._generation
        with turn:
            try:
                known = self._recent.get(key)
                if known is not None:
                    return known[0]
                value = compute()
                with self._lock:
                    if generation == self._generation:
                        self._recent.put(key, (value,))
                return value
            finally:
                with self._lock:
                    self._busy.pop(key, None)

    def clear(self) -> None:
        """Forget everything, also what is being computed right now."""
        with self._lock:
            self._generation += 1
            self._recent.clear()
