"""What a connection asks and takes back, in whatever packets it comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from engine.messages.codec import decode
from engine.messages.control import Cancel, ErrorReport, TextDelta
from engine.node.requests import (
    MAX_REQUESTS,
    MAX_REQUESTS_OF_ALL,
    RequestCount,
    Requests,
)
from tests.unit.pipeline.scripted import Asker, ScriptedChain, question, running_head
from tests.unit.pipeline.scripted_pool import in_pool

pytestmark = pytest.mark.embedded

ENDLESS = (30,)


def connection_to(asker):
    """A connection that hands what is sent over it to an asker."""

    async def send(frame):
        await asker.send(decode(frame))

    return SimpleNamespace(address="asker", send=send)


async def ask_and_take_back(requests, num_tokens, asker):
    """Take a request in, and its cancel once that many tokens were told; 0: in the same packet."""
    await requests.begin(question())
    if num_tokens:
        await asker.wait_for_ids(num_tokens)
    requests.cancel(Cancel(request_id="r1"))


@pytest.mark.parametrize("num_tokens", [0, 1, 5])
def test_a_request_that_is_taken_back_at_any_moment_ends_at_this_nodes_head(chat_text, num_tokens):
    asker, chain = Asker(), ScriptedChain([ENDLESS])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            placements = SimpleNamespace(head=head)
            requests = Requests(connection_to(asker), group, placements, None)
            await ask_and_take_back(requests, num_tokens, asker)

    asyncio.run(scenario())
    assert asker.finished.finish_reason == "cancelled"
    assert num_tokens <= asker.finished.completion_tokens == len(asker.ids) < num_tokens + 20
    assert chain.batches or not num_tokens


@pytest.mark.parametrize("num_tokens", [0, 1, 5])
def test_a_request_that_is_taken_back_at_any_moment_ends_on_its_way_through_the_pool(
    chat_text, num_tokens
):
    async def scenario(pool, asker):
        pool.place(1, ENDLESS)
        pool.tell()
        async with asyncio.TaskGroup() as group:
            placements = SimpleNamespace(head=None)
            requests = Requests(connection_to(asker), group, placements, pool.relay)
            await ask_and_take_back(requests, num_tokens, asker)

    asker = in_pool(chat_text, scenario)
    assert asker.finished.finish_reason == "cancelled"
    assert num_tokens <= asker.finished.completion_tokens == len(asker.ids) < num_tokens + 20
    assert not asker.of(TextDelta) or num_tokens


def test_s24_one_connection_has_only_so_many_questions_waiting_and_the_rest_go_on(chat_text):
    asker, chain = Asker(), ScriptedChain([ENDLESS])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            requests = Requests(connection_to(asker), group, SimpleNamespace(head=head), None)
            for number in range(MAX_REQUESTS + 3):
                await requests.begin(question(f"r{number}"))
            await asker.wait_for_ids(3)
            requests.end()

    asyncio.run(scenario())
    refused = asker.of(ErrorReport)
    assert [report.request_id for report in refused] == [f"r{MAX_REQUESTS + n}" for n in range(3)]
    assert {report.code for report in refused} == {"request"}


def test_s24_all_connections_together_have_only_so_many_questions_waiting(chat_text):
    asker, chain = Asker(), ScriptedChain([ENDLESS])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            of_all = RequestCount(MAX_REQUESTS_OF_ALL - 1)
            one, other = (
                Requests(connection_to(asker), group, SimpleNamespace(head=head), None, of_all)
                for _ in range(2)
            )
            await one.begin(question("r0"))
            await other.begin(question("r1"))
            assert [report.request_id for report in asker.of(ErrorReport)] == ["r1"]
            one.end()
        return of_all.num

    assert asyncio.run(scenario()) == MAX_REQUESTS_OF_ALL - 1


def test_s24_room_for_a_question_comes_back_with_an_answer(chat_text):
    asker, chain = Asker(), ScriptedChain([(30, 2)])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            requests = Requests(connection_to(asker), group, SimpleNamespace(head=head), None)
            for number in range(2 * MAX_REQUESTS):
                async with asyncio.TaskGroup() as one:
                    requests._group = one
                    await requests.begin(question(f"r{number}"))

    asyncio.run(scenario())
    assert not asker.of(ErrorReport)


def test_taking_back_what_was_never_asked_changes_nothing(chat_text):
    asker, chain = Asker(), ScriptedChain([(30, 2)])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            requests = Requests(connection_to(asker), group, SimpleNamespace(head=head), None)
            requests.cancel(Cancel(request_id="r1"))
            await asyncio.sleep(0)
            await requests.begin(question())
            requests.cancel(Cancel(request_id="r2"))

    asyncio.run(scenario())
    assert asker.finished.finish_reason == "stop"
