"""`osvl serve tools` as a user starts and stops it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_fakes import task
from cli_runner import SRC, osvl

from opensearch_vl.images import ImageBank, ImageStore
from opensearch_vl.tools.remote import RemoteTools
from opensearch_vl.tools.toolbox import Toolbox
from opensearch_vl.types import ToolCall


@contextmanager
def serving(cwd: Path, *arguments: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from opensearch_vl.cli import main; main()",
            "serve",
            "tools",
            "--port",
            "0",
            *arguments,
        ],
        env={**os.environ, "PYTHONPATH": str(SRC), "NO_COLOR": "1", **env},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"on (http://127\.0\.0\.1:\d+)$", line)
        assert found is not None, line + process.stderr.read()
        yield process, found[1]
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


async def test_a_remote_toolbox_on_a_started_server_and_a_quiet_end(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, url):
        assert process.stderr is not None and process.stdout is not None
        name, _, token = process.stderr.readline().strip().partition("=")
        assert name == "OSVL_TOOL_TOKEN" and len(token) >= 32
        async with RemoteTools(url, token) as remote:
            toolbox = Toolbox(await remote.tools(), ImageStore(tmp_path / "here"))
            assert toolbox.names == ("layout_parsing", "crop", "sharpen", "super_resolution", "perspective_correct")
            bank = ImageBank(task(toolbox.store).images)
            result = await toolbox.call(ToolCall(name="sharpen", arguments={"image": "img_1"}), bank)
            assert result.failure is None and result.observation.image is not None
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        assert "Stopped; 1 open" in process.stderr.read() and process.stdout.read() == ""


def test_a_given_token_is_never_printed(tmp_path: Path) -> None:
    with serving(tmp_path, OSVL_TOOL_TOKEN="a-token-for-tests-only") as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None and "a-token" not in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "env", "code", "word"),
    [
        (["--index", "x"], {}, 2, "--wiki"),
        ([], {"OSVL_TOOL_TOKEN": "short"}, 2, "at least 16"),
        (["--host", "192.0.2.1"], {}, 1, "192.0.2.1"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, arguments: list[str], env: dict[str, str], code: int, word: str
) -> None:
    done = osvl("serve", "tools", "--port", "0", *arguments, cwd=tmp_path, **env)
    assert done.returncode == code and word in done.stderr and done.stderr.count("\n") == 1
