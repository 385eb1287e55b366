"""A CLIP-class model from a local checkpoint folder: pictures and texts as vectors of one space.

Used by `embedding_index` (reverse image search by look, where local features find nothing to hold on to) and, as the
`ImageEmbedder` of question building, to rank an anchor's pictures by their similarity to its description (paper,
section 3.4). Needs the `train` extra. Nothing is downloaded, no code of a checkpoint is run, and of weights only
safetensors are read.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opensearch_vl.errors import DataError, MissingExtra
from opensearch_vl.images import decode

BATCH = 16
_HASHED_BYTES = 1_048_576


class TransformersEmbedder:
    """An `ImageEmbedder` on a CLIP or SigLIP checkpoint.

    Args:
        checkpoint: A folder with configuration, safetensors, image processor and tokenizer.
        batch: Pictures or texts embedded together.

    Raises:
        DataError: If the folder is not such a checkpoint.
        MissingExtra: Without torch and transformers.
    """

    def __init__(self, checkpoint: Path | str, *, batch: int = BATCH) -> None:
        folder = Path(checkpoint)
        if not (folder / "config.json").is_file():
            raise DataError(f"{folder} is not a checkpoint folder: it has no config.json.")
        try:
            import torch
            from transformers import AutoImageProcessor, AutoModel, AutoTokenizer
        except ImportError as error:
            raise MissingExtra("transformers", "train") from error
        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            self._model = AutoModel.from_pretrained(folder, use_safetensors=True, **local).eval()
            self._processor = AutoImageProcessor.from_pretrained(folder, backend="pil", **local)
            self._tokenizer = AutoTokenizer.from_pretrained(folder, **local)
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{folder} cannot be loaded as a CLIP-class checkpoint: {error}.") from error
        if not hasattr(self._model, "get_image_features") or not hasattr(self._model, "get_text_features"):
            raise DataError(f"{folder} holds a {type(self._model).__name__}, which has no common space of both.")
        self._torch = torch
        self._lock = threading.Lock()  # one batch at a time: torch uses the cores itself
        self._batch = batch
        self.checkpoint = folder
        self.fingerprint = fingerprint(folder)
        self.name = f"{folder.name}-{self.fingerprint[:8]}"

    def embed_images(self, images: Sequence[bytes]) -> NDArray[np.float32]:
        """Encoded pictures as unit vectors, ``[N, D]``.

        Raises:
            ImageError: If one cannot be decoded.
        """

        def features(batch: Sequence[bytes]) -> Any:
            pictures = [decode(data).convert("RGB") for data in batch]
            return self._model.get_image_features(**self._processor(images=pictures, return_tensors="pt"))

        return self._embed(images, features)

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Texts as unit vectors, ``[N, D]``; what is too long for the model is cut."""
        config = self._model.config.text_config
        # SigLIP was trained on texts padded to the full length and reads shorter ones differently.
        padding = "max_length" if str(self._model.config.model_type).startswith("siglip") else True

        def features(batch: Sequence[str]) -> Any:
            tokens = self._tokenizer(
                list(batch),
                padding=padding,
                truncation=True,
                max_length=config.max_position_embeddings,
                return_tensors="pt",
            )
            taken = {name: tokens[name] for name in ("input_ids", "attention_mask") if name in tokens}
            return self._model.get_text_features(**taken)

        return self._embed(texts, features)

    def _embed(self, items: Sequence[Any], features: Callable[[Sequence[Any]], Any]) -> NDArray[np.float32]:
        rows = []
        with self._lock, self._torch.inference_mode():
            for start in range(0, len(items), self._batch):
                found = features(items[start : start + self._batch])
                pooled = getattr(found, "pooler_output", found)  # transformers 5 wraps it, with the projection applied
                rows.append(pooled.float().numpy())
        return unit(np.concatenate(rows)) if rows else np.zeros((0, 0), np.float32)


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length one; zero rows stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)


def fingerprint(checkpoint: Path) -> str:
    """What tells checkpoints apart without reading gigabytes: configurations, and head and size of the weights."""
    digest = hashlib.sha256()
    for file in sorted(checkpoint.iterdir()):
        if file.suffix in (".json", ".safetensors"):
            with file.open("rb") as handle:
                digest.update(f"{file.name}\0{file.stat().st_size}\0".encode() + handle.read(_HASHED_BYTES))
    return digest.hexdigest()
