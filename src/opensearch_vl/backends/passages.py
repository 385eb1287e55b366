"""Local text search: BM25 over passages of an encyclopedia, in tantivy (the offline stand-in for a web search).

A page becomes passages of 100-150 words, its infobox lines one (or more) of them; each carries the title and the other
names of the page in fields of their own. The whole query decides on the page, the words that are not its name on the
passage within it: "Foo Hall architect" finds the passage of *Foo Hall* that speaks of an architect. The index is
memory-mapped. Text is folded before it is indexed (accents, case), words are stemmed when the edition's language has
a stemmer, and a query is a bag of such words: no character in it can be a syntax error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opensearch_vl.backends.corpus import Progress, WikiPages, building, read_manifest, write_manifest
from opensearch_vl.backends.sentences import STOPWORDS, Piece, passages, terms
from opensearch_vl.errors import DataError, StorageFull
from opensearch_vl.protocols import Passage

if TYPE_CHECKING:
    import tantivy

TITLE_BOOST = 1.1
"""Weight of a word of the title against one of the passage. Higher favours names over sentences (docs/log.md)."""
ALIAS_BOOST = 1.0
MAX_QUERY_TERMS = 64
"""Words of a query that count; a model that pastes a page gets an answer in bounded time."""
WHOLE_NAME_BONUS = 4.0
"""Score a page gets when the query speaks its whole title or alias: about the weight of one rare word."""
MAX_NAME_WORDS = 6
MAX_TOP_K = 100
_TIE_BREAKER = 0.1
_MAX_QUERY_CHARS = 4000
_MAX_WORD = 64
_HEAP_BYTES = 128_000_000
_KIND = "passage"
_ANALYSER = "osvl"
_STEMMERS = {
    "ar": "arabic",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "simple": "english",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}


class LocalSearch:
    """BM25 passage search over a folder made by `build`.

    Args:
        path: The index.
        exclude: Pages that must not be found: page ids or addresses (the blinded expert's answer pages).

    Raises:
        DataError: `path` is not a passage index.
    """

    name = "local_bm25"

    def __init__(self, path: Path | str, *, exclude: Iterable[int | str] = ()) -> None:
        import tantivy

        self.path = Path(path)
        facts = read_manifest(self.path, _KIND)
        try:
            self._index = tantivy.Index.open(str(self.path / "tantivy"))
        except ValueError as error:
            raise DataError(f"The passage index {self.path} is damaged: {error}.", "Build it again.") from error
        self._analyser = _analyser(facts.get("stemmer", ""))
        self._index.register_tokenizer(_ANALYSER, self._analyser)
        self._searcher = self._index.searcher()
        self._hidden_ids = frozenset(item for item in exclude if isinstance(item, int))
        self._hidden_urls = frozenset(item for item in exclude if isinstance(item, str))

    @classmethod
    def build(cls, wiki: WikiPages, out: Path | str, *, progress: Progress | None = None) -> LocalSearch:
        """Index every page of `wiki` into the folder `out`, atomically.

        One writer thread, so that the same wiki gives the same order of documents.

        Raises:
            DataError: `out` holds something else than an older passage index.
            StorageFull: The disk is full.
        """
        import tantivy

        out = Path(out)
        stemmer = _STEMMERS.get(str(wiki.meta.get("lang", "")), "")
        with building(out, _KIND) as scratch:
            folder = scratch / "tantivy"
            folder.mkdir()
            index = tantivy.Index(_schema(), path=str(folder), reuse=False)
            index.register_tokenizer(_ANALYSER, _analyser(stemmer))
            writer = index.writer(heap_size=_HEAP_BYTES, num_threads=1)
            num_passages = 0
            try:
                for done, page in enumerate(wiki.pages(), 1):
                    for fields in _documents(wiki, page.page_id, page.title):
                        writer.add_document(tantivy.Document(**fields))
                        num_passages += 1
                    if progress is not None and (done % 256 == 0 or done == len(wiki)):
                        progress(done, len(wiki))
                writer.commit()
                writer.wait_merging_threads()
            except ValueError as error:  # what tantivy raises for a failed write
                raise StorageFull(f"Could not write the index {out}: {error}.", "Free some space.") from error
            write_manifest(scratch, _KIND, {"pages": len(wiki), "passages": num_passages, "stemmer": stemmer})
        return cls(out)

    async def search(self, query: str, top_k: int, lang: str = "en") -> list[Passage]:
        """The best passage of each of the `top_k` best pages; `lang` is ignored, an index has one language."""
        return await asyncio.to_thread(self.search_now, query, top_k)

    def search_now(self, query: str, top_k: int) -> list[Passage]:
        """`search` for callers without an event loop."""
        spoken = [word[:_MAX_WORD] for word in terms(query[:_MAX_QUERY_CHARS])][:MAX_QUERY_TERMS]
        wanted = min(top_k, MAX_TOP_K)
        if not spoken or wanted <= 0:
            return []
        parsed = self._query(spoken)
        limit = max(64, 8 * wanted)
        while True:
            hits = self._searcher.search(parsed, limit=limit, count=False).hits
            ranked = self._best_per_page(hits)
            # Ties are broken by page id, so the cut must not fall inside a run of equal scores.
            settled = len(hits) < limit or (len(ranked) > wanted and ranked[wanted - 1][0] > hits[-1][0])
            if settled:
                return [self._passage(score, self._telling(page, spoken, at)) for score, page, at in ranked[:wanted]]
            limit *= 4

    def _query(self, spoken: list[str]) -> tantivy.Query:
        import tantivy

        query = tantivy.Query

        def in_field(field: str, word: str, boost: float) -> tantivy.Query:
            return query.boost_query(query.term_query(self._index.schema, field, word, "freq"), boost)

        # A word counts where it weighs most, not once per field: else the opening, which repeats the page's name,
        # would beat the infobox line that answers the rest of the query.
        clauses = [
            query.disjunction_max_query(
                [
                    in_field("name", word, TITLE_BOOST),
                    in_field("alias", word, ALIAS_BOOST),
                    in_field("body", word, 1.0),
                ],
                _TIE_BREAKER,
            )
            for word in dict.fromkeys(self._analyser.analyze(" ".join(spoken)))
        ]
        whole_names = [
            query.const_score_query(query.term_query(self._index.schema, "whole_name", key, "basic"), WHOLE_NAME_BONUS)
            for key in _runs(spoken)
        ]
        return query.boolean_query([(tantivy.Occur.Should, clause) for clause in clauses + whole_names])

    def _best_per_page(self, hits: list[tuple[float, Any]]) -> list[tuple[float, int, Any]]:
        addresses = [address for _, address in hits]
        pages = self._searcher.fast_field_values("page_id", addresses)
        ords = self._searcher.fast_field_values("ord", addresses)
        rows = sorted(
            (-score, int(page), int(order), number)
            for number, ((score, _), page, order) in enumerate(zip(hits, pages, ords, strict=True))
        )
        best: dict[int, tuple[float, int, Any]] = {}
        for negative, page, _, number in rows:
            if page not in best and not self._hidden(page, addresses[number]):
                best[page] = (-negative, page, addresses[number])
        return list(best.values())

    def _telling(self, page_id: int, spoken: list[str], address: Any) -> Any:
        """The passage of a page that says most about the words of the query that are not the page's name.

        The opening of a page repeats its name and so tends to win by the whole query, even over the very infobox line
        that is asked for.
        """
        import tantivy

        query = tantivy.Query
        named = set(self._analyser.analyze(_folded(_stored(self._searcher.doc(address), "title"))))
        meant = " ".join(word for word in spoken if word not in STOPWORDS)
        asked = [word for word in dict.fromkeys(self._analyser.analyze(meant)) if word not in named]
        if not asked:
            return address
        schema = self._index.schema
        clauses = [
            (tantivy.Occur.Should, query.term_query(schema, field, word, "freq"))
            for word in asked
            for field in ("body", "label")  # a word in the label of an infobox line counts twice
        ]
        here = query.const_score_query(query.term_query(schema, "page_id", page_id), 0.0)
        within = query.boolean_query([(tantivy.Occur.Must, here), (tantivy.Occur.Must, query.boolean_query(clauses))])
        hits = self._searcher.search(within, limit=16, count=False).hits
        if not hits:
            return address
        ords = self._searcher.fast_field_values("ord", [at for _, at in hits])
        return min(zip(hits, ords, strict=True), key=lambda pair: (-pair[0][0], pair[1]))[0][1]

    def _hidden(self, page_id: int, address: Any) -> bool:
        if page_id in self._hidden_ids:
            return True
        return bool(self._hidden_urls) and _stored(self._searcher.doc(address), "url") in self._hidden_urls

    def _passage(self, score: float, address: Any) -> Passage:
        document = self._searcher.doc(address)
        return Passage(
            title=_stored(document, "title"),
            url=_stored(document, "url"),
            text=_stored(document, "text"),
            score=float(score),
        )


def _stored(document: tantivy.Document, field: str) -> str:
    return bytes(document.get_first(field)).decode("utf-8")


def _schema() -> tantivy.Schema:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("page_id", fast=True, indexed=True)
    builder.add_integer_field("ord", fast=True)
    for stored in ("title", "url", "text"):
        builder.add_bytes_field(stored, stored=True)  # as bytes: a text field would be indexed as well
    for indexed in ("name", "alias", "body", "label"):
        builder.add_text_field(indexed, tokenizer_name=_ANALYSER, index_option="freq")
    builder.add_text_field("whole_name", tokenizer_name="raw", index_option="basic")
    return builder.build()


def _analyser(stemmer: str) -> tantivy.TextAnalyzer:
    import tantivy

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    return (builder.filter(tantivy.Filter.stemmer(stemmer)) if stemmer else builder).build()


def _documents(wiki: WikiPages, page_id: int, title: str) -> Iterable[dict[str, Any]]:
    """One row per passage; a page without text still has one, so that its name can be found."""
    aliases = wiki.aliases(page_id)
    shared = {
        "page_id": page_id,
        "title": _bytes(title),
        "url": _bytes(wiki.url(page_id)),
        "name": _folded(title),
        "alias": _folded(" ".join(aliases)),
        "whole_name": list({_folded(name) for name in (title, *aliases)}),
    }
    pieces = list(passages(wiki.document(page_id), has_infobox=len(wiki.infobox(page_id)) > 0))
    for order, piece in enumerate(pieces or [Piece(title, infobox=False)]):
        labels = [line.partition(":")[0] for line in piece.text.splitlines()] if piece.infobox else []
        yield {
            **shared,
            "ord": order,
            "text": _bytes(piece.text),
            "body": _folded(piece.text),
            "label": _folded(" ".join(labels)),
        }


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _runs(spoken: list[str]) -> list[str]:
    """Every contiguous run of up to `MAX_NAME_WORDS` words: what could be the whole name of a page."""
    return list(
        dict.fromkeys(
            " ".join(spoken[start : start + size])
            for size in range(1, MAX_NAME_WORDS + 1)
            for start in range(len(spoken) - size + 1)
        )
    )


def _folded(text: str) -> str:
    return " ".join(word[:_MAX_WORD] for word in terms(text))
