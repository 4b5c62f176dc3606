"""``daisy``: the command line's entry, and the one place errors become exit statuses."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

from engine.cli.arguments import build_parser
from engine.cli.interrupts import cancel_on_interrupt
from engine.cli.output import Output
from engine.errors import DaisyError, first_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

# Where each command is; imported when it is wanted, for some bring half the engine along.
_COMMANDS = {
    "split": "engine.cli.commands:split_command",
    "ask": "engine.cli.commands:ask_command",
    "chat": "engine.cli.chat_command:chat_command",
    "demo": "engine.cli.demo_command:demo_command",
    "node": "engine.cli.node_command:node_command",
    "status": "engine.cli.status_command:status_command",
    "doctor": "engine.cli.doctor_command:doctor_command",
    "load": "engine.cli.load_command:load_command",
    "unload": "engine.cli.load_command:unload_command",
    "invite": "engine.cli.roster_commands:invite_command",
    "join": "engine.cli.roster_commands:join_command",
    "pcs": "engine.cli.roster_commands:pcs_command",
    "rename": "engine.cli.roster_commands:rename_command",
    "remove": "engine.cli.roster_commands:remove_command",
    "leave": "engine.cli.roster_commands:leave_command",
    "lend": "engine.cli.own_pc_commands:lend_command",
    "models": "engine.cli.own_pc_commands:models_command",
    "drop": "engine.cli.own_pc_commands:drop_command",
}
_WINDOW_NEEDS = ("app", "PySide6", "markdown_it", "pygments")  # the extra "app"
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
    if not words:
        return _show_window()
    output = Output(as_json="--json" in words)
    try:
        given = build_parser().parse_args(words)
        return _run(command_of(given.command), given, output)
    except DaisyError as error:
        output.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        output.event("error", code="cancelled", what="Stopped.", advice="")
        output.stopped("Stopped.")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left; there is nobody to tell. What is buffered still would
        # fail once more when the process ends, with another status.
        output.forget_reader()
        sys.stderr.close()
        return READER_LEFT


def _show_window() -> int:
    """Run the window as a process of its own; where it isn't installed, say what there is."""
    if all(importlib.util.find_spec(name) for name in _WINDOW_NEEDS):
        return subprocess.call([sys.executable, "-m", "app"])
    build_parser().print_help()
    return 0


def command_of(name: str) -> Callable[..., Coroutine[None, None, None]]:
    """Return what carries out a command.

    Args:
        name: As the parser knows it.
    """
    module, _, function = _COMMANDS[name].partition(":")
    found: Callable[..., Coroutine[None, None, None]] = getattr(
        importlib.import_module(module), function
    )
    return found


def _run(command: Callable[..., Coroutine[None, None, None]], given: object, output: Output) -> int:
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
