"""A real stage process: it answers as the stage does, and however it ends, one error says so."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import openvino as ov
import psutil
import pytest

from engine.domain import LayerRange, SampledTokens, SequenceId, StageDescription
from engine.errors import (
    CompileError,
    ModelFileError,
    RemoteProtocolError,
    StageError,
    StageProcessDiedError,
)
from engine.messages.chain import BatchFailed, CloseSequence, OpenSequence
from engine.messages.codec import decode, encode_control, encode_micro_batch, peek_batch
from engine.messages.control import Ping
from engine.messages.limits import MAX_FRAME_BYTES
from engine.sampling.parameters import SamplingParameters
from engine.splitter.analysis import analyse
from engine.splitter.cut import cut_shard
from engine.stages.host import StageProcess
from engine.stages.pipe_frames import LENGTH
from tests.unit.stages.running import MODELS, PROMPTS, batch, plain_greedy, whole

pytestmark = [pytest.mark.processes, pytest.mark.together]

LOAD_S = 60.0
MAX_GROWTH_BYTES = 150 << 20
MAX_LATE_GROWTH_BYTES = 32 << 20


def opening(sequence: int, num_prompt_tokens: int) -> bytes:
    return encode_control(
        OpenSequence(
            epoch=1,
            sequence_id=SequenceId(sequence),
            num_prompt_tokens=num_prompt_tokens,
            sampling=SamplingParameters(),
        )
    )


def frame(*parts, hidden=None) -> bytes:
    return encode_micro_batch(batch(*parts, hidden=hidden))


def run(coroutine) -> None:
    """Run a test; nothing may be left running and no child unreaped."""
    before = set(psutil.Process().children())
    asyncio.run(asyncio.wait_for(coroutine, 120))
    assert set(psutil.Process().children()) == before


async def answered(process: StageProcess, *parts):
    await process.send(frame(*parts))
    return decode(await process.receive())


async def greedy(process: StageProcess, sequence: int, prompt: list[int], count: int) -> list[int]:
    await process.send(opening(sequence, len(prompt)))
    answer: list[int] = []
    past, rows = 0, prompt
    while len(answer) < count:
        drawn = await answered(process, (sequence, past, rows, 1))
        past, rows = past + len(rows), list(drawn.rows[0].token_ids)
        answer += rows
    return answer


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_the_process_gives_the_unsplit_models_tokens(kind):
    async def test() -> None:
        async with StageProcess() as process:
            description = await process.load(whole("llama", kind), LOAD_S)
            assert description.kind == kind
            tokens = await greedy(process, 1, PROMPTS[1], 64)
            assert tokens == plain_greedy("llama", PROMPTS[1], 64)
            assert (await process.usage()).num_sequences == 1
            await process.send(encode_control(CloseSequence(epoch=1, sequence_id=SequenceId(1))))
            assert (await process.usage()).used_blocks == 0

    run(test())


def test_memory_does_not_grow_with_every_number_of_rows_that_is_met():
    """Without a bound each takes 1.7 MiB with this small model, and keeps it."""
    num_met = 150

    async def test() -> None:
        async with StageProcess() as process:
            await process.load(whole("llama", "paged", mode="fast"), LOAD_S)
            await process.send(opening(1, 1))
            taken = [process.memory_bytes()]
            for first in (1, 1 + num_met):
                for num_rows in range(first, first + num_met):
                    drawn = await answered(process, (1, 0, [7] * num_rows, 0))
                    assert isinstance(drawn, SampledTokens)
                taken.append(process.memory_bytes())
            # Without oneDNN's bound 200 MiB in all were seen, without either 510.
            assert taken[2] - taken[0] < MAX_GROWTH_BYTES
            assert taken[2] - taken[1] < MAX_LATE_GROWTH_BYTES

    run(test())


def test_answers_come_in_order_and_a_failed_batch_fails_alone():
    async def test() -> None:
        async with StageProcess(max_in_flight=4) as process:
            await process.load(whole("llama", "paged"), LOAD_S)
            await process.send(opening(1, 5))
            await process.send(frame((1, 0, PROMPTS[0], 1)))
            await process.send(frame((9, 3, [1], 1)))
            await process.send(frame((1, 5, [7], 1)))
            answers = [decode(await process.receive()) for _ in range(3)]
            assert [type(answer) for answer in answers] == [
                SampledTokens,
                BatchFailed,
                SampledTokens,
            ]
            assert answers[1].sequence_ids == (9,)
            assert [answers[0].rows[0].first_position, answers[2].rows[0].first_position] == [5, 6]

    run(test())


def test_no_more_batches_are_in_flight_than_allowed():
    async def test() -> None:
        async with StageProcess(max_in_flight=2) as process:
            await process.load(whole("llama", "paged"), LOAD_S)
            await process.send(opening(1, 5))
            for past in range(2):
                await process.send(frame((1, past, [7], 1)))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(process.send(frame((1, 2, [7], 1))), 0.3)
            await process.send(opening(2, 5))  # is no batch
            await process.receive()
            await asyncio.wait_for(process.send(frame((1, 2, [7], 1))), 5)
            for expected in (2, 3):
                assert decode(await process.receive()).rows[0].first_position == expected

    run(test())


def test_a_prefill_chunk_larger_than_any_pipe_goes_through(tmp_path):
    """Two million values each way, four batches in flight: neither side waits for the other."""
    layers, xml = LayerRange(1, 2), tmp_path / "s.xml"
    analysis = analyse(ov.Core(), MODELS / "llama" / "openvino_model.xml")
    ov.save_model(cut_shard(analysis, layers).model, xml, compress_to_fp16=False)
    request = whole(
        "llama",
        "paged",
        xml_path=str(xml),
        layers=layers,
        is_first=False,
        is_last=False,
        max_tokens=4 * 8192,
    )

    async def test() -> None:
        hidden = np.random.default_rng(0).standard_normal((8192, 64)).astype(np.float32)
        async with StageProcess() as process:
            await process.load(request, LOAD_S)
            for sequence in range(4):
                work = frame((sequence, 0, [1] * 8192, 0), hidden=hidden)
                await process.send(work)
            answers = [decode(await process.receive()) for _ in range(4)]
            assert all(answer.hidden_states.shape == (8192, 64) for answer in answers)
            assert np.array_equal(answers[0].hidden_states, answers[3].hidden_states)

    run(test())


@pytest.mark.alone
def test_a_process_killed_within_a_batch_is_an_error_within_a_second():
    async def test() -> None:
        async with StageProcess() as process:
            await process.load(whole("llama", "paged", max_tokens=65536), LOAD_S)
            await process.send(opening(1, 8192))
            await process.send(frame((1, 0, [5] * 8192, 1)))
            waiting = asyncio.gather(process.receive(), process.usage(), return_exceptions=True)
            await asyncio.sleep(0.1)  # it computes for longer than that
            began = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            errors = await waiting
            assert time.monotonic() - began < 1
            for error in errors:
                assert isinstance(error, StageProcessDiedError)
                assert error.what == "The stage process was ended by SIGKILL."
                assert error.exit_status == -signal.SIGKILL
            for call in (process.receive(), process.usage(), process.send(opening(2, 1))):
                with pytest.raises(StageProcessDiedError):
                    await call
            assert (await process.wait_ended()) is errors[0]

    run(test())


@pytest.mark.alone
def test_whoever_waits_for_room_learns_of_the_end_too():
    async def test() -> None:
        async with StageProcess(max_in_flight=1) as process:
            await process.load(whole("llama", "paged", max_tokens=65536), LOAD_S)
            await process.send(opening(1, 8192))
            await process.send(frame((1, 0, [5] * 8192, 1)))
            sends = [process.send(frame((1, 1, [5], 1))) for _ in range(3)]
            waiting = asyncio.gather(*sends, return_exceptions=True)
            await asyncio.sleep(0.1)
            os.kill(process.pid, signal.SIGKILL)
            errors = await asyncio.wait_for(waiting, 1)
            assert [type(error) for error in errors] == [StageProcessDiedError] * 3

    run(test())


@pytest.mark.parametrize(
    "garbage",
    [
        LENGTH.pack(MAX_FRAME_BYTES + 1),
        LENGTH.pack(0),
        LENGTH.pack(20) + b"GET / HTTP/1.1\r\n\r\n\r\n",
        LENGTH.pack(len(encode_control(Ping(number=1)))) + encode_control(Ping(number=1)),
    ],
    ids=["too long", "empty", "another protocol", "a message of another place"],
)
def test_garbage_on_the_pipe_ends_the_process_with_a_typed_error(garbage):
    async def test() -> None:
        async with StageProcess() as process:
            await process.load(whole("llama", "paged"), LOAD_S)
            process._pipes._stdin.write(garbage)
            with pytest.raises(RemoteProtocolError):
                await asyncio.wait_for(process.receive(), 5)

    run(test())


def test_garbage_before_anything_is_loaded_is_answered_by_an_error():
    """A process started by hand, as anything may start it."""
    command = [sys.executable, "-m", "engine.stages.process"]
    started = subprocess.run(
        command, input=LENGTH.pack(8) + b"12345678", capture_output=True, timeout=30, check=False
    )
    length = LENGTH.unpack(started.stdout[: LENGTH.size])[0]
    report = decode(started.stdout[LENGTH.size :])
    assert len(started.stdout) == LENGTH.size + length
    assert (report.code, started.returncode) == ("remote_protocol", 0)


def test_whatever_is_printed_does_not_reach_the_pipe():
    """By Python and by the system call libraries use."""
    script = (
        "import os; from engine.stages.process import claim_pipes; pipe = claim_pipes(); "
        "print('noise', flush=True); os.write(1, b'raw'); pipe.write(b'frame')"
    )
    command = [sys.executable, "-c", script]
    started = subprocess.run(command, capture_output=True, timeout=30, check=True)
    assert started.stdout == LENGTH.pack(5) + b"frame"
    assert started.stderr == b"noise\nraw"


def test_the_end_of_input_is_a_clean_end():
    command = [sys.executable, "-m", "engine.stages.process"]
    started = subprocess.run(command, input=b"", capture_output=True, timeout=30, check=False)
    assert (started.returncode, started.stdout) == (0, b"")


def test_it_ends_with_its_parent_though_its_input_stays_open():
    """A node killed while a stage loads must not leave the memory taken."""
    starter = (
        "import subprocess, sys; "
        "print(subprocess.Popen([sys.executable, '-m', 'engine.stages.process'],"
        " stdout=subprocess.DEVNULL, start_new_session=True).pid, flush=True); "
        "sys.stdin.read()"
    )
    source, held = os.pipe()
    command = [sys.executable, "-c", starter]
    with subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE, text=True) as parent:
        stage = psutil.Process(int(parent.stdout.readline()))
        while stage.num_threads() < 2:  # the second one watches the parent
            time.sleep(0.02)
        assert stage.is_running()
        parent.kill()
    psutil.wait_procs([stage], timeout=10)
    assert not stage.is_running()
    os.close(source)
    os.close(held)


@pytest.mark.parametrize("kind", ["paged", "stateful"])
@pytest.mark.parametrize("damage", ["short", "missing", "other content"])
def test_a_damaged_file_is_reported_in_one_sentence(kind, damage, tmp_path):
    """Or the death of the process is; other content may also just run (a hash finds it)."""
    for name in ("openvino_model.xml", "openvino_model.bin"):
        shutil.copy(MODELS / "llama" / name, tmp_path / name)
    weights = tmp_path / "openvino_model.bin"
    content = weights.read_bytes()
    if damage == "short":
        weights.write_bytes(content[: len(content) // 2])
    elif damage == "missing":
        weights.unlink()
    else:
        weights.write_bytes(np.random.default_rng(0).bytes(len(content)))

    async def test() -> None:
        async with StageProcess() as process:
            request = whole("llama", kind, xml_path=str(tmp_path / "openvino_model.xml"))
            (outcome,) = await asyncio.gather(process.load(request, LOAD_S), return_exceptions=True)
        if damage == "other content":
            assert isinstance(outcome, StageDescription | ModelFileError | StageError)
        else:
            assert isinstance(outcome, ModelFileError)
            assert "openvino_model.bin" in outcome.what
        assert "\n" not in getattr(outcome, "what", "")

    run(test())


def test_a_death_by_arithmetic_while_loading_is_tried_again_in_f32(monkeypatch):
    """What a processor with AMX does in bf16 with one thread; here the signal is sent."""
    attempts: list[StageProcess] = []
    once = StageProcess._load_once

    async def load_once(self, request, timeout_s):
        attempts.append(request)
        if len(attempts) > 1:
            return await once(self, request, timeout_s)
        async with asyncio.TaskGroup() as group:
            loading = group.create_task(collect(once(self, request, timeout_s)))
            await kill_when_started(self, signal.SIGFPE)
        raise loading.result()

    async def collect(attempt):
        with pytest.raises(StageProcessDiedError) as caught:
            await attempt
        return caught.value

    monkeypatch.setattr(StageProcess, "_load_once", load_once)

    async def test() -> None:
        async with StageProcess() as process:
            description = await process.load(whole("llama", "paged", mode="fast"), LOAD_S)
            assert [request.precision for request in attempts] == [None, "f32"]
            assert any("f32" in note for note in description.notes)
            await process.send(opening(1, 5))
            assert (await answered(process, (1, 0, PROMPTS[0], 1))).rows

    run(test())


def test_in_exact_mode_such_a_death_is_reported():
    async def test() -> None:
        async with StageProcess() as process, asyncio.TaskGroup() as group:
            group.create_task(kill_when_started(process, signal.SIGFPE))
            with pytest.raises(StageProcessDiedError, match="was ended by SIGFPE"):
                await process.load(whole("llama", "paged"), LOAD_S)

    run(test())


async def kill_when_started(process: StageProcess, number: int) -> None:
    while process.pid is None:  # noqa: ASYNC110 - it has no event for that
        await asyncio.sleep(0)
    os.kill(process.pid, number)


def test_loading_that_takes_too_long_is_ended():
    async def test() -> None:
        async with StageProcess() as process:
            with pytest.raises(CompileError, match=r"took more than 0\.05 s"):
                await process.load(whole("llama", "paged"), 0.05)

    run(test())


@pytest.mark.alone
def test_loading_can_be_cancelled():
    async def test() -> None:
        process = StageProcess()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.load(whole("llama", "paged"), LOAD_S), 0.05)
        assert await asyncio.wait_for(process.wait_ended(), 2)
        await process.close()

    run(test())


@pytest.mark.alone
def test_a_hanging_process_is_ended_by_force():
    """It is stopped, so it sees neither the end of input nor SIGTERM."""

    async def test() -> None:
        process = StageProcess()
        await process.load(whole("llama", "paged"), LOAD_S)
        os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        await process.close()
        assert time.monotonic() - began < 5
        with pytest.raises(StageProcessDiedError, match="SIGKILL"):
            await process.receive()

    run(test())


def test_the_terminals_ctrl_c_does_not_reach_it():
    """It is in a process group of its own, which is never the terminal's foreground one."""

    async def test() -> None:
        async with StageProcess() as process:
            await process.load(whole("llama", "paged"), LOAD_S)
            assert os.getpgid(process.pid) == process.pid

    run(test())


