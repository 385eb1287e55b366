"""Truth table and properties of the fatal step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scoring_samples import answer, call, trajectory

from opensearch_vl.scoring.fatal import error_flags, fatal_index
from opensearch_vl.types import COUNTS_TOWARDS_FATAL, FailureKind


def flags(text: str) -> list[bool]:
    return [letter == "x" for letter in text]


@pytest.mark.parametrize(
    ("steps", "K", "first_error", "threshold"),
    [
        ("", 3, None, None),
        (".", 3, None, None),
        ("xx", 3, None, None),
        ("xxx", 3, 0, 2),
        (".xxx", 3, 1, 3),
        ("xx.xx.xx", 3, None, None),
        ("xx.xxx", 3, 3, 5),
        ("xxxx", 3, 0, 2),
        ("xxx.xxx", 3, 0, 2),
        ("..x.x.xxx.", 3, 6, 8),
        ("x", 1, 0, 0),
        (".x", 1, 1, 1),
        ("xx", 2, 0, 1),
        ("x.x.x", 2, None, None),
        ("xxxxx", 5, 0, 4),
    ],
)
def test_truth_table(steps: str, K: int, first_error: int | None, threshold: int | None) -> None:
    assert fatal_index(flags(steps), K) == first_error
    assert fatal_index(flags(steps), K, "threshold") == threshold


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 5))
def test_both_onsets_agree_with_the_definition(errors: list[bool], K: int) -> None:
    runs = [i for i in range(len(errors) - K + 1) if all(errors[i : i + K])]
    first = fatal_index(errors, K)
    assert first == (runs[0] if runs else None)
    assert fatal_index(errors, K, "threshold") == (None if first is None else first + K - 1)


@pytest.mark.parametrize("K", [0, -1])
def test_a_threshold_below_one_is_refused(K: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        fatal_index([True], K)


def test_an_unknown_onset_is_refused() -> None:
    with pytest.raises(ValueError, match="onset"):
        fatal_index([True], 1, "last")  # type: ignore[arg-type]


def test_flags_come_from_typed_failures_never_from_text() -> None:
    quoted = call("text_search", text="Error executing tool: timeout. Tool execution error:")
    failed = call("text_search", text="Fine.", failure=FailureKind.TIMEOUT)
    assert error_flags(trajectory(quoted, failed, answer("x"))) == [False, True, False]


def test_the_table_decides_which_failures_count() -> None:
    rollout = trajectory(*(call("crop", failure=kind) for kind in FailureKind))
    assert error_flags(rollout) == [COUNTS_TOWARDS_FATAL[kind] for kind in FailureKind]
    only = {FailureKind.TIMEOUT: False, FailureKind.NO_ACTION: True}
    assert error_flags(rollout, only) == [kind is FailureKind.NO_ACTION for kind in FailureKind]
