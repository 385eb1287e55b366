"""Makes small exports for the tests of this room."""

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

NAMESPACES = {
    -2: "Media",
    -1: "Special",
    0: "",
    1: "Talk",
    2: "User",
    4: "Wikipedia",
    6: "File",
    10: "Template",
    12: "Help",
    14: "Category",
    100: "Portal",
}


def export(
    pages: Mapping[str, str],
    *,
    lang: str = "en",
    case: str = "first-letter",
    namespaces: Mapping[int, str] = NAMESPACES,
    encoding: str = "utf-8",
    siteinfo: bool = True,
) -> str:
    """An export with the given wikitexts; a text starting with ``>>`` is a redirect with a <redirect> element."""
    parts = [
        f'<?xml version="1.0" encoding="{encoding}"?>\n<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="{lang}">\n'
    ]
    if siteinfo:
        names = "".join(
            f'<namespace key="{key}" case="{case}">{escape(name)}</namespace>' for key, name in namespaces.items()
        )
        parts.append(
            f"<siteinfo><sitename>Test wiki</sitename><dbname>{lang}wiki</dbname><base>https://{lang}.example.org/wiki/Main_Page</base>"
            f"<case>{case}</case><namespaces>{names}</namespaces></siteinfo>\n"
        )
    by_name = {name.lower(): key for key, name in namespaces.items() if name}
    for number, (title, text) in enumerate(pages.items(), 1):
        key = by_name.get(title.partition(":")[0].lower(), 0) if ":" in title else 0
        redirect = ""
        if text.startswith(">>"):
            redirect = f"<redirect title={quoteattr(text[2:].strip())}/>"
            text = f"#REDIRECT [[{text[2:].strip()}]]"
        parts.append(
            f"<page><title>{escape(title)}</title><ns>{key}</ns><id>{number * 10}</id>{redirect}<revision><id>{number}</id>"
            f'<model>wikitext</model><format>text/x-wiki</format><text xml:space="preserve">{escape(text)}</text></revision></page>\n'
        )
    return "".join([*parts, "</mediawiki>\n"])


def write(path: Path, pages: Mapping[str, str], **options: object) -> Path:
    path.write_text(export(pages, **options), encoding="utf-8")  # type: ignore[arg-type]
    return path
