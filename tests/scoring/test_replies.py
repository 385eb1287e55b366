"""The judge-reply parser against a table of replies a person can read."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.scoring.replies import parse_correct, parse_score

TABLE = yaml.safe_load((Path(__file__).parent / "judge_replies.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("reply", "expected"), TABLE["accuracy"])
def test_accuracy_replies(reply: str, expected: bool | None) -> None:
    assert parse_correct(reply) is expected


@pytest.mark.parametrize(("reply", "expected"), TABLE["score"])
def test_score_replies(reply: str, expected: float | None) -> None:
    assert parse_score(reply) == expected


def test_the_table_is_large_enough() -> None:
    assert len(TABLE["accuracy"]) >= 40


@given(st.text())
def test_any_text_is_read_without_an_error(reply: str) -> None:
    assert parse_correct(reply) in (True, False, None)
    score = parse_score(reply)
    assert score is None or 0 <= score <= 1


@given(st.sampled_from(["yes", "no"]), st.text(alphabet="abc xyz'\"()[]*.,:;!?", max_size=200))
def test_a_line_initial_label_decides_whatever_the_reason_says(word: str, noise: str) -> None:
    assert parse_correct(f"correct: {word}\nreason: {noise}") is (word == "yes")


def test_huge_and_nested_replies_are_read_quickly() -> None:
    assert parse_correct("{" * 1_000_000) is None
    assert parse_correct('{"a":' * 200_000) is None
    assert parse_correct("correct: yes\n" + "x" * 1_000_000) is True
