"""Which GGUF files can be converted: architectures, tensor types, and what is left out silently.

The reader inside openvino_genai ends the process on some files and leaves out rope scaling
without a word, so everything it can't do is refused here first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import UnsupportedModelError

if TYPE_CHECKING:
    from engine.models.gguf_header import GgufHeader

ARCHITECTURES = ("llama", "qwen2", "qwen3")
WEIGHT_TYPES = ("F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")
NORM_TYPES = ("F32", "F16")  # of tensors with one dimension: norms and biases
_ADVICE = "Choose another GGUF of it (Q4_0, Q4_1, Q4_K, Q6_K or Q8_0), or its OpenVINO IR."
_IR_ADVICE = "Use the model's OpenVINO IR instead."


def check_supported(header: GgufHeader) -> None:
    """Check that the converter can read a GGUF, and reads it right.

    Args:
        header: The file's header.

    Raises:
        UnsupportedModelError: It can't; the sentence names the file and the tensor or entry.
    """
    name = header.file_name
    architecture = header.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{name} is of the architecture {architecture!r}; GGUF files of "
            f"{', '.join(ARCHITECTURES)} can be converted.",
            _IR_ADVICE,
        )
    _check_metadata(header, architecture)
    for tensor in header.tensors:
        allowed = WEIGHT_TYPES if len(tensor.shape) > 1 else NORM_TYPES
        if tensor.type_name not in allowed:
            raise UnsupportedModelError(
                f"{name} holds {tensor.name} as {tensor.type_name}, which can't be converted.",
                _ADVICE,
            )


def _check_metadata(header: GgufHeader, architecture: str) -> None:
    name = header.file_name
    parts = header.integer("split.count") or 1
    if parts > 1:
        raise UnsupportedModelError(
            f"{name} is one of {parts} parts of a GGUF.",
            "Join them with `llama-gguf-split --merge`.",
        )
    if header.integer(f"{architecture}.expert_count"):
        raise UnsupportedModelError(f"{name} is a mixture of experts.", _IR_ADVICE)
    scaling = header.text(f"{architecture}.rope.scaling.type")
    has_factors = any(tensor.name == "rope_freqs.weight" for tensor in header.tensors)
    if has_factors or scaling not in {None, "none"}:
        raise UnsupportedModelError(
            f"{name} scales its positions ({scaling or 'rope_freqs.weight'}), and the converter "
            f"would leave that out.",
            _IR_ADVICE,
        )
