"""A Llama-shaped language model as a stateful OpenVINO graph, node for node as exporters write it.

Built with OpenVINO's operations alone, without torch. What matters to the devices' fusions and to
the splitter is the same as in an export: layer 0 answers every question about shapes, one mask and
one pair of cosines serve all layers, and caches are read through a Gather by ``beam_idx``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import openvino as ov
from openvino import opset13 as ops

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from random_weights import IntFormat, QuantisedWeight

_MASKED = -65504.0  # the lowest f16: exporters use it so that a cast keeps it finite
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """The dimensions and number formats of a model.

    Attributes:
        group_size: Weights of a row that share one scale.
        linear_format: Of the layers' matrices.
        table_format: Of the embedding, one scale a row.
        head_format: Of the LM head; four-bit formats are grouped. Unused where tied.
        is_tied: The embedding table is the LM head, too.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    ffn_size: int
    vocab_size: int
    rope_theta: float
    rms_eps: float
    context_length: int
    group_size: int
    linear_format: IntFormat
    table_format: IntFormat
    head_format: IntFormat
    is_tied: bool

    @property
    def linear_weights(self) -> int:
        """Weights of all layers' matrices."""
        attention = 2 * (self.num_heads + self.num_kv_heads) * self.head_size
        return self.num_layers * self.hidden_size * (attention + 3 * self.ffn_size)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights, scales and zero-points."""
        table = self.vocab_size * self.hidden_size
        total = _stored(self.linear_weights, self.linear_format, self.group_size)
        total += _stored(table, self.table_format, self.hidden_size)
        if not self.is_tied:
            total += _stored(table, self.head_format, self.head_group_size)
        return total

    @property
    def head_group_size(self) -> int:
        """Weights of the LM head that share one scale: a whole row in eight bits."""
        return self.group_size if self.head_format in {"u4", "i4"} else self.hidden_size


def _stored(weights: int, number_format: IntFormat, group_size: int) -> int:
    bits = int(number_format[1:])
    zero_bits = bits if number_format.startswith("u") else 0
    return weights * bits // 8 + weights // group_size * (16 + zero_bits) // 8


class Weights(Protocol):
    """Where a graph's weights come from, asked for in the order in which a token meets them."""

    def quantised(
        self, shape: tuple[int, ...], number_format: IntFormat, deviation: float
    ) -> QuantisedWeight:
        """Return one matrix; see ``WeightFile.quantised``."""
        ...

    def norm(self, size: int) -> NDArray[np.float32]:
        """Return the weights of one RMSNorm, f32 ``[size]``."""
        ...


def build_llama(shape: LlamaShape, weights: Weights) -> ov.Model:
    """Build a model.

    Args:
        shape: Its dimensions.
        weights: Its weights; what gives them must outlive the model.

    Returns:
        Inputs ``input_ids``, ``attention_mask``, ``position_ids`` i64 ``[batch, tokens]`` and
        ``beam_idx`` i32 ``[batch]``; output ``logits`` f32 ``[batch, tokens, vocab_size]``; two
        states a layer, f32 ``[batch, kv_heads, past, head_size]``.
    """
    return _Builder(shape, weights).build()


@dataclass(slots=True)
class _Shared:
    """What layer 0 makes and every layer uses."""

    cosine: ov.Node
    sine: ov.Node
    mask: ov.Node
    gqa_shape: ov.Node | None
    scale: ov.Node