def test_it_leaves_the_processor_to_its_node_first():
    """Of lower priority, and in the node's own session: Linux weighs sessions before processes."""

    async def test() -> None:
        async with StageProcess() as process:
            await process.load(whole("llama", "paged"), LOAD_S)
            assert psutil.Process(process.pid).nice() > psutil.Process().nice()
            assert os.getsid(process.pid) == os.getsid(0)

    run(test())


def test_a_fault_of_ours_ends_it_with_status_70_and_its_last_words():
    """A processor number that does not exist."""

    async def test() -> None:
        async with StageProcess(cpus=[4095]) as process:
            with pytest.raises(StageProcessDiedError, match="exit status 70; its last words: "):
                await process.load(whole("llama", "paged"), LOAD_S)

    run(test())


@pytest.mark.parametrize("name", ["llama", "llama-f16"])
def test_two_stages_of_one_processor_each_run_in_fast_mode(name):
    """Random gated-MLP fixtures pinned to one core: what ended processes elsewhere."""

    async def test() -> None:
        allowed = sorted(psutil.Process().cpu_affinity())
        async with StageProcess(cpus=allowed[:1]) as one, StageProcess(cpus=allowed[-1:]) as two:
            for process, processor in ((one, allowed[0]), (two, allowed[-1])):
                await process.load(whole(name, "paged", mode="fast"), LOAD_S)
                assert psutil.Process(process.pid).cpu_affinity() == [processor]
                await process.send(opening(1, 5))
                assert (await answered(process, (1, 0, PROMPTS[0], 1))).rows

    run(test())


def test_the_process_measures_its_computing():
    async def test() -> None:
        async with StageProcess() as process:
            await process.load(whole("llama", "paged"), LOAD_S)
            await process.send(opening(1, 5))
            began = time.perf_counter()
            await process.send(frame((1, 0, PROMPTS[0], 1)))
            head = peek_batch(await process.receive())
            assert 0 < head.compute_us < (time.perf_counter() - began) * 1e6

    run(test())
