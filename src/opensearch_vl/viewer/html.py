"""Pieces of a self-contained page: escaping, pictures as data addresses, bars drawn as SVG, the frame.

Nothing in a page loads anything: styles are inline, pictures are data addresses, there is no script, and a content
security policy says so to the browser. All foreign text goes through `esc` or `text`.
"""

from __future__ import annotations

import base64
import html
import io
import re
from functools import cache
from importlib import resources

from PIL import Image

from opensearch_vl.images import ImageStore, encode_png
from opensearch_vl.types import ImageRef

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_JPEG_QUALITY = 82


def esc(value: object) -> str:
    """Escaped for use as text or inside a quoted attribute; control characters and lone surrogates are replaced."""
    clean = str(value).encode("utf-8", "replace").decode("utf-8")
    return html.escape(_UNPRINTABLE.sub("\ufffd", clean), quote=True)


def text(value: object, tag: str = "span", css: str = "text") -> str:
    """Foreign text in an element of its own, whose writing direction cannot spill over."""
    return f'<{tag} class="{css}" dir="auto">{esc(value)}</{tag}>'


def badge(label: str, tone: str = "") -> str:
    """A small label; `tone` is `good`, `bad`, `wait` or nothing."""
    return f'<span class="badge {tone}">{esc(label)}</span>'


def fold(summary: str, content: str) -> str:
    """Content behind a summary line; opens without a script and by keyboard. Both are HTML."""
    return f"<details><summary>{summary}</summary>{content}</details>"


class Pictures:
    """Embeds pictures of a store, each scaled once.

    Args:
        store: Where they lie.
        max_px: Longest side as embedded, in pixels.
    """

    def __init__(self, store: ImageStore, max_px: int) -> None:
        self.store = store
        self.max_px = max_px
        self._sources: dict[str, str] = {}

    def figure(self, ref: ImageRef, caption: str) -> str:
        """The picture with its name and original size; says so where it is missing."""
        size = f"{ref.width_px} × {ref.height_px} px"
        if ref not in self.store:
            return f"<figure><figcaption>{esc(caption)}: picture {ref.sha256[:12]}… is missing</figcaption></figure>"
        if ref.sha256 not in self._sources:
            self._sources[ref.sha256] = self._embed(ref)
        scale = min(1.0, self.max_px / max(ref.width_px, ref.height_px))
        width, height = max(1, round(ref.width_px * scale)), max(1, round(ref.height_px * scale))
        return (
            f'<figure><img src="{self._sources[ref.sha256]}" width="{width}" height="{height}" alt="{esc(caption)}">'
            f"<figcaption>{esc(caption)} · {size}</figcaption></figure>"
        )

    def _embed(self, ref: ImageRef) -> str:
        image = self.store.open(ref)
        image.thumbnail((self.max_px, self.max_px), Image.Resampling.LANCZOS)
        png = encode_png(image)
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "JPEG", quality=_JPEG_QUALITY)
        jpeg = buffer.getvalue()
        mime, data = ("png", png) if len(png) <= len(jpeg) else ("jpeg", jpeg)
        return f"data:image/{mime};base64,{base64.b64encode(data).decode('ascii')}"


def bar(share: float, *, low: float | None = None, high: float | None = None, width: int = 160) -> str:
    """A bar for a share in [0, 1], with a whisker from `low` to `high` where given."""
    share = min(1.0, max(0.0, share))
    parts = [
        f'<svg width="{width}" height="14" viewBox="0 0 {width} 14" role="img" aria-label="{share:.1%}">',
        f'<rect y="3" width="{width}" height="8" rx="2" fill="var(--tint)" stroke="var(--line)" stroke-width=".5"/>',
        f'<rect y="3" width="{share * width:.1f}" height="8" rx="2" fill="var(--accent)"/>',
    ]
    if low is not None and high is not None:
        left, right = low * width, high * width
        parts.append(
            f'<path d="M{left:.1f} 7H{right:.1f}M{left:.1f} 3V11M{right:.1f} 3V11" stroke="var(--ink)" fill="none"/>'
        )
    return "".join([*parts, "</svg>"])


def page(title: str, body: str) -> str:
    """A whole page around `body`, which is HTML."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{esc(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{esc(title)}</title>\n<style>\n{_css()}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#main">Skip to the content</a>\n<main id="main">\n{body}\n</main>\n</body>\n</html>\n'
    )


@cache
def _css() -> str:
    return resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")
