import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.wiki.language import interwiki_prefixes, language, read_data
from opensearch_vl.wiki.titles import Site, TargetKind, base_prefix, main_page

SITE = Site(
    lang="de",
    base="https://de.example.org/wiki/",
    namespaces={"datei": 6, "kategorie": 14, "benutzer": 2, "kategorie diskussion": 15},
)


@pytest.mark.parametrize(
    ("target", "kind", "title"),
    [
        ("bus stop", TargetKind.ARTICLE, "Bus stop"),
        ("bus__stop ", TargetKind.ARTICLE, "Bus stop"),
        (":bus", TargetKind.ARTICLE, "Bus"),
        ("bus#part", TargetKind.ARTICLE, "Bus"),
        ("#part", TargetKind.SECTION, ""),
        ("datei:x y.png", TargetKind.FILE, "X y.png"),
        ("Image:x.png", TargetKind.FILE, "X.png"),
        ("KATEGORIE:Bus", TargetKind.CATEGORY, "Bus"),
        ("Kategorie Diskussion:Bus", TargetKind.NAMESPACE, "Bus"),
        ("Spezial: x", TargetKind.ARTICLE, "Spezial: x"),
        ("Special:Search", TargetKind.NAMESPACE, "Search"),
        ("en:Bus", TargetKind.INTERWIKI, "Bus"),
        ("WIKT:bus", TargetKind.INTERWIKI, "bus"),
        ("2001: A Space Odyssey", TargetKind.ARTICLE, "2001: A Space Odyssey"),
        ("AT&amp;T", TargetKind.ARTICLE, "AT&T"),
        ("Stra%C3%9Fe", TargetKind.ARTICLE, "Straße"),
        ("100 %", TargetKind.ARTICLE, "100 %"),
        ("ßtraße", TargetKind.ARTICLE, "ßtraße"),
        ("\u200ebus\u200f", TargetKind.ARTICLE, "Bus"),
        ("e\u0301lan", TargetKind.ARTICLE, "Élan"),
        ("", TargetKind.INVALID, ""),
        ("a[b", TargetKind.INVALID, ""),
        ("a\nb", TargetKind.INVALID, ""),
        ("x" * 256, TargetKind.INVALID, ""),
        ("__", TargetKind.INVALID, ""),
    ],
)
def test_targets(target: str, kind: TargetKind, title: str) -> None:
    found = SITE.parse(target)
    assert (found.kind, found.title) == (kind, title)


def test_first_letter_rules_of_languages() -> None:
    assert Site(lang="tr").normalise("istanbul") == "İstanbul"
    assert Site(lang="en").normalise("istanbul") == "Istanbul"
    assert Site(lang="ka").normalise("თბილისი") == "თბილისი"
    assert Site(lang="en", first_letter=False).normalise("iPod") == "iPod"


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("https://ltg.wikipedia.org/wiki/Suoku_puslopa", "https://ltg.wikipedia.org/wiki/"),
        ("https://pt.wikipedia.org/wiki/A/B", "https://pt.wikipedia.org/wiki/"),
        ("https://x.org/w/index.php?title=Main_Page", "https://x.org/w/index.php?title="),
        ("https://x.org/Main_Page", "https://x.org/"),
        ("https://x.org", "https://x.org/"),
    ],
)
def test_base_prefix(address: str, prefix: str) -> None:
    assert base_prefix(address) == prefix


def test_main_page() -> None:
    assert main_page("https://ltg.wikipedia.org/wiki/Suoku_puslopa") == "Suoku puslopa"
    assert main_page("https://x.org/w/index.php?title=P%C3%A1gina_principal") == "Página principal"
    assert main_page("") == ""


def test_addresses_of_other_wikis_are_refused() -> None:
    assert SITE.title_at("https://de.example.org/wiki/Bus_stop?x=1#part") == "Bus stop"
    for url in (
        "https://en.example.org/wiki/Bus",
        "file:///wiki/Bus",
        "https://de.example.org/other",
        "nonsense",
        "https://[::1",
        "https://de.example.org/wiki/",
    ):
        assert SITE.title_at(url) is None


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="#[]{}|<>"), min_size=1, max_size=40))
def test_addresses_lead_back(title: str) -> None:
    normal = SITE.normalise(title)
    assert SITE.normalise(normal) == normal
    if normal:
        assert SITE.title_at(SITE.url(normal)) == normal


def test_language_tables() -> None:
    assert language("en").is_list_title("List of buses")
    assert not language("en").is_list_title("Listowel")
    assert language("de").is_list_title("Liste der Busse")
    assert language("simple").is_list_title("Timeline of buses")
    assert "disambiguation" in language("unknown").disambiguation
    assert "de" in interwiki_prefixes()
    assert "star trek" not in interwiki_prefixes()
    for code, table in read_data("languages").items():
        if isinstance(table, dict):
            tables = language(code)
            assert all(name == name.lower() and "_" not in name for name in tables.disambiguation | tables.set_index), (
                code
            )
