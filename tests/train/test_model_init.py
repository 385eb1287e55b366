"""The miniature policy is an ordinary, reproducible, small checkpoint."""

import hashlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from training_fixtures import TEXTS  # noqa: E402

from opensearch_vl.errors import DataError  # noqa: E402
from opensearch_vl.sft.model_init import SPECIAL, TAGS, init_miniature, train_tokenizer  # noqa: E402

torch.set_num_threads(1)


def folder_hash(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def test_plain_transformers_loads_it_and_it_has_about_a_million_parameters(tmp_path: Path) -> None:
    transformers.utils.logging.disable_progress_bar()
    report = init_miniature(tmp_path / "a", TEXTS, seed=1)
    model = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "a")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    assert type(model).__name__ == "Qwen3VLForConditionalGeneration"
    assert 600_000 < report.num_parameters < 1_500_000  # few texts, so a small vocabulary here
    assert 0 < report.num_vision_parameters < report.num_parameters
    assert tokenizer.eos_token == "<|im_end|>"
    assert model.generation_config.eos_token_id[0] == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert model.config.image_token_id == tokenizer.convert_tokens_to_ids("<|image_pad|>")
    out = model.generate(torch.tensor([tokenizer("hello")["input_ids"]]), max_new_tokens=3, do_sample=False)
    assert out.shape[1] >= 3


def test_same_seed_same_bytes_and_another_seed_other_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        init_miniature(tmp_path / name, TEXTS, seed=seed)
    a, b, c = (folder_hash(tmp_path / name) for name in "abc")
    assert a == b
    assert {name for name in a if a[name] != c[name]} == {"model.safetensors"}


def test_initialising_does_not_disturb_the_global_generator(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1).item()
    torch.manual_seed(5)
    init_miniature(tmp_path / "a", TEXTS, seed=0)
    assert torch.rand(1).item() == expected


def test_control_tokens_and_tags_are_single_tokens_and_text_round_trips() -> None:
    tokenizer = train_tokenizer(TEXTS, 400)
    for token in SPECIAL:
        assert len(tokenizer(token)["input_ids"]) == 1
    for tag in TAGS:
        assert len(tokenizer(tag, split_special_tokens=True)["input_ids"]) == 1
    for text, tokens in (("1931", ["19", "31"]), ("it is 193", ["19", "3"]), ("2,865", ["2", ",", "86", "5"])):
        assert [tokenizer.decode([token]) for token in tokenizer(text)["input_ids"]][-len(tokens) :] == tokens
    for text in ("Ķemeri — ваня 東京 🦉", "a\n\n  b\t", "", "12 Dec. 1931, 3.14159 km2"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no text"):
        init_miniature(tmp_path / "a", ["", "<think>"])
