"""What stands in for a stage process."""

from __future__ import annotations

import asyncio

from engine.errors import DaisyError, StageProcessDiedError


class FakeProcess:
    """The seam to the stage process: what was sent to it, and what it is made to answer."""

    def __init__(self):
        self.sent = []
        self.answers = asyncio.Queue()
        self.death = None
        self.came = asyncio.Event()  # something was sent to it

    async def send(self, frame):
        await asyncio.sleep(0)
        if self.death is not None:
            raise self.death
        self.sent.append(frame)
        self.came.set()

    async def receive(self):
        answer = await self.answers.get()
        if isinstance(answer, DaisyError):
            self.answers.put_nowait(answer)
            raise answer
        return answer

    def answer(self, frame):
        self.answers.put_nowait(frame)

    def die(self):
        self.death = StageProcessDiedError("The stage process was ended by SIGSEGV.", -11)
        self.answers.put_nowait(self.death)
