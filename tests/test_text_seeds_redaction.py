"""Small shared functions: text folding, seeds, redaction, prompts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl import prompts, seeds
from opensearch_vl.errors import ConfigError, UsageError
from opensearch_vl.redaction import env, load_env_file, redact, redact_tree
from opensearch_vl.text import contains_words, fold, normalise_answer, words


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Ångström", "angstrom"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("Ἀθῆναι", "αθηναι"),
        ("Ｗｉｄｅ", "wide"),
        ("Řež", "rez"),
    ],
)
def test_fold(text: str, folded: str) -> None:
    assert fold(text) == folded


@given(st.text())
def test_fold_is_idempotent(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_answers_compare_without_articles_and_punctuation() -> None:
    assert normalise_answer("The  Café, (Paris)!") == "cafe paris"
    assert words("No. 12-A") == ["no", "12", "a"]


def test_contains_words_is_by_whole_tokens() -> None:
    hay = words("the art museum of Bergen")
    assert contains_words(hay, ["art", "museum"])
    assert not contains_words(hay, ["useum"])
    assert not contains_words(hay, [])


def test_seeds_do_not_depend_on_the_process() -> None:
    code = "from opensearch_vl.seeds import derive; print(derive(7, 'täsk', 3))"
    values = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": h, "PYTHONPATH": str(Path(__file__).parents[1] / "src")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for h in ("1", "2")
    }
    assert values == {f"{seeds.derive(7, 'täsk', 3)}\n"}


def test_seeds_separate_their_parts() -> None:
    assert len({seeds.derive(1, 23), seeds.derive(12, 3), seeds.derive("1", 23), seeds.derive(1, "23")}) == 4
    assert 0 <= seeds.derive("x") < 2**63


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
        ("key sk-proj-abcdefghijklmnop failed", "abcdefghijklmnop"),
        ("https://user:pa55word@host/x", "pa55word"),
        ("https://host/x?a=1&api_key=s3cr3tvalue&b=2", "s3cr3tvalue"),
        ("hf_abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
    ],
)
def test_key_shaped_text_is_blanked(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert "[redacted]" in redact(text)


def test_ordinary_text_is_left_alone() -> None:
    text = "The key=value bearer of news; skate-park; see https://host/x?token_count=3 and mailto:a@b."
    assert redact(text) == text


def test_values_of_secret_variables_are_blanked_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SERPER_API_KEY", "plain-looking")
    (tmp_path / ".env").write_text("OTHER_TOKEN=from-the-file\nOSVL_MODEL=m1\n")
    load_env_file(tmp_path / ".env")
    try:
        tree = redact_tree({"a": ["x plain-looking y", {"note": "from-the-file"}], "n": 3, "password": "tiny"})
        assert tree == {"a": ["x [redacted] y", {"note": "[redacted]"}], "n": 3, "password": "[redacted]"}
        assert env("OSVL_MODEL") == "m1"
        monkeypatch.setenv("OSVL_MODEL", "m2")
        assert env("OSVL_MODEL") == "m2"
        assert env("NOT_THERE", "d") == "d"
    finally:
        load_env_file(tmp_path / "none")


def test_a_file_of_keys_that_is_no_text_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfeK\x00E\x00Y\x00")
    with pytest.raises(UsageError, match="UTF-8"):
        load_env_file(tmp_path / ".env")


def test_prompts_fill_strictly_and_never_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "template", lambda name: "Page: {{page}} Goal: {{goal}}")
    assert prompts.fill("any", page="{{goal}}", goal="g") == "Page: {{goal}} Goal: g"
    with pytest.raises(ConfigError):
        prompts.fill("any", page="p")
    with pytest.raises(ConfigError):
        prompts.fill("any", page="p", goal="g", more="m")


def test_a_missing_prompt_is_a_config_error() -> None:
    for name in ("no_such_prompt", "../types", ""):
        with pytest.raises(ConfigError):
            prompts.template(name)


def test_prompt_hashes_change_with_any_character() -> None:
    assert prompts.prompt_hash("a", "b") != prompts.prompt_hash("ab", "")
    assert len(prompts.prompt_hash("a")) == 16
