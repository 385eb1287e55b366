"""Settings of question building. The paper's values are the defaults where it gives them (section 3)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from opensearch_vl.config import Config
from opensearch_vl.wiki.walks import WalkRules

Bound = Annotated[int, Field(ge=1)] | Literal["auto"]
"""A number of pages; `auto` grows with the wiki (see `pages_bound`)."""
AUTO_SHARE, AUTO_LEAST, AUTO_MOST = 0.02, 10, 40
"""What `auto` means: 2 % of the pages, within these bounds. With 40 on the 2,000-page miniature one text search solves
3 % of the questions; with 20, 5 % (docs/log.md)."""


def pages_bound(bound: Bound, num_pages: int) -> int:
    """The number that a bound stands for on a wiki of `num_pages`."""
    return min(AUTO_MOST, max(AUTO_LEAST, int(AUTO_SHARE * num_pages))) if bound == "auto" else bound


class AnswerSettings(Config):
    """What may be asked for.

    Attributes:
        max_tokens: Longest answer in words (paper, section 3.2: at most six).
        max_shared: A value that more pages than this state under the same key can be guessed: refused.
        max_share: The same as a fraction of the pages that have the key; the larger of the two bounds counts.
        min_key_pages: A key that fewer pages hold narrows a search by itself: not asked for.
        allow_linked: Whether a value that is itself a link to a page may be the answer.
        obfuscate: How often the answer side is obfuscated (paper, section 3.3: "now and then"), in [0, 1].
        source: Where answers come from: the `infobox`, by rules; a language model that reads the page (`llm`); or the
            model only where the infobox has none (`infobox_then_llm`). The paper allows infobox and lead (section 3.2).
    """

    max_tokens: int = Field(6, ge=1)
    max_shared: int = Field(3, ge=1)
    max_share: float = Field(0.005, ge=0, le=1)
    min_key_pages: Bound = "auto"
    allow_linked: bool = False
    obfuscate: float = Field(0.1, ge=0, le=1)
    source: Literal["infobox", "infobox_then_llm", "llm"] = "infobox"


class FuzzSettings(Config):
    """How names become descriptors.

    Attributes:
        max_attributes: How many attributes may be added to a relation until exactly one entity fits.
        min_shared: The added attributes, taken together and without the relation, must fit at least this many pages of
            the whole table: they tell candidates apart next to the anchor but find no page by themselves.
        use_prose: Keep hops that only prose states (needs an LLM writer); their exactness is `not_applicable`.
    """

    max_attributes: int = Field(2, ge=0)
    min_shared: Bound = "auto"
    use_prose: bool = False


class AnchorSettings(Config):
    """The picture (paper, section 3.4).

    Attributes:
        required: Whether a question needs a picture, as in the paper. If not, an anchor whose page has none keeps its
            name in the question, which is then *ungrounded* and counted as such.
        max_candidates: How many pictures of the page are ranked.
        min_similarity: CLIP similarity below which a candidate is refused; only used with an embedder. The paper's
            0.28 is for CLIP; the cosines of SigLIP models lie lower and need another value.
        min_image_px: Shortest side; None takes the threshold that the walks resolved to.
        tie_margin: A look-alike whose score in reverse image search is this close to the anchor's own counts as a tie.
        letters_ratio: Share of a name's letters that OCR must get right for the name to count as read.
        max_hash_distance: Pictures whose 64-bit hashes (`likeness`) differ in so many bits or fewer are
            near-duplicates; -1 lets them pass. Errors of both kinds by distance: docs/log.md.
    """

    required: bool = True
    max_candidates: int = Field(8, ge=1)
    min_similarity: float = 0.28
    min_image_px: int | None = None
    tie_margin: float = Field(0.05, ge=0, le=1)
    letters_ratio: float = Field(0.85, ge=0, le=1)
    max_hash_distance: int = Field(4, ge=-1, le=64)


class ScreenSettings(Config):
    """The two-stage filter (paper, section 3.6): dropped if any of `attempts` tries is judged right."""

    enabled: bool = True
    attempts: int = Field(1, ge=1)


def _strengths(least: float, most: float, num: int) -> tuple[float, ...]:
    """`num` strengths from `least` to `most`, each stronger than the one before by the same factor."""
    return tuple(round(least * (most / least) ** (n / (num - 1)), 3) for n in range(num))


class DegradeSettings(Config):
    """The enhancement subset (paper, section 3.7: 10 %). Strengths go from weak to strong.

    Neighbouring strengths differ by 5 to 7 %: how much lettering bears before it cannot be read, and how much the tool
    still gives back, often lie closer together than the 15 to 30 % of an earlier, coarser list (docs/log.md).
    """

    fraction: float = Field(0.1, ge=0, le=1)
    blur_sigma_px: tuple[float, ...] = _strengths(0.8, 14.0, 43)
    downsample: tuple[float, ...] = _strengths(1.5, 24.0, 41)
    perspective: tuple[float, ...] = _strengths(0.25, 0.7, 20)


class QuestionSettings(Config):
    """All of question building.

    Attributes:
        walks: Rules of the walks.
        shallow_first_hop: Keep two-hop paths whose first bridge is named in the opening of the anchor's page. Off by
            default: a reverse image search shows that opening, so the path would be one hop deep for whoever reads it.
        opening_chars: How much of a page a reverse image search shows.
        max_per_picture: How many questions may share one picture.
        max_per_answer_page: How many questions may end at one page; the same attribute is never asked of it twice.
        parallel: Walks that may wait for models at once. Part of the result: a draft sees what the walks before these
            have used up.
    """

    walks: WalkRules = WalkRules()
    answer: AnswerSettings = AnswerSettings()
    fuzz: FuzzSettings = FuzzSettings()
    anchor: AnchorSettings = AnchorSettings()
    screen: ScreenSettings = ScreenSettings()
    degrade: DegradeSettings = DegradeSettings()
    shallow_first_hop: bool = False
    opening_chars: int = Field(600, ge=0)
    max_per_picture: int = Field(1, ge=1)
    max_per_answer_page: int = Field(3, ge=1)
    parallel: int = Field(1, ge=1)
    give_up_after: int = Field(3, ge=1)
