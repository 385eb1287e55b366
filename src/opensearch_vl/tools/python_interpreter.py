"""`python_interpreter`: runs a program of the model in a jail of its own (paper's tool list; not one of the seven).

Every call is a fresh process in a fresh folder with no network, no inherited environment and bounded time, memory and
output; what the jail is made of is in `jail`. On a machine where it cannot be shut, the tool says so and runs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, Field, StringConstraints

from opensearch_vl.errors import BackendDown, ToolTimeout
from opensearch_vl.prompts import template
from opensearch_vl.protocols import ToolContext, ToolOutput
from opensearch_vl.tools.arguments import Arguments
from opensearch_vl.tools.offload import offload
from opensearch_vl.types import Observation

MAX_CODE_CHARS = 50_000
_JAIL = Path(__file__).with_name("jail.py")
_PROVIDER = "python"


@dataclass(frozen=True, slots=True)
class JailLimits:
    """What a program may use.

    Attributes:
        wall_s: Time until it is stopped, in seconds.
        cpu_s: Processor time, in seconds.
        memory_bytes: Address space; includes the interpreter's own, about 50 MB.
        file_bytes: Size of each file it writes.
        output_bytes: What is kept of its output; a program that writes more is stopped.
    """

    wall_s: float = 15.0
    cpu_s: int = 10
    memory_bytes: int = 1_000_000_000
    file_bytes: int = 10_000_000
    output_bytes: int = 20_000


class PythonInterpreterArguments(Arguments):
    """Arguments of `python_interpreter`."""

    code: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CODE_CHARS)] = Field(
        validation_alias=AliasChoices("code", "script", "source", "program"),
        description="A complete Python program; what it prints comes back.",
    )


class PythonInterpreterTool:
    """Run Python in a jail.

    Args:
        limits: What a program may use.
    """

    name = "python_interpreter"
    aliases: tuple[str, ...] = ("python", "code_interpreter", "PythonInterpreter")
    arguments: type[BaseModel] = PythonInterpreterArguments

    def __init__(self, limits: JailLimits | None = None) -> None:
        self.limits = limits or JailLimits()
        self.timeout_s = self.limits.wall_s + 10.0  # the jail's own limit comes first and gives the better message
        self.description = template("tool_python_interpreter")

    async def run(self, arguments: PythonInterpreterArguments, context: ToolContext) -> ToolOutput:
        """Run the program. An exception in it is its output, not a failure of the tool.

        Raises:
            ToolTimeout: It took longer than the limits allow.
            BackendDown: The machine cannot isolate it.
        """
        folder = await offload(tempfile.mkdtemp, prefix="osvl-python-")
        try:
            output, status, cut = await self._run(arguments.code, folder)
        finally:
            await asyncio.shield(offload(shutil.rmtree, folder, ignore_errors=True))
        text = output.decode("utf-8", "replace").replace(folder, ".").rstrip()
        for prefix in {sys.prefix, sys.base_prefix}:
            text = text.replace(prefix, "python")  # tracebacks must not tell how this machine is laid out
        if cut:
            text += f"\n[stopped: the program wrote more than {self.limits.output_bytes:,} bytes]"
        elif status < 0:
            text += f"\n[stopped by {_signal_name(-status)}; the limits are {self._describe_limits()}]"
        elif status > 0:
            text += f"\n[the program ended with status {status}]"
        return ToolOutput(Observation(text=text.strip() or "(the program printed nothing)"), provider=_PROVIDER)

    async def _run(self, code: str, folder: str) -> tuple[bytes, int, bool]:
        """Output, exit status (negative: the signal that stopped it), and whether it was stopped for its output."""
        ready, ready_in_child = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(ready_in_child),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=folder,
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": folder, "TMPDIR": folder, **_ONE_THREAD},
                pass_fds=(ready_in_child,),
                start_new_session=True,
            )
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(ready_in_child)
        try:
            async with asyncio.timeout(self.limits.wall_s):
                output, cut = await self._talk(process, code)
                if cut:
                    _kill(process)
                status = await process.wait()
        except TimeoutError:
            raise ToolTimeout(f"The program took longer than {self.limits.wall_s:g} s.") from None
        finally:
            await _end(process)
            shut = _first_byte(ready)
        if not shut:
            reason = output.decode("utf-8", "replace").strip()[-200:]
            raise BackendDown(f"Programs cannot be isolated on this machine, so none is run: {reason}.")
        if status == -signal.SIGXCPU:
            raise ToolTimeout(f"The program used more than {self.limits.cpu_s} s of processor time.")
        return output, status, cut

    async def _talk(self, process: asyncio.subprocess.Process, code: str) -> tuple[bytes, bool]:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the jail was started without pipes")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(code.encode("utf-8", "replace"))
            await process.stdin.drain()
            process.stdin.close()
        output = b""
        while piece := await process.stdout.read(65_536):
            output += piece
            if len(output) > self.limits.output_bytes:
                return output[: self.limits.output_bytes], True
        return output, False

    def _command(self, ready_fd: int) -> list[str]:
        settings = {
            "ready_fd": ready_fd,
            "cpu_s": self.limits.cpu_s,
            "memory_bytes": self.limits.memory_bytes,
            "file_bytes": self.limits.file_bytes,
        }
        return [sys.executable, "-I", "-B", str(_JAIL), json.dumps(settings)]

    def _describe_limits(self) -> str:
        return f"{self.limits.cpu_s} s of processor time and {self.limits.memory_bytes // 1_000_000} MB"


_ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


def _first_byte(fd: int) -> bytes:
    """What the jail wrote, if anything; closes the pipe and never waits."""
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 1)
    except BlockingIOError:
        return b""
    finally:
        os.close(fd)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Stop the process, which can have started no other, and empty its pipe so that asyncio lets go of it."""
    _kill(process)
    if process.stdout is not None:
        while await process.stdout.read(65_536):
            pass
    await process.wait()


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
