"""Pictures of the miniature encyclopedia: what each shows (`plan`) and how it is drawn (one painter a subject)."""

from __future__ import annotations

from pathlib import Path

from opensearch_vl.wiki.miniature.pictures.plan import PictureSpec

__all__ = ["draw_all"]


def draw_all(specs: list[PictureSpec], folder: Path, workers: int | None) -> None:
    raise NotImplementedError
