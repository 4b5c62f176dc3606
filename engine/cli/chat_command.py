"""``daisy chat``: turn by turn, until the person is done."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from engine.cli.answerer import open_answerer
from engine.cli.answering import tell_answer
from engine.cli.commands import body_for, chat_message
from engine.cli.interrupts import cancel_on_interrupt
from engine.cli.line_reader import LineReader
from engine.errors import ContextTooLongError, DaisyError, first_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

    from engine.cli.answerer import Connect
    from engine.cli.output import Output

T = TypeVar("T")


async def chat_command(given: argparse.Namespace, output: Output) -> None:
    """Read questions from standard input and answer each, keeping the chat.

    Args:
        given: Parsed options.
        output: Told everything.
    """
    body_for(given, [chat_message("user", "")])  # wrong settings are said before anything loads
    async with open_answerer(given, output) as connect:
        output.say("Write, and press Enter. An empty line or Ctrl-D ends the chat.")
        await _turns(given, connect, output)


async def _turns(given: argparse.Namespace, connect: Connect, output: Output) -> None:
    messages = [chat_message("system", given.system)] if given.system else []
    lines = LineReader()
    while question := (await _read_line(lines)).strip():
        messages.append(chat_message("user", question))
        try:
            answered = await _stoppable(_answer(given, messages, connect, output))
        except DaisyError as error:
            output.error(error)
            messages.pop()
            continue
        if answered is None:
            output.end_of_text()
            output.say("Stopped. Ask on, or press Ctrl-C again to leave.")
            messages.pop()
            continue
        messages, text = answered
        messages.append(chat_message("assistant", text))


async def _stoppable(answer: Coroutine[Any, Any, T]) -> T | None:
    """Wait for an answer that Ctrl-C stops without ending the chat; None if it was stopped.

    Raises:
        DaisyError: As the answer does.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(answer)
            cancel_on_interrupt(task)
    except BaseExceptionGroup as group_error:
        error = first_of(group_error)
        raise error from group_error
    finally:
        cancel_on_interrupt(asyncio.current_task())
    return None if task.cancelled() else task.result()


async def _answer(
    given: argparse.Namespace, messages: list[dict[str, object]], connect: Connect, output: Output
) -> tuple[list[dict[str, object]], str]:
    """Answer; where the chat no longer fits, leave out its oldest turns and say so.

    The system prompt stays. What can't be helped by leaving out turns is the person's to shorten.

    Raises:
        ContextTooLongError: The last question alone is too long.
    """
    kept = messages
    while True:
        tell = partial(_tell_left_out, len(messages) - len(kept), output)
        try:
            async with connect() as connection:
                answer = await tell_answer(connection, body_for(given, kept), output, tell)
        except ContextTooLongError:
            shorter = without_oldest_turn(kept)
            if shorter is None:
                raise
            kept = shorter
        else:
            return list(kept), answer.text


def _tell_left_out(num_messages: int, output: Output) -> None:
    if num_messages:
        output.event("left_out", messages=num_messages)
        output.say(
            f"The chat is longer than the model's context: its oldest {num_messages} messages "
            "are left out."
        )


def without_oldest_turn(messages: list[dict[str, object]]) -> list[dict[str, object]] | None:
    """Return a chat without its oldest question and answer; None if only the last is left.

    Args:
        messages: A chat; a system prompt at its beginning stays.
    """
    begin = 1 if messages and messages[0]["role"] == "system" else 0
    questions = [i for i, m in enumerate(messages) if m["role"] == "user" and i > begin]
    if not questions:
        return None
    return messages[:begin] + messages[questions[0] :]


async def _read_line(lines: LineReader) -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write("> ")
        sys.stderr.flush()
    return await lines.read()
