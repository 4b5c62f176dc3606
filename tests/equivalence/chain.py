"""A chain of real stages in this process, and the unsplit model to hold it against."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov

from engine.domain import LayerRange, MicroBatch, SequenceId, SequenceStep, StageKind
from engine.messages.control import LoadShard
from engine.splitter.cut import cut_shard
from engine.splitter.paged_support import probe_paged_support
from engine.stages.loading import load_stage

if TYPE_CHECKING:
    from pathlib import Path

    from engine.splitter.analysis import Analysis
    from engine.stages.stage import Stage

LONG = os.environ.get("DAISY_LONG") == "1"  # the form whose outcome is published
EXACT = {
    "INFERENCE_NUM_THREADS": "1",
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


class Unsplit:
    """The source model by plain OpenVINO: no code of the engine is in it."""

    def __init__(self, xml: Path) -> None:
        core = ov.Core()
        self._compiled = core.compile_model(core.read_model(xml), "CPU", EXACT)
        self._answers: dict[tuple[int, ...], list[int]] = {}

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        """Answer a prompt; what was computed before is kept."""
        known = self._answers.get(tuple(prompt), [])
        if len(known) < num_tokens:
            known = self._answers[tuple(prompt)] = self._compute(prompt, num_tokens)
        return known[:num_tokens]

    def _compute(self, prompt: list[int], num_tokens: int) -> list[int]:
        request = self._compiled.create_infer_request()
        past, rows, out = 0, list(prompt), []
        while len(out) < num_tokens:
            count = len(rows)
            feeds = {
                "input_ids": np.array([rows], np.int64),
                "attention_mask": np.ones((1, past + count), np.int64),
                "position_ids": np.arange(past, past + count, dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
            }
            request.infer({
                port: feeds[name]
                for port in self._compiled.inputs
                for name in port.get_names() & feeds.keys()
            })
            past += count
            rows = [int(request.get_output_tensor(0).data[0, -1].argmax())]
            out += rows
        return out


@dataclass
class Chain:
    """Stages one after the other, as the nodes would run them."""

    stages: list[Stage]
    _batch_id: int = field(default=0)

    def run(self, rows: list[tuple[int, int, list[int]]]) -> np.ndarray:
        """Run ``(sequence, past_len, tokens)`` of several sequences; one row of logits each."""
        steps = tuple(
            SequenceStep(SequenceId(sequence), past, len(tokens), 1)
            for sequence, past, tokens in rows
        )
        token_ids = np.array([t for _, _, tokens in rows for t in tokens], np.int32)
        self._batch_id += 1
        value = None
        for stage in self.stages:
            value = stage.run(MicroBatch(self._batch_id, 1, steps, token_ids, value))
        assert value is not None
        return value

    def release(self, num_sequences: int) -> None:
        for stage in self.stages:
            for sequence in range(num_sequences):
                stage.release(SequenceId(sequence))
            assert stage.kv_usage().used_blocks == 0

    def greedy(
        self, prompts: list[list[int]], num_tokens: int, rewinds: list[int] | None = None
    ) -> list[list[int]]:
        """Answer several prompts in one batch.

        Args:
            prompts: Sequence ``i`` is prompt ``i``.
            num_tokens: Tokens of each answer.
            rewinds: Before step ``k``, write that many wrong tokens to every sequence and take
                them back; 0 for none.
        """
        logits = self.run([(i, 0, prompt) for i, prompt in enumerate(prompts)])
        out = [[int(row.argmax())] for row in logits]
        past = [len(prompt) for prompt in prompts]
        for k in range(num_tokens - 1):
            wrong = (rewinds or [0])[k % len(rewinds or [0])]
            if wrong:
                self.run([
                    (i, past[i], [out[i][-1]] + [(7 * j + k) % 500 for j in range(wrong)])
                    for i in range(len(prompts))
                ])
            logits = self.run([(i, past[i], [out[i][-1]]) for i in range(len(prompts))])
            for i, row in enumerate(logits):
                past[i] += 1
                out[i].append(int(row.argmax()))
        self.release(len(prompts))
        return out


def ranges_at(cuts: list[int], num_layers: int) -> list[LayerRange]:
    edges = [0, *cuts, num_layers]
    return [LayerRange(a, b) for a, b in pairwise(edges)]


@dataclass(frozen=True)
class Stages:
    """A model's stages of one kind, each cut and loaded once, however many chains it is in."""

    analysis: Analysis
    folder: Path
    kind: StageKind
    mode: str = "exact"
    _loaded: dict[LayerRange, Stage] = field(default_factory=dict)

    def chain(self, cuts: list[int]) -> Chain:
        return Chain([self._stage(r) for r in ranges_at(cuts, self.analysis.num_layers)])

    def _stage(self, layers: LayerRange) -> Stage:
        if layers not in self._loaded:
            xml = self.folder / f"{layers.start}-{layers.stop}" / "openvino_model.xml"
            if not xml.exists():  # the other kind may have made it
                self._cut(layers, xml)
            window = int((xml.parent / "window").read_text()) or None
            wanted = order(self.analysis, layers, xml, self.kind, self.mode, window)
            self._loaded[layers] = load_stage(wanted)
        return self._loaded[layers]

    def _cut(self, layers: LayerRange, xml: Path) -> None:
        xml.parent.mkdir(parents=True)
        shard = cut_shard(self.analysis, layers).model
        window = probe_paged_support(shard, len(layers)).sliding_window
        ov.save_model(shard, str(xml), compress_to_fp16=False)
        (xml.parent / "window").write_text(str(window or 0))


def load_chain(
    analysis: Analysis, folder: Path, cuts: list[int], kind: StageKind, mode: str = "exact"
) -> Chain:
    """Cut, save and load the stages of one chain."""
    return Stages(analysis, folder, kind, mode).chain(cuts)


def order(
    analysis: Analysis,
    layers: LayerRange,
    xml: Path,
    kind: StageKind,
    mode: str,
    window: int | None,
) -> LoadShard:
    (result,) = analysis.graph.of_type("Result")
    vocab = analysis.graph.nodes[result].get_input_partial_shape(0)[2].get_length()
    return LoadShard(
        xml_path=str(xml),
        layers=layers,
        is_first=layers.start == 0,
        is_last=layers.stop == analysis.num_layers,
        hidden_size=analysis.finder.before(0).hidden_size,
        vocab_size=vocab,
        device="CPU",
        kind=kind,
        mode=mode,
        num_threads=1,  # the tests run side by side, one a core
        max_tokens=2048,
        sliding_window=window,
        cache_dir=None,
        golden=None,
        rows_alike=True,
    )
