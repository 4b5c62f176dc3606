"""``daisy load`` and ``daisy unload``: what the pool is to run, and how far it is with that."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from engine.cli.amounts import duration
from engine.cli.arguments import data_dir, load_request
from engine.cli.load_view import LoadView
from engine.cli.own_node import ask_status, open_own_node
from engine.cli.plan_table import INT8_LINKS, plan_lines, stage_lines
from engine.cli.shown_text import printable
from engine.cli.wish_watch import LoadWatch, Outcome, UnloadWatch, model_name, trouble_of
from engine.errors import DaisyError, RemoteProtocolError, RequestError, rebuilt
from engine.messages.codec import decode, encode_control
from engine.messages.control import ErrorReport
from engine.messages.pool_control import DeploymentReport, UnloadModel

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from engine.cli.output import Output
    from engine.messages.deployment import Deployment, PlanLine, Trouble
    from engine.messages.message import Message
    from engine.transport.link import Link

REDRAW_S = 0.25  # of what stands on a terminal
LINES_EVERY_S = 2.0  # where lines can't be drawn over


async def load_command(given: argparse.Namespace, output: Output) -> None:
    """Have the pool run a model, and show how far it is.

    Args:
        given: Parsed options.
        output: Told everything.

    Raises:
        DaisyError: What the node or the pool says went wrong.

    Cancellation: nothing is told to the pool. A model that is still being read or converted here
    is given up, because the node sees that nobody waits for it; a wish that the pool knows stays.
    """  # noqa: DOC501 - cancellation is passed on
    request = load_request(given)
    async with open_own_node(data_dir(given)) as connection:
        status = await ask_status(connection)
        names = {n.node_id: printable(n.report.name) for n in status.nodes if n.report is not None}
        own = next((n.node_id for n in status.nodes if n.is_asked), None)
        watch, view = LoadWatch(), LoadView(names, time.monotonic(), own)
        try:
            await follow_load(connection, request, watch, view, output)
        except asyncio.CancelledError:
            _tell_what_goes_on(watch, output)
            raise


async def follow_load(
    connection: Link, request: Message, watch: LoadWatch, view: LoadView, output: Output
) -> DeploymentReport:
    """Ask a node to load a model, and show every report until the model runs.

    Args:
        connection: To the node; nothing else is under way on it.
        request: ``LoadModel``.
        watch: New; knows at any moment whether the pool has taken it up.
        view: Begins now.
        output: Told everything.

    Returns:
        The last report: its record is ready.

    Raises:
        DaisyError: What the node or the pool says went wrong.

    Cancellation: the pool is told nothing.
    """  # noqa: DOC501 - cancellation is passed on
    shown = _Shown(view, output)
    began_s = time.monotonic()
    await connection.send(encode_control(request))
    async for report in _reports(connection):
        if report is None:
            shown.again()
            continue
        outcome = watch.see(report)
        # A record of somebody else's model is no news of this one.
        is_of_this = watch.is_recorded or outcome is Outcome.REPLACED
        told = report if is_of_this else replace(report, deployment=None)
        output.event("deployment", **msgspec.to_builtins(told))
        shown.take(report, is_recorded=watch.is_recorded and outcome is not Outcome.REPLACED)
        if outcome is Outcome.DONE:
            shown.end()
            _tell_ready(report, time.monotonic() - began_s, output)
            return report
        if outcome is Outcome.FAILED:
            output.say("The pool tries again when its PCs change. To give it up: daisy unload.")
        if outcome in {Outcome.FAILED, Outcome.REFUSED, Outcome.REPLACED}:
            raise _failure(outcome, report)
    raise RemoteProtocolError("The node said nothing of the end.")


async def unload_command(given: argparse.Namespace, output: Output) -> None:
    """Have the pool run nothing.

    Args:
        given: Parsed options.
        output: Told.

    Raises:
        DaisyError: What the node or the pool says went wrong.
    """  # noqa: DOC501 - _failure makes it
    watch = UnloadWatch()
    async with open_own_node(data_dir(given)) as connection:
        await connection.send(encode_control(UnloadModel()))
        async for report in _reports(connection):
            if report is None:
                continue
            outcome = watch.see(report)
            output.event("deployment", **msgspec.to_builtins(report))
            if outcome is Outcome.DONE:
                output.event("unloaded")
                output.say("The pool runs no model now.")
                return
            if outcome in {Outcome.REFUSED, Outcome.REPLACED}:
                raise _failure(outcome, report)


async def _reports(connection: Link) -> AsyncIterator[DeploymentReport | None]:
    """Receive reports; None whenever a moment passes without one, so that the time can be shown.

    Yields:
        Them.

    Raises:
        DaisyError: The node reports an error of its own.
        RemoteProtocolError: It sends something else.
    """  # noqa: DOC501 - rebuilt makes it
    while True:
        try:
            async with asyncio.timeout(REDRAW_S):
                message = decode(await connection.receive())
        except TimeoutError:
            yield None
            continue
        if isinstance(message, ErrorReport):
            raise rebuilt(message.code, message.what, message.advice)
        if not isinstance(message, DeploymentReport):
            raise RemoteProtocolError(
                f"The node answered {type(message).__name__} where it was to say how far it is."
            )
        yield message


class _Shown:
    """What a person has been shown of one load."""

    def __init__(self, view: LoadView, output: Output) -> None:
        self._view = view
        self._output = output
        self._can_redraw = output.can_redraw
        self._plan: tuple[PlanLine, ...] = ()
        self._trouble: Trouble | None = None
        self._told: list[str] = []
        self._told_s = -LINES_EVERY_S

    def take(self, report: DeploymentReport, *, is_recorded: bool) -> None:
        now_s = time.monotonic()
        self._view.see(report, now_s, is_recorded=is_recorded)
        record = report.deployment
        if is_recorded and record is not None:
            if record.plan and record.plan != self._plan:
                self._plan = record.plan
                self._tell_plan(record)
            if record.trouble not in {None, self._trouble} and record.phase != "failed":
                self._trouble = record.trouble
                self._output.say(f"{printable(record.trouble.what)} The pool tries again.")
        self.again()

    def again(self) -> None:
        """Show how far it is now, if enough time has passed."""
        now_s = time.monotonic()
        if self._can_redraw:
            self._output.redraw(self._view.lines(now_s))
        elif not self._output.is_for_programs and now_s - self._told_s >= LINES_EVERY_S:
            lines = self._view.node_lines(now_s)
            for line in lines:
                if line not in self._told:
                    self._output.say(line)
            if lines != self._told:
                self._told, self._told_s = lines, now_s

    def end(self) -> None:
        """Let the last state stand."""
        if self._can_redraw:
            self.again()
            self._output.keep_drawn()

    def _tell_plan(self, record: Deployment) -> None:
        why = printable(record.reason) or "no place was found for it."
        self._output.say(f"{printable(model_name(record) or 'The model')}: {why}")
        if record.wish is not None and record.wish.link_precision == "int8":
            self._output.say(f"  {INT8_LINKS}")
        for line in plan_lines(self._plan):
            self._output.say(f"  {line}")


def _tell_ready(report: DeploymentReport, seconds: float, output: Output) -> None:
    record = report.deployment
    if record is None or record.wish is None:
        return
    stages = [msgspec.to_builtins(stage) for stage in record.stages]
    output.event(
        "ready", model=record.wish.model.name, epoch=record.epoch, stages=stages, seconds=seconds
    )
    output.say(f"Ready after {duration(seconds)}: {printable(record.wish.model.name)}")
    for line in stage_lines(record):
        output.say(line)


def _failure(outcome: Outcome, report: DeploymentReport) -> DaisyError:
    trouble = trouble_of(report)
    if outcome is Outcome.REPLACED:
        name = model_name(report.deployment)
        return RequestError(
            "Somebody asked the pool to run "
            + ("nothing" if name is None else f"{printable(name)}")
            + " meanwhile.",
            "Look at daisy status, and agree with the others.",
        )
    if trouble is None:
        return RequestError("The pool could not load the model, and does not say why.")
    return rebuilt(trouble.code, trouble.what, trouble.advice)


def _tell_what_goes_on(watch: LoadWatch, output: Output) -> None:
    output.event("left", goes_on=watch.is_recorded)
    other = None if watch.other is None else printable(watch.other)
    if watch.is_recorded:
        output.stopped(
            "Stopped showing; the pool goes on loading. How far it is: daisy status. "
            "To end that as well: daisy unload."
        )
    elif other is None:
        output.stopped("Stopped. The pool had not taken it up yet: nothing is loaded.")
    else:
        output.stopped(f"Stopped. The pool had not taken it up yet: {other} goes on running.")
