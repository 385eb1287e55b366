"""Wikitext to plain prose and links, in stages that are each one linear sweep over the page.

`hide` takes out comments and verbatim regions, `templates.expand` the templates, `Markup.link` turns every link into a
marked anchor, `tidy` drops the remaining inline markup, and `prose` cuts the page into paragraphs with their sections.
No stage backtracks: unclosed markup is ordinary text, and hostile pages cost no more than long ones.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from functools import cache

from opensearch_vl.wiki.language import language, read_data
from opensearch_vl.wiki.titles import Site, Target, TargetKind

OPEN, MIDDLE, CLOSE, NOTE, RULE = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004"
"""Marks inside half-rendered text: OPEN number MIDDLE anchor CLOSE is a link, NOTE number RULE a picture's caption."""
MARKS = str.maketrans("", "", OPEN + MIDDLE + CLOSE + NOTE + RULE)
_MARK = re.compile(f"[{OPEN}-{RULE}]")
LINK_MARK = re.compile(f"{OPEN}(\\d+){MIDDLE}([^{OPEN}-{RULE}]*){CLOSE}")
NOTE_MARK = re.compile(f"{NOTE}(\\d+){RULE}")

_VERBATIM = ("nowiki", "pre", "math", "chem", "ce")
_DROPPED = (
    "ref", "references", "timeline", "score", "syntaxhighlight", "source", "templatedata", "imagemap", "graph",
    "mapframe", "maplink", "hiero", "inputbox", "categorytree", "templatestyles", "indicator", "phonos", "includeonly",
)  # fmt: skip
_REGION = re.compile(rf"<!--|<({'|'.join((*_VERBATIM, *_DROPPED, 'gallery'))})\b([^<>]*+)>", re.IGNORECASE)
_ESCAPES = str.maketrans({ch: f"&#{ord(ch)};" for ch in "[]{}|<>'*#:;=_~-!"})

