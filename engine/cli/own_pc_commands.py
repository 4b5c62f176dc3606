"""``daisy lend``, ``models`` and ``drop``: what this PC lends to the pool, and what it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from engine.cli.amounts import amount, duration
from engine.cli.arguments import data_dir
from engine.cli.own_node import asked_node, open_own_node
from engine.cli.shown_text import printable, table
from engine.errors import ModelNotFoundError, UsageError
from engine.messages.own_pc_control import (
    AskLending,
    DropModel,
    LendingReport,
    ListModels,
    ModelsListed,
    SetLending,
)

if TYPE_CHECKING:
    import argparse

    from engine.cli.output import Output
    from engine.messages.message import Message
    from engine.messages.own_pc_control import ModelLine

    A = TypeVar("A", bound=Message)

_MINUTE_S = 60.0
_SHORT = 12  # digits of a model's name that people see
_RULES = {
    "now": "This PC lends itself.",
    "idle": "This PC lends itself while nobody uses it, as Daisy's window sees it.",
    "never": "This PC does not lend itself.",
}


async def lend_command(given: argparse.Namespace, output: Output) -> None:
    """Choose when this PC lends itself, or tell.

    Args:
        given: Parsed options.
        output: Told what holds now.

    Raises:
        UsageError: A pause of less than nothing was asked for.
    """
    if given.pause is not None and given.pause < 0:
        raise UsageError("A pause can't be shorter than nothing.", "--pause 0 ends one.")
    mains_only = None if given.on_battery is None else given.on_battery == "no"
    is_asked = given.rule is None and given.pause is None and mains_only is None
    pause_s = None if given.pause is None else given.pause * _MINUTE_S
    wanted = (
        AskLending()
        if is_asked
        else SetLending(rule=given.rule, pause_s=pause_s, mains_only=mains_only)
    )
    report = await _asked(given, wanted, LendingReport)
    output.event("lending", **msgspec.to_builtins(report))
    lines = [_RULES[report.rule]]
    if report.paused_for_s is not None:
        lines.append(f"Paused for {duration(report.paused_for_s)}.")
    if report.mains_only:
        now = " It is now." if report.on_battery else ""
        lines.append(f"Not while it runs on its battery.{now}")
    if report.is_alone:
        lines.append("It is alone in its pool, so it lends to nobody, and nothing is held back.")
    elif report.rule == "idle" and report.paused_for_s is None:
        lines.append("It is lent now." if report.is_lending else "It is not lent now.")
    output.result(lines)


async def models_command(given: argparse.Namespace, output: Output) -> None:
    """List the models this PC keeps.

    Args:
        given: Parsed options.
        output: Told.
    """
    _tell(await _asked(given, ListModels(), ModelsListed), output)


async def drop_command(given: argparse.Namespace, output: Output) -> None:
    """Take a model off this PC's disk, or off every one's.

    Args:
        given: Parsed options.
        output: Told what became free here.
    """
    model = _meant(given.model, await _asked(given, ListModels(), ModelsListed))
    wanted = DropModel(model_sha256=model.model_sha256, is_everywhere=given.everywhere)
    left = await _asked(given, wanted, ModelsListed)
    freed = amount(left.freed_bytes, "bytes")
    output.say(f"{printable(model.name)} is off this PC's disk; {freed} are free.")
    _tell(left, output)


async def _asked(given: argparse.Namespace, question: Message, kind: type[A]) -> A:
    async with open_own_node(data_dir(given)) as connection:
        return await asked_node(connection, question, kind)


def _meant(said: str, listed: ModelsListed) -> ModelLine:
    """Return the model that is meant by its name or the beginning of its SHA-256.

    Raises:
        ModelNotFoundError: There is none.
        UsageError: There are several.
    """
    found = [model for model in listed.models if model.name == said] or [
        model for model in listed.models if model.model_sha256.startswith(said)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ModelNotFoundError(
            f"This PC keeps no model {printable(said)}.", "daisy models lists them."
        )
    names = ", ".join(model.model_sha256[:_SHORT] for model in found)
    raise UsageError(f"{len(found)} models are called so: {names}.", "Say which one by that.")


def _tell(listed: ModelsListed, output: Output) -> None:
    output.event("models", **msgspec.to_builtins(listed))
    rows = [
        (
            model.model_sha256[:_SHORT],
            printable(model.name),
            amount(model.num_bytes, "bytes"),
            "loaded" if model.is_in_use else "",
        )
        for model in listed.models
    ]
    output.result(table(rows, right=(2,)) if rows else ["This PC keeps no model."])
