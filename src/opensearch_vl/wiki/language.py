"""What differs by language and is not in the export: names of marker templates, openings of list titles, link trails.

The tables are data (`data/languages.toml`); English ones hold on every wiki, a language's own come on top.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_ALIASES = {"simple": "en", "nb": "no", "nn": "no", "sco": "en", "sh": "hr", "bs": "hr", "gsw": "als"}
"""Wikis that share another's tables."""


@dataclass(frozen=True)
class Language:
    """Tables of one wiki language.

    Attributes:
        redirect: Lower-case first words of redirect pages.
        disambiguation: Lower-case template names.
        set_index: Lower-case template names of pages that list things of one name.
        disambiguation_suffix: Endings of titles.
        list_prefix: Openings of titles.
        infobox: Matches a lower-case template name that is an infobox.
        ordinal_dot: Whether a full stop after a number makes it an ordinal.
        trail: Matches the letters that a link swallows; empty match for languages without.
    """

    code: str
    redirect: tuple[str, ...]
    disambiguation: frozenset[str]
    set_index: frozenset[str]
    disambiguation_suffix: tuple[str, ...]
    list_prefix: tuple[str, ...]
    infobox: re.Pattern[str]
    trail: re.Pattern[str]
    ordinal_dot: bool = False

    def is_list_title(self, title: str) -> bool:
        """Whether the title opens like a list ("List of …", "Timeline of …")."""
        return title.startswith(self.list_prefix)


@cache
def language(code: str) -> Language:
    """Tables of a language; a language without its own gets the English ones."""
    tables = read_data("languages")
    own: dict[str, Any] = tables.get(_ALIASES.get(code, code), {})
    english = tables["en"]

    def both(name: str) -> list[str]:
        return [*own.get(name, ()), *english[name]]

    infobox = "|".join([r".*\binfobox\b", *both("infobox")])
    trail = own.get("trail", english["trail"])
    return Language(
        code=code,
        redirect=tuple(word.lower() for word in both("redirect")),
        disambiguation=frozenset(both("disambiguation")),
        set_index=frozenset(both("set_index")),
        disambiguation_suffix=tuple(both("disambiguation_suffix")),
        list_prefix=tuple(both("list_prefix")),
        infobox=re.compile(infobox),
        trail=re.compile(f"[{trail}]+" if trail else ""),
        ordinal_dot=own.get("ordinal_dot", False),
    )


@cache
def interwiki_prefixes() -> frozenset[str]:
    """Lower-case prefixes that lead to another wiki."""
    return frozenset(read_data("languages")["interwiki"])


@cache
def read_data(name: str) -> Any:
    """A data file of this room."""
    return tomllib.loads(resources.files(__package__).joinpath("data", f"{name}.toml").read_text(encoding="utf-8"))
