"""The node's side of a stage process: its pipes and its end, as callbacks of the loop.

Callbacks and no tasks: a frame goes from the pipe to whoever waits for it without a detour.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from engine.errors import RemoteProtocolError
from engine.stages.pipe_frames import LENGTH, FrameAssembler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_TAIL_BYTES = 4096
_PIPE_BYTES = 1 << 20  # what Linux allows an ordinary user
_JOIN_BELOW_BYTES = 64 << 10  # a copy of less is cheaper than a second system call
_PIPES_MAY_LAG_S = 0.3


class ProcessPipes(asyncio.SubprocessProtocol):
    """A running stage process.

    Thread: the loop that started it.

    Attributes:
        tail: The last bytes of its standard error.
        exit_status: None while it runs.
        fault: What was wrong with a frame it sent; it was ended for that.
    """

    def __init__(self, on_frame: Callable[[bytes], None], on_end: Callable[[int], None]) -> None:
        """Say who is told.

        Args:
            on_frame: Called with each frame, in order; a ``RemoteProtocolError`` out of it ends
                the process.
            on_end: Called once with the exit status, after the last frame.
        """
        self.tail = b""
        self.exit_status: int | None = None
        self.fault: RemoteProtocolError | None = None
        self._on_frame = on_frame
        self._on_end = on_end
        self._assembler = FrameAssembler()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process's id."""
        return -1 if self._transport is None else self._transport.get_pid()

    async def write(self, frame: bytes) -> None:
        """Send one frame; waits while the pipe is full. Nothing happens after the end.

        Cancellation: the frame is then not sent at all.
        """
        await self._writable.wait()
        if self._stdin is None or self._stdin.is_closing():
            return
        header = LENGTH.pack(len(frame))
        if len(frame) < _JOIN_BELOW_BYTES:
            self._stdin.write(header + frame)
        else:
            self._stdin.write(header)
            self._stdin.write(frame)

    def close_input(self) -> None:
        """Let it see the end of its input, after what has been written."""
        if self._stdin is not None:
            self._stdin.close()

    def end(self, *, forced: bool) -> None:
        """Ask it to end, or end it."""
        if self._transport is not None and self.exit_status is None:
            stop = self._transport.kill if forced else self._transport.terminate
            # It may end in the same moment.
            with contextlib.suppress(ProcessLookupError):
                stop()

    async def wait_ended(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; return False if it has not come in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    # ---- called by the loop ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the pipes."""
        if isinstance(transport, asyncio.SubprocessTransport):
            self._transport = transport
            stdin = transport.get_pipe_transport(_STDIN)
            if isinstance(stdin, asyncio.WriteTransport):
                self._stdin = stdin
            _widen(transport.get_pipe_transport(_STDOUT))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take a piece of a frame, or of what it says on standard error."""
        if fd == _STDERR:
            self.tail = (self.tail + data)[-_TAIL_BYTES:]
            return
        if self.fault is not None:
            return
        try:
            for frame in self._assembler.feed(data):
                self._on_frame(frame)
        except RemoteProtocolError as exc:
            # What follows can't be told apart any more.
            self.fault = exc
            self.end(forced=True)

    def pause_writing(self) -> None:
        """Note that the pipe is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Note that the pipe has room."""
        self._writable.set()

    def process_exited(self) -> None:
        """Note the end; the last frames may still be in the pipe."""
        self._loop.call_later(_PIPES_MAY_LAG_S, self._finish)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it has ended and every pipe has been read to its end."""
        self._finish()

    def _finish(self) -> None:
        if self._ended.is_set() or self._transport is None:
            return
        status = self._transport.get_returncode()
        self.exit_status = 0 if status is None else status
        self._writable.set()
        self._ended.set()
        self._transport.close()
        self._on_end(self.exit_status)


async def start_process(
    on_frame: Callable[[bytes], None],
    on_end: Callable[[int], None],
    cpus: Sequence[int] | None,
) -> ProcessPipes:
    """Start a stage process.

    Args:
        on_frame: See ``ProcessPipes``.
        on_end: See ``ProcessPipes``.
        cpus: The processors it may use; None for all of this process's.

    Raises:
        OSError: The operating system can't start another process.
    """
    # -P: the folder the node happens to run in must not provide modules. UTF-8: paths come as text.
    command = [sys.executable, "-P", "-X", "utf8", "-m", "engine.stages.process"]
    if cpus is not None:
        command += ["--cpus", ",".join(map(str, cpus))]
    _, protocol = await asyncio.get_running_loop().subprocess_exec(
        lambda: ProcessPipes(on_frame, on_end), *command, **_detached()
    )
    return protocol


def _detached() -> dict[str, Any]:
    """Return what keeps a terminal's Ctrl-C from reaching the process before we say so."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    # Not a session of its own: Linux weighs those against each other first, and then the stage's
    # lower priority would count for nothing against its node.
    return {"process_group": 0}


def _widen(transport: asyncio.BaseTransport | None) -> None:
    """Let the pipe hold a whole prefill chunk, where the system can."""
    if sys.platform != "linux" or transport is None:
        return
    import fcntl  # noqa: PLC0415 - there is none on Windows

    pipe = transport.get_extra_info("pipe")
    try:
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (OSError, ValueError):
        # The user's pipes have used up their share, and it works with 64 KiB too; or the process
        # has ended already, and its pipe is closed.
        return
