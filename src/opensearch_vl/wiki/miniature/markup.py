"""Wikitext building blocks: links in every spelling, lists, templates, and the hazards real pages are full of."""

from __future__ import annotations

import random

LIST_STYLES = ("br", "ubl", "plainlist", "comma", "hlist")
_CITED = (
    "Annals of the Provinces",
    "The Traveller's Handbook",
    "Proceedings of the Learned Society",
    "Register of Works",
)


def link(title: str, text: str | None = None, section: str = "") -> str:
    """``[[title]]``, ``[[title|text]]`` or ``[[title#section|text]]``."""
    target = f"{title}#{section}" if section else title
    return f"[[{target}]]" if text is None or text == target else f"[[{target}|{text}]]"


def listing(items: list[str], style: str) -> str:
    """Several values of one infobox parameter, in one of `LIST_STYLES`; a single one stands alone."""
    if len(items) == 1:
        return items[0]
    match style:
        case "ubl":
            return "{{ubl|" + "|".join(items) + "}}"
        case "hlist":
            return "{{hlist|" + " | ".join(items) + "}}"
        case "plainlist":
            return "{{plainlist|\n" + "\n".join(f"* {item}" for item in items) + "\n}}"
        case "comma":
            return ", ".join(items)
        case _:
            return "<br />".join(items) if len(items) % 2 else "<br>".join(items)


def enumeration(items: list[str]) -> str:
    """``A``, ``A and B``, ``A, B and C``."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def infobox(template: str, parameters: list[tuple[str, str]], rng: random.Random) -> str:
    """A template call, one parameter a line, aligned or not, with an empty parameter now and then."""
    width = max(len(key) for key, _ in parameters) if rng.random() < 0.5 else 0
    lines = [f"| {key:<{width}} = {value}" for key, value in parameters]
    if rng.random() < 0.3:
        lines.insert(rng.randint(1, len(lines)), f"| {'footnotes':<{width}} = ")
    if rng.random() < 0.15:
        lines.insert(rng.randint(1, len(lines)), "<!-- | caption_old = not used any more, see talk -->")
    name = template if rng.random() < 0.9 else template[0].lower() + template[1:]
    return "{{" + name + "\n" + "\n".join(lines) + "\n}}"


def reference(rng: random.Random, year: int) -> str:
    """A footnote: a citation template, a bare external link, or a repeated named one."""
    book, page = rng.choice(_CITED), rng.randint(3, 480)
    match rng.randrange(4):
        case 0:
            return f"<ref>{{{{cite book |title={book} |year={year} |page={page}}}}}</ref>"
        case 1:
            return f'<ref name="r{page}">{book}, vol.&nbsp;{page % 30 + 1}, p.&nbsp;{page}.</ref>'
        case 2:
            return f"<ref>[https://archive.invalid/item/{page} ''{book}''], retrieved 3 March 2021</ref>"
        case _:
            return '<ref name="register" />'


def hazard(rng: random.Random, title: str, missing: str) -> str:
    """A sentence or remark whose markup must not confuse a reader: no hazard states a fact or a true link.

    Args:
        rng: Random generator of the page.
        title: Title of the page itself, for self links.
        missing: A title that no page has, for red links.
    """
    match rng.randrange(9):
        case 0:
            return f"<!-- a link to [[{missing}]] was removed here; [[Category:Wrong]] too -->"
        case 1:
            return f"Editors write such names as <nowiki>[[{missing}|'''name''']] {{{{ubl|a|b}}}}</nowiki> in drafts."
        case 2:
            return f"The spelling ''{missing}''&nbsp;– with an en&nbsp;dash – is '''wrong''', see [[{missing}]]."
        case 3:
            return f"See [[#History|above]] for what [[{title}]] owes to [[:fr:{missing}|its French namesake]]."
        case 4:
            return f"A description is on [https://register.invalid/{rng.randint(100, 999)} the register's page]."
        case 5:
            return f"{{{{efn|1=Sources differ {{{{nowrap|by a {{{{abbr|yr.|year}}}}}}}}, compare [[{missing}]].}}}}"
        case 6:
            return f"<math>a^{{2}}+b^{{2}}=c^{{2}}</math> appears on the margin<sup>{rng.randint(1, 9)}</sup>."
        case 7:
            return "{{clear}}"
        case _:
            return f"<code>[[{missing}]]</code> &amp; <small>other marks</small>: see the [[Help:Contents|help]]."


def table(rng: random.Random, caption: str, rows: list[tuple[str, str]]) -> str:
    """A wikitable with a caption, a header row and cells that hold links."""
    body = "".join(f"|-\n| {left} || {right}\n" for left, right in rows)
    style = rng.choice(('class="wikitable"', 'class="wikitable sortable" style="text-align:right"'))
    return f"{{| {style}\n|+ {caption}\n! Entry !! Note\n{body}|}}"
