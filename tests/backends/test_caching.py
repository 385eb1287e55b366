"""The memory of results."""

import threading

import pytest

from opensearch_vl.backends.caching import Memo, Recent


def test_recent_forgets_the_oldest() -> None:
    recent: Recent[int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)


def test_memo_computes_once_per_key_even_for_none() -> None:
    memo: Memo[None] = Memo(4)
    calls: list[int] = []
    for _ in range(3):
        assert memo.get("k", lambda: calls.append(1)) is None
    assert len(calls) == 1 and not memo._busy


def test_memo_does_not_remember_failures() -> None:
    memo: Memo[int] = Memo(4)
    with pytest.raises(ZeroDivisionError):
        memo.get("k", lambda: 1 // 0)
    assert memo.get("k", lambda: 5) == 5 and not memo._busy


def test_memo_keeps_threads_from_computing_the_same() -> None:
    memo: Memo[int] = Memo(4)
    started, release, calls = threading.Event(), threading.Event(), []

    def slow() -> int:
        calls.append(1)
        started.set()
        release.wait(5)
        return 7

    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(memo.get("k", slow))) for _ in range(3)]
    threads[0].start()
    started.wait(5)
    for thread in threads[1:]:
        thread.start()
    release.set()
    for thread in threads:
        thread.join()
    assert results == [7, 7, 7] and len(calls) == 1


def test_clearing_also_forgets_what_is_under_way() -> None:
    memo: Memo[int] = Memo(4)

    def compute() -> int:
        memo.clear()
        return 1

    assert memo.get("k", compute) == 1
    assert memo.get("k", lambda: 2) == 2
