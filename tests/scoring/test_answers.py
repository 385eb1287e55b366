"""Comparing answers by value."""

import datetime
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.scoring.answers import PartialDate, dates, find, numbers
from opensearch_vl.text import words


@pytest.mark.parametrize(
    "text",
    [
        "15 May 1931", "15th of May, 1931", "15th May 1931", "May 15, 1931", "May 15th 1931", "15 may of 1931",
        "1931-05-15", "1931-5-15", "15.05.1931", "15/5/1931", "1931/05/15", "15 MAY 1931.", "He was born on 15 May 1931, in Ro.",
        "**15 May 1931**", "(15 May 1931)", "born:15 May 1931", "15\u00a0May\u00a01931", "The 15th of May 1931", "May the 15th, 1931",
    ],
)  # fmt: skip
def test_one_date_in_many_notations(text: str) -> None:
    assert PartialDate(1931, 5, 15) in dates(text)
    assert find("15 May 1931", (), "date", text).matched
    assert find("1931-05-15", (), "date", text).matched


@pytest.mark.parametrize(
    "text",
    [
        "1931", "May 1931", "15 May", "16 May 1931", "15 May 1932", "5 May 1931", "115 May 1931", "15 May 19311", "15 March 1931",
        "not 15 May 1931", "It was not on May 15, 1931", "", "15 mayor 1931", "1931-05-151", "32 May 1931", "1931.05", "v1.1931.5.15",
    ],
)  # fmt: skip
def test_what_is_not_that_date(text: str) -> None:
    assert not find("15 May 1931", (), "date", text).matched


@pytest.mark.parametrize(
    ("reference", "text", "matched"),
    [
        ("1931", "15 May 1931", True),
        ("1931", "in 1931", True),
        ("1931", "1932", False),
        ("1931", "house number 19310", False),
        ("May 1931", "15 May 1931", True),
        ("May 1931", "1931", False),
        ("15 May", "15 May 1931", True),
        ("15 May", "May 15", True),
        ("15 May", "16 May", False),
        ("44 BC", "in 44 BC", True),
        ("44 BC", "44 BCE", True),
        ("44 BC", "AD 144", False),
        ("1931", "1931–1945", True),
        ("3 February 1900", "03/02/1900", True),
        ("2 March 1900", "03/02/1900", True),
        ("2 March 1900", "03.02.1900", False),
        ("late spring", "In late Spring.", True),
    ],
)
def test_dates_of_any_precision(reference: str, text: str, matched: bool) -> None:
    assert find(reference, (), "date", text).matched is matched


@given(st.dates(min_value=datetime.date(1000, 1, 1), max_value=datetime.date(2999, 12, 31)))
def test_every_date_is_found_in_its_notations_and_no_other_day_is(day: datetime.date) -> None:
    month = day.strftime("%B")
    other = day + datetime.timedelta(days=1) if day < datetime.date(2999, 12, 31) else day - datetime.timedelta(days=1)
    for text in (f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}", day.isoformat()):
        assert find(day.isoformat(), (), "date", f"It was {text}.").matched
        assert not find(other.isoformat(), (), "date", f"It was {text}.").matched


@pytest.mark.parametrize(
    ("reference", "text", "matched"),
    [
        ("1234", "1,234", True),
        ("1234", "1 234", True),
        ("1,234", "1234.0", True),
        ("1234 m", "1,234 metres tall", True),
        ("1234 m", "1,234", True),
        ("1234 m", "1,234 feet", False),
        ("1234", "12345", False),
        ("1234", "1234.5", False),
        ("12.5", "12.50 kg", True),
        ("12.5", "112.5", False),
        ("-3", "−3 °C", True),
        ("3", "-3", False),
        ("3", "3–5", True),
        ("1234", "not 1,234", False),
        ("42 %", "42 percent", True),
        ("5", "five", False),
        ("12", "AB-12C", False),
        ("seven", "It has Seven.", True),
        ("1234567", "1,234,567 people", True),
        ("10", "10² = 100", True),
        ("102", "10²", False),
        ("3,5", "3.5 m", True),
        ("3", "3,5", False),
        ("0,25", "0,2", False),
        ("0,0036", "0,0097", False),
        ("0,250", "0.25", True),
        ("3,5", "3,5, as stated", True),
        ("12,345", "12345", True),
        ("1.234.567", "1,234,567", True),
        ("1.5", "1,500", False),
        ("5", "5, 6 or 7", True),
        ("٣", "3", True),
    ],
)
def test_numbers_by_value(reference: str, text: str, matched: bool) -> None:
    assert find(reference, (), "number", text).matched is matched


@given(st.integers(-(10**9), 10**9))
def test_thousands_separators_do_not_matter(value: int) -> None:
    for text in (f"{value}", f"{value:,}", f"{value:,}".replace(",", " ")):
        assert numbers(f"about {text} in all")[0].value == value


@pytest.mark.parametrize(
    ("reference", "aliases", "text", "matched"),
    [
        ("Ana Boró", (), "It was ANA BORO.", True),
        ("Ana Boro", (), "Anabel Boro", False),
        ("Ana Boro", (), "Ana Borovic", False),
        ("Ana Boro", ("A. Boro",), "A. Boro did it", True),
        ("The Great Hall", (), "great hall", True),
        ("Hall of Mirrors", (), "the hall of the mirrors", True),
        ("Paris", (), "not Paris", False),
        ("Paris", (), "It is not in Paris but in Lyon", False),
        ("Paris", (), "Not Rome: Paris", True),
        ("Paris", (), "not Paris? Yes, Paris.", True),
        ("Ελένη", (), "η ελενη", True),
        ("Кремль", (), "кремль", True),
        ("C++", (), "c", True),
        ("The", (), "the", True),
        ("???", (), "what ???", True),
        ("???", (), "what", False),
        ("", (), "anything", False),
        ("new york", (), "New-York", True),
    ],
)  # fmt: skip
def test_names_by_whole_folded_words(reference: str, aliases: tuple[str, ...], text: str, matched: bool) -> None:
    assert find(reference, aliases, "name", text).matched is matched


def test_listed_candidates_are_counted() -> None:
    assert find("Paris", (), "name", "Paris").num_candidates == 1
    assert find("Paris", (), "name", "Rome, Oslo or Paris").num_candidates == 3
    assert find("Paris", (), "name", "One of:\n- Rome\n- Oslo\n- Paris\n- Bern").num_candidates == 4
    assert find("1931", (), "date", "1930, 1931 or 1932").num_candidates == 3
    assert find("7", (), "number", "5, 6, 7, 8").num_candidates == 4


def test_huge_responses_are_searched_quickly() -> None:
    texts = (
        "not " * 100_000 + "1 " * 100_000 + "may " * 50_000,
        "not 1930 " * 50_000,
        "1,234 " * 50_000,
        "1" * 300_000,
    )
    started = time.process_time()
    for text in texts:
        for kind in ("date", "number", "name"):
            find("15 May 1931" if kind == "date" else "7777", (), kind, text)
    assert time.process_time() - started < 20


@given(st.text(max_size=300))
def test_any_text_can_be_searched(text: str) -> None:
    for kind in ("date", "number", "name", "text"):
        find("15 May 1931", (text,), kind, text)


@given(st.text(max_size=40).filter(lambda text: bool(words(text))))
def test_any_answer_is_found_where_it_is_stated(value: str) -> None:
    assert find(value, (), "text", value).matched
    assert find(value, (), "name", f"It is\n{value}\nindeed.").matched
