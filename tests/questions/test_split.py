"""Disjoint sets: proved by brute force, compared with the best assignment there is, and deterministic."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensearch_vl.errors import DataError
from opensearch_vl.questions.split import BETWEEN, SURPLUS, entities, split_by_entity
from opensearch_vl.types import (
    Descriptor,
    Gold,
    ImageRef,
    PathHop,
    PictureSource,
    Predicate,
    Provenance,
    Task,
)


def picture(n: int) -> ImageRef:
    return ImageRef(sha256=f"{n:064x}", mime="image/png", width_px=8, height_px=8)


def question(n: int, *path: str, image: int | None = None, file: str = "") -> Task:
    source = PictureSource(file=file or f"{path[0]}.png", page=path[0])
    return Task(
        id=f"q{n}",
        question="?",
        images=() if image is None else (picture(image),),
        gold=Gold(answer="7-B"),
        provenance=Provenance(path=path, picture=source if image is not None else None),
    )


def merged(n: int, answer: str, image: int, *aliases: str) -> Task:
    return Task(
        id=f"m{n}",
        question="?",
        images=(picture(image),),
        gold=Gold(answer=answer, aliases=aliases),
        provenance=Provenance(corpus="fvqa"),
    )


def names_of(task: Task) -> set[str]:
    """What must not be shared, written down anew and without the package's normalisation but for case."""
    names = {f"p{image.sha256}" for image in task.images}
    if task.provenance.picture is not None:
        names.add(f"f{task.provenance.picture.file}")
    if task.provenance.path:
        return names | {title.lower() for title in task.provenance.path}
    return names | {text.lower() for text in (task.gold.answer, *task.gold.aliases)}


def check(tasks, split, sizes) -> None:
    members = [index for own in split.sets.values() for index in own] + [lost.index for lost in split.dropped]
    assert sorted(members) == list(range(len(tasks)))  # everything is somewhere, once
    for name, wanted in sizes.items():
        assert len(split.sets[name]) == wanted
    for one, other in itertools.combinations(split.sets.values(), 2):
        for a in one:
            for b in other:
                assert not names_of(tasks[a]) & names_of(tasks[b]), (tasks[a], tasks[b])


