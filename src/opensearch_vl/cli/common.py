"""What all verbs share: options, the error boundary, progress on stderr, and one JSON object on stdout."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from opensearch_vl.errors import OsvlError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from opensearch_vl.images import ImageStore
    from opensearch_vl.tools.toolbox import Toolbox

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_PARTIAL, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
_STOPPED = "\nosvl: stopped. Where a command takes --resume, that goes on from here.\n"

OutOption = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist unless --resume.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="YAML file with settings.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Override one setting, as a.b=value; repeatable.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
ToolsFor = Callable[[Path | None, Path | None, bool, "ImageStore", bool], "Toolbox"]
"""What gives the tools for a wiki folder, its indexes, whether the web may be searched, and the store of pictures."""

WikiOption = Annotated[Path | None, typer.Option("--wiki", help="Wiki folder that the tools search.")]
IndexOption = Annotated[
    Path | None, typer.Option("--index", help="Folder of the wiki's indexes; made where missing [WIKI/index].")
]
WebOption = Annotated[bool, typer.Option("--web", help="Search the web.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed; the same seed gives the same result.")]


def console() -> Console:
    """The console for people: stderr, so that stdout stays clean."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def emit(result: Mapping[str, Any], as_json: bool, human: Callable[[], None] | None = None) -> None:
    """Print a verb's result: one JSON object, or what `human` prints (default: `key: value` lines)."""
    if as_json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
    elif human is not None:
        human()
    else:
        for key, value in result.items():
            sys.stdout.write(f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}\n")
    sys.stdout.flush()


@contextmanager
def progress(title: str = "") -> Iterator[Progress]:
    """A rich progress display on stderr; silent when stderr is not a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = console()
    with Progress(*columns, console=shown, disable=not shown.is_terminal) as bars:
        if title:
            bars.console.print(title)
        yield bars


def fail(message: str, fix: str = "", code: int = EXIT_FAILED) -> NoReturn:
    """Print one clear line on stderr and leave."""
    from opensearch_vl.redaction import redact

    sys.stderr.write(redact(f"osvl: {message}{' ' + fix if fix else ''}".replace("\n", " ")) + "\n")
    raise SystemExit(code)


def run_guarded(app: typer.Typer) -> None:
    """Run the application; turn every failure into one line, the fix, and the promised exit code."""
    try:
        app()
    except OsvlError as error:
        if os.environ.get("OSVL_DEBUG"):
            traceback.print_exc()
        fail(error.message, error.fix, error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_FAILED) from None
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
        fail(f"{error.strerror or error}{where}.", "Free some space or choose another --out." if full else "")
    except SystemExit as leaving:
        if leaving.code == EXIT_INTERRUPTED:
            sys.stderr.write(_STOPPED)
        raise
    except KeyboardInterrupt:  # in the moments before and after typer takes care of it
        sys.stderr.write(_STOPPED)
        raise SystemExit(EXIT_INTERRUPTED) from None
    except Exception as error:  # the outermost boundary: a bug of ours must still end in one clear line
        if os.environ.get("OSVL_DEBUG"):
            raise
        fail(f"internal error: {type(error).__name__}: {error}.", "Run again with OSVL_DEBUG=1 and report the trace.")
