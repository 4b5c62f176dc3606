"""What a stage process answers, with a real stage behind it."""

from types import SimpleNamespace

import msgspec
import numpy as np
import openvino as ov
import pytest

from engine.domain import KeptPrefix, LayerRange, SampledTokens, SequenceId
from engine.errors import RemoteProtocolError
from engine.messages.chain import BatchFailed, CloseSequence, OpenSequence
from engine.messages.codec import Unknown, decode, peek_batch
from engine.messages.control import Ping
from engine.messages.hidden_states import widened_rows
from engine.messages.stage_control import KVUsageReport, ReportKVUsage
from engine.sampling.parameters import SamplingParameters
from engine.splitter.analysis import analyse
from engine.splitter.cut import cut_shard
from engine.stages.loading import load_stage
from engine.stages.service import StageService
from tests.unit.stages.running import MODELS, PROMPTS, batch, plain_greedy, whole


def opening(sequence, **sampling):
    return OpenSequence(
        epoch=1,
        sequence_id=SequenceId(sequence),
        num_prompt_tokens=5,
        sampling=SamplingParameters(**sampling),
    )


@pytest.fixture(scope="module")
def stage():
    return load_stage(whole("llama", "paged", max_tokens=96, max_sequences=1))


@pytest.fixture
def service(stage):
    yield StageService(stage)
    for sequence in range(8):
        stage.release(SequenceId(sequence))


def test_the_last_stage_answers_tokens(service):
    assert service.answer(opening(1)) is None
    work = batch((1, 0, PROMPTS[0], 1))
    answer = service.answer(work)
    drawn = decode(answer)
    assert isinstance(drawn, SampledTokens)
    assert (drawn.batch_id, drawn.epoch) == (work.batch_id, work.epoch)
    assert drawn.rows[0].token_ids == tuple(plain_greedy("llama", PROMPTS[0], 1))
    assert drawn.rows[0].first_position == 5
    assert peek_batch(answer).compute_us > 0


def test_a_batch_without_logits_is_answered_without_rows(service):
    service.answer(opening(1))
    assert decode(service.answer(batch((1, 0, PROMPTS[0], 0)))).rows == ()


@pytest.fixture(scope="module")
def first_request(tmp_path_factory):
    """To load the first two layers."""
    analysis = analyse(ov.Core(), MODELS / "llama" / "openvino_model.xml")
    layers = LayerRange(0, 2)
    xml = tmp_path_factory.mktemp("first") / "s.xml"
    ov.save_model(cut_shard(analysis, layers).model, xml, compress_to_fp16=False)
    return whole("llama", "paged", xml_path=str(xml), layers=layers, is_last=False)


def test_another_stage_answers_the_same_batch_with_its_hidden_states(first_request):
    service = StageService(load_stage(first_request))
    service.answer(opening(1))
    work = batch((1, 0, PROMPTS[0], 1))
    answer = decode(service.answer(work))
    assert answer.steps == work.steps
    assert answer.token_ids.tolist() == PROMPTS[0]
    assert answer.hidden_states.shape == (5, 64)
    assert np.isfinite(answer.hidden_states).all()
    assert answer.hidden_states.dtype == np.float32


@pytest.mark.parametrize(("precision", "dtype"), [("f16", np.float16), ("int8", np.int8)])
def test_hidden_states_go_in_the_form_that_was_asked_for(first_request, precision, dtype):
    stage = load_stage(msgspec.structs.replace(first_request, hidden_precision=precision))
    is_labelled = any("answers differ slightly" in note for note in stage.description.notes)
    assert is_labelled == (precision == "int8"), "f16 does what fast mode does anyway"
    service = StageService(stage, precision)
    service.answer(opening(1))
    work = batch((1, 0, PROMPTS[0], 1))
    sent = decode(service.answer(work))
    assert sent.hidden_states.dtype == dtype
    exact = stage.run(batch((2, 0, PROMPTS[0], 1)))
    largest = np.abs(exact).max(axis=1, keepdims=True)
    assert (np.abs(widened_rows(sent) - exact) <= largest / 250).all()


@pytest.mark.parametrize("outlier", [70_000.0, -1e6])
def test_hidden_states_with_an_outlier_go_as_f32(outlier):
    """Such models are there: their residual stream passes what f16 holds, and must arrive whole.

    The row beside it arrives as it would in a frame of f16.
    """
    rows = np.full((2, 8), 0.1, np.float32)
    rows[1, 3] = outlier
    service = StageService(Fixed(rows), "f16")
    sent = decode(service.answer(batch((1, 0, [5, 6], 0)))).hidden_states
    assert sent.dtype == np.float32
    np.testing.assert_array_equal(sent[1], rows[1])
    np.testing.assert_array_equal(sent[0], rows[0].astype(np.float16))
    rows[1, 3] = 0
    assert decode(service.answer(batch((1, 2, [7, 8], 0)))).hidden_states.dtype == np.float16


class Fixed:
    """A first stage whose output is chosen: no small model has such outliers."""

    description = SimpleNamespace(is_last=False)

    def __init__(self, rows):
        self._rows = rows

    def run(self, _batch):
        return self._rows


