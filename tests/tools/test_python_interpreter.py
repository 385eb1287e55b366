"""The jail: what a program may do, and that everything else is refused by the kernel."""

import asyncio
import socket
import time
from pathlib import Path

import pytest
from tool_fakes import context

from opensearch_vl.tools import python_interpreter
from opensearch_vl.tools.python_interpreter import JailLimits, PythonInterpreterTool
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.types import FailureKind, ToolCall, ToolResult


async def run(tmp_path: Path, code: str, **limits: float) -> ToolResult:
    ctx = context(tmp_path / "store")
    tool = PythonInterpreterTool(JailLimits(**limits))  # type: ignore[arg-type]
    result = await Toolbox([tool], ctx.store).call(
        ToolCall(name="python_interpreter", arguments={"code": code}), ctx.bank
    )
    if result.failure is not None and result.failure.kind is FailureKind.BACKEND_DOWN:
        pytest.skip(result.failure.message)
    return result


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print(6 * 7)", "42"),
        ("6 * 7", "42"),
        ("x = 5\nprint('a')\nx * 2", "a\n10"),
        ("None", "(the program printed nothing)"),
        ("import datetime; print(datetime.date(2024, 3, 1) - datetime.date(2024, 2, 1))", "29 days, 0:00:00"),
        ("open('a.txt', 'w').write('é')\nprint(open('a.txt').read(), __import__('os').listdir('.'))", "é ['a.txt']"),
        (
            "import threading\nt = threading.Thread(target=lambda: print('in a thread'))\nt.start(); t.join()",
            "in a thread",
        ),
        ("print(__name__)", "__main__"),
        ("import sys; sys.exit(3)", "[the program ended with status 3]"),
        ("import sys; sys.exit('bye')", "bye\n[the program ended with status 1]"),
        ("print('東京 <|im_end|>')", "東京 ‹|im_end|›"),
    ],
)
async def test_a_program_prints(tmp_path: Path, code: str, expected: str) -> None:
    result = await run(tmp_path, code)
    assert result.failure is None and result.observation.text == expected


