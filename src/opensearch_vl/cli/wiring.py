"""Builds the local tool environment out of backends: the one place where protocols meet implementations."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opensearch_vl.images import ImageStore
    from opensearch_vl.protocols import ImageIndex, OcrEngine, PageReader, SearchEngine, Summariser, Tool, Upscaler
    from opensearch_vl.questions.build import QuestionTools
    from opensearch_vl.questions.facts import Facts
    from opensearch_vl.questions.writer import LlmWriter
    from opensearch_vl.rl.retelling import Retelling
    from opensearch_vl.tools.toolbox import Toolbox
    from opensearch_vl.wiki.tables import WikiFolder


_OCR_WORKERS = min(4, os.cpu_count() or 1)
"""One picture per core beats several threads on one picture: most of a picture's time has no parallel part."""

_WIKI_LEAST_SIDE_PX = 512
"""Pictures of seeds have at least 512 pixels (paper, section 3.1), so none has to be enlarged to be read."""


@dataclass(frozen=True, slots=True)
class World:
    """A wiki with its indexes, and the engines that tools use on it."""

    wiki: WikiFolder
    search: SearchEngine
    image_index: ImageIndex
    reader: PageReader
    ocr: OcrEngine
    upscaler: Upscaler
    summariser: Summariser

    index_dir: Path

    def without(self, pages: frozenset[int]) -> World:
        """The same world with some pages hidden from both indexes (used to blind the expert)."""
        from opensearch_vl.backends.passages import LocalSearch

        return replace(
            self,
            search=LocalSearch(self.index_dir / "passages", exclude=pages),
            image_index=_image_index(self.index_dir / "pictures", pages),
        )


def build_indexes(wiki: WikiFolder, out: Path | None = None, checkpoint: Path | None = None) -> Path:
    """Build the passage and picture indexes of a wiki where they are missing; returns their folder (WIKI/index).

    Args:
        wiki: What is indexed.
        out: Where to; default WIKI/index.
        checkpoint: A CLIP-class checkpoint folder, for an index of pictures by their embeddings instead of local
            features; an index of the other kind is replaced.
    """
    from opensearch_vl.backends.corpus import kind_of, read_manifest
    from opensearch_vl.backends.image_index import LocalImageIndex
    from opensearch_vl.backends.passages import LocalSearch

    folder = out or wiki.root / "index"
    if not (folder / "passages").exists():
        LocalSearch.build(wiki, folder / "passages")
    if checkpoint is not None:
        from opensearch_vl.backends.embedder import TransformersEmbedder
        from opensearch_vl.backends.embedding_index import KIND, EmbeddingImageIndex

        embedder = TransformersEmbedder(checkpoint)
        kind = kind_of(folder / "pictures")
        if kind == "image":
            shutil.rmtree(folder / "pictures")
        if kind != KIND or read_manifest(folder / "pictures", KIND)["embedder"] != embedder.fingerprint:
            EmbeddingImageIndex.build(wiki, folder / "pictures", embedder)
    elif not (folder / "pictures").exists():
        LocalImageIndex.build(wiki, folder / "pictures")
    return folder


def local_world(wiki_dir: Path, index_dir: Path | None = None) -> World:
    """Open a wiki and its indexes (WIKI/index), which are built where they are missing.

    Raises:
        DataError: If `wiki_dir` is not a wiki folder.
    """
    from opensearch_vl.backends.ocr import RapidOcr
    from opensearch_vl.backends.passages import LocalSearch
    from opensearch_vl.backends.readers import WikiPageReader
    from opensearch_vl.backends.summarise import ExtractiveSummariser
    from opensearch_vl.backends.upscale import LanczosUpscaler
    from opensearch_vl.wiki.tables import WikiFolder

    wiki = WikiFolder(wiki_dir)
    index = build_indexes(wiki, index_dir)
    return World(
        wiki=wiki,
        search=LocalSearch(index / "passages"),
        image_index=_image_index(index / "pictures"),
        reader=WikiPageReader(wiki),
        ocr=RapidOcr(workers=_OCR_WORKERS, threads=1, least_side_px=_WIKI_LEAST_SIDE_PX),
        upscaler=LanczosUpscaler(),
        summariser=ExtractiveSummariser(),
        index_dir=index,
    )


def _image_index(folder: Path, exclude: frozenset[int] = frozenset()) -> ImageIndex:
    """The index of pictures, by what it was built with."""
    from opensearch_vl.backends.corpus import kind_of, read_manifest
    from opensearch_vl.backends.embedding_index import KIND, EmbeddingImageIndex
    from opensearch_vl.backends.image_index import LocalImageIndex

    if kind_of(folder) != KIND:
        return LocalImageIndex(folder, exclude=exclude)
    from opensearch_vl.backends.embedder import TransformersEmbedder

    embedder = TransformersEmbedder(Path(read_manifest(folder, KIND)["checkpoint"]))
    return EmbeddingImageIndex(folder, embedder, exclude=exclude)


