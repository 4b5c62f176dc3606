"""Asker, own node and head with real websockets between them."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from engine.errors import DaisyError, UsageError
from engine.messages.codec import decode, encode_control
from engine.messages.control import (
    AnswerInterrupted,
    Cancel,
    ErrorReport,
    Finished,
    Generate,
    TextDelta,
)
from engine.pipeline.asking import ask
from tests.paired import endpoint_of
from tests.unit.pipeline.scripted import Asker, question
from tests.unit.pipeline.scripted_pool import SCRIPT, check_whole, scripted_pool, undisturbed

pytestmark = pytest.mark.embedded


class Served:
    """A node that answers requests in its way.

    Attributes:
        connections: Those that came in.
    """

    def __init__(self, name, group):
        self.endpoint = endpoint_of(name, group, "asker", "own", "node-1", "node-2")
        self.connections = []

    async def listen(self, answer, cancel):
        async def attend(connection):
            self.connections.append(connection)
            async with asyncio.TaskGroup() as requests:
                tasks = []
                with suppress(DaisyError):
                    await _serve(connection, requests, tasks, answer, cancel)
                for task in tasks:
                    task.cancel()

        self.listener = await self.endpoint.listen("127.0.0.1", 0, attend)
        return f"wss://127.0.0.1:{self.listener.port}"


async def _serve(connection, requests, tasks, answer, cancel):
    while True:
        message = decode(await connection.receive())
        if isinstance(message, Generate):
            tasks.append(requests.create_task(_answered(connection, message, answer)))
        elif isinstance(message, Cancel):
            cancel(message.request_id)


async def _answered(connection, request, answer):
    async def send(message):
        await connection.send(encode_control(message))

    try:
        await answer(request, send, request.request_id)
    except DaisyError as error:
        report = ErrorReport(
            code=error.code, what=error.what, advice=error.advice, request_id=request.request_id
        )
        with suppress(DaisyError):
            await send(report)


@asynccontextmanager
async def three_pcs(chat_text):
    """Run a pool, an asker's own node with its relay, and a node for each head.

    Yields:
        The pool, the asker's connection, and the heads' nodes by epoch.
    """
    async with scripted_pool(chat_text, is_near=False) as pool, asyncio.TaskGroup() as group:
        far, addresses = {}, {}
        for epoch in (1, 2):
            pool.place(epoch, SCRIPT)
            far[epoch] = Served(f"node-{epoch}", group)
            head = pool.heads[epoch]
            addresses[f"node-{epoch}"] = await far[epoch].listen(head.answer, head.cancel)
        own = Served("own", group)
        pool.connect_head = lambda node_id: own.endpoint.connect(addresses[node_id], None)
        address = await own.listen(pool.relay.answer, pool.relay.cancel)
        connection = await Served("asker", group).endpoint.connect(address, None)
        pool.tell()
        yield pool, connection, far
        await connection.close("Done.")
        for node in (own, *far.values()):
            await node.listener.close()
        while any(c.num_active for c in (pool.relay, *pool.heads.values())):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # whoever closes takes its time


def run(scenario):
    async def limited():
        async with asyncio.timeout(20):
            await scenario

    asyncio.run(limited())


def test_an_answer_outlives_the_connection_to_its_head(chat_text):
    asker = Asker()

    async def scenario():
        async with three_pcs(chat_text) as (pool, connection, far):
            pool.chains[1].on_batch = _stop_at(pool.chains[1], 6)
            async for event in ask(connection, question()):
                await asker.send(event)
                if len(asker.ids) == 5 and not asker.of(AnswerInterrupted):
                    pool.tell(epoch=2)
                    far[1].connections[0].abort()

    run(scenario())
    check_whole(asker, undisturbed(chat_text, question()))
    assert len(asker.of(AnswerInterrupted)) == 1


def _stop_at(chain, num_batches):
    return lambda batch: chain.answer(batch) if len(chain.batches) < num_batches else None


def test_an_asker_that_stops_listening_cancels_at_the_head(chat_text):
    async def scenario():
        async with three_pcs(chat_text) as (pool, connection, _):
            pool.chains[1].scripts = [(30,)]
            seen = []
            events = ask(connection, question())
            async for event in events:
                seen.append(event)
                if len(seen) == 5:
                    break
            await events.aclose()
            assert pool.heads[1].num_active == 0
            for _ in range(10):
                await asyncio.sleep(0)
            assert pool.chains[1].events[-1] == ("close", 1)
            # The connection is whole: the next request is answered over it.
            again = [e async for e in ask(connection, question("r2", max_tokens=3))]
            assert isinstance(again[-1], Finished)
            assert sum(len(e.token_ids) for e in again if isinstance(e, TextDelta)) == 3

    run(scenario())


def test_the_rest_of_a_stopped_answer_is_not_of_the_next_one(chat_text, monkeypatch):
    """Its node took too long to say how far it came, and says so while the next one runs."""
    monkeypatch.setattr("engine.pipeline.asking.CANCEL_DEADLINE_S", 0.0)

    async def scenario():
        async with three_pcs(chat_text) as (pool, connection, _):
            pool.chains[1].scripts = [(30,)]
            events = ask(connection, question())
            await anext(events)
            await events.aclose()
            again = [e async for e in ask(connection, question("r2", max_tokens=3))]
            assert {event.request_id for event in again} == {"r2"}
            assert sum(len(e.token_ids) for e in again if isinstance(e, TextDelta)) == 3

    run(scenario())


def test_a_refusal_comes_through_with_its_class(chat_text):
    async def scenario():
        async with three_pcs(chat_text) as (_, connection, _):
            with pytest.raises(UsageError, match="max_tokens is 0"):
                await anext(ask(connection, question(max_tokens=0)))

    run(scenario())
