"""Non-leakage: names found in every disguise, and no false alarm on ordinary words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.questions.leak import leaks


@pytest.mark.parametrize(
    ("text", "names", "person"),
    [
        ("When did Foo Hall open?", ["Foo Hall"], False),
        ("When did FOO  hall's roof open?", ["Foo Hall"], False),
        ("Which Ångströms are meant?", ["Angstrom"], False),
        ("Who wrote to angstrom?", ["Ångström"], False),
        ("the student of Irvald", ["Stefan Irvald"], True),
        ("the Irvalds' house", ["Stefan Irvald"], True),
        ("the spouse of Stefan Irvald (painter)", ["Stefan Irvald (painter)"], True),
        ("Das ist Straße 5", ["STRASSE 5"], False),
        ("Ο Θαλής", ["Θαλησ"], False),
        ("who lives in 東京?", ["東京"], False),
        ("the ★ sign", ["★"], False),
        ("who wrote It in a year", ["It"], False),
        ("who owns The Museum today", ["The Museum"], False),
        ("the houses of the Boxes", ["House of the Box"], False),
        ("the one called Foo-Hall", ["Foo Hall"], False),
    ],
)
def test_found(text, names, person) -> None:
    assert leaks(text, names, person)


@pytest.mark.parametrize(
    ("text", "names", "person"),
    [
        ("When did it open?", ["It"], False),
        ("It opened when?", ["It"], False),
        ("the owner of the museum in the picture", ["The Museum"], False),
        ("The museum in the picture", ["The Museum"], False),
        ("the architect of the building", ["The Architect", "Building"], False),
        ("the food hall", ["Foo Hall"], False),
        ("a foothold in the hall", ["Foo"], False),
        ("the long one", ["Mary Long"], True),
        ("the spouse of the king", ["Anna King"], True),
        ("anything", ["", "   ", "—"], False),
        ("", ["Foo"], False),
        ("glass houses", ["Glasshouse"], False),
    ],
)
def test_no_false_alarm(text, names, person) -> None:
    assert not leaks(text, names, person)


def test_says_what_and_how() -> None:
    found = leaks("near Irvald and the Zoo of Orla", ["Stefan Irvald", "Zoo of Orla"], person=True)
    assert [(leak.name, leak.how) for leak in found] == [("Stefan Irvald", "surname"), ("Zoo of Orla", "name")]


def test_a_name_that_folds_into_two_tokens_is_found_in_the_plural() -> None:
    assert leaks("the house of Qx0Ŀ0s stands", ["Qx0Ŀ0"])


@given(
    st.text(st.characters(categories=["Lu", "Ll", "Nd"]), min_size=3, max_size=12),
    st.sampled_from(["", "'s", "s", ",", "?"]),
)
def test_a_name_is_found_in_any_frame(name, tail) -> None:
    name = f"Qx{name}"
    assert leaks(f"the house of {name}{tail} stands", [name])