def toolbox(world: World, store: ImageStore, *, visit: bool = False, brief: bool = False) -> Toolbox:
    """The seven tools of the paper on a local world (`visit` adds the page reader; `brief` is for small contexts)."""
    from opensearch_vl.tools.standard import ToolSettings, standard_tools
    from opensearch_vl.tools.toolbox import Toolbox

    tools = standard_tools(
        search=world.search,
        image_index=world.image_index,
        ocr=world.ocr,
        upscaler=world.upscaler,
        summariser=world.summariser,
        reader=world.reader if visit else None,
        settings=ToolSettings(brief=brief),
    )
    return Toolbox(tools, store)


def question_tools(
    world: World,
    store: ImageStore,
    facts: Facts,
    *,
    writer: LlmWriter | None = None,
    ocr: bool = True,
    checkpoint: Path | None = None,
) -> QuestionTools:
    """What question building uses of a local world; the filter tries no tool, then one image search (paper, 3.6).

    Args:
        world: The wiki and its engines.
        store: Pictures of the questions, degraded ones included, with the wiki's own behind them.
        facts: The wiki's infobox table.
        writer: A language model that words the questions; None leaves it to the rules.
        ocr: Whether lettering is read at all.
        checkpoint: A CLIP-class checkpoint that ranks an anchor's pictures (paper, 3.4). Without one the infobox
            picture comes first, and the provenance of a question says that no similarity was measured.
    """
    from opensearch_vl.questions.build import QuestionTools
    from opensearch_vl.questions.solvers import GuessCommonValue, OneImageSearch, common_values
    from opensearch_vl.scoring.judges import ExactJudge

    embedder = None
    if checkpoint is not None:
        from opensearch_vl.backends.embedder import TransformersEmbedder

        embedder = TransformersEmbedder(checkpoint)
    return QuestionTools(
        embedder=embedder,
        writer=writer,
        judge=ExactJudge(),
        filters=(GuessCommonValue(common_values(facts)), OneImageSearch(world.image_index, store)),
        image_index=world.image_index,
        ocr=world.ocr if ocr else None,
        upscaler=world.upscaler,
    )


def ask_tools(
    wiki_dir: Path | None, index_dir: Path | None, web: bool, store: ImageStore, brief: bool = False
) -> Toolbox:
    """Tools for `osvl ask`: image tools and OCR always; search over a wiki or the web where one is named.

    Args:
        wiki_dir: Wiki folder, if one is searched.
        index_dir: Its indexes.
        web: Whether the web is searched.
        store: Pictures of the conversations.
        brief: For models with little room: results of a wiki in short, and no `visit`.

    Raises:
        UsageError: If both or a half of a wiki are named.
        DataError: If the wiki or its indexes are not there.
    """
    from opensearch_vl.errors import UsageError

    if web and wiki_dir is not None:
        raise UsageError("--web and --wiki exclude each other.", "Give one of them.")
    if web:
        return _web_toolbox(store)
    if wiki_dir is not None:
        return toolbox(local_world(wiki_dir, index_dir), store, visit=True, brief=brief)
    if index_dir is not None:
        raise UsageError("--index goes with --wiki.")
    return _picture_toolbox(store)


def _picture_toolbox(store: ImageStore) -> Toolbox:
    from opensearch_vl.tools.toolbox import Toolbox

    return Toolbox(_picture_tools(), store)


def _picture_tools() -> tuple[Tool, ...]:
    from opensearch_vl.backends.ocr import RapidOcr
    from opensearch_vl.backends.upscale import LanczosUpscaler
    from opensearch_vl.tools.ocr import LayoutParsingTool
    from opensearch_vl.tools.visual import CropTool, PerspectiveTool, SharpenTool, SuperResolutionTool

    return (
        LayoutParsingTool(RapidOcr()),
        CropTool(),
        SharpenTool(),
        SuperResolutionTool(LanczosUpscaler()),
        PerspectiveTool(),
    )


def _web_toolbox(store: ImageStore) -> Toolbox:
    """Picture tools, web search by whichever service has a key, and pages behind the address guard.

    There is no reverse image search on the web without an upload: services take only public addresses.
    """
    from opensearch_vl.backends.summarise import ExtractiveSummariser
    from opensearch_vl.backends.web import HttpPageReader
    from opensearch_vl.tools.retrieval import TextSearchTool, VisitTool
    from opensearch_vl.tools.toolbox import Toolbox

    summariser = ExtractiveSummariser()
    search = TextSearchTool(_web_search(), summariser)
    return Toolbox((search, VisitTool(HttpPageReader(), summariser), *_picture_tools()), store)


def _web_search() -> SearchEngine:
    from opensearch_vl.backends.web_search import BraveSearch, SearxngSearch, SerperSearch
    from opensearch_vl.errors import UsageError
    from opensearch_vl.redaction import env

    if env("SERPER_API_KEY"):
        return SerperSearch()
    if env("BRAVE_API_KEY"):
        return BraveSearch()
    if url := env("OSVL_SEARXNG_URL"):
        return SearxngSearch(url)
    raise UsageError(
        "--web needs a search service.", "Put SERPER_API_KEY, BRAVE_API_KEY or OSVL_SEARXNG_URL into .env."
    )


def retelling_of(wiki: WikiFolder) -> Retelling:
    """Other names for the rollouts of training, made of those in an encyclopedia."""
    from opensearch_vl.rl.retelling import Retelling
    from opensearch_vl.sft.renaming import Names

    return Retelling(Names.found_in((page.title, wiki.document(page.page_id)) for page in wiki.pages()))