def test_a_failed_batch_is_told_and_the_next_one_runs(service):
    """A full cache, then a sequence that goes on where nothing is cached."""
    service.answer(opening(1))
    service.answer(opening(2))
    full = decode(service.answer(batch((1, 0, [3] * 129, 1))))
    assert isinstance(full, BatchFailed)
    assert (full.code, full.sequence_ids) == ("kv_cache_full", (1,))
    assert full.what
    assert full.advice
    beyond = decode(service.answer(batch((2, 9, [3], 1))))
    assert beyond.code == "local_protocol"
    assert isinstance(decode(service.answer(batch((1, 0, [3], 1)))), SampledTokens)


def test_frames_behind_a_batch_that_failed_fail_nobody(service):
    """They were sent before the head knew; a sequence that begins anew is computed again."""
    service.answer(opening(1))
    service.answer(opening(2))
    assert isinstance(decode(service.answer(batch((1, 0, [3] * 129, 1)))), BatchFailed)
    rows = decode(service.answer(batch((1, 129, [3], 1), (2, 0, PROMPTS[0], 1)))).rows
    assert {row.sequence_id: len(row.token_ids) for row in rows} == {1: 0, 2: 1}
    (row,) = decode(service.answer(batch((1, 130, [3], 1)))).rows
    assert row.token_ids == ()
    (row,) = decode(service.answer(batch((1, 0, [3], 1)))).rows
    assert len(row.token_ids) == 1


def test_a_step_that_stands_on_a_wrong_guess_is_dropped_and_its_neighbour_computed(service):
    """The next one that begins with the token that was drawn is let in."""
    service.answer(opening(1))
    service.answer(opening(2))
    truth = plain_greedy("llama", PROMPTS[0], 4)
    service.answer(batch((1, 0, PROMPTS[0], 1)))
    wrong = (truth[1] + 1) % 512
    (row,) = decode(service.answer(batch((1, 5, [truth[0], wrong], 2)))).rows
    assert row.token_ids == (truth[1],)
    stale = batch((1, 7, [truth[2]], 1), (2, 0, PROMPTS[0], 1))
    rows = decode(service.answer(stale)).rows
    assert [(row.sequence_id, row.token_ids) for row in rows] == [(2, (truth[0],)), (1, ())]
    answer = service.answer(batch((1, 6, [wrong], 1)))
    assert decode(answer).rows[0].token_ids == ()
    assert peek_batch(answer).compute_us == 0
    (row,) = decode(service.answer(batch((1, 6, truth[1:3], 2)))).rows
    assert row.token_ids == (truth[2], truth[3])


def test_a_closed_sequence_gives_its_blocks_back(service):
    service.answer(opening(1))
    service.answer(batch((1, 0, PROMPTS[0], 0)))
    usage = decode(service.answer(ReportKVUsage()))
    assert isinstance(usage, KVUsageReport)
    assert (usage.usage.used_blocks, usage.usage.num_sequences) == (1, 1)
    assert service.answer(CloseSequence(epoch=1, sequence_id=SequenceId(1))) is None
    assert decode(service.answer(ReportKVUsage())).usage.used_blocks == 0


def test_a_sequence_begins_with_what_another_left(service):
    """Blocks and tokens: a penalty on what the prefix says, and the model's own choice without."""
    prompt = PROMPTS[1]
    for number, penalty in ((1, 0.0), (2, 2.0)):
        message = msgspec.structs.replace(
            opening(number, presence_penalty=penalty), num_prompt_tokens=40
        )
        service.answer(message)
    whole_row = decode(service.answer(batch((1, 0, prompt, 1)))).rows[0]
    assert whole_row.token_ids == tuple(plain_greedy("llama", prompt, 1))
    prefix = KeptPrefix(SequenceId(1), 32)
    service.answer(msgspec.structs.replace(opening(3), prefix=prefix))
    row = decode(service.answer(batch((3, 32, prompt[32:], 1)))).rows[0]
    assert (row.first_position, row.token_ids) == (40, whole_row.token_ids)
    usage = decode(service.answer(ReportKVUsage())).usage
    assert (usage.used_blocks, usage.num_sequences) == (3, 2)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1e-45},
        {"temperature": 1e-6, "top_p": 1e-6},
        {"temperature": 100.0, "top_k": 1},
        {"temperature": 0.0, "min_p": 1.0},
    ],
)
def test_an_extreme_setting_does_not_spoil_the_next_request(service, sampling):
    """A temperature near zero must be greedy, not NaN."""
    service.answer(opening(1, **sampling))
    service.answer(opening(2))
    work = batch((1, 0, PROMPTS[0], 1), (2, 0, PROMPTS[0], 1))
    rows = decode(service.answer(work)).rows
    assert rows[0].token_ids == rows[1].token_ids
    again = batch((1, 0, PROMPTS[0], 1), (2, 0, PROMPTS[0], 1))
    assert decode(service.answer(again)).rows == rows


def test_a_message_of_another_place_ends_the_service(service):
    assert service.answer(Unknown(1001)) is None
    with pytest.raises(RemoteProtocolError, match="Ping"):
        service.answer(Ping(number=1))


def test_the_description_survives_the_pipe(service, stage):
    assert (
        msgspec.msgpack.decode(
            msgspec.msgpack.encode(stage.description), type=type(stage.description)
        )
        == stage.description
    )
