"""Plug-ins: one's own tool, judge, reward, benchmark or model registers by entry point.

A package declares, for instance,

```toml
[project.entry-points."opensearch_vl.tools"]
my_tool = "my_package.tools:make_my_tool"
```

and names it in a config. What the project itself ships is found the same way, so no room imports a backend to offer it.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any, Literal

from opensearch_vl.errors import ConfigError

Group = Literal["tools", "judges", "rewards", "benchmarks", "chat_models"]


def names(group: Group) -> list[str]:
    """What is registered in a group."""
    return sorted({point.name for point in importlib.metadata.entry_points(group=f"opensearch_vl.{group}")})


def load(group: Group, name: str) -> Any:
    """The object behind a name.

    Raises:
        ConfigError: If nothing of that name is registered; lists what is.
    """
    for point in importlib.metadata.entry_points(group=f"opensearch_vl.{group}"):
        if point.name == name:
            return point.load()
    raise ConfigError(
        f"Nothing named {name!r} is registered as one of {group}; known: {', '.join(names(group)) or 'none'}."
    )
