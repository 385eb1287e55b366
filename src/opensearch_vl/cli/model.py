"""`osvl model`: checkpoints to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from opensearch_vl.cli.common import JsonOption, SeedOption, emit


def register(app: typer.Typer) -> None:
    """Add the verbs to the command tree."""
    model = typer.Typer(no_args_is_help=True, help="Checkpoints to begin with.")
    app.add_typer(model, name="model")

    @model.callback()
    def _group() -> None:
        """Checkpoints to begin with."""

    @model.command()
    def init(
        data: Annotated[
            list[Path],
            typer.Argument(metavar="RUN…", help="Runs of `osvl data synthesise`; the tokenizer learns here."),
        ],
        out: Annotated[Path, typer.Option("--out", help="Checkpoint directory to write.")],
        preset: Annotated[Literal["miniature"], typer.Option(help="What to make.")] = "miniature",
        vocab_size: Annotated[int, typer.Option(min=300, help="Tokens of text.")] = 2048,
        renamed: Annotated[
            int, typer.Option(min=0, help="Learn from so many copies of the runs under other names instead.")
        ] = 0,
        seed: SeedOption = 0,
        as_json: JsonOption = False,
    ) -> None:
        """Write a freshly initialised policy: a Qwen3-VL of about a million parameters that learns on a CPU."""
        from opensearch_vl.errors import RunExists
        from opensearch_vl.sft.model_init import MiniatureShape, init_miniature
        from opensearch_vl.sft.source import open_source

        if (out / "config.json").exists():
            raise RunExists(f"{out} already holds a checkpoint.", "Choose another --out.")
        texts = open_source(data, out / "pictures").tokenizer_texts(renamed, seed)
        report = init_miniature(out, texts, seed, MiniatureShape(vocab_size=vocab_size))
        emit(
            {
                "model": str(out),
                "preset": preset,
                "parameters": report.num_parameters,
                "vision_parameters": report.num_vision_parameters,
                "vocabulary": report.vocab_size,
            },
            as_json,
        )
