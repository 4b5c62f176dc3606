"""A pool and a chat that are made up, for pictures of the window: nothing runs."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.chat.records import Chat, Figures, Message
from engine.messages.deployment import Trouble
from engine.messages.doctor_control import (
    AdapterTried,
    DevicesTried,
    DeviceTried,
    FirewallSeen,
    NetworkTried,
    TryDevices,
    TryNetwork,
)
from engine.messages.pool_status import AdapterStatus
from engine.messages.roster_control import PcLine, PoolNearby
from tests.app.fake_node import FakeNode, Script, send
from tests.app.pools import DESK, LAPTOP, OLD, progress, report, three_pcs

if TYPE_CHECKING:
    from pathlib import Path

    from app.chat.database import ChatDatabase
    from engine.messages.pool_status import PoolStatus

START_WITHIN_S = 20.0
NOW_S = 1_796_000_000.0
QUESTION = {
    "en": "How does a daisy chain split a model over three PCs?",
    "zh": "雏菊链如何把一个模型分到三台电脑上？",
}
# ruff: noqa: RUF001 - the signs of Chinese are what is shown
ANSWER = {
    "en": """Each PC holds a **range of layers**. A token passes through them in turn:

1. The first PC turns the token into numbers and runs its layers.
2. The result goes on to the next PC.
3. The last one chooses a word and sends it back.

```python
for layer in my_layers:      # only a part of them
    hidden = layer(hidden)
next_pc.send(hidden)
```

| PC | layers | time |
|---|---|---|
| DESK | 0-21 | 35 ms |
| LAPTOP | 22-39 | 43 ms |

> The slowest part sets the pace.
""",
    "zh": """每台电脑保存**一段连续的层**，词元依次经过它们：

1. 第一台电脑把词元变成数字，并运行自己的层。
2. 结果传给下一台电脑。
3. 最后一台选出一个词，再传回来。

```python
for layer in my_layers:      # 只有其中一部分
    hidden = layer(hidden)
next_pc.send(hidden)
```

| 电脑 | 层 | 用时 |
|---|---|---|
| DESK | 0-21 | 35 毫秒 |
| LAPTOP | 22-39 | 43 毫秒 |

> 最慢的部分决定速度。
""",
}
TITLES = {"en": ("Trip plan", "SQL help", "Letter"), "zh": ("旅行计划", "SQL 问题", "书信")}
PCS = (
    PcLine(node_id=DESK, name="DESK", role="owner", is_own=True, is_online=True),
    PcLine(node_id=LAPTOP, name="LAPTOP", role="owner", is_own=False, is_online=True),
    PcLine(node_id=OLD, name="OLD-PC", role="member", is_own=False, is_online=True),
)
NEARBY = (PoolNearby(name="STUDY", address="192.0.2.41:7420"),)
NETWORK = NetworkTried(
    adapters=(
        AdapterTried(name="eth0", address="192.0.2.97", heard_ms=2.0),
        AdapterTried(name="wlan0", address="198.51.100.7", heard_ms=None),
    ),
    firewall=FirewallSeen(kind="ufw", is_on=True),
    port=7420,
)
DEVICES = DevicesTried(
    devices=(
        DeviceTried(name="CPU", full_name="Intel Core Ultra 7 258V", load_s=0.4, token_ms=1.6),
        DeviceTried(name="GPU", full_name="Intel Arc 140V", load_s=3.2, token_ms=0.9),
        DeviceTried(
            name="NPU",
            full_name="Intel AI Boost",
            trouble=Trouble("compile", "NPU can't compile the shard.", "Update its driver."),
        ),
    )
)
ADAPTERS = (
    AdapterStatus(name="eth0", addresses=("192.0.2.97",), is_used=True, link="wired"),
    AdapterStatus(name="wlan0", addresses=("198.51.100.7",), is_used=True, link="wireless"),
    AdapterStatus(
        name="docker0",
        addresses=("172.17.0.1",),
        is_used=False,
        reason="It belongs to containers.",
    ),
)


def ready() -> PoolStatus:
    """Return a pool of three: two answer, and one is too small."""
    return replace(three_pcs(), adapters=ADAPTERS)


def loading() -> PoolStatus:
    """Return the same pool while it loads."""
    steps = (
        progress(DESK, "compile", 14, 22, unit="layers"),
        progress(LAPTOP, "push", 2_900_000_000, 4_600_000_000),
    )
    status = replace(three_pcs("loading", progress=steps), adapters=ADAPTERS)
    nodes = tuple(
        replace(node, report=report(node.node_id, link_kind=node.report.link_kind))
        for node in status.nodes
    )
    return replace(status, nodes=nodes)


def ill() -> PoolStatus:
    """Return the same pool, in which one PC does not hear another."""
    status = ready()
    laptop = replace(status.nodes[1], hears=(OLD,))
    old = replace(status.nodes[2], notes=("its version of Daisy is 0.0.9, this PC's is 0.1.0",))
    return replace(status, nodes=(status.nodes[0], laptop, old))


class ShownNode(FakeNode):
    """A node that tells of such a pool; in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        """Begin to listen.

        Args:
            folder: The data folder.

        Raises:
            TimeoutError: It does not listen.
        """
        super().__init__(folder, Script(pcs=PCS, nearby=NEARBY, load_takes_s=3600))
        self.shown = ready()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)
        self._thread.start()
        if not self.listens.wait(START_WITHIN_S):
            raise TimeoutError("The made-up node does not listen.")

    def status(self) -> PoolStatus:
        """Return the pool that is shown now."""
        return self.shown

    async def answer(self, message: object, writer: object, group: object) -> None:
        """Answer as a node does whose devices and network were tried."""
        if isinstance(message, TryNetwork):
            await send(writer, NETWORK)
        elif isinstance(message, TryDevices):
            await send(writer, DEVICES)
        else:
            await super().answer(message, writer, group)

    def end(self) -> None:
        """Stop listening."""
        self.loop.call_soon_threadsafe(self.stop.set)
        self._thread.join(START_WITHIN_S)


def fill(database: ChatDatabase, language: str) -> None:
    """Put a few chats there, one of them with an answer.

    Args:
        database: Empty.
        language: Of what was asked and answered.
    """
    for number, title in enumerate(TITLES[language]):
        other = Chat(chat_id=f"c{number}", title=title, changed_s=NOW_S - number * 90_000)
        database.put_chat(other)
    question, answer = QUESTION[language], ANSWER[language]
    chat = Chat(chat_id="shown", title=question, leaf_id="b", changed_s=NOW_S)
    asked = Message(message_id="a", chat_id="shown", parent_id=None, role="user", text=question)
    figures = Figures(
        model="Qwen3 14B",
        pcs=("DESK", "LAPTOP"),
        prompt_tokens=41,
        completion_tokens=312,
        context_tokens=8192,
        ttft_s=0.4,
        decode_s=27.8,
        finish_reason="stop",
        pauses_s=(3.2,),
    )
    told = Message(
        message_id="b",
        chat_id="shown",
        parent_id="a",
        role="assistant",
        text=answer,
        figures=figures,
    )
    database.add_message(chat, asked)
    database.add_message(chat, told)
