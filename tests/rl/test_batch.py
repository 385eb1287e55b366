"""The fatal mask by hand, padding, and counts."""

import numpy as np
import pytest

from opensearch_vl.agent.transcript import Transcript
from opensearch_vl.rl.advantage import DELTA
from opensearch_vl.rl.batch import ScoredTranscript, loss_mask, make_batch

GEN = np.array([0, 0, 1, 1, 0, 1, 1, 0, 1], dtype=bool)
STEP = np.array([-1, -1, 0, 0, 0, 1, 1, 1, 2], dtype=np.int32)


def transcript(gen: np.ndarray = GEN, step: np.ndarray = STEP) -> Transcript:
    logprobs = np.where(gen, -0.5, np.nan).astype(np.float32)
    ids = np.arange(1, len(gen) + 1, dtype=np.int64)
    return Transcript(ids, gen, step, logprobs, (), (), int(step.max()) + 1, 0)


@pytest.mark.parametrize(
    ("mode", "fatal", "expected"),
    [
        ("vanilla", None, [0, 0, 1, 1, 0, 1, 1, 0, 1]),
        ("vanilla", 1, [0, 0, 1, 1, 0, 1, 1, 0, 1]),
        ("hard_mask", None, [0, 0, 1, 1, 0, 1, 1, 0, 1]),
        ("hard_mask", 1, [0] * 9),
        ("fatal_mask", 1, [0, 0, 1, 1, 0, 0, 0, 0, 0]),
        ("fatal_clamp", 2, [0, 0, 1, 1, 0, 1, 1, 0, 0]),
        ("fatal_clamp", 0, [0] * 9),
        ("fatal_clamp", None, [0, 0, 1, 1, 0, 1, 1, 0, 1]),
    ],
)
def test_the_mask_by_hand(mode: str, fatal: int | None, expected: list[int]) -> None:
    assert loss_mask(GEN, STEP, fatal, mode).astype(int).tolist() == expected


def test_the_mask_is_a_copy() -> None:
    loss_mask(GEN, STEP, None, "vanilla")[2] = False
    assert GEN[2]


def test_padding_masks_and_counts() -> None:
    short = transcript(GEN[:4], STEP[:4])
    batch = make_batch(
        [
            ScoredTranscript(transcript(), 0, 1.0),
            ScoredTranscript(short, 0, 0.0, fatal_index=0),
            ScoredTranscript(transcript(), 0, None),
            ScoredTranscript(transcript(), 1, 0.5, fatal_index=2),
        ],
        pad_id=99,
    )
    assert batch.ids.shape == (4, 9)
    assert batch.ids[1].tolist() == [1, 2, 3, 4, 99, 99, 99, 99, 99]
    assert batch.attention[1].tolist() == [True] * 4 + [False] * 5
    assert batch.mask.sum(1).tolist() == [5, 0, 0, 4]  # fatal at 0: nothing; unscored: nothing; fatal at 2: four
    assert not np.isnan(batch.logprobs).any()
    np.testing.assert_allclose(batch.advantages, [0.5 / (0.5 + DELTA), 0.0, 0.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(batch.relative[1], -0.5 / (0.5 + DELTA), rtol=1e-6)
    counts = batch.counts
    assert (counts.num_unscored, counts.num_fatal, counts.num_clamped, counts.num_kept) == (1, 2, 1, 0)
    assert (counts.num_no_tokens, counts.num_small_groups, counts.num_groups) == (2, 1, 2)
    assert counts.clamped_mean == pytest.approx(-0.5 / (0.5 + DELTA))
    assert (counts.num_trained_tokens, counts.num_generated_tokens) == (9, 17)


@pytest.mark.parametrize(
    ("mode", "clamp", "expected"),
    [
        ("fatal_clamp", False, [-1, 1, -1]),  # the paper's text: never answering is penalised
        ("fatal_clamp", True, [0, 1, -1]),  # its code
        ("fatal_mask", True, [-1, 1, -1]),
        ("vanilla", True, [-1, 1, -1]),
    ],
)
def test_unanswered_trajectories_are_penalised_unless_the_setting_says_otherwise(
    mode: str, clamp: bool, expected: list[int]
) -> None:
    rollouts = [
        ScoredTranscript(transcript(), 0, 0.0, answered=False),
        ScoredTranscript(transcript(), 0, 1.0),
        ScoredTranscript(transcript(), 0, 0.0),
    ]
    batch = make_batch(rollouts, mode=mode, clamp_unanswered=clamp)
    assert np.sign(batch.advantages).tolist() == expected
    assert batch.mask.sum(1).tolist() == [5, 5, 5]  # nothing is masked for it
    assert batch.counts.num_unanswered == 1


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        make_batch([])
