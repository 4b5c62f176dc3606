"""Loading a fixture as one stage, feeding it, and plain OpenVINO to hold it against."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import openvino as ov

from engine.domain import LayerRange, MicroBatch, SequenceId, SequenceStep
from engine.messages.stage_control import LoadShard

MODELS = Path(__file__).parents[2] / "fixtures" / "models"
EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}
PROMPTS = [
    [int(t) for t in np.random.default_rng(length).integers(3, 500, length)]
    for length in (5, 40, 33, 64)
]


def whole(name: str, kind: str, **changes: object) -> LoadShard:
    """Return the request to load an uncut fixture of four layers as the only stage."""
    request = LoadShard(
        xml_path=str(MODELS / name / "openvino_model.xml"),
        layers=LayerRange(0, 4),
        is_first=True,
        is_last=True,
        hidden_size=64,
        vocab_size=512,
        device="CPU",
        kind=kind,
        mode="exact",
        num_threads=None,
        max_tokens=1024,
        sliding_window=None,
        cache_dir=None,
        golden=None,
        max_sequences=4,
    )
    return msgspec.structs.replace(request, **changes)


def batch(*parts: tuple[int, int, list[int], int], hidden=None) -> MicroBatch:
    """Return a micro-batch of ``(sequence, past_len, tokens, num_logits)``."""
    steps = tuple(
        SequenceStep(SequenceId(sequence), past_len, len(tokens), num_logits)
        for sequence, past_len, tokens, num_logits in parts
    )
    token_ids = np.array([t for _, _, tokens, _ in parts for t in tokens], np.int32)
    return MicroBatch(1, 1, steps, token_ids, hidden)


def plain_greedy(name: str, prompt: list[int], num_tokens: int) -> list[int]:
    """Answer a prompt with the stateful fixture and nothing of ours."""
    core = ov.Core()
    model = core.compile_model(core.read_model(MODELS / name / "openvino_model.xml"), "CPU", EXACT)
    names = {port.get_any_name() for port in model.inputs}
    request = model.create_infer_request()
    past, rows, answer = 0, list(prompt), []
    while len(answer) < num_tokens:
        total = past + len(rows)
        values = {
            "input_ids": np.array([rows], np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        logits = request.infer({key: values[key] for key in names})["logits"]
        past, rows = total, [int(logits[0, -1].argmax())]
        answer += rows
    return answer


def greedy(stage, prompts: list[list[int]], num_tokens: int, drafted: int = 0) -> list[list[int]]:
    """Answer prompts in one batch; every step also feeds wrong tokens, taken back by the next."""
    wrong = [7] * drafted
    rows = stage.run(batch(*[(i, 0, prompt, 1) for i, prompt in enumerate(prompts)]))
    answers = [[int(row.argmax())] for row in rows]
    for k in range(num_tokens - 1):
        steps = [
            (i, len(prompt) + k, [answers[i][-1], *wrong], 1 + drafted)
            for i, prompt in enumerate(prompts)
        ]
        rows = stage.run(batch(*steps))
        for i, answer in enumerate(answers):
            answer.append(int(rows[i * (1 + drafted)].argmax()))
    for i in range(len(prompts)):
        stage.release(SequenceId(i))
    return answers
