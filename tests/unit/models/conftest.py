"""A tiny GGUF, made on the spot, and what is built from it."""

import gguf
import numpy as np
import pytest

HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2


def _byte_letters():
    """The letters byte-level vocabularies write bytes with, as GPT-2's authors chose them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    return letters | {byte: chr(256 + index) for index, byte in enumerate(others)}


TOKENS = ["<|end|>", "<|start|>", *_byte_letters().values(), "he", "ll", "hell", "hello", "Ġw"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w"]
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }} {{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant {% endif %}"
)


class TinyGguf:
    """Writes small GGUF files that differ from a good one in a single point."""

    def __init__(self, folder):
        self._folder = folder

    def write(self, name="tiny.gguf", **changes):
        """Write one; ``changes`` are metadata by key, with ``__`` for ``.``, or ``tensors``."""
        path = self._folder / name
        writer = gguf.GGUFWriter(path, changes.pop("architecture", "llama"))
        self._add_settings(writer)
        self._add_tokenizer(writer, changes)
        for key, value in changes.pop("extra", {}).items():
            writer.add_string(key, value) if isinstance(value, str) else writer.add_uint32(
                key, value
            )
        self._add_tensors(writer, changes.pop("replaced_tensors", {}))
        assert not changes
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    @staticmethod
    def _add_settings(writer):
        writer.add_block_count(LAYERS)
        writer.add_context_length(128)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(FEED_FORWARD)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(10000.0)
        writer.add_rope_dimension_count(HIDDEN // HEADS)
        writer.add_vocab_size(len(TOKENS))
        writer.add_file_type(7)

    @staticmethod
    def _add_tokenizer(writer, changes):
        writer.add_tokenizer_model(changes.pop("tokenizer_model", "gpt2"))
        pre = changes.pop("pre", "smollm")
        if pre is not None:
            writer.add_tokenizer_pre(pre)
        tokens = changes.pop("tokens", TOKENS)
        writer.add_token_list(tokens)
        writer.add_token_types(changes.pop("token_types", [3, 3, *[1] * (len(tokens) - 2)]))
        if scores := changes.pop("scores", None):
            writer.add_token_scores(scores)
        writer.add_token_merges(changes.pop("merges", MERGES))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(0)
        writer.add_add_bos_token(changes.pop("add_bos", False))
        template = changes.pop("template", TEMPLATE)
        if template is not None:
            writer.add_chat_template(template)

    @staticmethod
    def _add_tensors(writer, replaced):
        random = np.random.default_rng(7)
        kv = KV_HEADS * HIDDEN // HEADS
        shapes = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
        for layer in range(LAYERS):
            shapes |= {
                f"blk.{layer}.attn_norm.weight": (HIDDEN,),
                f"blk.{layer}.ffn_norm.weight": (HIDDEN,),
                f"blk.{layer}.attn_q.weight": (HIDDEN, HIDDEN),
                f"blk.{layer}.attn_k.weight": (kv, HIDDEN),
                f"blk.{layer}.attn_v.weight": (kv, HIDDEN),
                f"blk.{layer}.attn_output.weight": (HIDDEN, HIDDEN),
                f"blk.{layer}.ffn_gate.weight": (FEED_FORWARD, HIDDEN),
                f"blk.{layer}.ffn_up.weight": (FEED_FORWARD, HIDDEN),
                f"blk.{layer}.ffn_down.weight": (HIDDEN, FEED_FORWARD),
            }
        for name, shape in shapes.items():
            values = random.normal(0, 0.3, shape).astype(np.float32)
            kind = replaced.get(name, "F32" if len(shape) == 1 else "Q8_0")
            known = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(values, known), raw_dtype=known)


@pytest.fixture
def tiny_gguf(tmp_path):
    """A writer of tiny GGUF files into a folder of this test."""
    folder = tmp_path / "gguf"
    folder.mkdir()
    return TinyGguf(folder)
