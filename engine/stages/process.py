"""The stage process: ``python -m engine.stages.process``, started by ``engine.stages.host``.

Frames come in on standard input and answers go out on what was standard output, in order. It ends
when its input or its parent does. One thread does the work; OpenVINO has its own below.

Exit status: 0 after a shutdown, an end of input or a reported error; 70 after a fault of ours, with
the traceback on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, BinaryIO

import psutil

from engine.stages.kept_kernels import ENVIRONMENT
from engine.stages.pipe_frames import LENGTH, unpack_length

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXIT_SOFTWARE = 70  # sysexits.h
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_PARENT_CHECK_S = 1.0
_READ_BUFFER_BYTES = 64 * 1024
_NICENESS = 5  # a third of the weight of whatever the PC's owner does


class FramePipe:
    """The two ends this process has of its pipes to the node."""

    def __init__(self, source: BinaryIO, sink_fd: int) -> None:
        """Take both ends.

        Args:
            source: Buffered; frames come in here.
            sink_fd: Blocking; frames go out here.
        """
        self._source = source
        self._sink_fd = sink_fd
        self._buffer = bytearray(_READ_BUFFER_BYTES)

    def read(self) -> memoryview | None:
        """Wait for the next frame.

        Returns:
            The frame, valid until the next call; None at the end of input, also within a frame.

        Raises:
            RemoteProtocolError: Its length is out of range.
        """
        header = self._source.read(LENGTH.size)
        if len(header) < LENGTH.size:
            return None
        length = unpack_length(header)
        if length > len(self._buffer):
            self._buffer = bytearray(length)
        frame = memoryview(self._buffer)[:length]
        # A buffered reader fills all of it, or meets the end of input.
        return frame if self._source.readinto(frame) == length else None  # type: ignore[attr-defined]

    def write(self, frame: bytes) -> None:
        """Send one frame.

        Raises:
            BrokenPipeError: The node is gone.
        """
        header = LENGTH.pack(len(frame))
        if hasattr(os, "writev"):
            sent = os.writev(self._sink_fd, [header, frame]) - len(header)
        else:
            os.write(self._sink_fd, header)
            sent = 0
        # A frame larger than the pipe goes in pieces; the header alone always fits.
        rest = memoryview(frame)[sent:]
        while rest:
            rest = rest[os.write(self._sink_fd, rest) :]


def end_with(parent_pid: int) -> None:
    """End this process at once when its parent is gone, whatever it is doing.

    The end of input says the same, but is not read while a shard is loaded, which takes minutes.

    Thread: one of its own, for as long as the process lives.
    """
    while os.getppid() == parent_pid and psutil.pid_exists(parent_pid):
        time.sleep(_PARENT_CHECK_S)
    os._exit(0)


def claim_pipes() -> FramePipe:
    """Keep the pipe to the node for ourselves, and send everything else to standard error.

    Whatever a library prints, in C or in Python, can then not get between the frames.
    """
    sink_fd = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 - there is none elsewhere

        msvcrt.setmode(_STDIN, os.O_BINARY)
        msvcrt.setmode(sink_fd, os.O_BINARY)
    return FramePipe(open(_STDIN, "rb", _READ_BUFFER_BYTES, closefd=False), sink_fd)


def give_way() -> None:
    """Let the node, and whatever the PC's owner does, have a processor before this process.

    A frame that has come waits otherwise until the system takes the processor from a stage that
    computes: 0.7 to 1.6 ms, several times on a token's way where stage and node share a core.
    """
    with contextlib.suppress(psutil.Error):  # it computes all the same
        own = psutil.Process()
        if sys.platform == "win32":
            own.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
        else:
            own.nice(max(own.nice(), _NICENESS))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stage process.

    Args:
        arguments: The command line without the program; None for the process's own.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="engine.stages.process", description="A stage process.")
    parser.add_argument("--cpus", help="processors this process may use, as 0,1,2")
    options = parser.parse_args(arguments)
    pipe = claim_pipes()
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    try:
        if options.cpus:
            # Before OpenVINO is loaded: it counts the processors once.
            psutil.Process().cpu_affinity([int(cpu) for cpu in options.cpus.split(",")])
        give_way()
        os.environ |= ENVIRONMENT
        # Only now: what a library prints while it is loaded must not reach the pipe either.
        from engine.stages.service import serve  # noqa: PLC0415

        serve(pipe)
    except BrokenPipeError:
        return 0  # the node is gone, and nobody is left to be told
    except Exception:  # noqa: BLE001 - a fault of ours: the node learns of it from the status
        traceback.print_exc()
        return _EXIT_SOFTWARE
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # Not sys.exit: tearing OpenVINO down at interpreter exit can crash after all is done.
    os._exit(status)
