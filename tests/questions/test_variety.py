"""What a set is made of: patterns are read off the words, repeats are counted once, roles need the wiki."""

import pytest
from PIL import Image
from questions.worlds import MemoryWiki, zoo_entries

from opensearch_vl.images import ImageStore
from opensearch_vl.questions.facts import Facts
from opensearch_vl.questions.variety import near_pictures, patterns, shape, skeleton, template
from opensearch_vl.types import Descriptor, Gold, Predicate, Provenance, Task


def task(question, name="a", **provenance):
    return Task(id=name, question=question, gold=Gold(answer="x"), provenance=Provenance(**provenance))


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("When was Ann Roe born?", "when was … born?"),
        ("In which year did the mayor of the Isle of Orla die?", "in which year did the mayor of the … die?"),
        ("Who made the vase of 1862 in the picture?", "who made the vase of # in the picture?"),
        ('What does "The Old Gate" mean?', "what does … mean?"),
        ("Who is it? Ann says no.", "who is it? ann says no."),
        ("who is it?", "who is it?"),
    ],
)
def test_a_skeleton_leaves_names_and_numbers_out(question, found) -> None:
    assert skeleton(task(question)) == found


def test_a_template_leaves_out_what_the_descriptors_state() -> None:
    stated = Descriptor(
        entity="Ann Roe", phrase="the person", predicates=(Predicate(kind="attr", key="job", value="botanist"),)
    )
    made = task("Who taught the person whose job is botanist?", descriptors=(stated,))
    assert template(made) == "Who taught the person whose job is …?"


def test_patterns_are_counted_and_weighed() -> None:
    found = patterns(["a", "b", "a", "a", "c", "b"])
    assert found["distinct"] == 3
    assert found["commonest"] == {"text": "a", "count": 3, "of": 6}
    assert found["effective"] == 2.7  # exp of the entropy of 1/2, 1/3, 1/6: 2.749
    assert patterns(["a", "b"])["effective"] == 2.0
    assert patterns(["b", "a"])["commonest"]["text"] == "a"
    assert patterns([]) == {"distinct": 0}


def test_near_pictures_are_told_by_their_pixels_and_one_file_is_no_pair(tmp_path) -> None:
    store = ImageStore(tmp_path)
    wide = Image.linear_gradient("L").convert("RGB")
    refs = [store.put(wide), store.put(wide.resize((128, 128))), store.put(wide.rotate(90))]
    tasks = [task("?", str(n)).model_copy(update={"images": (ref,)}) for n, ref in enumerate([*refs, refs[0], refs[0]])]
    assert near_pictures(tasks, store, 4) == 1
    assert near_pictures(tasks, store, -1) == 0
    assert near_pictures(tasks, None, 4) == 0  # provenance keeps no hash
    assert shape(tasks, store=store)["duplicates"]["picture"] == 2


def test_roles_need_the_wiki(tmp_path) -> None:
    facts = Facts(MemoryWiki(zoo_entries(), ImageStore(tmp_path)))
    tasks = [task("?", path=("Orla Zoo", "Stefan Irvald", "Teresa Rainö")), task("?", "b", path=("Orla", "No Such"))]
    assert shape(tasks, facts=facts)["roles"] == {
        "anchor": {"Building": 1, "Location": 1}, "bridge": {"Person": 1}, "answer": {"Person": 1, "missing": 1},
    }  # fmt: skip
    assert shape(tasks)["roles"] == {}
