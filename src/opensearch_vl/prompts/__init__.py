"""Prompts: one Markdown file each, in our own words; this loader fills them and hashes them.

Placeholders are written ``{{name}}``; filling is strict (every placeholder is given, nothing else is), and a value is
never scanned for placeholders again, so web text cannot inject one.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources

from opensearch_vl.errors import ConfigError

_SLOT = re.compile(r"\{\{(\w+)\}\}")


@cache
def template(name: str) -> str:
    """The raw text of ``prompts/<name>.md``.

    Raises:
        ConfigError: If there is no such prompt.
    """
    file = resources.files(__name__).joinpath(f"{name}.md")
    if not re.fullmatch(r"\w+", name) or not file.is_file():
        raise ConfigError(f"There is no prompt {name!r}.")
    return file.read_text(encoding="utf-8").strip()


def fill(name: str, **values: str) -> str:
    """The prompt with its placeholders replaced.

    Raises:
        ConfigError: If a placeholder is missing from `values` or a value has no placeholder.
    """
    text = template(name)
    slots = set(_SLOT.findall(text))
    if slots != set(values):
        raise ConfigError(f"Prompt {name!r} takes {sorted(slots)}, was given {sorted(values)}.")
    return _SLOT.sub(lambda slot: values[slot[1]], text)


def prompt_hash(*texts: str) -> str:
    """Sixteen hex digits that change with any character of any text."""
    return hashlib.sha256("\x1e".join(texts).encode()).hexdigest()[:16]