class _Builder:
    """The graph under construction."""

    def __init__(self, shape: LlamaShape, weights: Weights) -> None:
        self._shape = shape
        self._weights = weights
        self._assigns: list[ov.Node] = []
        self._inputs = {
            name: ops.parameter(ov.PartialShape([-1] * rank), element, name=name)
            for name, rank, element in (
                ("input_ids", 2, ov.Type.i64),
                ("attention_mask", 2, ov.Type.i64),
                ("position_ids", 2, ov.Type.i64),
                ("beam_idx", 1, ov.Type.i32),
            )
        }
        for name, node in self._inputs.items():
            node.output(0).set_names({name})
        self._batch = ops.gather(ops.shape_of(self._inputs["input_ids"]), _ints(0), _int(0))
        self._shared: _Shared | None = None

    def build(self) -> ov.Model:
        shape = self._shape
        table = self._table("model.embed_tokens", shape.table_format, 0.04)
        hidden = ops.gather(table, ops.convert(self._inputs["input_ids"], "i32"), _int(0, "i32"))
        hidden.output(0).set_names({"inputs_embeds"})
        for layer in range(shape.num_layers):
            hidden = self._layer(layer, hidden)
        normed = self._rms_norm("model.norm", hidden)
        if not shape.is_tied:
            table = self._head()
        logits = _named(ops.matmul(normed, table, False, True), "lm_head/MatMul")
        logits.output(0).set_names({"logits"})
        result = ops.result(logits)
        model = ov.Model([result], self._assigns, list(self._inputs.values()), "random_llama")
        self._describe(model)
        return model

    def _describe(self, model: ov.Model) -> None:
        model.set_rt_info("8.0", ["runtime_options", "ACTIVATIONS_SCALE_FACTOR"])
        kind = "int4_asym" if self._shape.linear_format == "u4" else "int4_sym"
        compression = ["nncf", "weight_compression"]
        model.set_rt_info(kind, [*compression, "mode"])
        model.set_rt_info(str(self._shape.group_size), [*compression, "group_size"])

    # ---- weights ----------------------------------------------------------------------------

    def _linear(self, name: str, data: ov.Node, rows: int, columns: int, gain: float) -> ov.Node:
        shape = self._shape
        grouped = (rows, columns // shape.group_size, shape.group_size)
        quantised = self._weights.quantised(grouped, shape.linear_format, gain / math.sqrt(columns))
        weight = _decompressed(name, quantised, (rows, columns))
        return _named(ops.matmul(data, weight, False, True), f"{name}/MatMul")

    def _table(self, name: str, number_format: IntFormat, deviation: float) -> ov.Node:
        rows, columns = self._shape.vocab_size, self._shape.hidden_size
        quantised = self._weights.quantised((rows, columns), number_format, deviation)
        is_grouped = len(quantised.values.shape) > len((rows, columns))
        return _decompressed(name, quantised, (rows, columns) if is_grouped else None)

    def _head(self) -> ov.Node:
        shape = self._shape
        deviation = 2.0 / math.sqrt(shape.hidden_size)
        if shape.head_format in {"u8", "i8"}:
            return self._table("lm_head", shape.head_format, deviation)
        groups = shape.hidden_size // shape.group_size
        grouped = (shape.vocab_size, groups, shape.group_size)
        quantised = self._weights.quantised(grouped, shape.head_format, deviation)
        return _decompressed("lm_head", quantised, (shape.vocab_size, shape.hidden_size))

    # ---- one layer --------------------------------------------------------------------------

    def _layer(self, layer: int, hidden: ov.Node) -> ov.Node:
        shape = self._shape
        name = f"model.layers.{layer}"
        residual_gain = 1 / math.sqrt(2 * shape.num_layers)  # so that all branches add up to one
        normed = self._rms_norm(f"{name}.input_layernorm", hidden)
        attended = self._attention(layer, normed)
        width = shape.num_heads * shape.head_size
        out = self._linear(
            f"{name}.self_attn.o_proj", attended, shape.hidden_size, width, residual_gain
        )
        hidden = ops.add(hidden, out)
        normed = self._rms_norm(f"{name}.post_attention_layernorm", hidden)
        sizes = (shape.ffn_size, shape.hidden_size)
        gate = ops.swish(self._linear(f"{name}.mlp.gate_proj", normed, *sizes, 1.0))
        up = self._linear(f"{name}.mlp.up_proj", normed, *sizes, 1.0)
        gated = ops.multiply(gate, up)
        down = self._linear(f"{name}.mlp.down_proj", gated, *sizes[::-1], 2 * residual_gain)
        return _named(ops.add(hidden, down), f"{name}/Add")

    def _rms_norm(self, name: str, data: ov.Node) -> ov.Node:
        squares = ops.power(data, _floats([[[2.0]]]))
        mean = ops.reduce_mean(squares, _ints(-1), keep_dims=True)
        root = ops.sqrt(ops.add(mean, _floats([[[self._shape.rms_eps]]])))
        normed = ops.multiply(data, ops.divide(_floats([[[1.0]]]), root))
        weight = self._weights.norm(self._shape.hidden_size)[None, None, :]
        return _named(ops.multiply(_floats(weight), normed), name)

    def _attention(self, layer: int, normed: ov.Node) -> ov.Node:
        shape = self._shape
        name = f"model.layers.{layer}.self_attn"
        query = self._heads(f"{name}.q_proj", normed, shape.num_heads)
        key = self._heads(f"{name}.k_proj", normed, shape.num_kv_heads)
        value = self._heads(f"{name}.v_proj", normed, shape.num_kv_heads)
        past_key = self._past(layer, "key")
        past_value = self._past(layer, "value")
        if self._shared is None:
            self._shared = self._make_shared(past_key, normed)
        shared = self._shared
        query = _rotated(query, shared.cosine, shared.sine, shape.head_size)
        key = _rotated(key, shared.cosine, shared.sine, shape.head_size)
        keys = self._append(layer, "key", past_key, key)
        values = self._append(layer, "value", past_value, value)
        if shape.num_heads != shape.num_kv_heads and shared.gqa_shape is None:
            shared.gqa_shape = self._gqa_shape(keys, past_key, normed)
        attended = ops.scaled_dot_product_attention(
            query,
            self._repeated(keys),
            self._repeated(values),
            shared.mask,
            shared.scale,
            causal=False,
        )
        _named(attended, f"{name}/ScaledDotProductAttention")
        tokens_first = ops.transpose(attended, _ints(0, 2, 1, 3, dtype="i32"))
        return ops.reshape(tokens_first, _ints(0, 0, shape.num_heads * shape.head_size), True)

    def _heads(self, name: str, normed: ov.Node, heads: int) -> ov.Node:
        shape = self._shape
        flat = self._linear(name, normed, heads * shape.head_size, shape.hidden_size, 1.0)
        split = ops.reshape(flat, _ints(0, 0, heads, shape.head_size), True)
        return ops.transpose(split, _ints(0, 2, 1, 3, dtype="i32"))

    def _past(self, layer: int, kind: str) -> ov.Node:
        shape = self._shape
        empty = ops.concat(
            [self._batch, _ints(shape.num_kv_heads), _ints(0), _ints(shape.head_size)], 0
        )
        read = ops.read_value(
            ops.broadcast(_floats(0.0), empty),
            _variable(layer, kind),
            ov.Type.f32,
            ov.PartialShape([-1, shape.num_kv_heads, -1, shape.head_size]),
        )
        return ops.gather(read, self._inputs["beam_idx"], _int(0))

    def _append(self, layer: int, kind: str, past: ov.Node, new: ov.Node) -> ov.Node:
        present = ops.concat([past, new], -2)
        self._assigns.append(ops.assign(present, _variable(layer, kind)))
        return present

    def _repeated(self, present: ov.Node) -> ov.Node:
        """Give each query head its key or value head."""
        shape = self._shape
        if self._shared is None or self._shared.gqa_shape is None:
            return present
        groups = ops.unsqueeze(present, _int(2))
        wide = ops.broadcast(groups, self._shared.gqa_shape, broadcast_spec="BIDIRECTIONAL")
        return ops.reshape(wide, _ints(0, shape.num_heads, -1, shape.head_size), True)

    # ---- shared by all layers ---------------------------------------------------------------

    def _make_shared(self, past_key: ov.Node, normed: ov.Node) -> _Shared:
        cosine, sine = self._rotary()
        mask = _causal_mask(self._inputs["attention_mask"], past_key, normed)
        scale = _floats(1 / math.sqrt(self._shape.head_size))
        return _Shared(cosine, sine, mask, None, scale)

    def _rotary(self) -> tuple[ov.Node, ov.Node]:
        size = self._shape.head_size
        exponents = np.arange(0, size, 2, dtype=np.float64) / size
        frequencies = (self._shape.rope_theta**-exponents).astype(np.float32)[None, :, None]
        positions = ops.convert(ops.unsqueeze(self._inputs["position_ids"], _int(1)), "f32")
        angles = ops.matmul(_floats(frequencies), positions, False, False)
        angles = ops.transpose(angles, _ints(0, 2, 1, dtype="i32"))
        both = ops.concat([angles, angles], -1)
        cosine, sine = (ops.unsqueeze(f(both), _int(1)) for f in (ops.cos, ops.sin))
        return cosine, sine

    def _gqa_shape(self, keys: ov.Node, past_key: ov.Node, normed: ov.Node) -> ov.Node:
        shape = self._shape
        batch_and_heads = ops.gather(ops.shape_of(keys), _ints(0, 1), _int(0))
        total = ops.add(_as_vector(_size(past_key, 2)), _as_vector(_size(normed, 1)))
        repeats = shape.num_heads // shape.num_kv_heads
        return ops.concat([batch_and_heads, _ints(repeats), total, _ints(shape.head_size)], 0)


def _variable(layer: int, kind: str) -> str:
    return f"past_key_values.{layer}.{kind}present.{layer}.{kind}"


def _decompressed(name: str, weight: QuantisedWeight, shape: tuple[int, int] | None) -> ov.Node:
    """Write the chain from integers to floats that devices recognise as compressed weights."""
    weight.values.set_friendly_name(f"self.{name}.weight")
    data = ops.convert(weight.values, "f16")
    if weight.zero_points is not None:
        data = ops.subtract(data, ops.convert(weight.zero_points, "f16"))
    data = ops.multiply(data, weight.scales)
    if shape is not None:
        data = ops.reshape(data, _ints(*shape), False)
    return ops.convert(data, "f32")


def _rotated(data: ov.Node, cosine: ov.Node, sine: ov.Node, size: int) -> ov.Node:
    half = size // 2
    upper = ops.slice(data, _ints(half), _ints(_INT64_MAX), _ints(1), _ints(3))
    lower = ops.slice(data, _ints(0), _ints(half), _ints(1), _ints(3))
    turned = ops.concat([ops.multiply(upper, ops.convert(_int(-1, "i32"), "f32")), lower], -1)
    return ops.add(ops.multiply(data, cosine), ops.multiply(turned, sine))


def _causal_mask(attention_mask: ov.Node, past_key: ov.Node, normed: ov.Node) -> ov.Node:
    """Build the additive mask f32 ``[batch, 1, tokens, total]`` as transformers 5 writes it."""
    past, tokens, batch = _size(past_key, 2), _size(normed, 1), _size(normed, 0)
    total = ops.add(past, tokens)
    key_index = ops.range(_int(0, "i32"), total, _int(1, "i32"), "i64")
    for axis in (0, 1, 2):
        key_index = ops.unsqueeze(key_index, _int(axis))
    own = ops.range(past, total, _int(1, "i32"), "i64")
    steps = ops.range(_int(0, "i32"), tokens, _int(1, "i32"), "i64")
    query_index = ops.add(steps, ops.gather(own, _int(0), _int(0)))
    for axis in (0, 1, 3):
        query_index = ops.unsqueeze(query_index, _int(axis))
    causal = ops.bitwise_and(ops.constant(np.array(True)), ops.less_equal(key_index, query_index))
    batch_index = ops.range(_int(0, "i32"), batch, _int(1, "i32"), "i64")
    for axis in (1, 2, 3):
        batch_index = ops.unsqueeze(batch_index, _int(axis))
    kept = ops.bitwise_and(causal, _at(attention_mask, batch_index, key_index))
    target = ops.concat(
        [_as_vector(batch), _ints(1), _as_vector(tokens), ops.unsqueeze(total, _int(0))], 0
    )
    kept = ops.broadcast(kept, target, broadcast_spec="BIDIRECTIONAL")
    return ops.select(kept, _floats(0.0), _floats(_MASKED))


def _at(attention_mask: ov.Node, batch_index: ov.Node, key_index: ov.Node) -> ov.Node:
    """Write ``attention_mask[batch_index, key_index]`` the way advanced indexing is exported."""
    mask = ops.convert(attention_mask, "boolean")
    sizes = ops.shape_of(mask, "i32")
    flat = ops.concat([ops.reduce_prod(sizes, _int(0, "i32"), True), _ints(-1, dtype="i32")], 0)
    row_length = ops.split(sizes, _int(0, "i32"), 2).output(1)
    rows = ops.multiply(ops.convert(batch_index, "i32"), row_length)
    index = ops.add(ops.convert(key_index, "i32"), rows)
    picked = ops.gather(ops.reshape(mask, flat, True), index, _int(0, "i32"))
    return ops.reshape(ops.reshape(picked, _ints(-1), False), ops.shape_of(index, "i32"), False)


def _size(data: ov.Node, axis: int) -> ov.Node:
    return ops.gather(ops.shape_of(data), _int(axis), _int(0))


def _as_vector(scalar: ov.Node) -> ov.Node:
    return ops.reshape(scalar, _ints(1), False)


def _named(node: ov.Node, name: str) -> ov.Node:
    node.set_friendly_name(name)
    return node


def _floats(values: object) -> ov.Node:
    return ops.constant(np.asarray(values, np.float32))


def _ints(*values: int, dtype: str = "i64") -> ov.Node:
    return ops.constant(np.array(values, np.int32 if dtype == "i32" else np.int64))


def _int(value: int, dtype: str = "i64") -> ov.Node:
    return ops.constant(np.array(value, np.int32 if dtype == "i32" else np.int64))
