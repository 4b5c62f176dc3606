"""A stage in a process of its own, as the node uses it.

Whatever a driver does to that process, the node learns of it as an error with a reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

import msgspec
import psutil

from engine.errors import (
    CompileError,
    DaisyError,
    RemoteProtocolError,
    StageError,
    StageProcessDiedError,
    rebuilt,
)
from engine.messages.codec import decode, encode_control, peek_type
from engine.messages.control import ErrorReport, MessageType
from engine.messages.stage_control import KVUsageReport, LoadShard, ReportKVUsage, ShardLoaded
from engine.process_ending import describe_ending, is_arithmetic_fault, last_line
from engine.stages.memory_pressure import num_oom_kills
from engine.stages.process_pipes import ProcessPipes, start_process

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from engine.domain import KVUsage, StageDescription

_MAX_IN_FLIGHT = 8
_CLOSED_INPUT_S = 2.0
_TERMINATED_S = 1.0
_ANSWERS_TO_BATCHES = frozenset({
    MessageType.MICRO_BATCH,
    MessageType.SAMPLED_TOKENS,
    MessageType.BATCH_FAILED,
})


class StageProcess:
    """One stage process, from loading to its end.

    Micro-batches go in with ``send``, and their answers come out of ``receive`` in the same order.

    Thread: one event loop.
    """

    def __init__(
        self, *, cpus: Sequence[int] | None = None, max_in_flight: int = _MAX_IN_FLIGHT
    ) -> None:
        """Prepare; ``load`` starts the process.

        Args:
            cpus: The processors it may use; None for all.
            max_in_flight: Micro-batches on their way, answers not yet received included, before
                ``send`` waits.
        """
        self._cpus = cpus
        self._max_in_flight = max_in_flight
        self._pipes: ProcessPipes | None = None
        self._loaded: asyncio.Future[StageDescription] | None = None
        self._reset()

    async def __aenter__(self) -> Self:
        """Return self."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the process."""
        await self.close()

    @property
    def pid(self) -> int | None:
        """The process's id; None before ``load``."""
        return None if self._pipes is None else self._pipes.pid

    def memory_bytes(self) -> int:
        """Return what the process takes of this PC's memory, without the weights it maps.

        Those are the system's cache, which counts as free; 0 before it started or after it ended.
        """
        if self.pid is None:
            return 0
        try:
            memory = psutil.Process(self.pid).memory_info()
        except psutil.Error:
            return 0
        return int(memory.rss - getattr(memory, "shared", 0))

    async def load(self, request: LoadShard, timeout_s: float) -> StageDescription:
        """Start the process and let it load a shard.

        A CPU whose own choice of precision ends the process in compilation is given f32 instead,
        once; the description's notes say so.

        Args:
            request: What to load and how.
            timeout_s: For each attempt. A large model takes minutes.

        Returns:
            What was loaded.

        Raises:
            CompileError: It took too long, or the device can't run the shard.
            ModelFileError: A file of the shard is missing or cut short.
            GoldenStepError: The device computes something else.
            StageProcessDiedError: The process ended while loading.

        Cancellation: the process is ended.
        """
        try:
            return await self._load_once(request, timeout_s)
        except StageProcessDiedError as error:
            is_default = request.mode == "fast" and request.precision is None
            if not (request.device == "CPU" and is_default):
                raise
            if not is_arithmetic_fault(error.exit_status):
                raise
        careful = msgspec.structs.replace(request, precision="f32")
        return await self._load_once(careful, timeout_s)

    async def send(self, frame: bytes) -> None:
        """Hand a frame to the process: a micro-batch, or the opening or closing of a sequence.

        Args:
            frame: As the codec makes it; not copied more than once.

        Raises:
            StageProcessDiedError: The process has ended.

        Cancellation: the frame is then not sent.
        """
        pipes = self._running()
        if peek_type(frame) is MessageType.MICRO_BATCH:
            await self._slots.acquire()
            if self._error is not None:
                self._slots.release()  # the next one that waits learns of it too
        pipes = self._running()
        await pipes.write(frame)

    async def receive(self) -> bytes:
        """Wait for the next answer to a micro-batch.

        Returns:
            ``MICRO_BATCH``, ``SAMPLED_TOKENS`` or ``BATCH_FAILED``, in the order of ``send``.

        Raises:
            DaisyError: The process has ended, after the answers it still gave:
                ``StageProcessDiedError``, or what it reported as its reason.

        Cancellation: safe; no answer is lost.
        """
        answer = await self._answers.get()
        if isinstance(answer, DaisyError):
            self._answers.put_nowait(answer)  # it stays last, for whoever asks again
            raise answer
        self._slots.release()
        return answer

    async def usage(self) -> KVUsage:
        """Ask how full the KV cache is; answered after the batches that were sent before.

        Raises:
            DaisyError: The process has ended.
        """
        pipes = self._running()
        asked: asyncio.Future[KVUsage] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        await pipes.write(encode_control(ReportKVUsage()))
        return await asked

    async def settle(self) -> None:
        """Wait until every micro-batch sent before has been answered, and drop the answers.

        Nobody else may be sending or receiving.

        Raises:
            DaisyError: The process has ended.
        """
        await self.usage()  # it answers in order
        while not self._answers.empty():
            answer = self._answers.get_nowait()
            if isinstance(answer, DaisyError):
                self._answers.put_nowait(answer)
                raise answer
            self._slots.release()

    async def wait_ended(self) -> DaisyError:
        """Wait for the end of the process and return its reason.

        Cancellation: safe.
        """
        await self._running_or_ended().wait_ended()
        return self._error if self._error is not None else _not_loaded()

    async def close(self) -> None:
        """End the process: by the end of its input, then by asking, then by force.

        Nothing happens if it has ended or was never started.
        """
        pipes = self._pipes
        if pipes is None:
            return
        pipes.close_input()
        if await pipes.wait_ended(_CLOSED_INPUT_S):
            return
        pipes.end(forced=False)
        if await pipes.wait_ended(_TERMINATED_S):
            return
        pipes.end(forced=True)
        await pipes.wait_ended()

    # ---- loading -----------------------------------------------------------------------------

    async def _load_once(self, request: LoadShard, timeout_s: float) -> StageDescription:
        self._reset()
        loaded: asyncio.Future[StageDescription] = asyncio.get_running_loop().create_future()
        self._loaded = loaded
        try:
            pipes = await start_process(self._on_frame, self._on_end, self._cpus)
        except OSError as exc:
            raise StageError(f"No stage process can be started: {exc.strerror}.") from exc
        self._pipes = pipes
        try:
            async with asyncio.timeout(timeout_s):
                await pipes.write(encode_control(request))
                return await loaded
        except TimeoutError as exc:
            pipes.end(forced=True)
            await self.close()
            raise CompileError(
                f"Loading {request.xml_path} on {request.device} took more than {timeout_s:g} s."
            ) from exc
        except DaisyError:
            await self.close()
            raise
        except asyncio.CancelledError:
            pipes.end(forced=True)
            raise

    def _reset(self) -> None:
        self._slots = asyncio.Semaphore(self._max_in_flight)
        # Frames, and behind them the error the process ended with.
        self._answers: asyncio.Queue[bytes | DaisyError] = asyncio.Queue()
        self._asked: deque[asyncio.Future[KVUsage]] = deque()
        self._reported: DaisyError | None = None
        self._error: DaisyError | None = None
        self._oom_kills_before = num_oom_kills()

    def _running_or_ended(self) -> ProcessPipes:
        if self._pipes is None:
            raise _not_loaded()
        return self._pipes

    def _running(self) -> ProcessPipes:
        if self._error is not None:
            raise self._error
        return self._running_or_ended()

    # ---- called by the pipes -----------------------------------------------------------------

    def _on_frame(self, frame: bytes) -> None:
        if peek_type(frame) in _ANSWERS_TO_BATCHES:
            self._answers.put_nowait(frame)
            return
        message = decode(frame)
        match message:
            case ShardLoaded() if self._loaded is not None and not self._loaded.done():
                self._loaded.set_result(message.description)
            case KVUsageReport() if self._asked:
                asked = self._asked.popleft()
                if not asked.done():
                    asked.set_result(message.usage)
            case ErrorReport():
                self._reported = rebuilt(message.code, message.what, message.advice)
            case _:
                raise RemoteProtocolError(
                    f"The stage process sent {type(message).__name__} unasked."
                )

    def _on_end(self, exit_status: int) -> None:
        if self._pipes is None:
            return  # it was cancelled while it started, and nobody waits for it
        error = self._reason(exit_status)
        self._error = error
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(error)
        for asked in self._asked:
            if not asked.done():
                asked.set_exception(error)
        self._asked.clear()
        self._answers.put_nowait(error)
        self._slots.release()

    def _reason(self, exit_status: int) -> DaisyError:
        pipes = self._running_or_ended()
        if pipes.fault is not None:
            what = f"The stage process was stopped: {pipes.fault.what}"
            return StageProcessDiedError(what, exit_status)
        if self._reported is not None:
            return self._reported
        ran_out = num_oom_kills() > self._oom_kills_before
        said = last_line(pipes.tail)
        what = describe_ending("The stage process", exit_status, said, memory_ran_out=ran_out)
        return StageProcessDiedError(what, exit_status)


def _not_loaded() -> StageError:
    return StageError("The stage process has not been started.")
