"""`osvl doctor`: what is installed, configured and reachable, and how to mend what is not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from opensearch_vl.cli.common import EXIT_DONE, EXIT_FAILED, JsonOption, console, emit

Status = Literal["ok", "optional", "broken"]

_BASE = {
    "duckdb": "duckdb",
    "httpx2": "httpx2",
    "mwparserfromhell": "mwparserfromhell",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "openai": "openai",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "pyarrow": "pyarrow",
    "rapidocr": "rapidocr",
    "tantivy": "tantivy",
    "trafilatura": "trafilatura",
}
_EXTRAS = {
    "train": ("torch", "transformers", "trl", "peft", "accelerate", "datasets"),
    "verl": ("verl", "ray"),
    "demo": ("gradio",),
    "ray": ("ray",),
    "serve": ("aiohttp",),
}
_OPENCV_WHEELS = (
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)
_KEYS = {
    "OPENAI_API_KEY": "hosted chat models (osvl ask, LLM judges, LLM question stages)",
    "SERPER_API_KEY": "web search and Google Lens through Serper",
    "BRAVE_API_KEY": "web search through Brave",
    "JINA_API_KEY": "web pages through Jina Reader",
}
_MIN_FREE_GB = 5.0
_REACH_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; `fix` is empty when nothing is to be done."""

    name: str
    status: Status
    detail: str
    fix: str = ""


def register(app: typer.Typer) -> None:
    """Add `osvl doctor` to the application."""

    @app.command()
    def doctor(
        base_url: Annotated[
            str | None, typer.Option("--base-url", help="Chat server to try; default: OSVL_BASE_URL.")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Say what is installed, configured and reachable, and how to mend what is not."""
        checks = [*_system(), *_base_packages(), *_extras(), *_ocr(), *_keys(), *_server(base_url)]
        emit({"ok": _healthy(checks), "checks": [asdict(check) for check in checks]}, as_json, lambda: _print(checks))
        raise typer.Exit(EXIT_DONE if _healthy(checks) else EXIT_FAILED)


def _healthy(checks: list[Check]) -> bool:
    return all(check.status != "broken" for check in checks)


def _print(checks: list[Check]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    marks = {"ok": "[green]ok[/]", "optional": "[yellow]optional[/]", "broken": "[red]broken[/]"}
    for check in checks:
        fix = f"\n[dim]→ {escape(check.fix)}[/]" if check.fix else ""
        table.add_row(marks[check.status], escape(check.name), f"{escape(check.detail)}{fix}")
    screen = console()
    screen.print(table)
    screen.print("The offline recipe is ready: osvl quickstart" if _healthy(checks) else "Mend what is broken first.")


def _system() -> Iterator[Check]:
    good = sys.version_info >= (3, 11)
    fix = "" if good else "Install Python 3.11 or newer."
    yield Check("python", "ok" if good else "broken", platform.python_version(), fix)
    free_gb = shutil.disk_usage(Path.cwd()).free / 1e9
    low = free_gb < _MIN_FREE_GB
    yield Check("disk", "optional" if low else "ok", f"{free_gb:.0f} GB free here", "Free some space." if low else "")
    yield Check("cores", "ok", str(os.cpu_count()))


def _base_packages() -> Iterator[Check]:
    for distribution, module in _BASE.items():
        if importlib.util.find_spec(module) is None:
            yield Check(distribution, "broken", "not installed", "pip install opensearch-vl")
        else:
            yield Check(distribution, "ok", _version(distribution))
    wheels = [name for name in _OPENCV_WHEELS if _version(name)]
    if len(wheels) > 1:
        others = " ".join(name for name in wheels if name != "opencv-python-headless")
        fix = f"pip uninstall -y {others} opencv-python-headless && pip install opencv-python-headless"
        yield Check("opencv", "broken", f"{len(wheels)} wheels overwrite each other's cv2: {', '.join(wheels)}", fix)


def _extras() -> Iterator[Check]:
    for extra, modules in _EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            fix = f"pip install 'opensearch-vl[{extra}]'"
            if extra == "verl":
                fix += " in an environment of its own (its transformers pin excludes TRL's)"
            yield Check(f"[{extra}]", "optional", f"missing: {', '.join(missing)}", fix)
        else:
            yield Check(f"[{extra}]", "ok", ", ".join(f"{name} {_version(name)}" for name in modules))


def _ocr() -> Iterator[Check]:
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or spec.origin is None:
        return
    models = list((Path(spec.origin).parent / "models").glob("*.onnx"))
    if models:
        yield Check("ocr models", "ok", f"{len(models)} in the rapidocr wheel")
    else:
        yield Check("ocr models", "broken", "none in the rapidocr wheel", "pip install --force-reinstall rapidocr")


def _keys() -> Iterator[Check]:
    from opensearch_vl.redaction import env

    for name, purpose in _KEYS.items():
        if env(name):
            yield Check(name, "ok", "set")
        else:
            yield Check(name, "optional", f"not set; only needed for {purpose}", f"Put {name}=… into .env.")


def _server(base_url: str | None) -> Iterator[Check]:
    import httpx2

    from opensearch_vl.redaction import env, redact

    url = base_url or env("OSVL_BASE_URL")
    if not url:
        yield Check("model server", "optional", "none named", "Give --base-url or put OSVL_BASE_URL=… into .env.")
        return
    headers = {"Authorization": f"Bearer {env('OSVL_API_KEY') or env('OPENAI_API_KEY') or 'none'}"}
    started = time.perf_counter()
    try:
        answer = httpx2.get(f"{url.rstrip('/')}/models", headers=headers, timeout=_REACH_TIMEOUT_S)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        fix = "Is the server running, and does the address end in /v1?"
        yield Check("model server", "broken", redact(f"{url}: {type(error).__name__}: {error}"), fix)
        return
    if answer.status_code in (401, 403):
        yield Check(
            "model server",
            "broken",
            f"{redact(url)}: key refused",
            "Put the right OSVL_API_KEY or OPENAI_API_KEY into .env.",
        )
    elif answer.is_success:
        seconds = time.perf_counter() - started
        yield Check("model server", "ok", redact(f"{url}: {_served(answer)} ({seconds:.2f} s)"))
    else:
        fix = "Does the address end in /v1?"
        yield Check("model server", "broken", redact(f"{url}: HTTP {answer.status_code} for /models"), fix)


def _served(answer: object) -> str:
    """Names of the models on offer; servers that list none, or something else than a list, still count as up."""
    try:
        rows = answer.json()["data"]  # type: ignore[attr-defined]
        return ", ".join(str(row["id"]) for row in rows[:5]) or "no model listed"
    except (ValueError, KeyError, TypeError):
        return "answers, lists no models"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
