"""One sequence's infer request: its cache lives in the request's states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov

from engine.stages.cache_slots import CacheSlots

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


class SequenceCache:
    """An infer request, and what the cache in its states holds.

    Attributes:
        slots: Where the sequence's tokens lie.
    """

    def __init__(self, request: ov.InferRequest, token_axes: Mapping[str, int]) -> None:
        """Take a request of a stateful shard and empty its states.

        Args:
            request: Used by this sequence alone.
            token_axes: By variable id, the axis of its state that tokens lie on.
        """
        self.request = request
        self._token_axes = token_axes
        self._dtypes: dict[str, np.dtype[Any]] = {
            name: port.get_element_type().to_dtype()
            for port in request.model_inputs
            for name in port.get_names()
        }
        # What the request's tensors look at: they do not own their memory.
        self._arrays: dict[str, NDArray[Any]] = {}
        self.slots = CacheSlots()
        request.reset_state()

    def cut(self, past_len: int) -> None:
        """Make the cache hold the first ``past_len`` tokens and nothing else.

        The states are read, which on the CPU gives dequantised f32 copies, and set again from
        dense arrays: strides are ignored for u8 states, without an error.

        Raises:
            RuntimeError: The device gives no access to its states.
        """
        if past_len == 0:
            self.request.reset_state()
        else:
            kept = self.slots.kept_slots(past_len)
            for state in self.request.query_state():
                axis = self._token_axes[state.name]
                values = np.take(state.state.data, kept, axis)
                state.state = ov.Tensor(np.ascontiguousarray(values))
        self.slots.compact(past_len)

    def infer(
        self, tokens: NDArray[Any], name: str, rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Run the shard over the next tokens.

        Args:
            tokens: For the input called ``name``: ids ``[tokens]``, or hidden states
                ``[tokens, hidden_size]``.
            name: ``input_ids`` or ``inputs_embeds``.
            rows: Which of them go through the LM head, where the shard can choose.

        Returns:
            float32 ``[rows or tokens, width]``; a view of the request's output.

        Raises:
            RuntimeError: The device failed.
        """
        past_len, num_new = self.slots.num_tokens, len(tokens)
        values = {
            name: tokens[None],
            "position_ids": np.arange(past_len, past_len + num_new)[None],
            "attention_mask": self.slots.extend(num_new),
            "sampled_tokens_indices": rows,
            "beam_idx": np.zeros(1, np.int32),
        }
        # A decoded frame's arrays are read-only, and OpenVINO takes none of those.
        self._arrays = {
            key: np.require(values[key], dtype, ("C", "A", "W"))
            for key, dtype in self._dtypes.items()
        }
        for key, array in self._arrays.items():
            self.request.set_tensor(key, ov.Tensor(array, shared_memory=True))
        self.request.infer()
        output: NDArray[np.float32] = self.request.get_output_tensor(0).data
        return output.reshape(output.shape[-2], output.shape[-1])