def world(rng: random.Random, num: int, pages: int, hubs: int) -> list[Task]:
    """Paths over pages, of which the first few are hubs, with questions of another corpus between."""
    weights = [20.0 if page < hubs else 1.0 for page in range(pages)]
    tasks = []
    for n in range(num):
        if n % 5 == 4:
            answer = rng.choice(["Yes", f"Page {rng.randrange(pages)}", f"{rng.randrange(60)}"])
            tasks.append(merged(n, answer, 1_000 + rng.randrange(num)))
            continue
        path: list[str] = []
        while len(path) < rng.choice([3, 3, 4, 5]):
            if (title := f"page {rng.choices(range(pages), weights)[0]}") not in path:
                path.append(title)
        tasks.append(question(n, *path, image=rng.randrange(num), file=f"{rng.randrange(2 * num)}.png"))
    return tasks


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(4, 60), st.integers(8, 120), st.integers(0, 3), st.data())
def test_no_entity_is_in_two_sets(seed, num, pages, hubs, data) -> None:
    tasks = world(random.Random(seed), num, pages, hubs)
    sizes = {"rl": data.draw(st.integers(1, num // 2))}
    check(tasks, split_by_entity(tasks, sizes, rest="sft", seed=seed), sizes)


def test_two_sets_are_carved_out_of_one_large_component() -> None:
    tasks = world(random.Random(3), 400, 900, 4)
    sizes = {"test": 30, "rl": 80}
    split = split_by_entity(tasks, sizes, rest="sft", seed=0)
    check(tasks, split, sizes)
    assert split.largest > 300  # dealing out whole components would be impossible
    assert len(split.sets["sft"]) > 100
    assert split.reasons().keys() <= {BETWEEN, SURPLUS}


def test_the_same_seed_gives_the_same_sets_whatever_the_hash_seed() -> None:
    tasks = world(random.Random(1), 120, 200, 2)
    first, again, other = (split_by_entity(tasks, {"rl": 30}, rest="sft", seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first.sets != other.sets


def best_possible(tasks, wanted: int) -> int:
    """Most questions that can be kept, over all ways to give every entity to a side."""
    owned = [names_of(task) for task in tasks]
    everything = sorted(set().union(*owned))
    best = 0
    for sides in itertools.product((False, True), repeat=len(everything)):
        inside = {name for name, side in zip(everything, sides, strict=True) if side}
        whole = sum(own <= inside for own in owned)
        if whole >= wanted:
            best = max(best, wanted + sum(not own & inside for own in owned))
    return best


def test_nearly_as_many_are_kept_as_can_be() -> None:
    kept = possible = exact = 0
    for seed in range(40):
        rng = random.Random(seed)
        tasks = [question(n, *(f"page {p}" for p in rng.sample(range(11), rng.choice([2, 3])))) for n in range(10)]
        split = split_by_entity(tasks, {"rl": 3}, rest="sft", seed=seed)
        mine, best = sum(map(len, split.sets.values())), best_possible(tasks, 3)
        assert mine <= best
        kept, possible, exact = kept + mine, possible + best, exact + (mine == best)
    assert kept >= 0.95 * possible, (kept, possible, exact)


def test_only_the_question_between_two_halves_is_dropped() -> None:
    left = [question(n, f"left {n}", "left hub") for n in range(20)]
    right = [question(100 + n, f"right {n}", "right hub") for n in range(30)]
    tasks = [*left, question(200, "left hub", "right hub"), *right]
    split = split_by_entity(tasks, {"rl": 20}, rest="sft", seed=0)
    assert split.sets["rl"] == tuple(range(20))
    assert split.sets["sft"] == tuple(range(21, 51))
    (lost,) = split.dropped
    assert (lost.index, lost.reason) == (20, BETWEEN)
    assert lost.inside == ("entity:left hub",)
    assert lost.outside == ("entity:right hub",)
    assert split.bridges() == [("entity:left hub", 1), ("entity:right hub", 1)]


def test_when_all_share_a_hub_the_rest_is_lost_and_said_to_be() -> None:
    tasks = [question(n, f"page {n}", "hub") for n in range(12)]
    split = split_by_entity(tasks, {"rl": 4}, rest="sft", seed=0)
    assert len(split.sets["rl"]) == 4
    assert split.sets["sft"] == ()
    assert sum(split.reasons().values()) == 8


def test_a_set_is_not_made_of_the_isolated_questions_alone() -> None:
    rng = random.Random(0)
    tied = [question(n, f"page {n}", f"page {n + 1}", f"hub {n // 40}") for n in range(200)]
    isolated = [merged(1_000 + n, f"answer {n}", n) for n in range(100)]
    tasks = rng.sample([*tied, *isolated], 300)
    split = split_by_entity(tasks, {"rl": 60}, rest="sft", seed=0)
    check(tasks, split, {"rl": 60})
    assert sum(tasks[n].provenance.corpus == "fvqa" for n in split.sets["rl"]) == 20  # a third, as of all
    assert len(split.dropped) <= 10


def test_unless_that_costs_too_much() -> None:
    star = [question(n, f"page {n}", "hub") for n in range(12)]
    isolated = [merged(1_000 + n, f"answer {n}", n) for n in range(12)]
    split = split_by_entity([*star, *isolated], {"rl": 4}, rest="sft", seed=0)
    assert split.dropped == ()
    assert all(n >= 12 for n in split.sets["rl"])


def test_whole_components_are_taken_before_any_is_cut() -> None:
    tasks = [question(n, f"page {n // 2}", f"own {n}") for n in range(40)]
    split = split_by_entity(tasks, {"rl": 10}, rest="sft", seed=0)
    assert split.dropped == ()
    assert len(split.sets["sft"]) == 30


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (merged(1, "Rome", 1), merged(2, "Milan", 1)),  # one picture
        (merged(1, "Rome", 1), merged(2, "the rome!", 2)),  # one answer, written otherwise
        (merged(1, "Rome", 1), merged(2, "Roma", 2, "Rome")),  # as an alias
        (merged(1, "Blue Horse", 1), question(2, "Hall", "Blue Horse")),  # an answer that is a page of a path
        (
            question(1, "Hall", "Ana", image=1),
            question(2, "Pier", "Óla", image=2, file="Hall.png"),
        ),  # one file, degraded
        (question(1, "Hall", "Ana"), question(2, "Ana", "Óla")),  # answer page here, anchor there
    ],
)
def test_what_counts_as_shared(one: Task, other: Task) -> None:
    assert entities(one) & entities(other)
    split = split_by_entity([one, other], {"rl": 1}, rest="sft", seed=0)
    assert not split.sets["sft"]
    assert len(split.dropped) == 1


def test_a_page_that_only_a_description_names_counts_on_request() -> None:
    known = Provenance(
        path=("Hall", "Ana"),
        hops=(PathHop(source="Hall", target="Ana", relation="architect", direction="forward"),),
        descriptors=(
            Descriptor(
                entity="Ana",
                phrase="…",
                predicates=(
                    Predicate(kind="rel", key="school", value="Varetto Academy"),
                    Predicate(kind="attr", key="rank", value="7"),
                ),
            ),
        ),
    )
    task = Task(id="q", question="?", gold=Gold(answer="7"), provenance=known)
    assert entities(task) == {"entity:hall", "entity:ana"}
    assert entities(task, named=True) == {"entity:hall", "entity:ana", "entity:varetto academy"}
    other = Task(
        id="r",
        question="?",
        gold=Gold(answer="8"),
        provenance=known.model_copy(
            update={
                "path": ("Pier", "Óla"),
                "hops": (),
                "descriptors": (known.descriptors[0].model_copy(update={"entity": "Óla"}),),
            }
        ),
    )
    assert split_by_entity([task, other], {"rl": 1}, rest="sft", seed=0).dropped == ()
    assert len(split_by_entity([task, other], {"rl": 1}, rest="sft", seed=0, named=True).dropped) == 1


def test_a_question_with_nothing_to_share_is_still_dealt_out() -> None:
    tasks = [Task(id=f"q{n}", question="?", gold=Gold(answer=" ")) for n in range(4)]
    split = split_by_entity(tasks, {"rl": 2}, rest="sft", seed=0)
    assert {name: len(own) for name, own in split.sets.items()} == {"rl": 2, "sft": 2}


def test_too_few_questions_are_said_to_be() -> None:
    tasks = [question(n, f"page {n}", "hub") for n in range(6)]
    with pytest.raises(DataError, match="There are 6 questions, fewer than the 7"):
        split_by_entity(tasks, {"rl": 7}, rest="sft", seed=0)
    with pytest.raises(DataError, match="Only 0 questions are left for the set 'rl'"):
        split_by_entity(tasks, {"test": 2, "rl": 2}, rest="sft", seed=0)
