"""A stage on the shard as it is: one infer request per sequence, one inference per step.

A rewind keeps the dropped tokens in the cache and masks them, which copies nothing and works with
any cache precision. Where positions are counted from the cache itself (a sliding window, ALiBi, no
``position_ids``), or too much of the cache is masked, the states are cut instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.errors import InferenceError, KVCacheFullError
from engine.messages.hidden_states import widened_rows
from engine.stages.batch_arrays import check_batch, check_finite
from engine.stages.compilation import last_line
from engine.stages.sequence_cache import SequenceCache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import openvino as ov
    from numpy.typing import NDArray

    from engine.domain import (
        KeptPrefix,
        KVUsage,
        MicroBatch,
        SequenceId,
        SequenceStep,
        StageDescription,
    )
    from engine.stages.blocks import KVBlocks

_STALE_FRACTION = 0.3  # of a cache: beyond it, attention over masked slots costs more than cutting
_FEW_SLOTS = 64  # below it, masked slots cost next to nothing


class _Plan(NamedTuple):
    """How one step begins: by cutting the states, by masking, or just going on."""

    step: SequenceStep
    cuts: bool
    num_slots: int  # afterwards


class StatefulStage:
    """One stateful shard.

    Attributes:
        description: What was loaded.
        cuts_states: Whether every rewind cuts the states instead of masking their slots.
    """

    def __init__(
        self,
        compiled: ov.CompiledModel,
        token_axes: Mapping[str, int],
        blocks: KVBlocks,
        description: StageDescription,
    ) -> None:
        """Take a compiled shard; ``load_stateful`` makes one.

        Args:
            compiled: On the device.
            token_axes: By variable id, the axis of its state that tokens lie on.
            blocks: For counting slots; the plugin allocates its caches itself.
            description: What was loaded.
        """
        self.description = description
        self._compiled = compiled
        self._token_axes = token_axes
        self._blocks = blocks
        self._caches: dict[SequenceId, SequenceCache] = {}
        self._idle: list[ov.InferRequest] = []
        inputs = {name for port in compiled.inputs for name in port.get_names()}
        self.cuts_states = "position_ids" not in inputs
        self._takes_rows = "sampled_tokens_indices" in inputs
        self._row_width = None if description.is_first else description.hidden_size
        part = "logits" if description.is_last else "hidden states"
        self._what = f"{part} of layers {description.layers}"

    def run(self, batch: MicroBatch) -> NDArray[np.float32]:
        """Run one micro-batch, step after step; see ``Stage.run``.

        Raises:
            InferenceError: The device failed, or a NaN or infinity came out.
        """
        check_batch(batch, self._num_cached, self._row_width)
        try:
            plans = self._reserve(batch.steps)
            rows = self._run_steps(batch, plans)
            check_finite(rows, self._what, may_ban=self.description.is_last)
        except RuntimeError as exc:
            self._forget(batch)
            raise InferenceError(
                f"{self.description.device} failed in layers {self.description.layers}: "
                f"{last_line(exc)}"
            ) from exc
        except InferenceError:
            self._forget(batch)
            raise
        return rows

    def begin_from(self, sequence_id: SequenceId, prefix: KeptPrefix) -> None:
        """Hand another's cache over and rewind it; see ``Stage.begin_from``."""
        cache = self._caches.get(prefix.sequence_id)
        if cache is None or prefix.num_tokens > cache.slots.num_tokens:
            return
        self.release(sequence_id)
        self._caches[sequence_id] = self._caches.pop(prefix.sequence_id)
        self._blocks.hand_over(prefix.sequence_id, sequence_id)
        try:
            self._rewind(cache, prefix.num_tokens)
        except RuntimeError:
            self.release(sequence_id)  # its first step is refused
            return
        self._blocks.resize([(sequence_id, cache.slots.num_slots)])

    def _rewind(self, cache: SequenceCache, past_len: int) -> None:
        if past_len < cache.slots.num_tokens and self.cuts_states:
            cache.cut(past_len)
        else:
            cache.slots.rewind(past_len)

    def release(self, sequence_id: SequenceId) -> None:
        """Free what is kept for a sequence; see ``Stage.release``."""
        self._blocks.release(sequence_id)
        cache = self._caches.pop(sequence_id, None)
        # An idle request keeps the memory of its cache: one is enough to make opening cheap.
        if cache is not None and not self._idle:
            self._idle.append(cache.request)

    def kv_usage(self) -> KVUsage:
        """Count the KV blocks; see ``Stage.kv_usage``."""
        return self._blocks.usage()

    def _num_cached(self, sequence_id: SequenceId) -> int:
        cache = self._caches.get(sequence_id)
        return 0 if cache is None else cache.slots.num_tokens

    def _reserve(self, steps: Sequence[SequenceStep]) -> list[_Plan]:
        """Count the slots the steps need, and give masked ones back if they do not fit.

        Raises:
            KVCacheFullError: They do not fit even so.
        """
        plans = [self._plan(step, must_cut=False) for step in steps]
        try:
            self._resize(plans)
        except KVCacheFullError:
            plans = [self._plan(step, must_cut=True) for step in steps]
            self._cut_others({step.sequence_id for step in steps})
            self._resize(plans)
        return plans

    def _cut_others(self, but: set[SequenceId]) -> None:
        """Give back the masked slots of every sequence that has no step.

        Raises:
            RuntimeError: The device gives no access to its states.
        """
        for sequence_id, cache in self._caches.items():
            num_tokens = cache.slots.num_tokens
            if sequence_id not in but and cache.slots.num_slots > num_tokens:
                cache.cut(num_tokens)
                self._blocks.resize([(sequence_id, num_tokens)])

    def _resize(self, plans: Sequence[_Plan]) -> None:
        self._blocks.resize([(plan.step.sequence_id, plan.num_slots) for plan in plans])

    def _plan(self, step: SequenceStep, *, must_cut: bool) -> _Plan:
        cache = self._caches.get(step.sequence_id)
        num_slots = 0 if cache is None else cache.slots.num_slots
        num_stale = num_slots - step.past_len
        is_rewind = cache is not None and step.past_len < cache.slots.num_tokens
        many = num_stale > max(_FEW_SLOTS, _STALE_FRACTION * num_slots)
        cuts = num_stale > 0 and (
            must_cut or many or (is_rewind and (self.cuts_states or step.past_len == 0))
        )
        return _Plan(step, cuts, (step.past_len if cuts else num_slots) + step.num_tokens)

    def _run_steps(self, batch: MicroBatch, plans: Sequence[_Plan]) -> NDArray[np.float32]:
        name = "input_ids"
        tokens: NDArray[Any] = batch.token_ids
        hidden = widened_rows(batch)
        if hidden is not None and not self.description.is_first:
            name, tokens = "inputs_embeds", hidden
        parts: list[NDArray[np.float32]] = []
        first = 0
        for step, cuts, _ in plans:
            cache = self._cache(step.sequence_id)
            if cuts:
                cache.cut(step.past_len)
            elif step.past_len < cache.slots.num_tokens:
                cache.slots.rewind(step.past_len)
            end = first + step.num_tokens
            wanted = np.arange(step.num_tokens - step.num_logits, step.num_tokens)
            rows = cache.infer(tokens[first:end], name, wanted)
            takes_all = self._takes_rows or not self.description.is_last
            parts.append(rows if takes_all else rows[wanted])
            first = end
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _cache(self, sequence_id: SequenceId) -> SequenceCache:
        cache = self._caches.get(sequence_id)
        if cache is None:
            request = self._idle.pop() if self._idle else self._compiled.create_infer_request()
            cache = self._caches[sequence_id] = SequenceCache(request, self._token_axes)
        return cache

    def _forget(self, batch: MicroBatch) -> None:
        # Their requests have failed once: they are not used again.
        for step in batch.steps:
            self._blocks.release(step.sequence_id)
            self._caches.pop(step.sequence_id, None)
