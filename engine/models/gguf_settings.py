"""The settings files a converted GGUF gets, from its own metadata."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.errors import ModelFileError

if TYPE_CHECKING:
    from engine.models.gguf_header import GgufHeader

_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_TEMPLATE_KEY = re.compile(r"tokenizer\.chat_template(?:\.([A-Za-z0-9_]+))?")
_END_KEYS = ("eos", "eot")  # end of text, end of turn


def config_from(header: GgufHeader) -> dict[str, object]:
    """Return the content of config.json.

    Args:
        header: Of a GGUF that ``check_supported`` let through.

    Returns:
        What transformers would have written, as far as the metadata say.

    Fails with ``ModelFileError`` if an entry no model can do without is missing.
    """
    architecture = header.text("general.architecture") or ""
    hidden_size = _required(header, "embedding_length")
    num_heads = _required(header, "attention.head_count")
    head_dim = header.integer(f"{architecture}.attention.key_length") or hidden_size // num_heads
    return {
        "architectures": [_CLASSES[architecture]],
        "model_type": architecture,
        "bos_token_id": header.integer("tokenizer.ggml.bos_token_id"),
        "eos_token_id": header.integer("tokenizer.ggml.eos_token_id"),
        "head_dim": head_dim,
        "hidden_size": hidden_size,
        "intermediate_size": _required(header, "feed_forward_length"),
        "max_position_embeddings": _required(header, "context_length"),
        "num_attention_heads": num_heads,
        "num_hidden_layers": _required(header, "block_count"),
        "num_key_value_heads": header.integer(f"{architecture}.attention.head_count_kv")
        or num_heads,
        "rms_norm_eps": header.number(f"{architecture}.attention.layer_norm_rms_epsilon"),
        "rope_theta": header.number(f"{architecture}.rope.freq_base") or 10000.0,
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in header.tensors),
        "vocab_size": len(header.array("tokenizer.ggml.tokens") or ()),
    }


def generation_config_from(header: GgufHeader) -> dict[str, object]:
    """Return the content of generation_config.json.

    Args:
        header: The GGUF's header.
    """
    ends = {header.integer(f"tokenizer.ggml.{key}_token_id") for key in _END_KEYS}
    return {
        "bos_token_id": header.integer("tokenizer.ggml.bos_token_id"),
        "eos_token_id": sorted(end for end in ends if end is not None),
    }


def tokenizer_config_from(header: GgufHeader) -> dict[str, object]:
    """Return the content of tokenizer_config.json; the template goes to files of its own.

    Args:
        header: The GGUF's header.
    """
    tokens = header.array("tokenizer.ggml.tokens") or []
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for role, key in (
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("pad_token", "padding_token_id"),
    ):
        token_id = header.integer(f"tokenizer.ggml.{key}")
        if token_id is not None and 0 <= token_id < len(tokens):
            config[role] = tokens[token_id]
    return config


def chat_templates_from(header: GgufHeader) -> dict[str, str]:
    """Return the chat templates by name; the unnamed one is ``default``.

    Args:
        header: The GGUF's header.
    """
    found: dict[str, str] = {}
    for key, value in header.metadata.items():
        match = _TEMPLATE_KEY.fullmatch(key)
        if match and isinstance(value, str):
            found[match[1] or "default"] = value
    return found


def _required(header: GgufHeader, key: str) -> int:
    full_key = f"{header.text('general.architecture')}.{key}"
    value = header.integer(full_key)
    if value is None or value < 1:
        raise ModelFileError(f"{header.file_name} has no usable {full_key}: {value!r}.")
    return value
