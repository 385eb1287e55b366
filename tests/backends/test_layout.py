"""Reading order and labels on made-up pages."""

from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.backends.layout import Line, blocks, reading_order


def line(text: str, left: float, top: float, width: float = 200, height: float = 20) -> Line:
    return Line(text, (left, top, left + width, top + height), 0.9)


def order(lines: list[Line]) -> str:
    return " ".join(item.text for item in reading_order(lines))


def test_two_columns_under_a_heading() -> None:
    page = [line("T", 50, 0, 500, 40)]
    page += [line(f"L{n}", 0, 60 + 25 * n) for n in range(4)] + [line(f"R{n}", 320, 62 + 25 * n) for n in range(4)]
    assert order(page[::-1]) == "T L0 L1 L2 L3 R0 R1 R2 R3"


def test_a_full_width_line_divides_the_columns_into_bands() -> None:
    page = [line(f"L{n}", 0, 25 * n) for n in range(3)] + [line(f"R{n}", 300, 25 * n) for n in range(3)]
    page += [line("M", 0, 100, 500)]
    page += [line(f"l{n}", 0, 150 + 25 * n) for n in range(3)] + [line(f"r{n}", 300, 150 + 25 * n) for n in range(3)]
    assert order(page) == "L0 L1 L2 R0 R1 R2 M l0 l1 l2 r0 r1 r2"


def test_an_inset_between_the_columns_does_not_cut_them() -> None:
    page = [line(f"L{n}", 0, 25 * n, 250 if n < 3 or n > 5 else 170) for n in range(9)]
    page += [
        line(f"R{n}", 270 if n < 3 or n > 5 else 350, 25 * n + 1, 250 if n < 3 or n > 5 else 170) for n in range(9)
    ]
    page += [line(f"q{n}", 190, 78 + 25 * n, 140) for n in range(2)]
    assert order(page[::-1]) == "L0 L1 L2 L3 L4 L5 L6 L7 L8 q0 q1 R0 R1 R2 R3 R4 R5 R6 R7 R8"


def test_three_columns() -> None:
    page = [line(f"{c}{n}", 250 * i, 25 * n) for i, c in enumerate("abc") for n in range(3)]
    assert order(page) == "a0 a1 a2 b0 b1 b2 c0 c1 c2"


def test_a_table_is_read_by_rows() -> None:
    page = [line(f"k{n}", 0, 30 * n, 40) for n in range(4)] + [line(f"v{n}", 100, 30 * n + 2, 60) for n in range(4)]
    assert order(page) == "k0 v0 k1 v1 k2 v2 k3 v3"


def test_labels_and_paragraphs() -> None:
    page = [
        line("Big", 0, 0, 300, 50),
        line("one", 0, 80),
        line("two", 0, 105),
        line("three", 0, 180),
        line("note", 0, 960, 200, 12),
    ]
    found = blocks(page, 1000)
    assert [(b.label, b.text) for b in found] == [
        ("title", "Big"),
        ("text", "one\ntwo"),
        ("text", "three"),
        ("footnote", "note"),
    ]
    assert found[1].box_px == (0, 80, 200, 125) and blocks([], 10) == []


boxes = st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(1, 300), st.integers(1, 60))


@given(st.lists(boxes, max_size=30))
def test_every_line_comes_exactly_once(shapes: list[tuple[int, int, int, int]]) -> None:
    page = [line(str(n), *shape) for n, shape in enumerate(shapes)]
    assert sorted(item.text for item in reading_order(page)) == sorted(item.text for item in page)
    assert sum(block.text.count("\n") + 1 for block in blocks(page, 600)) == len(page)
