"""Argument models of tools: forgiving about how a model writes a value, strict about what it means.

Models quote numbers, write ``null`` for "not given", wrap a single value in a list, and know the argument by the name
another framework uses. None of that is worth an error; a wrong meaning is. Names that a tool does not know are
ignored and the observation says so.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    ValidationError,
    model_validator,
)

MAX_QUERY_CHARS = 2_000
"""Longest query, goal or address; nothing useful is longer, and backends choke on more."""


def _plain_number(value: Any) -> Any:
    """Numbers written as text become numbers (``"12"``, ``"12 px"``, full-width digits); booleans are refused."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    if isinstance(value, str):
        try:
            value = float(value.strip().removesuffix("px"))
        except ValueError:
            raise ValueError("must be a number") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _rounded(value: Any) -> Any:
    number = _plain_number(value)
    return round(number) if isinstance(number, float) else number


def _only_one(value: Any) -> Any:
    """A list of one is that one."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


Whole = Annotated[int, BeforeValidator(_rounded)]
"""An integer; fractions are rounded."""
Number = Annotated[float, BeforeValidator(_plain_number)]
"""A finite number."""
Text = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY_CHARS),
    BeforeValidator(_only_one),
]
"""Non-empty text."""


class Arguments(BaseModel):
    """Base of all argument models."""

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _null_means_not_given(cls, values: Any) -> Any:
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, Mapping) else values


def names_of(model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """Every argument with all names that it is accepted under, its own first."""
    found = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        choices = [c for c in alias.choices if isinstance(c, str)] if isinstance(alias, AliasChoices) else []
        found[name] = (name, *(choice for choice in choices if choice != name))
    return found


def unknown_names(model: type[BaseModel], arguments: Mapping[str, Any]) -> list[str]:
    """Names in `arguments` that no field goes by, sorted; none where the model takes any (`tools.remote`)."""
    if model.model_config.get("extra") == "allow":
        return []
    known = {name for names in names_of(model).values() for name in names}
    return sorted(set(arguments) - known)


def shadowed_names(model: type[BaseModel], arguments: Mapping[str, Any]) -> list[str]:
    """Names in `arguments` that lose to another name of the same argument given with another value."""
    lost = []
    for names in names_of(model).values():
        given = [name for name in names if arguments.get(name) is not None]
        lost += [name for name in given[1:] if arguments[name] != arguments[given[0]]]
    return lost


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of the arguments as models are shown it: no titles, no references, no aliases."""
    schema = model.model_json_schema(by_alias=False)
    cleaned = _clean(schema, schema.get("$defs", {}))
    return {"type": "object", "properties": cleaned.get("properties", {}), "required": cleaned.get("required", [])}


def _clean(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_clean(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[str(node["$ref"]).rsplit("/", 1)[-1]]
        return _clean({**target, **{k: v for k, v in node.items() if k != "$ref"}}, definitions)
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        rest = {k: v for k, v in node.items() if k != "anyOf" and not (k == "default" and v is None)}
        return _clean({**options[0], **rest}, definitions)
    cleaned = {}
    for key, value in node.items():
        if key == "properties":
            cleaned[key] = {name: _clean(item, definitions) for name, item in value.items()}
        elif key == "default":
            cleaned[key] = value
        elif key not in {"title", "$defs"}:
            cleaned[key] = _clean(value, definitions)
    return cleaned


def explain(model: type[BaseModel], arguments: Mapping[str, Any], error: ValidationError) -> str:
    """One line per wrong argument, naming what came and what was expected, and how the call is written."""
    strangers = unknown_names(model, arguments)
    lines = []
    for item in error.errors(include_url=False, include_context=False):
        name = _field_name(model, item["loc"])
        if item["type"] == "missing":
            close = difflib.get_close_matches(name, strangers, n=1)
            lines.append(f"Argument '{name}' is missing" + (f" (you wrote '{close[0][:40]}')." if close else "."))
        else:
            complaint = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
            lines.append(f"Argument '{name}': {complaint}; got {_shown(item['input'])}.")
    takes = ", ".join(
        name if field.is_required() else f"{name}={field.default!r}" for name, field in model.model_fields.items()
    )
    return " ".join([*lines, f"Arguments: {takes}."])


def _field_name(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    first = str(location[0]) if location else "arguments"
    return next((name for name, names in names_of(model).items() if first in names), first[:40])


def _shown(value: Any) -> str:
    shown = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return shown if len(shown) <= 80 else f"{shown[:77]}…"
