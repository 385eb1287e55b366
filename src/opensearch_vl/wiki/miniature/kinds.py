"""All kinds of entities in one table, and which kinds a relation's tag admits."""

from __future__ import annotations

from opensearch_vl.wiki.miniature.kinds_people import PEOPLE
from opensearch_vl.wiki.miniature.kinds_places import BUILDINGS, LOCATIONS
from opensearch_vl.wiki.miniature.kinds_things import ARTIFACTS, ORGANISATIONS, ORGANISMS
from opensearch_vl.wiki.miniature.schema import Kind, Relation

KINDS: tuple[Kind, ...] = (*PEOPLE, *BUILDINGS, *LOCATIONS, *ORGANISMS, *ARTIFACTS, *ORGANISATIONS)

_EXTRA_TAGS = {
    "finder": ("explorer", "scientist"),
    "sitter": ("person", "building", "mountain"),
    "water": ("river",),
    "exhibit": ("object", "artwork"),
    "novelty": ("object", "artwork", "organism"),
}
"""Tags that join others, so that the kinds themselves stay readable."""

RELATIONS: tuple[tuple[Kind, Relation], ...] = tuple((kind, relation) for kind in KINDS for relation in kind.relations)
"""Every relation with the kind it starts from; its place here is its number in `world.World`."""

FIRST_RELATION: tuple[int, ...] = tuple(
    sum(len(earlier.relations) for earlier in KINDS[:place]) for place in range(len(KINDS))
)
"""Number of the first relation of each kind."""


def kinds_with(tag: str) -> tuple[int, ...]:
    """Indices into `KINDS` of the kinds that `tag` admits."""
    wanted = {tag, *_EXTRA_TAGS.get(tag, ())}
    return tuple(place for place, kind in enumerate(KINDS) if wanted & {kind.name, *kind.tags})
