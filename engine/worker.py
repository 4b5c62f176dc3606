"""Work on files nobody vouches for, in a process that may die.

The parent sends one order as a line of JSON and keeps the pipe open; the worker answers with
lines of JSON: progress, then a result or a failure. When the pipe closes the worker stops. A
damaged model can end the worker; that is an error with a reason, and nothing else ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from engine.errors import (
    DaisyError,
    ModelFileError,
    RequestCancelledError,
    UsageError,
    first_of,
    rebuilt,
)
from engine.process_ending import describe_ending, last_line

if TYPE_CHECKING:
    from collections.abc import Callable

P = TypeVar("P", bound=msgspec.Struct)
O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 - order

MAX_LINE_BYTES = 16 * 1024 * 1024
CANCEL_POLL_S = 0.1
STOP_DEADLINE_S = 2.0  # for a worker whose pipe was closed; then it is killed
_TAIL_BYTES = 4096  # of a worker's standard error, kept for its last words


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """An error of ours that crossed the pipe."""

    code: str
    what: str
    advice: str


_NO_ANSWER = Failure(
    ModelFileError.code,
    "The process that read the model wrote something that is no answer.",
    ModelFileError.default_advice(),
)


async def run_worker(
    module: str,
    order: msgspec.Struct,
    answers: Any,  # noqa: ANN401 - a union type, which has no type of its own
    on_progress: Callable[[P], None],
) -> Any:  # noqa: ANN401 - the union's result member; callers narrow it
    """Run one order in a process of its own.

    Args:
        module: Run as ``python -m module``; it calls ``serve_order``.
        order: What to do.
        answers: Union of the progress type (tag "progress") and the result type.
        on_progress: Told of each progress line, on this loop.

    Returns:
        The worker's result.

    Raises:
        UsageError: A name in the order is no text.
        DaisyError: The error the worker reported, with its class.
        ModelFileError: The worker died, or wrote something that is no answer; says how.

    What ``on_progress`` raises ends the worker and is raised again.

    Cancellation: stops the worker and waits for its end, at most ``STOP_DEADLINE_S`` and a kill.
    """
    try:
        line = msgspec.json.encode(order) + b"\n"
    except UnicodeEncodeError as exc:
        raise UsageError("A file's name is no text: it has bytes that are not UTF-8.") from exc
    process = await asyncio.create_subprocess_exec(
        # Names come as UTF-8 in the order, whatever the locale.
        *(sys.executable, "-X", "utf8", "-m", module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=MAX_LINE_BYTES,
        start_new_session=True,
    )
    assert process.stdin is not None  # noqa: S101 - pipes were asked for above
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    tail = bytearray()
    try:
        async with asyncio.TaskGroup() as group:
            collector = group.create_task(_collect(process.stderr, tail))
            try:
                process.stdin.write(line)
                decoder = msgspec.json.Decoder(answers | Failure)
                answer = await _last_answer(process.stdout, decoder, on_progress)
            finally:
                await asyncio.shield(_end(process))
            # A process it started may hold its error output; nobody waits for that.
            await asyncio.wait([collector], timeout=STOP_DEADLINE_S)
            collector.cancel()
    except BaseExceptionGroup as errors:
        error = first_of(errors)
        raise error from errors
    if isinstance(answer, Failure):
        error = rebuilt(answer.code, answer.what, answer.advice)
        raise error
    if answer is None:
        status = process.returncode or 0
        raise ModelFileError(
            describe_ending("The process that read the model", status, last_line(bytes(tail))),
            "The model's files are probably damaged; get a whole copy of them.",
        )
    return answer


def run_worker_blocking(
    module: str,
    order: msgspec.Struct,
    answers: Any,  # noqa: ANN401 - as above
    on_progress: Callable[[P], None],
    cancelled: Callable[[], bool],
) -> Any:  # noqa: ANN401
    """Run one order from a thread that has no loop.

    Args:
        module: As for ``run_worker``.
        order: What to do.
        answers: As for ``run_worker``.
        on_progress: Told of each progress line, on this thread.
        cancelled: Asked every ``CANCEL_POLL_S``; True stops the worker.

    Returns:
        The worker's result.

    Raises:
        RequestCancelledError: ``cancelled`` said so.

    Fails as ``run_worker`` does. Thread: any without a running loop; blocks.
    """

    async def run() -> Any:  # noqa: ANN401
        job = asyncio.ensure_future(run_worker(module, order, answers, on_progress))  # noqa: TID251
        while not job.done():
            await asyncio.wait([job], timeout=CANCEL_POLL_S)
            if cancelled():
                job.cancel()
                await asyncio.wait([job])
                raise RequestCancelledError("The work was stopped.")
        return job.result()

    return asyncio.run(run())


async def _collect(stream: asyncio.StreamReader, tail: bytearray) -> None:
    while chunk := await stream.read(_TAIL_BYTES):
        tail += chunk
        del tail[:-_TAIL_BYTES]


async def _last_answer(
    stream: asyncio.StreamReader,
    decoder: msgspec.json.Decoder[Any],
    on_progress: Callable[[Any], None],
) -> Any:  # noqa: ANN401
    while line := await _next_line(stream):
        if not line.endswith(b"\n"):
            return None  # a dying process wrote it
        try:
            answer = decoder.decode(line)
        except msgspec.DecodeError:
            return _NO_ANSWER
        if answer.__struct_config__.tag != "progress":
            return answer
        on_progress(answer)
    return None


async def _next_line(stream: asyncio.StreamReader) -> bytes:
    """Return a line with its end, less at the end of the stream; one too long is no answer."""
    try:
        return await stream.readline()
    except ValueError:
        return b"\n"


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_DEADLINE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def serve_order(
    order_type: type[O],
    work: Callable[[O, Callable[[msgspec.Struct], None], Callable[[], None]], msgspec.Struct],
) -> int:
    """Be the worker: read the order, do the work, write the answers.

    Args:
        order_type: What is read from the first line of standard input.
        work: ``work(order, report, check_cancelled) -> result``.

    Returns:
        The exit status: 0, or the error's own.
    """
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # a library's print must not get between our lines
    cancelled = threading.Event()

    def send(answer: msgspec.Struct) -> None:
        out.write(msgspec.json.encode(answer) + b"\n")

    def check_cancelled() -> None:
        if cancelled.is_set():
            raise RequestCancelledError("The work was stopped.")

    def watch() -> None:
        while os.read(0, 4096):  # below Python's buffer, whose lock would hold up the exit
            pass
        cancelled.set()

    try:
        order = msgspec.json.decode(sys.stdin.buffer.readline(MAX_LINE_BYTES), type=order_type)
        threading.Thread(target=watch, daemon=True, name="pipe-watch").start()
        send(work(order, send, check_cancelled))
    except DaisyError as error:
        if not cancelled.is_set():
            send(Failure(error.code, error.what, error.advice))
        return error.exit_code
    return 0