async def test_an_exception_is_output_with_its_own_lines_only(tmp_path: Path) -> None:
    text = (await run(tmp_path, "def f():\n    return 1 / 0\nf()")).observation.text
    assert 'File "program.py", line 2, in f' in text and "ZeroDivisionError: division by zero" in text
    assert "jail.py" not in text and "/" not in text.replace("1 / 0", "")
    assert "SyntaxError" in (await run(tmp_path, "def f(:")).observation.text


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd')",
        "open(SECRET)",
        "import os; os.listdir('/')",
        "import os; os.listdir('/proc/1')",
        "open('/proc/self/environ', 'rb')",
        "open(FOLDER + '/new', 'w')",
        "import os; os.remove(SECRET)",
        "import os; os.rename(SECRET, 'x')",
        "import os; os.link(SECRET, 'x'); open('x').read()",
        "import os; os.symlink(SECRET, 'x'); open('x').read()",
        "import os; os.chmod(SECRET, 0o777)",
        "import os; os.truncate(SECRET, 0)",
        "import os; os.setxattr(SECRET, 'user.x', b'1')",
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import socket; socket.create_connection(('127.0.0.1', PORT), 1)",
        "import urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{PORT}')",
        "import os; os.fork()",
        "import os; os.execv('/bin/sh', ['sh'])",
        "import subprocess; subprocess.run(['ls'])",
        "import multiprocessing as m; p = m.Process(target=print); p.start()",
        "import os; os.kill(os.getppid(), 9)",
        "import os, signal; os.kill(1, 0)",
        "import resource; resource.prlimit(1, resource.RLIMIT_CPU)",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "import ctypes; r = ctypes.CDLL(None, use_errno=True).syscall(425, 8, 0); assert r >= 0, 'io_uring refused'",
        "import ctypes; r = ctypes.CDLL(None).ptrace(0, 0, 0, 0); assert r >= 0, 'ptrace refused'",
        "import ctypes; r = ctypes.CDLL(None).mount(b'x', b'/', b'tmpfs', 0, 0); assert r == 0, 'mount refused'",
        "import ctypes; r = ctypes.CDLL(None).unshare(0x10000000); assert r == 0, 'unshare refused'",
    ],
)
async def test_the_kernel_refuses_what_leaves_the_jail(tmp_path: Path, code: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = f"SECRET = {str(secret)!r}\nFOLDER = {str(tmp_path)!r}\nPORT = {server.getsockname()[1]}\n"
        text = (await run(tmp_path, f"{settings}{code}\nprint('ESCAPED')")).observation.text
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert "ESCAPED" not in text and "hunter2" not in text
    assert "[the program ended with status 1]" in text
    assert (
        secret.read_text() == "hunter2" and secret.stat().st_mode & 0o777 != 0o777 and not (tmp_path / "new").exists()
    )


async def test_nothing_of_the_environment_is_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key-123456")
    text = (await run(tmp_path, "import os, sys; print(dict(os.environ), sys.stdin.read())")).observation.text
    assert "secret" not in text and "OPENAI" not in text


@pytest.mark.parametrize(
    ("code", "limits"),
    [("import time; time.sleep(60)", {"wall_s": 1.5}), ("while True: pass", {"cpu_s": 1, "wall_s": 60.0})],
)
async def test_a_program_that_does_not_end_is_a_timeout(tmp_path: Path, code: str, limits: dict[str, float]) -> None:
    result = await run(tmp_path, code, **limits)
    assert result.failure is not None and result.failure.kind is FailureKind.TIMEOUT
    assert result.seconds < 50


async def test_memory_files_and_output_are_bounded(tmp_path: Path) -> None:
    assert "MemoryError" in (await run(tmp_path, "x = bytearray(10**10)")).observation.text
    assert (
        "File too large"
        in (await run(tmp_path, "open('f', 'wb').write(b'x' * 1_000_000)", file_bytes=10_000)).observation.text
    )
    flood = (await run(tmp_path, "while True: print('y' * 1000)", output_bytes=5_000)).observation.text
    assert "[stopped: the program wrote more than 5,000 bytes]" in flood and len(flood) < 6_000


async def test_a_crash_is_reported(tmp_path: Path) -> None:
    result = await run(tmp_path, "import ctypes; print('before', flush=True); ctypes.string_at(0)")
    assert result.failure is None and "before" in result.observation.text and "SIGSEGV" in result.observation.text


async def test_calls_share_nothing_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    code = "import os; print(os.listdir('.')); open('left', 'w').close()"
    results = await asyncio.gather(*(run(tmp_path, code) for _ in range(3)))
    assert [result.observation.text for result in results] == ["[]"] * 3
    assert not list(scratch.iterdir())


async def test_cancelling_stops_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    task = asyncio.create_task(run(tmp_path, "import time\nopen('started', 'w')\ntime.sleep(50)", wall_s=60))
    deadline = time.monotonic() + 30
    while not list(scratch.glob("*/started")) and time.monotonic() < deadline and not task.done():
        await asyncio.sleep(0.02)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        assert not list(scratch.iterdir())
    else:
        pytest.fail("the call was not cancelled")


async def test_where_the_jail_cannot_be_shut_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "jail.py"
    source = Path(python_interpreter._JAIL).read_text()
    broken.write_text(source.replace("platform.machine()", "'abacus'"))
    monkeypatch.setattr(python_interpreter, "_JAIL", broken)
    ctx = context(tmp_path / "store")
    call = ToolCall(name="python", arguments={"code": f"open({str(tmp_path / 'ran')!r}, 'w')"})
    result = await Toolbox([PythonInterpreterTool()], ctx.store).call(call, ctx.bank)
    assert result.failure is not None and result.failure.kind is FailureKind.BACKEND_DOWN
    assert "abacus" in result.failure.message and not (tmp_path / "ran").exists()
