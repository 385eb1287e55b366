"""The stage table: every walk counted once, sums match."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensearch_vl.questions.stages import FINAL, STAGES, StageTable

ends = st.tuples(st.sampled_from(STAGES), st.sampled_from(["r1", "r2"])) | st.just((FINAL, ""))


@given(st.lists(ends))
def test_sums_match(ended) -> None:
    table = StageTable.of(ended)
    rows = table.rows()
    assert rows[0].came_in == table.total == len(ended)
    for row, after in pairwise(rows):
        assert row.came_in == row.passed + sum(row.reasons.values())
        assert row.passed == after.came_in
    assert rows[-1].passed == table.final == sum(stage == FINAL for stage, _ in ended)


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(ValueError, match="no stage 'fuz'"):
        StageTable().count("fuz", "typo")
