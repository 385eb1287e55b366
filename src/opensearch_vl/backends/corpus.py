"""What local backends need of an encyclopedia, and the folder discipline they share.

`WikiPages` is the part of `wiki.tables.WikiFolder` that search, image index and reader use; anything of that shape can
be indexed. An index is built beside its final place and renamed there, so a folder is either a whole index or none.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from opensearch_vl.errors import DataError, OsvlError, StorageFull
from opensearch_vl.images import ImageStore
from opensearch_vl.types import ImageRef

MANIFEST = "index.json"
INDEX_VERSION = 2
"""Raised whenever the fields of an index change: an old index must be refused, not misread."""
_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM})
Progress = Callable[[int, int], None]
"""Called with (done, total) now and then during a build."""


class PageLike(Protocol):
    """A row of the page table."""

    @property
    def page_id(self) -> int: ...  # noqa: D102

    @property
    def title(self) -> str: ...  # noqa: D102


class PictureLike(Protocol):
    """A picture of a page."""

    @property
    def file(self) -> str: ...  # noqa: D102

    @property
    def ref(self) -> ImageRef: ...  # noqa: D102


class WikiPages(Protocol):
    """An encyclopedia as the local backends see it."""

    @property
    def images(self) -> ImageStore: ...  # noqa: D102

    @property
    def meta(self) -> Mapping[str, Any]: ...  # noqa: D102

    def __len__(self) -> int: ...

    def pages(self) -> Iterator[PageLike]:
        """All pages, in order of their dense ids."""
        ...

    def page(self, page_id: int) -> PageLike:
        """One page."""
        ...

    def resolve(self, title: str) -> int | None:
        """The page behind a title, redirects followed."""
        ...

    def page_at(self, url: str) -> int | None:
        """The page behind an address."""
        ...

    def url(self, page_id: int) -> str:
        """The address of a page."""
        ...

    def document(self, page_id: int) -> str:
        """Infobox lines ("Label: value"), a blank line, then prose."""
        ...

    def infobox(self, page_id: int) -> Sequence[Any]:
        """Rows of the infobox; empty when there is none."""
        ...

    def aliases(self, page_id: int) -> Sequence[str]:
        """Other names of the page."""
        ...

    def page_images(self, page_id: int) -> Sequence[PictureLike]:
        """Pictures of the page, the infobox's first."""
        ...


@contextmanager
def building(out: Path, kind: str) -> Iterator[Path]:
    """Yield a scratch folder that becomes `out` when the block ends well, and vanishes when it does not.

    Args:
        out: Where the index goes. An older index of the same kind is replaced; any other non-empty folder is not.
        kind: Kind of index, for the check above.

    Raises:
        DataError: `out` holds something that is not an index of this kind, or reading what is indexed failed.
        StorageFull: The disk refused a write.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        read_manifest(out, kind)
    scratch = out.with_name(f".{out.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        scratch.mkdir(parents=True)
        yield scratch
        if out.exists():
            old = scratch.with_name(scratch.name + ".old")
            out.replace(old)
            scratch.replace(out)
            shutil.rmtree(old, ignore_errors=True)
        else:
            scratch.replace(out)
    except OSError as error:
        raise write_failure(out, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_failure(out: Path, error: OSError) -> OsvlError:
    """What to raise for an error of the file system during a build: a refused write is not a damaged input."""
    if error.errno in _WRITE_ERRORS:
        return StorageFull(
            f"Could not write the index {out}: {error.strerror}.", "Free some space or choose another folder."
        )
    return DataError(f"Could not build the index {out}: {error}.")


def write_manifest(folder: Path, kind: str, facts: Mapping[str, Any]) -> None:
    """Write `index.json`, atomically."""
    scratch = folder / f".{MANIFEST}.{os.getpid()}"
    scratch.write_text(
        json.dumps({"schema_version": INDEX_VERSION, "kind": kind, **facts}, indent=2) + "\n", encoding="utf-8"
    )
    scratch.replace(folder / MANIFEST)


def kind_of(folder: Path) -> str:
    """Kind of the index in a folder; empty if there is none that can be read."""
    try:
        facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(facts.get("kind", "")) if isinstance(facts, dict) else ""


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """The manifest of an index.

    Raises:
        DataError: `folder` is not an index of this kind, or one of another version.
    """
    fix = f"Build it first ({kind} index)."
    try:
        facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{folder} is not a {kind} index: it has no {MANIFEST}.", fix) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / MANIFEST} cannot be read: {error}.", fix) from error
    if not isinstance(facts, dict) or facts.get("kind") != kind:
        raise DataError(f"{folder} is not a {kind} index.", fix)
    if facts.get("schema_version") != INDEX_VERSION:
        raise DataError(
            f"{folder} is an index of version {facts.get('schema_version')!r}; this package reads {INDEX_VERSION}.",
            "Delete the folder; it is built again when it is needed.",
        )
    return facts
