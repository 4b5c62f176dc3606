"""One question, its answer as it comes, and how fast it was."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.cli.amounts import duration
from engine.cli.shown_text import printable
from engine.errors import PipelineBrokenError
from engine.messages.control import (
    Accepted,
    AnswerInterrupted,
    AnswerProgress,
    AnswerResumed,
    Finished,
    TextDelta,
)
from engine.pipeline.asking import ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.cli.output import Output
    from engine.messages.control import Generate
    from engine.messages.message import Message
    from engine.transport.link import Link

QUIET_S = 3.0  # before a person is told that the question waits
AGAIN_S = 15.0  # before it is said again: a pool may load for minutes


@dataclass(slots=True)
class Answer:
    """An answer, as far as it has come.

    Attributes:
        pieces: Of its text.
        token_ids: All of them.
        pauses_s: How long it stood still, each time a PC was lost.
        end: None before it has ended.
    """

    pieces: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    end: Finished | None = None

    @property
    def text(self) -> str:
        """Its text so far."""
        return "".join(self.pieces)


def nothing(_answer: Answer) -> None:
    """Do nothing with an answer."""


async def tell_answer(
    connection: Link,
    request: Generate,
    output: Output,
    on_accepted: Callable[[], None] = lambda: None,
    on_text: Callable[[Answer], None] = nothing,
) -> Answer:
    """Ask, show the answer as it comes, and say how fast it was.

    Args:
        connection: To the head, or to a node that relays to it.
        request: What is asked.
        output: Told.
        on_accepted: Called once the request was taken, before any text.
        on_text: Called with the answer so far, whenever some of it has come.

    Returns:
        The answer, which has ended.

    Raises:
        PipelineBrokenError: Nothing was said of the end.
    """
    answer = Answer()
    patience = _Patience(output)
    try:
        async for event in ask(connection, request):
            if isinstance(event, Accepted):
                patience.is_accepted = True
                on_accepted()
            elif isinstance(event, AnswerProgress):
                patience.progress = event
            else:
                patience.end()
            _show(event, answer, output)
            if isinstance(event, TextDelta):
                on_text(answer)
    finally:
        patience.end()
    if answer.end is None:
        raise PipelineBrokenError("The answer broke off.")
    output.end_of_text()
    _tell_speed(answer.end, output)
    return answer


class _Patience:
    """Says now and then why nothing comes; until it is ended."""

    def __init__(self, output: Output) -> None:
        self.is_accepted = False
        self.progress: AnswerProgress | None = None
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self._timer = self._loop.call_later(QUIET_S, self._tell)

    def end(self) -> None:
        self._timer.cancel()

    def _tell(self) -> None:
        waited = duration(self._loop.time() - self._began_s)
        if self.is_accepted:
            why = _why_quiet(self.progress)
            self._output.say(f"Waiting for the first token, for {waited}: {why}.")
        else:
            why = "it loads a model, or has no place free; see daisy status"
            self._output.say(f"The pool has not taken the question yet, for {waited}: {why}.")
        self._timer = self._loop.call_later(AGAIN_S, self._tell)


def _why_quiet(progress: AnswerProgress | None) -> str:
    if progress is None:
        return "the prompt is being read"
    if not progress.queue_place:
        return f"{progress.num_read} tokens of the prompt are read"
    place = f"place {progress.queue_place} in the queue"
    return place if progress.wait_s is None else f"{place}, about {duration(progress.wait_s)}"


def _show(event: Message, answer: Answer, output: Output) -> None:
    match event:
        case Accepted():
            output.event("accepted", prompt_tokens=event.prompt_tokens, seed=event.seed)
        case AnswerProgress():
            output.event(
                "progress",
                queue_place=event.queue_place,
                wait_s=event.wait_s,
                num_read=event.num_read,
            )
        case TextDelta():
            answer.pieces.append(event.text)
            answer.token_ids.extend(event.token_ids)
            output.text(event.text, event.token_ids)
        case AnswerInterrupted():
            output.event("interrupted", what=event.what)
            output.aside(f"A PC was lost; the others take over ... ({printable(event.what)})")
        case AnswerResumed():
            answer.pauses_s.append(event.pause_s)
            output.event("resumed", pause_s=event.pause_s)
            output.aside(f"They go on, after {duration(event.pause_s)}.")
        case Finished():
            answer.end = event


def _tell_speed(end: Finished, output: Output) -> None:
    rate = (end.completion_tokens - 1) / end.decode_s if end.decode_s > 0 else None
    output.event(
        "finished",
        finish_reason=end.finish_reason,
        prompt_tokens=end.prompt_tokens,
        cached_tokens=end.cached_tokens,
        completion_tokens=end.completion_tokens,
        ttft_s=end.ttft_s,
        tokens_per_s=rate,
        chain_compute_ms=end.chain_compute_ms,
        drafted_tokens=end.drafted_tokens,
        accepted_tokens=end.accepted_tokens,
    )
    ttft = "-" if end.ttft_s is None else f"{end.ttft_s:.2f} s"
    speed = "-" if rate is None else f"{rate:.1f} tokens/s"
    cached = f" ({end.cached_tokens} known)" if end.cached_tokens else ""
    guessed = f" ({end.accepted_tokens} guessed)" if end.accepted_tokens else ""
    output.say(
        f"[{end.prompt_tokens} tokens in{cached}, {end.completion_tokens} out{guessed}, "
        f"{end.finish_reason}; first token after {ttft}, then {speed}]"
    )
