"""The toolbox: every call of a model goes through here, and whatever happens comes back as a typed `ToolResult`.

A call is looked up, validated, run under a time limit with at most `max_parallel` others, and its text is scrubbed and
capped. A failure's kind is decided by the class of the exception, never by reading text: the fatal-step
counter of the paper (section 5) stands on it.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import time
import weakref
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from opensearch_vl.errors import (
    ConfigError,
    ImageError,
    ModelError,
    ModelRateLimited,
    ToolError,
)
from opensearch_vl.images import ImageBank, ImageStore
from opensearch_vl.protocols import Tool, ToolContext, ToolOutput, ToolSchema
from opensearch_vl.redaction import redact
from opensearch_vl.tools.arguments import explain, schema_of, shadowed_names, unknown_names
from opensearch_vl.tools.scrub import cap, scrub, scrub_line
from opensearch_vl.types import FailureKind, Observation, ToolCall, ToolFailure, ToolResult

_log = logging.getLogger(__name__)

MAX_OBSERVATION_CHARS = 20_000
"""Longest observation text; about 5,000 tokens, a sixth of the paper's 32,000-token training cut-off (section 4)."""
MAX_PARALLEL = 16
"""Calls running at once in one process. The paper's cluster runs 2,048 (section 5); local backends are CPU-bound."""
_MAX_MESSAGE_CHARS = 1_000
_INTERNAL = "{} failed for a reason of its own. Try another way."


class Toolbox:
    """A set of tools behind one door.

    Args:
        tools: The tools on offer, in the order in which they are described to the model.
        store: Where pictures lie.
        max_parallel: Calls that may run at once; others wait, and their time limit starts when they run.
        max_chars: Longest observation text.

    Raises:
        ConfigError: If two tools answer to one name.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        store: ImageStore,
        *,
        max_parallel: int = MAX_PARALLEL,
        max_chars: int = MAX_OBSERVATION_CHARS,
    ) -> None:
        self.store = store
        self.max_parallel = max_parallel
        self.max_chars = max_chars
        self._tools = tuple(tools)
        self._by_name: dict[str, Tool] = {}
        for name, tool in _all_names(tools):
            if name in self._by_name:
                raise ConfigError(f"Two tools answer to the name {name!r}.", "Rename one, or drop its alias.")
            self._by_name[name] = tool
        self._slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools, aliases left out."""
        return tuple(tool.name for tool in self._tools)

    def schemas(self) -> tuple[ToolSchema, ...]:
        """What models are told about the tools."""
        return tuple(ToolSchema(tool.name, tool.description, schema_of(tool.arguments)) for tool in self._tools)

    def key(self, call: ToolCall) -> str:
        """The same text for any two calls that mean the same: aliases resolved, defaults filled in, order ignored."""
        tool = self._by_name.get(call.name)
        if tool is not None:
            try:
                return f"{tool.name} {tool.arguments.model_validate(call.arguments).model_dump_json()}"
            except (ValidationError, ValueError):
                pass
        try:
            return f"{call.name} {json.dumps(call.arguments, sort_keys=True, default=repr)}"
        except (RecursionError, ValueError):
            return f"{call.name} (arguments nested too deeply)"

    async def call(self, call: ToolCall, bank: ImageBank) -> ToolResult:
        """Run one call. Never raises, except `asyncio.CancelledError` when the rollout itself is cancelled."""
        tool = self._by_name.get(call.name)
        if tool is None:
            return failed(FailureKind.UNKNOWN_TOOL, self._no_such_tool(call.name))
        try:
            arguments = tool.arguments.model_validate(call.arguments)
        except ValidationError as error:
            return failed(FailureKind.BAD_ARGUMENTS, explain(tool.arguments, call.arguments, error))
        async with self._slot():
            started = time.perf_counter()
            outcome = await _run(tool, arguments, ToolContext(bank, self.store))
            seconds = time.perf_counter() - started
        if isinstance(outcome, ToolFailure):
            return failed(outcome.kind, outcome.message, seconds)
        text = outcome.observation.text + _remarks(tool, call)
        observation = outcome.observation.model_copy(update={"text": cap(scrub(text), self.max_chars)})
        return ToolResult(observation=observation, seconds=seconds, provider=outcome.provider, cost=outcome.cost)

    def _no_such_tool(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._by_name, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return f"There is no tool named {name[:60]!r}.{hint} Tools: {', '.join(self.names) or 'none'}."

    def _slot(self) -> asyncio.Semaphore:
        return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.max_parallel))


