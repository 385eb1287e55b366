"""Fixtures: a small wiki in memory."""

import pytest
from PIL import Image
from questions.worlds import MemoryWiki, zoo_entries

from opensearch_vl.images import ImageStore


@pytest.fixture
def store(tmp_path):
    return ImageStore(tmp_path / "images")


@pytest.fixture
def make_wiki(store):
    def make(entries, pictures=()):
        return MemoryWiki(entries, store, pictures)

    return make


@pytest.fixture
def zoo(make_wiki, store):
    picture = store.put(Image.effect_noise((520, 520), 40).convert("RGB"))
    return make_wiki(zoo_entries(), {"Orla Zoo": (picture,)})
