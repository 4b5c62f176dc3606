"""``daisy``: the command line's entry, and the one place errors become exit statuses."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from engine.cli.arguments import build_parser
from engine.cli.chat_command import chat_command
from engine.cli.commands import ask_command, split_command
from engine.cli.demo_command import demo_command
from engine.cli.interrupts import cancel_on_interrupt
from engine.cli.node_command import node_command, status_command
from engine.cli.output import Output
from engine.errors import DaisyError, first_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

_COMMANDS = {
    "split": split_command,
    "ask": ask_command,
    "chat": chat_command,
    "demo": demo_command,
    "node": node_command,
    "status": status_command,
}
INTERRUPTED = 130  # as a shell says it: 128 and the number of SIGINT
READER_LEFT = 141  # 128 and the number of SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Without the program's name; the process's own if left out.

    Returns:
        The exit status: 0, or that of the error (the README lists them); 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    output = Output(as_json="--json" in words)
    try:
        given = build_parser().parse_args(words)
        return _run(_COMMANDS[given.command], given, output)
    except DaisyError as error:
        output.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        output.event("error", code="cancelled", what="Stopped.", advice="")
        output.say("Stopped.")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left; there is nobody to tell.
        sys.stderr.close()
        return READER_LEFT


def _run(command: Callable[..., Awaitable[None]], given: object, output: Output) -> int:
    async def work() -> None:
        cancel_on_interrupt(asyncio.current_task())
        await command(given, output)

    try:
        asyncio.run(work())
    except asyncio.CancelledError as exc:
        raise KeyboardInterrupt from exc
    except BaseExceptionGroup as group:
        raise first_of(group) from group
    return 0


if __name__ == "__main__":
    sys.exit(main())