def failed(kind: FailureKind, message: str, seconds: float = 0.0) -> ToolResult:
    """The result of a call that failed; what the model reads names the kind and the reason."""
    message = scrub_line(redact(message), _MAX_MESSAGE_CHARS)
    failure = ToolFailure(kind=kind, message=message)
    return ToolResult(
        observation=Observation(text=f"The tool call failed ({kind}).\n{message}"), failure=failure, seconds=seconds
    )


def repeated_call(keys: Sequence[str], key: str, limit: int | None) -> ToolFailure | None:
    """The failure of a call that was made too often, or None.

    Args:
        keys: `Toolbox.key` of the calls already made in this episode.
        key: That of the call at hand.
        limit: How many identical calls are too many; the call that would be number `limit` fails. None: no limit.
    """
    if limit is None or keys.count(key) + 1 < limit:
        return None
    return ToolFailure(
        kind=FailureKind.REPEATED_CALL,
        message=f"This very call was already made {keys.count(key)} times and will not change. Try another way.",
    )


def _remarks(tool: Tool, call: ToolCall) -> str:
    """A line for arguments that had no effect; empty when all had."""
    unknown, lost = unknown_names(tool.arguments, call.arguments), shadowed_names(tool.arguments, call.arguments)
    if not unknown and not lost:
        return ""
    names = ", ".join(repr(name[:40]) for name in (*unknown, *lost)[:5])
    return f"\nNote: ignored {names}; {tool.name} takes {', '.join(tool.arguments.model_fields)}."


def _all_names(tools: Sequence[Tool]) -> Iterator[tuple[str, Tool]]:
    for tool in tools:
        for name in dict.fromkeys((tool.name, *tool.aliases)):
            yield name, tool


async def _run(tool: Tool, arguments: object, context: ToolContext) -> ToolOutput | ToolFailure:
    """The boundary at which exceptions become failures."""
    try:
        async with asyncio.timeout(tool.timeout_s):
            output = await tool.run(arguments, context)
        if isinstance(output, ToolOutput):
            return output
        _log.error("%s returned %s instead of a ToolOutput", tool.name, type(output).__name__)
        kind, message = FailureKind.INTERNAL, _INTERNAL.format(tool.name)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # the rollout itself is being cancelled
        _log.exception("%s was cancelled from within", tool.name)
        kind, message = FailureKind.INTERNAL, _INTERNAL.format(tool.name)
    except TimeoutError:
        kind, message = FailureKind.TIMEOUT, f"{tool.name} took longer than {tool.timeout_s:g} s."
    except ToolError as error:
        kind, message = error.kind, str(error)
    except ImageError as error:  # its `fix` names folders of this machine and is meant for the user
        kind, message = FailureKind.BAD_INPUT, error.message
    except ModelRateLimited:
        kind, message = FailureKind.RATE_LIMITED, f"The model behind {tool.name} asks us to slow down."
    except ModelError:
        _log.warning("the model behind %s failed", tool.name, exc_info=True)
        kind, message = FailureKind.BACKEND_DOWN, f"The model behind {tool.name} cannot be used at the moment."
    except Exception:
        _log.exception("%s failed", tool.name)
        kind, message = FailureKind.INTERNAL, _INTERNAL.format(tool.name)
    return ToolFailure(kind=kind, message=message)
