"""CLIP and SigLIP checkpoints, tiny and untrained, through the code that loads real ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from opensearch_vl.backends.embedder import TransformersEmbedder, fingerprint  # noqa: E402
from opensearch_vl.backends.embedding_index import EmbeddingImageIndex  # noqa: E402
from opensearch_vl.backends.image_folder import Showing  # noqa: E402
from opensearch_vl.errors import DataError  # noqa: E402
from opensearch_vl.images import decode, encode_png  # noqa: E402

WORDS = ["<pad>", "<unk>", "<end>", "a", "red", "bridge", "green", "tower"]


def save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", eos_token="<end>"
    )
    tokenizer.save_pretrained(folder)


def make(kind: str, folder: Path) -> Path:
    import torch

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 0}
    text = {"vocab_size": len(WORDS), "max_position_embeddings": 8, **sizes, **ids}
    vision = {"image_size": 32, "patch_size": 8, **sizes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "clip":
            config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
            model = transformers.CLIPModel(config)
        else:
            text["projection_size"] = 32
            model = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision))
    model.save_pretrained(folder)
    if kind == "clip":
        processor: Any = transformers.CLIPImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        )
    else:
        processor = transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    processor.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module", params=["clip", "siglip"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(request.param, tmp_path_factory.mktemp(request.param))


def picture(seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 255, (4, 4, 3), dtype=np.uint8)
    return encode_png(Image.fromarray(noise).resize((40, 30), Image.Resampling.NEAREST))


def test_pictures_and_texts_in_one_space(folder: Path) -> None:
    embedder = TransformersEmbedder(folder, batch=2)
    images = embedder.embed_images([picture(n) for n in range(5)])
    texts = embedder.embed_texts(["a red bridge", "a green tower", "a " * 50])
    size = 24 if folder.name.startswith("clip") else 32
    assert images.shape == (5, size) and texts.shape == (3, size) and images.dtype == texts.dtype == np.float32
    assert np.allclose(np.linalg.norm(images, axis=1), 1, atol=1e-5)
    assert np.allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-5)
    assert np.allclose(images[3:4], embedder.embed_images([picture(3)]), atol=1e-5), "a row belongs to its picture"
    assert np.allclose(texts[:1], embedder.embed_texts(["a red bridge"]), atol=1e-5), "and a text's to its text"
    assert embedder.embed_images([]).shape[0] == 0


def test_equal_to_the_model_itself(folder: Path) -> None:
    import torch

    model = transformers.AutoModel.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    with torch.inference_mode():
        pixels = processor(images=[decode(picture(1))], return_tensors="pt")["pixel_values"]
        seen = model.vision_model(pixels).pooler_output
        seen = model.visual_projection(seen) if hasattr(model, "visual_projection") else seen
    ours = TransformersEmbedder(folder).embed_images([picture(1)])[0]
    assert np.allclose(ours, (seen / seen.norm()).numpy()[0], atol=1e-5)


def test_an_index_on_a_real_model(folder: Path, tmp_path: Path) -> None:
    embedder = TransformersEmbedder(folder)
    shown = [(picture(n), Showing(str(n), f"w://{n}", f"{n}.png")) for n in range(6)]
    index = EmbeddingImageIndex.build_from_pictures(shown, tmp_path / "index", embedder)
    for n in range(6):
        assert index.search_now(picture(n), 1)[0].title == str(n)


def test_checkpoints_are_told_apart_and_bad_ones_refused(folder: Path, tmp_path: Path) -> None:
    other = make("siglip", tmp_path / "other")
    first = fingerprint(other)
    config = json.loads((other / "preprocessor_config.json").read_text())
    (other / "preprocessor_config.json").write_text(json.dumps({**config, "image_mean": [0.1, 0.1, 0.1]}))
    assert fingerprint(other) != first and fingerprint(folder) == fingerprint(folder)
    with pytest.raises(DataError, match=r"config\.json"):
        TransformersEmbedder(tmp_path / "nowhere")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text('{"model_type": "no-such-model"}')
    with pytest.raises(DataError, match="cannot be loaded"):
        TransformersEmbedder(tmp_path / "odd")
