"""``daisy invite``, ``join``, ``pcs``, ``rename``, ``remove`` and ``leave``: who is in the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from engine.cli.arguments import data_dir
from engine.cli.line_reader import LineReader
from engine.cli.own_node import asked_node, open_own_node
from engine.cli.shown_text import printable
from engine.errors import UsageError
from engine.messages.roster_control import (
    Invite,
    Invited,
    Joined,
    JoinPool,
    LeavePool,
    ListPcs,
    ListPools,
    PcsListed,
    PoolsListed,
    RemovePc,
    RenamePc,
)
from engine.pool.announcement import short_id

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from engine.cli.output import Output
    from engine.messages.message import Message
    from engine.messages.roster_control import PcLine, PoolNearby

    A = TypeVar("A", bound=Message)

LINK_BEGINS = "daisy://"


async def invite_command(given: argparse.Namespace, output: Output) -> None:
    """Let one more PC in: show a code, or make a link.

    Args:
        given: Parsed options.
        output: Told the code or the link, on standard output.
    """
    wanted = Invite(is_link=given.link, role="member" if given.member else "owner")
    answer = await _asked(given, wanted, Invited)
    output.event("invited", **msgspec.to_builtins(answer))
    if answer.link is not None:
        output.say("Whoever has this line can join once, until tomorrow: treat it as a password.")
        output.say("On the other PC: daisy join, and paste it; behind the command, in quotes.")
        output.result([answer.link])
        return
    code = answer.code or ""
    output.say(f"On the other PC, within {answer.within_s:.0f} s: daisy join, and type")
    output.result([f"{code[:3]} {code[3:]}"])
    if answer.addresses:
        output.say(f"If it does not find this PC: daisy join CODE --at {answer.addresses[0]}")


async def join_command(given: argparse.Namespace, output: Output) -> None:
    """Join a pool by a code or a link.

    Args:
        given: Parsed options.
        output: Told what came of it.

    Raises:
        UsageError: There is no code.
    """
    said = " ".join(given.code) or await _typed(given, output)
    is_link = said.strip().startswith(LINK_BEGINS)
    if is_link and given.at is not None:
        raise UsageError("A link says itself where to join.", "Leave --at out.")
    wanted = JoinPool(
        code=None if is_link else said, link=said.strip() if is_link else None, address=given.at
    )
    answer = await _asked(given, wanted, Joined)
    output.event("joined", **msgspec.to_builtins(answer))
    host = printable(answer.host_name)
    output.say(f"Joined the pool of {host}: {answer.num_pcs} PCs. daisy pcs lists them.")


async def pcs_command(given: argparse.Namespace, output: Output) -> None:
    """List who is in the pool.

    Args:
        given: Parsed options.
        output: Told.
    """
    _tell(await _asked(given, ListPcs(), PcsListed), output)


async def rename_command(given: argparse.Namespace, output: Output) -> None:
    """Call a PC otherwise, everywhere.

    Args:
        given: Parsed options.
        output: Told.
    """
    pc = await _meant(given)
    _tell(await _asked(given, RenamePc(node_id=pc.node_id, name=given.name), PcsListed), output)


async def remove_command(given: argparse.Namespace, output: Output) -> None:
    """Remove a PC, everywhere and at once.

    Args:
        given: Parsed options.
        output: Told.
    """
    pc = await _meant(given)
    answer = await _asked(given, RemovePc(node_id=pc.node_id), PcsListed)
    output.say(f"{printable(pc.name)} is out, and comes back only by a new code.")
    _tell(answer, output)


async def leave_command(given: argparse.Namespace, output: Output) -> None:
    """Leave the pool, and begin one of one's own.

    Args:
        given: Parsed options.
        output: Told.
    """
    answer = await _asked(given, LeavePool(), PcsListed)
    output.say("This PC has left the pool and has a new key. The others list the old one until")
    output.say("somebody removes it there: daisy remove.")
    _tell(answer, output)


# ---- inside --------------------------------------------------------------------------------------


async def _asked(given: argparse.Namespace, question: Message, kind: type[A]) -> A:
    async with open_own_node(data_dir(given)) as connection:
        return await asked_node(connection, question, kind)


async def _typed(given: argparse.Namespace, output: Output) -> str:
    """Show who waits for a PC to join, and return the code that is typed.

    Raises:
        UsageError: None is.
    """
    pools = (await _asked(given, ListPools(), PoolsListed)).pools
    output.event("pools_nearby", pools=msgspec.to_builtins(pools))
    for line in _pool_lines(pools):
        output.say(line)
    output.say("The code, or the link:")
    said = await LineReader().read()
    if not said.strip():
        raise UsageError("There is no code.", "Run daisy invite on a PC of the pool.")
    return said.strip()


def _pool_lines(pools: Sequence[PoolNearby]) -> list[str]:
    if not pools:
        return ["No PC nearby shows a code. (On a PC of the pool: daisy invite.)"]
    return ["PCs nearby that show a code:", *(f"  {printable(p.name)}  {p.address}" for p in pools)]


async def _meant(given: argparse.Namespace) -> PcLine:
    """Return the PC that is meant by its name or the beginning of its id.

    Raises:
        UsageError: There is none, or several.
    """
    pcs = (await _asked(given, ListPcs(), PcsListed)).pcs
    found = [pc for pc in pcs if pc.name == given.pc] or [
        pc for pc in pcs if pc.node_id.startswith(given.pc)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"There is no PC {given.pc} in this pool.", "daisy pcs lists them.")
    ids = ", ".join(short_id(pc.node_id) for pc in found)
    raise UsageError(f"{len(found)} PCs are called so: {ids}.", "Say which one by its id.")


def _tell(listed: PcsListed, output: Output) -> None:
    output.event("pcs", **msgspec.to_builtins(listed))
    names = [printable(pc.name) for pc in listed.pcs]
    width = max(map(len, names), default=0)
    lines = []
    for pc, name in zip(listed.pcs, names, strict=True):
        where = "this PC" if pc.is_own else "online" if pc.is_online else "offline"
        lines.append(f"{short_id(pc.node_id)}  {name:{width}}  {pc.role:6}  {where}")
    output.result(lines)
