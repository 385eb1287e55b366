"""Untrusted text: what pages, titles, OCR and file names say must not act as markup of the conversation.

A page that contains `</tool_response>` or `<|im_end|>` would close the observation and speak as the user or the model;
`<|image_pad|>` makes a processor look for a picture that is not there. Every observation therefore
passes `scrub` at the tool boundary, before it is stored or tokenised. Three things happen, in this order:

1. characters that cannot be seen (controls, zero-width, bidirectional overrides, the tag block) go, so that they can
   neither hide text from a reader nor split a token in two;
2. angle brackets around anything that a chat template could mean become `‹ ›`: forms with bars (`<|…|>`, `<｜…｜>`,
   `<turn|>`), known tags with attributes, and every bare tag that is not an HTML element;
3. square brackets around the markers that some templates use (`[INST]`) become `⟦ ⟧`.

The inside stays readable, ordinary text (``a < b``, `vector<int>` aside, entities, any script) stays as it is, and
scrubbing twice changes nothing. Role names in plain prose ("USER:") are not control tokens and stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

# ------------------------------------------------------------------------------------ unseen characters

_CONTROLS = "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
_ZERO_WIDTH = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
)
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_MUSICAL = "\U0001d173-\U0001d17a"
_TAGS = "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"  # the tag block and its reserved neighbours; selectors apart
_UNSEEN = re.compile(f"[{_CONTROLS}{_ZERO_WIDTH}{_BIDI}{_MUSICAL}{_TAGS}]+")
_LINE_ENDS = re.compile("\r\n?|[\v\f\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_NONCHARACTERS = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")

_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d\u180f"
_SELECTABLE = (  # what a variation selector may follow: symbols, Myanmar, Mongolian, ideographs, emoji
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u24b5\u24ea-\u2bff\u3030\u303d\u3297\u3299\u1000-\u109f\u1800-\u180a"
    "\u1810-\u18af\u3400-\u9fff\uf900-\ufaff\U0001f000-\U0001faff\U00020000-\U0003fffd"
)
_STRAY_SELECTOR = re.compile(f"(?<![{_SELECTABLE}])(?!(?<=[0-9#*])\ufe0f\u20e3)[{_SELECTORS}]")

_JOINED = (  # scripts that need joiners, and emoji; none of these folds to ASCII
    "\u0600-\u061b\u061d-\u07ff\u0840-\u17b3\u17b6-\u180a\u1810-\u18af\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
    "\u2190-\u245f\u2500-\u2a73\u2a77-\u2bff\ufe0f\U0001f000-\U0001f0ff\U0001f300-\U0001faff"
)
_STRAY_JOINER = re.compile(f"(?<![{_JOINED}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}])")

# ------------------------------------------------------------------------------------- control markup


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_HTML = _set(
    "a abbr acronym address area article aside b base bdi bdo big blockquote body br button canvas caption center cite "
    "col colgroup dd del details dfn dialog dir div dl dt em embed fieldset figcaption figure font footer form frame "
    "frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe input ins kbd label legend li link map "
    "mark math menu meta meter nav nowiki noscript ol optgroup option p param poem pre progress q rp rt ruby "
    "samp script section select small span strike strong style sub sup svg table tbody td template textarea tfoot th "
    "thead time title tr track tt u ul var wbr"
)
"""HTML elements that no chat template uses as a token; bare tags of any other name are neutralised. Left out on
purpose: s, code, img, image, picture, audio, video, object, output, search, source, summary, data, main, slot."""

_TEMPLATE_TAGS = _set(
    "think thinking thought reasoning reflection tool tools tool_call tool_calls tool_response tool_responses "
    "tool_result tool_results tool_code tool_output function functions function_call function_calls function_results "
    "parameter invoke antml observation observations response answer final action action_input search information "
    "documents document result results code execute python output interpreter system user assistant human "
    "instructions bos eos pad unk mask image images img image_id video audio box ref quad point slice start_of_turn "
    "end_of_turn start_of_image end_of_image sys"
)
"""Tags that are neutralised even with spaces or attributes (`<function=search>`, `< think >`)."""

_SQUARE = _set(
    "INST SYS SYSTEM_PROMPT AVAILABLE_TOOLS TOOL_CALLS TOOL_RESULTS TOOL_CONTENT TOOL_CALL ARGS CALL_ID THINK IMG "
    "IMG_BREAK IMG_END BEGIN_AUDIO AUDIO TRANSCRIBE PREFIX MIDDLE SUFFIX MODEL_SETTINGS REASONING_EFFORT BOS EOS PAD "
    "UNK MASK CLS SEP gMASK sMASK eMASK dMASK BEGIN_OF_TEXT END_OF_TEXT"
)
"""Markers in square brackets: Mistral, BERT, GLM."""

_SQUARE_NUMBERED = re.compile(r"(?:unused|control_|UNUSED_TOKEN_)\d+|\|\w{3,}\|")
"""Numbered reserves of BERT, Mistral and InternLM; roles of EXAONE (`[|user|]`, unlike the norm in ``E[|x|]``)."""

_MINIMAX = frozenset({"]~b]", "]~b[", "]~!b[", "]~!b]", "[e~["})

_FOLD = str.maketrans("＜﹤＞﹥｜［﹇］﹈", "<<>>|[[]]")
"""Every character whose compatibility form is one of ``< > | [ ]``."""
_VISIBLE = str.maketrans("<＜﹤>＞﹥[［﹇]］﹈", "‹‹‹›››⟦⟦⟦⟧⟧⟧")
_MARKS = "‹›⟦⟧"  # what has been neutralised is never looked at again

_ANGLE = re.compile(f"<<?([^<>{_MARKS}]+)>>?")
_BRACKET = re.compile(rf"\[([^\[\]\s{_MARKS}]{{1,80}})\]")
_TILDED = re.compile(r"[\[\]](?=([~～][!！]?\S[\[\]]|\S[~～]\[))")  # looks ahead, for these may overlap
_BARRED = re.compile(r"/?\|[^\s|][^\s]*|[^\s]+\|")
_BARRED_WITH_ATTRIBUTES = re.compile(r"/?\|\S[^\n]*=[^\n]*")
_BARE = re.compile(r"/?(?:[^\W\d][\w:.\-▁+]*|0x[0-9A-Fa-f]+)/?")
_KNOWN = re.compile(
    r"\s*+(?:/\s*+)?([A-Za-z_]++)(?:\s*+/?\s*+|\s++\d++\s*+|\s*+[=:].*+|\s++[\w:\-]++\s*+=.*+)", re.DOTALL
)
_INVISIBLE_HERE = re.compile(f"[\u200c\u200d{_SELECTORS}]")


def scrub(text: str) -> str:
    r"""Text that cannot act as markup of any chat template, visibly changed where it could have.

    Idempotent, and linear in the length of `text`. Line ends become ``\n``; lone surrogates become U+FFFD.
    """
    text = _drop_unseen(text)
    folded = text.translate(_FOLD)
    if "<" in folded:
        text = _neutralise(text, folded, _ANGLE, _is_angle_control)
        folded = text.translate(_FOLD)
    if "[" in folded or "]" in folded:
        text = _neutralise(text, folded, _TILDED, _MINIMAX.__contains__)
        folded = text.translate(_FOLD)
        text = _neutralise(text, folded, _BRACKET, _is_square_control)
    return text


def scrub_line(text: str, max_chars: int = 300) -> str:
    """`scrub` for a title, an address or a sentence: one line, single spaces, cut with an ellipsis at `max_chars`.

    A single line cannot forge the block headings that observations are made of.
    """
    line = " ".join(scrub(text).split())
    return line if len(line) <= max_chars else line[: max_chars - 1].rstrip() + "…"


def cap(text: str, max_chars: int) -> str:
    """Cut `text` to about `max_chars` characters at a line or word end, and say how much is missing."""
    if len(text) <= max_chars:
        return text
    head = text[:max_chars]
    at = max(head.rfind("\n"), head.rfind(" "))
    head = head[:at] if at > max_chars * 0.8 else head
    return f"{head.rstrip()}\n[cut: {len(text) - len(head):,} of {len(text):,} characters left out]"


def _drop_unseen(text: str) -> str:
    if text.isascii():
        return _UNSEEN.sub("", _LINE_ENDS.sub("\n", text))
    if _SURROGATES.search(text):  # pairs become their character, lone ones U+FFFD
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = _NONCHARACTERS.sub("\ufffd", _LINE_ENDS.sub("\n", text))
    text = _STRAY_SELECTOR.sub("", _UNSEEN.sub("", text))
    return _STRAY_JOINER.sub("", text)


def _neutralise(text: str, folded: str, pattern: re.Pattern[str], is_control: Callable[[str], bool]) -> str:
    """Replace the brackets of every match of `pattern` in `folded` (same length as `text`) that is control markup."""
    parts: list[str] = []
    done = 0
    for match in pattern.finditer(folded):
        start, end = match.span()
        if not is_control(_canonical(text[start : max(end, match.end(1))])):
            continue
        parts += text[done:start], text[start:end].translate(_VISIBLE)
        done = end
    return "".join(parts) + text[done:] if parts else text


def _canonical(markup: str) -> str:
    """What a normalising tokenizer could make of `markup`."""
    return unicodedata.normalize("NFKC", _INVISIBLE_HERE.sub("", markup))


def _is_angle_control(markup: str) -> bool:
    inside = markup.strip("<>")
    if _BARE.fullmatch(inside):
        return inside.strip("/").lower() not in _HTML
    if _BARRED.fullmatch(inside) or _BARRED_WITH_ATTRIBUTES.fullmatch(inside):
        return True
    known = _KNOWN.fullmatch(inside)
    return known is not None and known[1].lower() in _TEMPLATE_TAGS


def _is_square_control(markup: str) -> bool:
    inside = markup[1:-1].removeprefix("/")
    return inside in _SQUARE or _SQUARE_NUMBERED.fullmatch(inside) is not None
