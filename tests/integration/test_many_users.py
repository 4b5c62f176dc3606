"""Sixty-four users for a while: nothing leaks, nobody starves, and what is cancelled is free.

For ten minutes with DAISY_LONG=1, which is what is published; else for as long as a test may take.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from dataclasses import dataclass, field

import openvino as ov
import psutil
import pytest

from engine.messages.control import Generate, TextDelta
from engine.models.files import open_text_folder
from engine.models.template_files import load_chat_template
from engine.models.tokenizer import load_tokenizer
from engine.pipeline.chat_text import ChatText
from engine.splitter.analysis import analyse
from tests.equivalence.chain import LONG
from tests.equivalence.ring import Ring, orders_of
from tests.unit.pipeline.scripted import Asker

pytestmark = pytest.mark.processes

DURATION_S = float(os.environ.get("DAISY_USERS_S", "0")) or (600.0 if LONG else 8.0)
NUM_USERS, NUM_PLACES = 64, 16
FREE_WITHIN_S = 1.0 if LONG else 5.0  # a PC that runs other tests beside is not a quiet one
# Between the second and the last quarter. A stage's process grows ever more slowly: it keeps
# kernels for the shapes of batches it has met, up to a number (``kept_kernels``).
MAX_GROWTH_BYTES = 16 << 20  # of this process, which notes what it sees of each request
MAX_STAGE_GROWTH_BYTES = 64 << 20
SYSTEMS = ("be kind " * 6, "be brief " * 5, "be wise " * 7, "say no ")
WORDS = ("sea", "tide", "boat", "lamp", "gull", "sand", "rope", "mast", "fish", "moon")


@pytest.fixture
def ring(talking, tmp_path, request):
    """Return two stages of a small random model."""
    files = open_text_folder(talking, "tiny")
    tokenizer = load_tokenizer(files)
    text = ChatText(tokenizer, load_chat_template(files), frozenset(), 512)
    analysis = analyse(ov.Core(), talking / "openvino_model.xml")
    return Ring(text, orders_of(analysis, tmp_path, [2], request.param))


@dataclass
class Seen:
    """What the users saw, and what was measured beside."""

    num_answered: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(NUM_USERS), 0))
    num_cancelled: int = 0
    num_cached: int = 0
    num_first_tokens: int = 0
    overtaken_by: list[int] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    frees_s: list[float] = field(default_factory=list)
    memory: list[list[int]] = field(default_factory=list)


class User:
    """Asks, waits, and now and then goes on, changes their mind or vanishes."""

    def __init__(self, number: int, ring: Ring, seen: Seen) -> None:
        self.number, self.ring, self.seen = number, ring, seen
        self.random = random.Random(number)  # noqa: S311 - the same users each time
        self.num_asked = 0

    async def run(self, until_s: float) -> None:
        said = ""
        while time.monotonic() < until_s:
            words = " ".join(self.random.choices(WORDS, k=self.random.randint(1, 5)))
            prompt = (said or self.random.choice(SYSTEMS)) + words
            said = await self.ask(prompt)
            if len(said) > 80 or self.random.random() < 0.5:
                said = ""

    async def ask(self, prompt: str) -> str:
        """Ask; return what the next turn goes on from."""
        self.num_asked += 1
        key = f"{self.number}/{self.num_asked}"
        num_tokens = self.random.randint(1, 16)
        request = Generate(request_id=key, prompt=prompt, max_tokens=num_tokens, ignore_eos=True)
        mood = self.random.choices(["stay", "cancel", "vanish"], [7, 2, 1])[0]
        asker, asked_s, before = Asker(), time.monotonic(), self.seen.num_first_tokens
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(self.ring.head.answer(request, asker.send, key))
            await asker.wait_for(TextDelta)
            self.seen.waits_s.append(time.monotonic() - asked_s)
            self.seen.overtaken_by.append(self.seen.num_first_tokens - before)
            self.seen.num_first_tokens += 1
            if mood != "stay":
                await self.end(key, answering, mood)
        if mood == "stay":
            self.seen.num_answered[self.number] += 1
            self.seen.num_cached += asker.finished.cached_tokens
        return prompt + asker.text

    async def end(self, key: str, answering: asyncio.Task, mood: str) -> None:
        """End an answer before it is over; see every stage free what it held."""
        live = self.ring.head._by_key.get(key)
        if live is None or live.reply.finish_reason is not None:
            return  # it is over
        began_s = time.monotonic()
        if mood == "cancel":
            self.ring.head.cancel(key)
        else:
            answering.cancel()
        async with asyncio.timeout(30):
            while any(  # noqa: ASYNC110 - stages say nothing unasked
                live.sequence_id in server.open_sequences for server in self.ring.servers
            ):
                await asyncio.sleep(0.001)
            for process in self.ring.processes:
                await process.usage()  # it answers in order: what was closed before is freed
        self.seen.num_cancelled += 1
        self.seen.frees_s.append(time.monotonic() - began_s)


async def watch(ring: Ring, seen: Seen, until_s: float) -> None:
    """Note how much memory each process has, this one first."""
    own = psutil.Process()
    while time.monotonic() < until_s:
        stages = [process.memory_bytes() for process in ring.processes]
        seen.memory.append([own.memory_info().rss, *stages])
        await asyncio.sleep(DURATION_S / 100)


def growths(seen: Seen) -> list[float]:
    """Return by how many bytes each process grew from the second quarter to the last."""
    quarter = len(seen.memory) // 4
    early, late = seen.memory[quarter : 2 * quarter], seen.memory[-quarter:]
    return [
        statistics.median(after) - statistics.median(before)
        for before, after in zip(zip(*early, strict=True), zip(*late, strict=True), strict=True)
    ]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ring", ["paged", "stateful"], indirect=True)
def test_sixty_four_users_for_a_while(ring, report_figure):
    seen = Seen()

    async def scenario():
        async with ring.placed(NUM_PLACES, context_tokens=128):
            until_s = time.monotonic() + DURATION_S
            async with asyncio.TaskGroup() as group:
                group.create_task(watch(ring, seen, until_s))
                for number in range(NUM_USERS):
                    group.create_task(User(number, ring, seen).run(until_s))
            await ring.balanced()

    with asyncio.Runner() as runner:
        runner.run(ring.load())
        try:
            runner.run(scenario())
        finally:
            runner.run(ring.close())
    report_figure("answers", sum(seen.num_answered.values()), "")
    report_figure("cancelled or left", seen.num_cancelled, "")
    report_figure("tokens of prompts known before", seen.num_cached, "")
    report_figure("longest wait for a first token", max(seen.waits_s), "s")
    report_figure("most others served meanwhile", max(seen.overtaken_by), "")
    report_figure("longest until every stage had freed it", max(seen.frees_s), "s")
    for name, growth in zip(("head", "stage 0", "stage 1"), growths(seen), strict=True):
        report_figure(f"growth of {name}", growth / 2**20, "MiB")
    assert min(seen.num_answered.values()) >= 1, "somebody was never answered"
    # All that were there before may come first, and who has a place may have begun anew.
    assert max(seen.overtaken_by) <= NUM_USERS + NUM_PLACES
    assert seen.num_cached > 0
    assert max(seen.frees_s) <= FREE_WITHIN_S
    head, *stages = growths(seen)
    assert head <= MAX_GROWTH_BYTES
    assert max(stages) <= MAX_STAGE_GROWTH_BYTES
