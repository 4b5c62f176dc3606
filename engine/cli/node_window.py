"""What stands in a node's window: what it is told of itself, as it happens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import engine
from engine.cli.node_news import NodeNews
from engine.cli.own_node import ask_status
from engine.errors import TransportError
from engine.transport.control_port import connect_control

if TYPE_CHECKING:
    from engine.cli.node_news import News
    from engine.cli.output import Output
    from engine.node import Listening

LOOK_EVERY_S = 1.0


async def tell_news(listening: asyncio.Future[Listening], output: Output) -> None:
    """Look at the pool once a second, over the node's own control port, and say what has changed.

    Args:
        listening: Where the node is reached, once it is.
        output: Told a line for each change.

    Cancellation: how it ends; the connection is closed.
    """
    reach, news = await listening, NodeNews()
    while True:
        try:
            await _look(reach, news, output)
        except TransportError:
            await asyncio.sleep(LOOK_EVERY_S)  # it is busy, or about to end


async def _look(reach: Listening, news: NodeNews, output: Output) -> None:
    connection = await connect_control(reach.control_port, reach.token, engine.__version__)
    try:
        while True:
            for each in news.see(await ask_status(connection)):
                tell(each, output)
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        await connection.close("The window has ended.")


def tell(news: News, output: Output) -> None:
    """Say one thing; a node goes on although nobody reads what it says any more.

    Args:
        news: What happened.
        output: Told.
    """
    try:
        output.event(news.event, **news.fields)
        output.say(news.sentence)
    except BrokenPipeError:
        output.forget_reader()
