"""The command tree. Rooms are imported inside the verbs, so that `osvl --help` stays quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opensearch_vl.cli import ask, data, doctor, model, questions, quickstart, serve, train, wiki, wiring
from opensearch_vl.cli.common import JsonOption, emit

app = typer.Typer(
    name="osvl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Build, train and evaluate multimodal deep-search agents. Start with: osvl quickstart",
)


@app.callback()
def _setup(
    env_file: Annotated[Path, typer.Option("--env-file", help="File with keys, read if it is there.")] = Path(".env"),
) -> None:
    from opensearch_vl.redaction import load_env_file

    load_env_file(env_file)


@app.command()
def version() -> None:
    """Print the version."""
    from opensearch_vl import __version__

    typer.echo(__version__)


@app.command()
def digest(run: Annotated[Path, typer.Argument(help="A run folder.")], as_json: JsonOption = False) -> None:
    """Hash what a run produced; two runs that did the same work have equal digests."""
    from opensearch_vl.runs import digest as compute

    value = compute(run)
    emit({"run": str(run), "digest": value}, as_json, lambda: typer.echo(value))


quickstart.register(app)
ask.register(app, wiring.ask_tools)
app.add_typer(wiki.app, name="wiki")
app.add_typer(questions.app, name="questions")
data.register(app, wiring.ask_tools)
train.register(app, wiring.ask_tools)
model.register(app)
serve.register(app, wiring.ask_tools)
doctor.register(app)
