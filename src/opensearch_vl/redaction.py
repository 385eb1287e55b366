"""Secrets: read from the environment or `.env`, never from config files, and blanked out wherever we write.

Everything that leaves the process as text — records, manifests, log lines, error messages — passes `redact`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from opensearch_vl.errors import UsageError

_SECRET_NAME = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
_SECRET_FIELD = re.compile(r"_(KEY|TOKEN)$|(^|_)(APIKEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
"""Names of fields that go entirely. A bare `key` or `token` is an ordinary word (an infobox key, a token of a text)."""
_PATTERNS = (
    re.compile(r"()\b(?:sk|pk|rk|hf|ghp|gho|glpat|xoxb)[-_][A-Za-z0-9_\-]{12,}|()\bAIza[A-Za-z0-9_\-]{20,}"),
    re.compile(r"(\bbearer )[A-Za-z0-9._~+/=\-]{8,}", re.IGNORECASE),
    re.compile(r"([?&](?:key|token|api_?key|access_token)=)[^&\s\"']{6,}", re.IGNORECASE),
    re.compile(r"(://)[^/\s:@]{1,64}:[^/\s@]{1,128}(?=@)"),
)
_BLANK = "[redacted]"
_MIN_LENGTH = 6  # shorter values would blank ordinary words

_dotenv: dict[str, str] = {}


def load_env_file(path: Path | str = ".env") -> None:
    """Read `path` if it is there. Variables already in the environment win.

    Raises:
        UsageError: If it cannot be read as text.
    """
    _dotenv.clear()
    try:
        found = dotenv_values(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "Write NAME=value lines into it, as UTF-8.") from error
    _dotenv.update({k: v for k, v in found.items() if v is not None})


def env(name: str, default: str | None = None) -> str | None:
    """A setting from the environment, then from `.env`."""
    return os.environ.get(name) or _dotenv.get(name) or default


def known_secrets() -> list[str]:
    """Values of all variables whose name says that they are secret, longest first."""
    merged: Mapping[str, str] = {**_dotenv, **os.environ}
    found = {v for k, v in merged.items() if _SECRET_NAME.search(k.upper()) and len(v) >= _MIN_LENGTH}
    return sorted(found, key=len, reverse=True)


def redact(text: str) -> str:
    """Blank known secret values and anything that has the shape of a key."""
    return _redact(text, known_secrets())


def redact_tree(value: Any) -> Any:
    """`redact` applied to every string of a JSON-like value; values under a secret's name go entirely."""
    return _redact_tree(value, known_secrets())


def _redact(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, _BLANK)
    for pattern in _PATTERNS:
        text = pattern.sub(lambda match: (match[1] or "") + _BLANK, text)
    return text


def _redact_tree(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        return _redact(value, secrets)
    if isinstance(value, Mapping):
        return {
            key: _BLANK
            if isinstance(item, str) and item and _SECRET_FIELD.search(str(key).upper())
            else _redact_tree(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redact_tree(item, secrets) for item in value]
    return value
