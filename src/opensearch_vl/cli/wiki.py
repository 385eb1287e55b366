"""`osvl wiki`: make the miniature encyclopedia, read a dump, look at it, walk on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from opensearch_vl.cli.common import ConfigOption, JsonOption, SetOption

app = typer.Typer(no_args_is_help=True, help="Encyclopedias: from a MediaWiki dump to tables, a link graph and walks.")


@app.command()
def mini(
    out: Annotated[Path, typer.Option(help="Folder for dump.xml.bz2 and images/.")],
    pages: Annotated[int, typer.Option(min=100, help="Number of pages.")] = 2000,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    compress: Annotated[bool, typer.Option(help="Write .xml.bz2 rather than .xml.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Write the miniature encyclopedia: fictional pages and pictures as a MediaWiki export."""
    from opensearch_vl.wiki.miniature import write_miniature

    info = write_miniature(out, pages=pages, seed=seed, compress=compress)
    facts = {"dump": str(info.dump), "images": str(info.images), "pages": info.num_pages, "pictures": info.num_pictures}
    _show({**facts, "counts": dict(info.counts)}, as_json, title=f"Miniature encyclopedia in {out}")


@app.command()
def build(
    dump: Annotated[Path, typer.Argument(metavar="DUMP", help="MediaWiki export: .xml, .xml.bz2 or .xml.gz.")],
    out: Annotated[Path, typer.Option(help="Wiki folder to make; must not exist yet.")],
    images: Annotated[Path | None, typer.Option(help="Folder of picture files, named as the pages name them.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that parse; 0 chooses by the dump's size.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Read a MediaWiki export into a wiki folder."""
    from opensearch_vl.wiki.dump import build_wiki

    workers = workers or _workers_for(dump)
    with _progress(f"Reading {dump.name}", as_json) as advance:
        wiki = build_wiki(dump, out, images=images, progress=advance, workers=workers)
    facts = {key: wiki.meta[key] for key in ("name", "lang", "counts", "domains", "skipped", "damage")}
    _show({"wiki": str(out), **facts}, as_json, title=f"Wiki folder {out}")
    if wiki.meta["damage"]:
        raise typer.Exit(3)


@app.command()
def index(
    wiki: Annotated[Path, typer.Argument(metavar="WIKI", help="A wiki folder.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the indexes [WIKI/index].")] = None,
    images: Annotated[
        str, typer.Option(help="How pictures are found: features (the same picture), or embedding (by look).")
    ] = "features",
    checkpoint: Annotated[Path | None, typer.Option(help="CLIP or SigLIP checkpoint folder, for embedding.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Build the indexes of passages and pictures that the tools search, where they are missing."""
    from opensearch_vl.cli.wiring import build_indexes
    from opensearch_vl.errors import UsageError
    from opensearch_vl.wiki.tables import WikiFolder

    if images not in ("features", "embedding"):
        raise UsageError(f"--images is {images!r}; expected features or embedding.")
    if (images == "embedding") != (checkpoint is not None):
        raise UsageError("--images embedding and --checkpoint go together.", "Give both, or neither.")
    folder = build_indexes(WikiFolder(wiki), out, checkpoint)
    _show({"index": str(folder), "images": images}, as_json, title=f"Indexes in {folder}")


@app.command()
def stats(
    wiki: Annotated[Path, typer.Argument(metavar="WIKI", help="A wiki folder.")],
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a wiki folder holds, the thresholds of walks on it, and the seeds they may start at."""
    from opensearch_vl.config import load_config
    from opensearch_vl.wiki.report import wiki_stats
    from opensearch_vl.wiki.tables import WikiFolder
    from opensearch_vl.wiki.walks import WalkRules

    rules = load_config(WalkRules, config, overrides or ())
    _show(wiki_stats(WikiFolder(wiki), rules), as_json, title=f"Wiki folder {wiki}")


@app.command()
def walks(
    wiki: Annotated[Path, typer.Argument(metavar="WIKI", help="A wiki folder.")],
    out: Annotated[Path, typer.Option(help="Run folder for the walks.")],
    seed: Annotated[int, typer.Option(help="Same seed, same walks.")] = 0,
    num: Annotated[int | None, typer.Option(min=1, help="Walks wanted; all that there are by default.")] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was cut off.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Sample constrained random walks; every rejection is counted by reason."""
    from opensearch_vl.config import load_config
    from opensearch_vl.errors import DataError
    from opensearch_vl.runs import RunFolder
    from opensearch_vl.wiki.report import walk_record
    from opensearch_vl.wiki.tables import WikiFolder
    from opensearch_vl.wiki.walks import Walk, WalkRules, resolve_rules, sample_walks

    folder = WikiFolder(wiki)
    rules = resolve_rules(folder, load_config(WalkRules, config, overrides or ()))
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    hops: Counter[str] = Counter()
    manifest = {"wiki": folder.meta["name"], "seed": seed, "num": num}
    with RunFolder(out, rules, manifest, resume=resume) as run, _progress("Walking", as_json) as advance:
        for number, outcome in enumerate(sample_walks(folder, rules, seed, num)):
            record = walk_record(folder, outcome, number)
            counts["accepted" if record.accepted else "dropped"] += 1
            reasons.update(record.reasons)
            if isinstance(outcome, Walk):
                hops[str(len(outcome.links))] += 1
            if record.id not in run.done:
                run.append(record)
            advance(counts["accepted"], num or 0)
        run.write_manifest(counts=dict(counts), rejected=dict(reasons), hops=dict(hops))
    shown = {"accepted": counts["accepted"], "dropped": counts["dropped"], "hops": dict(sorted(hops.items()))}
    _show({"run": str(out), **shown, "rejected": dict(sorted(reasons.items()))}, as_json, title=f"Walks in {out}")
    if not counts["accepted"]:
        raise DataError(
            f"No walk was found in {wiki}.",
            "See osvl wiki stats for the seeds; --set require_image=false does without.",
        )
    if num is not None and counts["accepted"] < num:
        raise typer.Exit(3)


_LARGE_DUMP_BYTES = 30_000_000  # below, starting further processes costs more than it saves


def _workers_for(dump: Path) -> int:
    import os

    return (os.cpu_count() or 1) if dump.is_file() and dump.stat().st_size > _LARGE_DUMP_BYTES else 1


@contextmanager
def _progress(what: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; a total of 0 is unknown."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def _show(facts: dict[str, Any], as_json: bool, *, title: str) -> None:
    import json

    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False)
    for key, value in facts.items():
        rows = value.items() if isinstance(value, dict) else [("", value)]
        for index, (name, item) in enumerate(rows):
            shown = f"{item:,}" if isinstance(item, int) and not isinstance(item, bool) else str(item)
            table.add_row(key if index == 0 else "", str(name), shown)
    Console().print(table)
