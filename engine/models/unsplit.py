"""The unsplit model by plain OpenVINO, greedy: what every split model is compared with.

Also a program, so that it can be measured in a process of its own:
``python -m engine.models.unsplit XML NUM_TOKENS ID [ID ...] [--fast] [--threads N]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov

from engine.errors import CompileError, DaisyError, InferenceError, UsageError
from engine.models.ir_header import check_ir, check_language_model
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from engine.domain import ComputeMode

EXACT: dict[str, object] = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
}


@dataclass(frozen=True, slots=True)
class UnsplitRun:
    """One greedy answer and how long it took.

    Attributes:
        tokens: The ids written; as many as were asked for.
        ttft_s: From handing over the prompt to the first id, in seconds.
        tokens_per_s: Ids after the first, per second; 0 if there was only one.
    """

    tokens: list[int]
    ttft_s: float
    tokens_per_s: float


class UnsplitModel:
    """A stateful IR, whole, compiled on the CPU. For one thread."""

    def __init__(
        self, xml: Path, mode: ComputeMode = "exact", num_threads: int | None = None
    ) -> None:
        """Check, read and compile it.

        Args:
            xml: openvino_model.xml, with its .bin beside it.
            mode: ``exact`` computes in f32 throughout, ``fast`` as the device likes.
            num_threads: For inference; None leaves it to OpenVINO.

        Raises:
            CompileError: OpenVINO can't read or compile it.

        Fails with ``ModelFileError`` or ``UnsupportedModelError`` if the IR is not whole or no
        stateful language model.
        """
        check_language_model(check_ir(xml, xml.with_suffix(".bin")), shown_path(xml))
        properties = dict(EXACT) if mode == "exact" else {}
        if num_threads is not None:
            properties["INFERENCE_NUM_THREADS"] = num_threads
        try:
            core = ov.Core()
            compiled = core.compile_model(core.read_model(xml), "CPU", properties)
            self._request = compiled.create_infer_request()
            self._inputs = {name for port in compiled.inputs for name in port.names}
        except RuntimeError as exc:
            raise CompileError(f"{xml.name} can't be compiled: {_first_line(exc)}") from exc

    def generate(self, prompt_ids: Sequence[int], num_tokens: int) -> UnsplitRun:
        """Write ``num_tokens`` ids after a prompt, always the most probable, past any end.

        Args:
            prompt_ids: At least one.
            num_tokens: At least one.

        Returns:
            The ids and the times.

        Raises:
            UsageError: There is no prompt, or nothing is to be written.
            InferenceError: The device failed.
        """
        if not prompt_ids or num_tokens < 1:
            raise UsageError("The reference needs a prompt and at least one token to write.")
        try:
            self._request.reset_state()
            start = time.perf_counter()
            tokens = [self._step(prompt_ids, 0)]
            first = time.perf_counter()
            while len(tokens) < num_tokens:
                tokens.append(self._step(tokens[-1:], len(prompt_ids) + len(tokens) - 1))
            end = time.perf_counter()
        except RuntimeError as exc:
            raise InferenceError(f"The unsplit model failed: {_first_line(exc)}") from exc
        speed = (num_tokens - 1) / (end - first) if num_tokens > 1 else 0.0
        return UnsplitRun(tokens, first - start, speed)

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Return the logits of every position of a text, in one pass.

        Args:
            ids: At least one.

        Returns:
            float32 ``[len(ids), vocab_size]``.
        """
        self._request.reset_state()
        return self._infer(ids, 0).copy()

    def _step(self, ids: Sequence[int], past_len: int) -> int:
        return int(np.argmax(self._infer(ids, past_len)[-1]))

    def _infer(self, ids: Sequence[int], past_len: int) -> NDArray[np.float32]:
        total = past_len + len(ids)
        feed = {
            "input_ids": np.asarray([ids], np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past_len, total, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        self._request.infer({name: value for name, value in feed.items() if name in self._inputs})
        logits: NDArray[np.float32] = self._request.get_tensor("logits").data[0]
        return logits


def generate_greedy(
    xml: Path,
    prompt_ids: Sequence[int],
    num_tokens: int,
    mode: ComputeMode = "exact",
    num_threads: int | None = None,
) -> list[int]:
    """Return what the unsplit model writes after a prompt, greedily.

    Args:
        xml: openvino_model.xml, with its .bin beside it.
        prompt_ids: At least one.
        num_tokens: How many ids, at least one; an end doesn't stop it.
        mode: ``exact`` computes in f32 throughout, ``fast`` as the device likes.
        num_threads: For inference; None leaves it to OpenVINO.

    Returns:
        ``num_tokens`` ids.
    """
    return UnsplitModel(xml, mode, num_threads).generate(prompt_ids, num_tokens).tokens


def _first_line(exc: Exception) -> str:
    return " ".join(str(exc).split())[:300]


def main(arguments: Sequence[str]) -> int:
    """Run as the command line says; print one JSON object.

    Args:
        arguments: Without the program's name.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m engine.models.unsplit")
    parser.add_argument("xml", type=Path)
    parser.add_argument("num_tokens", type=int)
    parser.add_argument("prompt_ids", type=int, nargs="+")
    parser.add_argument("--fast", action="store_true", help="default precision instead of f32")
    parser.add_argument("--threads", type=int, help="inference threads")
    options = parser.parse_args(arguments)
    try:
        model = UnsplitModel(options.xml, "fast" if options.fast else "exact", options.threads)
        run = model.generate(options.prompt_ids, options.num_tokens)
    except DaisyError as exc:
        sys.stderr.write(f"{exc.what} {exc.advice}\n")
        return exc.exit_code
    sys.stdout.write(json.dumps(asdict(run)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
