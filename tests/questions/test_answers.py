"""Typed answers: kinds, what is informative, and the forms that obfuscation asks for."""

import pytest

from opensearch_vl.questions.answers import (
    Date,
    answer_kind,
    informative,
    kind_of,
    other_forms,
    read_date,
    transformed,
)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("20 November 2009", "date"), ("November 20, 2009", "date"), ("2009-11-20", "date"), ("57.3 m", "number"),
        ("12,345", "number"), ("−4 °C", "number"), ("23 km²", "number"), ("Teresa Rainö", "name"), ("Zx-99812", "text"),
        ("in good order", "text"), ("Έλλη Ρωμανού", "name"), ("32 January 2009 BC", "text"),
    ],
)  # fmt: skip
def test_kinds(value, kind) -> None:
    assert kind_of(value) == kind


@pytest.mark.parametrize(
    "value", ["", " ", "yes", "Unknown", "—", "7", "12", "one two three four five six seven", "x" * 90]
)
def test_not_worth_asking(value) -> None:
    assert not informative(value, 6)


@pytest.mark.parametrize("value", ["112", "57.3 m", "A six word answer is fine", "Ö2"])
def test_worth_asking(value) -> None:
    assert informative(value, 6)


def test_forms_of_a_date() -> None:
    assert read_date("May 5, 1931") == Date(5, 5, 1931)
    assert read_date("15 Maytember 1931") is None
    assert read_date("45 May 1931") is None
    assert transformed("May 5, 1931", "year") == "1931"
    assert transformed("May 5, 1931", "day") == "5 May"
    assert transformed("57.3 m", "year") is None
    assert other_forms("5 May 1931", "plain") == ("May 5, 1931", "1931-05-05")
    assert other_forms("5 May 1931", "day") == ("May 5", "05-05")
    assert other_forms("5 May 1931", "year") == other_forms("blue", "plain") == ()
    assert (answer_kind("5 May 1931", "year"), answer_kind("5 May 1931", "day")) == ("number", "text")
