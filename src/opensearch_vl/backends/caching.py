"""A small memory of results by content, since the rollouts of one task send the same picture again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """The last `size` results, by key; thread-safe. Two threads that miss the same key at once compute it once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[str, T] = OrderedDict()
        self._busy: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._generation = 0

    def get(self, key: str, compute: Callable[[], T]) -> T:
        """The remembered value of `key`, or `compute()`; an exception is passed on and not remembered."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            turn = self._busy.setdefault(key, threading.Lock())
            generation = self._generation
        with turn:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            try:
                value = compute()
            finally:
                with self._lock:
                    self._busy.pop(key, None)
            with self._lock:
                if generation == self._generation:
                    self._values[key] = value
                    while len(self._values) > self._size:
                        self._values.popitem(last=False)
            return value

    def clear(self) -> None:
        """Forget everything, also what is being computed right now."""
        with self._lock:
            self._values.clear()
            self._generation += 1