_BREAKING = re.compile(
    r"</?(?:br|p|div|li|ul|ol|dl|dd|dt|tr|td|th|table|caption|hr|blockquote|center|h[1-6])\b[^<>]*+>", re.IGNORECASE
)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*+>")
_QUOTES = re.compile(r"'{2,}+")
_SWITCH = re.compile(r"__[A-Z]++__")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_CONTROL = re.compile(f"[\\x00-\\x08\\x0b-\\x1f\\x7f\ufffe\uffff\ud800-\udfff{OPEN}-{RULE}]")
_EXTERNAL = re.compile(
    r"\[(?:(?:https?|ftp|irc|news):)?//[^\s\[\]]++[ \t]*+([^\[\]\n]*+)\]|\[mailto:[^\s\[\]]++[ \t]*+([^\[\]\n]*+)\]"
)
_BOLD = re.compile(r"'''([^'\n]++(?:'(?!'')[^'\n]*+)*+)'''")
_SPACE = re.compile(r"[ \t\xa0\u2000-\u200a\u202f\u3000]{2,}+|[\t\xa0\u2000-\u200a\u202f]")
_MAX_DEPTH = 20
"""Links nested deeper are text; no real page comes near."""
_PARENTHESIS = re.compile(r"\s*\([^()]*\)$")
_FILE_OPTION = re.compile(r"\d*+(?:x\d++)? ?px|\w[\w-]{0,30}\s*=.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A link to an article found in a page: normalised target title and the text shown."""

    title: str
    text: str


@dataclass
class Markup:
    """Half-rendered text and what was found on the way. One per page, or per infobox value."""

    site: Site
    anchors: list[Anchor] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def link(self, text: str) -> str:
        """Replace `[[…]]` by marked anchors; pictures and categories vanish, captions become notes.

        Links nested in a picture's caption count. Of a link nested in a link only the inner one is a link, as in
        MediaWiki.
        """
        if "[" not in text:
            return text
        if "//" in text or "mailto:" in text:
            text = _EXTERNAL.sub(lambda found: found[1] or found[2] or "", text)
        tokens, trail = _link_patterns(self.site.lang)
        frames: list[list[str]] = [[]]
        place = 0
        for token in tokens.finditer(text):
            start, end = token.span()
            if start < place:
                continue
            frames[-1].append(text[place:start])
            place = end
            target = token[1]
            if target is not None:
                frames[-1].append(self._close(target, token[2], token[3]))
            elif token[0] == "[[":
                if len(frames) <= _MAX_DEPTH:
                    frames.append([])
                else:
                    frames[-1].append("[[")
            elif len(frames) > 1:
                inside = "".join(frames.pop())
                after = trail.match(text, end)
                place = after.end() if after else end
                target, pipe, rest = inside.partition("|")
                frames[-1].append(self._close(target, rest if pipe else None, after[0] if after else ""))
            else:
                frames[-1].append("]]")
        frames[-1].append(text[place:])
        return "[[".join("".join(frame) for frame in frames)  # what was never closed is ordinary text

    def _close(self, written: str, shown: str | None, trail: str) -> str:
        """What stands for one closed link in the text."""
        target = self.site.parse(written) if not _MARK.search(written) else Target(TargetKind.INVALID)
        match target.kind:
            case TargetKind.FILE if not target.colon:
                self.files.append(target.title)
                return self._caption(shown) + trail
            case TargetKind.CATEGORY if not target.colon:
                return trail
            case TargetKind.INTERWIKI if not target.colon and shown is None:
                return trail
            case TargetKind.INVALID:
                return (written if shown is None else shown) + trail
        text = _shown(written, shown, target.title) + trail
        if target.kind is not TargetKind.ARTICLE or not text.strip() or _MARK.search(text):
            return text
        text = text.replace("|", "&#124;")
        self.anchors.append(Anchor(target.title, text))
        return f"{OPEN}{len(self.anchors) - 1}{MIDDLE}{text}{CLOSE}"

    def _caption(self, shown: str | None) -> str:
        parts = [part.strip() for part in (shown or "").split("|")]
        caption = next((part for part in reversed(parts) if part and not _is_option(part)), "")
        if not caption:
            return ""
        self.captions.append(caption)
        return f"{NOTE}{len(self.captions) - 1}{RULE}"


def _is_option(part: str) -> bool:
    return part.lower() in _image_options() or _FILE_OPTION.fullmatch(part) is not None


@cache
def _image_options() -> frozenset[str]:
    return frozenset(read_data("languages")["image_options"])


def _shown(written: str, shown: str | None, title: str) -> str:
    if shown is None:
        return written.strip().removeprefix(":").replace("_", " ")
    return shown if shown.strip() else _PARENTHESIS.sub("", title)  # an empty text is the pipe trick


@cache
def _link_patterns(lang: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    trail = language(lang).trail.pattern
    letters = f"({trail[:-1]}*+)" if trail else "()"
    simple = r"\[\[([^\[\]|{}<>\n\ue000-\ue004]*+)(?:\|([^\[\]]*+))?\]\]"
    return re.compile(rf"{simple}{letters}|\[\[(?!\[)|\]\]"), re.compile(letters)


def hide(text: str) -> str:
    """Take out comments and references; keep `<nowiki>`, `<pre>`, `<math>` as escaped text; galleries as file links."""
    if _MARK.search(text):
        text = text.translate(MARKS)
    if "<" not in text:
        return text
    pieces: list[str] = []
    unclosed: set[str] = set()
    place = 0
    while found := _REGION.search(text, place):
        pieces.append(text[place : found.start()])
        tag = (found[1] or "").lower()
        if not tag:
            end = text.find("-->", found.end())
            if end < 0:
                return "".join(pieces)
            place = end + 3
            if text.startswith("\n", place) and (found.start() == 0 or text[found.start() - 1] == "\n"):
                place += 1  # a comment alone on its line takes the line with it
            continue
        place = found.end()
        if found[2].endswith("/") or tag in unclosed:
            continue
        close = _closing(tag).search(text, place)
        if close is None:
            unclosed.add(tag)
            continue
        body = text[place : close.start()]
        place = close.end()
        if tag in _VERBATIM:
            pieces.append(body.translate(_ESCAPES) if tag == "nowiki" else body.strip().translate(_ESCAPES))
        elif tag == "gallery":
            pieces.append(_gallery(body))
    pieces.append(text[place:])
    return "".join(pieces)


@cache
def _closing(tag: str) -> re.Pattern[str]:
    return re.compile(rf"</{tag}\s*+>", re.IGNORECASE)


def _gallery(body: str) -> str:
    lines = []
    for line in body.splitlines():
        file, pipe, caption = line.strip().partition("|")
        if file.strip():
            name = file.strip() if ":" in file else f"File:{file.strip()}"
            lines.append(f"[[{name}|thumb|{caption}]]" if pipe and caption.strip() else f"[[{name}]]")
    return "\n\n" + "\n".join(lines) + "\n\n"


def tidy(text: str) -> str:
    """Drop quotes, tags and switches, and decode entities; marks stay."""
    if "<" in text:
        text = _TAG.sub("", _BREAKING.sub("\n", text))
    if "''" in text:
        text = _QUOTES.sub(_quotes, text)
    if "__" in text:
        text = _SWITCH.sub("", text)
    if "&" in text:
        text = _ENTITY.sub(_entity, text)
    return _SPACE.sub(" ", text)


def _quotes(found: re.Match[str]) -> str:
    size = len(found[0])
    return "'" * (1 if size == 4 else max(0, size - 5))


def _entity(found: re.Match[str]) -> str:
    return _CONTROL.sub("", html.unescape(found[0]))


def bold_names(lead: str) -> list[str]:
    """Bold texts of a lead (after `Markup.link`), in order."""
    names = []
    for found in _BOLD.finditer(lead):
        name = " ".join(plain(tidy(found[1])).split()).strip(" ,;:")
        if 1 < len(name) <= 200 and name not in names:
            names.append(name)
    return names


def plain(text: str) -> str:
    """Text without marks."""
    if not _MARK.search(text):
        return text
    return NOTE_MARK.sub("", LINK_MARK.sub(r"\2", text)).translate(MARKS)
