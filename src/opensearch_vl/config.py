"""Configuration: one YAML file per run, strict frozen models, dotted overrides (`--set walks.seed=3`)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from opensearch_vl.errors import ConfigError


class Config(BaseModel):
    """Base of all configuration models: immutable and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


C = TypeVar("C", bound=BaseModel)


def load_config(model: type[C], file: Path | str | None = None, overrides: Sequence[str] = ()) -> C:
    """Build a configuration from defaults, then a YAML file, then `a.b=c` overrides.

    Raises:
        ConfigError: Naming the file, the key, what was found and what was expected.
    """
    values: dict[str, Any] = _read_yaml(Path(file)) if file is not None else {}
    for override in overrides:
        _apply(values, override)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(model, error), f"File: {file}." if file else "") from error


def dump_yaml(config: BaseModel) -> str:
    """The configuration as YAML that `load_config` reads back."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"There is no config file {file}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the config file {file}: {error}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not valid YAML: {error}.") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{file} must hold a mapping of settings, not a {type(loaded).__name__}.")
    return loaded


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {override!r} is not of the form a.b=value.")
    try:
        value = yaml.safe_load(text) if text.strip() else ""
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {key}: {text!r} is not a YAML value.") from error
    node: dict[str, Any] = values
    for part in parts[:-1]:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {key}: {part!r} is a value, not a group of settings.")
        node = child
    node[parts[-1]] = value


def _explain(model: type[BaseModel], error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = _known_keys(model, item["loc"][:-1])
            close = difflib.get_close_matches(str(item["loc"][-1]), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(sorted(known)) or 'none'}"
            lines.append(f"Unknown setting {where!r}: {hint}")
        else:
            lines.append(f"Setting {where!r}: {item['msg']} (got {item['input']!r:.80})")
    return "; ".join(lines) + "."


def _known_keys(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    current: Any = model
    for part in path:
        field: Any = getattr(current, "model_fields", {}).get(part)
        current = field.annotation if field is not None else None
    fields: Mapping[str, Any] = getattr(current, "model_fields", {})
    return list(fields)
