"""Intervals and paired comparisons against values known from elsewhere."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.scoring.metrics import accuracy, mcnemar, paired_difference, wilson
from opensearch_vl.types import Verdict


def test_wilson_of_textbook_cases() -> None:
    low, high = wilson(8, 10)
    assert low == pytest.approx(0.4901, abs=1e-3)
    assert high == pytest.approx(0.9433, abs=1e-3)
    assert wilson(0, 10)[1] == pytest.approx(0.2775, abs=1e-3)
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_is_symmetric(case: tuple[int, int]) -> None:
    correct, n = case
    low, high = wilson(correct, n)
    assert 0 <= low <= correct / n <= high <= 1
    mirrored_low, mirrored_high = wilson(n - correct, n)
    assert (low, high) == pytest.approx((1 - mirrored_high, 1 - mirrored_low))


@pytest.mark.parametrize(("correct", "n"), [(-1, 3), (4, 3)])
def test_impossible_counts_are_refused(correct: int, n: int) -> None:
    with pytest.raises(ValueError, match="impossible"):
        wilson(correct, n)


def test_unscored_cases_leave_the_rate_and_are_counted() -> None:
    verdicts = [Verdict(correct=True), Verdict(correct=False), Verdict(correct=None), None]
    found = accuracy(verdicts)
    assert (found.correct, found.scored, found.unscored, found.rate) == (1, 2, 2, 0.5)
    assert "2 unscored" in str(found)
    nothing = accuracy([None])
    assert math.isnan(nothing.rate)
    assert "n/a" in str(nothing)


def test_mcnemar_is_the_exact_coin_test() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(0, 5) == pytest.approx(2 / 32)
    assert mcnemar(1, 9) == pytest.approx(2 * 11 / 1024)
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(0, 5000) == 0.0


def test_paired_difference_pairs_what_both_have_scored() -> None:
    first = [True, False, False, False, None, True]
    second = [True, True, True, False, True, None]
    found = paired_difference(first, second)
    assert (found.n, found.only_first, found.only_second) == (4, 0, 2)
    assert found.difference == 0.5
    assert found.low <= 0.5 <= found.high
    assert found == paired_difference(first, second)
    assert paired_difference([None], [True]).n == 0
