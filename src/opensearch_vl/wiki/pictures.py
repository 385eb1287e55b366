"""The pages' pictures: files of a folder matched to the names that pages use, with the terms that their pages state."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from opensearch_vl.errors import DataError, ImageError
from opensearch_vl.images import MAX_BYTES, ImageStore
from opensearch_vl.types import ImageRef
from opensearch_vl.wiki.templates import arguments, expand, top_level
from opensearch_vl.wiki.titles import Site, file_name
from opensearch_vl.wiki.wikitext import Markup, hide, plain, tidy

_DESCRIPTIONS = frozenset(
    {
        "information",
        "artwork",
        "photograph",
        "painting",
        "book",
        "specimen",
        "infobox artwork",
        "non-free use rationale",
        "file information",
    }
)
_LICENCE = re.compile(
    r"(?:self|cc[- ](?:by|zero|0|sa|pd).*|cc0.*|pd(?:[- ].*)?|public domain.*|gfdl.*|fal|copyrighted free use|"
    r"attribution.*|multilicense.*|"
    r"mit|bsd|apache.*|gpl.*|lgpl.*|kopimi|wtfpl|ogl.*|godl.*|non-free .*|fair use.*|bild-.*|domaine public.*)"
)
_MAX_FIELD = 300


@dataclass(frozen=True, slots=True)
class Terms:
    """Licence and author of a picture, as its page states them; empty where it does not."""

    licence: str = ""
    author: str = ""


def read_terms(wikitext: str, site: Site) -> Terms:
    """Licence templates and the author field of a `File:` page."""
    source = hide(wikitext)
    licences: list[str] = []
    author = ""
    for call in top_level(source):
        inside = source[call.start + 2 : call.end - 2]
        if call.name in _DESCRIPTIONS:
            _, named = arguments(inside)
            author = author or _flat(
                named.get("author") or named.get("artist") or named.get("photographer") or "", site
            )
        elif _LICENCE.fullmatch(call.name):
            positional, _ = arguments(inside)
            given = [value.strip().lower() for value in positional] if call.name in ("self", "multilicense") else []
            licences += [value for value in given if _LICENCE.fullmatch(value)] or [call.name]
    return Terms(", ".join(dict.fromkeys(licences))[:_MAX_FIELD], author)


def _flat(value: str, site: Site) -> str:
    return " ".join(plain(tidy(Markup(site).link(expand(value)))).split())[:_MAX_FIELD]


class PictureFolder:
    """Picture files of a folder and its subfolders, by normalised file name.

    Raises:
        DataError: If `root` is not a folder.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise DataError(f"There is no folder of pictures {root}.", "Check --images.")
        self._paths: dict[str, Path] = {}
        self._refs: dict[str, ImageRef | None] = {}
        self.problems: Counter[str] = Counter()
        for path in _walk(root):
            name = file_name(unquote(path.name))  # downloads often keep the address's escapes
            if name in self._paths:
                self.problems["picture_name_twice"] += 1
            else:
                self._paths[name] = path

    def __contains__(self, name: str) -> bool:
        return name in self._paths

    def __len__(self) -> int:
        return len(self._paths)

    def store(self, names: Iterable[str], store: ImageStore) -> dict[str, ImageRef]:
        """Put pictures into a store, several at a time; those that cannot be decoded are counted in `problems`.

        Args:
            names: Normalised names; ones the folder lacks are passed over.
            store: Where the pictures go.
        """
        wanted = [name for name in dict.fromkeys(names) if name in self._paths and name not in self._refs]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # decoding releases the interpreter lock
            for name, found in zip(wanted, pool.map(lambda name: _put(self._paths[name], store), wanted), strict=True):
                self._refs[name] = found if isinstance(found, ImageRef) else None
                if isinstance(found, str):
                    self.problems[found] += 1
        return {name: ref for name in names if (ref := self._refs.get(name)) is not None}


def _put(path: Path, store: ImageStore) -> ImageRef | str:
    """The stored picture, or why there is none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return "picture_too_large"
        data = path.read_bytes()
    except OSError:
        return "picture_unreadable"
    try:
        return store.put_bytes(data)
    except ImageError:
        return "picture_undecodable"


def _walk(root: Path) -> Iterator[Path]:
    """Files that are not hidden, in an order that does not depend on the file system."""
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(folder, name)
