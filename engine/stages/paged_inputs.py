"""The inputs of a paged infer request, kept from step to step while their shapes stay the same.

Decoding repeats the same shapes for many steps; then numbers are written into arrays the request
already holds, and no tensor is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov

from engine.messages.hidden_states import widen_into
from engine.stages.batch_arrays import positions
from engine.stages.paged_graph import ROWS_INPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from engine.domain import MicroBatch


class PagedInputs:
    """Everything a paged request is given beside its caches."""

    def __init__(self, request: ov.InferRequest, hidden_size: int) -> None:
        """Look at what the model takes; nothing is set yet.

        Args:
            request: Of a compiled paged model.
            hidden_size: Values of a row of ``inputs_embeds``.
        """
        self._request = request
        self._hidden_size = hidden_size
        self._dtypes: dict[str, np.dtype[Any]] = {
            name: port.get_element_type().to_dtype()
            for port in request.model_inputs
            for name in port.get_names()
        }
        self.takes_rows = ROWS_INPUT in self._dtypes
        self._shape: tuple[int, ...] = ()
        self._arrays: dict[str, NDArray[Any]] = {}

    def write(
        self,
        batch: MicroBatch,
        tables: Sequence[NDArray[np.int32]],
        rows: NDArray[np.int64],
    ) -> None:
        """Fill the request's inputs for one batch.

        Args:
            batch: Checked.
            tables: Each step's physical blocks, int32 ``[blocks]``, covering past and new tokens.
            rows: Those that go through the LM head, where the model can choose.
        """
        steps = batch.steps
        counts = [len(table) for table in tables]
        num_rows = len(rows) if self.takes_rows else 0
        self._fit((len(batch.token_ids), len(steps), sum(counts), num_rows))
        arrays = self._arrays
        if "input_ids" in arrays:
            arrays["input_ids"][:] = batch.token_ids
        if "inputs_embeds" in arrays:
            widen_into(batch, arrays["inputs_embeds"])
        if "position_ids" in arrays:
            arrays["position_ids"][:] = positions(steps)
        if num_rows:
            arrays[ROWS_INPUT][:] = rows
        arrays["past_lens"][:] = [step.past_len for step in steps]
        arrays["max_context_len"][()] = max(step.past_len + step.num_tokens for step in steps)
        if len(steps) == 1:
            arrays["block_indices"][:] = tables[0]
            arrays["subsequence_begins"][1] = len(batch.token_ids)
            arrays["block_indices_begins"][1] = counts[0]
        else:
            np.concatenate(tables, out=arrays["block_indices"])
            np.cumsum([s.num_tokens for s in steps], out=arrays["subsequence_begins"][1:])
            np.cumsum(counts, out=arrays["block_indices_begins"][1:])

    def _fit(self, shape: tuple[int, ...]) -> None:
        if shape == self._shape:
            return
        num_tokens, num_steps, num_blocks, num_rows = shape
        shapes: dict[str, tuple[int, ...]] = {
            "input_ids": (num_tokens,),
            "inputs_embeds": (num_tokens, self._hidden_size),
            "position_ids": (num_tokens,),
            ROWS_INPUT: (num_rows,),
            "past_lens": (num_steps,),
            "subsequence_begins": (num_steps + 1,),
            "block_indices": (num_blocks,),
            "block_indices_begins": (num_steps + 1,),
            "max_context_len": (),
        }
        arrays = {
            name: np.zeros(size, self._dtypes[name])
            for name, size in shapes.items()
            if name in self._dtypes
        }
        for name, array in arrays.items():
            # The tensor does not own the array: it lives in self._arrays as long as it is set.
            self._request.set_tensor(name, ov.Tensor(array, shared_memory=True))
        self._arrays = arrays
        self._shape = shape
