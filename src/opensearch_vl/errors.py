"""Every exception the package raises on purpose, drawn as a tree.

Three kinds of trouble are kept apart (see docs/recipe.md, "errors"):

* exceptions below `OsvlError` stop the work: bad usage, bad input files, a run folder in the wrong state, a
  model server that cannot be used;
* `ToolError` and its children are raised *inside tools and backends only*; the toolbox turns each into a typed
  `ToolFailure` that the model sees as an observation;
* a judge that fails raises nothing: it returns an unscored `Verdict`.

```
OsvlError
├── UsageError              exit 2: the command was typed wrongly
│   └── ConfigError         a config file or --set value does not fit
├── DataError               exit 1: an input is not what it should be
│   ├── ImageError          not a picture we can safely decode
│   ├── DumpError           not a MediaWiki export
│   ├── RecordError         a record in a file cannot be read
│   └── TranscriptError     a trajectory that cannot become training tokens
├── RunError                exit 1: the run folder cannot be used
│   ├── RunExists, RunLocked, RunMismatch
│   └── StorageFull
├── ModelError              exit 1: the model server cannot be used
│   ├── ModelUnreachable, ModelKeyRefused, ModelRateLimited
│   ├── ModelRefused
│   │   └── ModelContextFull    ends a rollout by its length, not as an error
│   └── ModelReplyInvalid
├── MissingExtra            exit 1: an optional dependency is not installed
└── ToolError               becomes a ToolFailure of the kind it carries
    ├── BadInput, Blocked, TooLarge, ToolTimeout, RateLimited, BackendDown
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from opensearch_vl.types import FailureKind


class OsvlError(Exception):
    """Base of every exception raised on purpose.

    Args:
        message: What happened, naming the offending value and what was expected.
        fix: One line telling the user how to mend it; empty when the message says it all.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} {self.fix}".strip()


class UsageError(OsvlError):
    """The command or the call was written wrongly."""

    exit_code: ClassVar[int] = 2


class ConfigError(UsageError):
    """A configuration value is unknown, of the wrong type or out of range."""


class DataError(OsvlError):
    """An input file is missing, empty, or of the wrong format."""


class ImageError(DataError):
    """Bytes that are not a picture, or one that must not be decoded."""


class DumpError(DataError):
    """A file that is not a usable MediaWiki XML export."""


class RecordError(DataError):
    """A stored record that cannot be read back."""


class TranscriptError(DataError):
    """A trajectory that cannot be turned into token ids without changing what it says."""


class RunError(OsvlError):
    """A run folder in a state that the command cannot work with."""


class RunExists(RunError):
    """The run folder already holds a run and `--resume` was not given."""


class RunLocked(RunError):
    """Another process is writing to the run folder."""


class RunMismatch(RunError):
    """A resumed run was started with another configuration."""


class StorageFull(RunError):
    """The disk or quota is exhausted; everything before the failed write is intact."""


class ModelError(OsvlError):
    """A chat model could not give a usable reply."""


class ModelUnreachable(ModelError):
    """No connection to the model server, or it did not answer in time."""


class ModelKeyRefused(ModelError):
    """The server rejected the credentials (HTTP 401 or 403)."""


class ModelRateLimited(ModelError):
    """The server asked us to slow down and kept doing so after every retry."""


class ModelRefused(ModelError):
    """The server rejected the request itself (HTTP 4xx), e.g. an unknown model."""


class ModelContextFull(ModelRefused):
    """The conversation, with the room its next reply asks for, is longer than what the server's model can read."""


class ModelReplyInvalid(ModelError):
    """The server's reply does not have the shape of a chat completion."""


class MissingExtra(OsvlError):
    """An optional dependency is needed and not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"{module} is not installed.", f"Install it with: pip install 'opensearch-vl[{extra}]'")


class _Kind:
    """A kind of failure by its name, looked up when asked for.

    `types` loads pydantic, which takes half of the time of `osvl --help`; errors are imported by every command.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> FailureKind:
        from opensearch_vl.types import FailureKind

        return FailureKind[self.name]


class ToolError(OsvlError):
    """Raised by a tool or backend; the toolbox turns it into a `ToolFailure` of `kind`."""

    kind = _Kind("INTERNAL")


class BadInput(ToolError):
    """Well-typed arguments that make no sense here: unknown image id, empty box, undecodable picture."""

    kind = _Kind("BAD_INPUT")


class Blocked(ToolError):
    """The address guard or a policy refused the target."""

    kind = _Kind("BLOCKED")


class TooLarge(ToolError):
    """Input or output over a stated limit."""

    kind = _Kind("TOO_LARGE")


class ToolTimeout(ToolError):
    """The tool or its backend took longer than its limit."""

    kind = _Kind("TIMEOUT")


class RateLimited(ToolError):
    """The backend asked us to slow down."""

    kind = _Kind("RATE_LIMITED")


class BackendDown(ToolError):
    """The backend is unreachable or answered with a server error."""

    kind = _Kind("BACKEND_DOWN")
