"""Pictures of every page, in both languages and themes, at 100 % and 200 %.

    python reproduction/screenshots.py FOLDER [--scale 1 --scale 2] [--page chat]

Drawn without a screen, with a pool and a chat that are made up: nothing runs. On a system that has
a screen, ``QT_QPA_PLATFORM=xcb`` draws them in real windows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QElapsedTimer  # noqa: E402 - after what they need is set
from PySide6.QtWidgets import QApplication  # noqa: E402

from app.chat.records import Chat, Figures, Message  # noqa: E402
from app.pages import PAGES  # noqa: E402
from app.start import Program, prepare  # noqa: E402
from tests.app.pools import three_pcs  # noqa: E402

if TYPE_CHECKING:
    from app.chat.database import ChatDatabase

SIZE = (1180, 780)
SETTLE_MS = 900
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


def main() -> int:
    """Take the pictures, each scale in a process of its own: Qt reads it once.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, action="append")
    parser.add_argument("--page", action="append")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    scales = given.scale or [1.0, 2.0]
    pages = given.page or [entry.name for entry in PAGES]
    if len(scales) > 1:
        chosen = [word for page in pages for word in ("--page", page)]
        return max(
            subprocess.run(
                [sys.executable, __file__, str(given.folder), "--scale", str(scale), *chosen],
                check=False,
            ).returncode
            for scale in scales
        )
    os.environ["QT_SCALE_FACTOR"] = str(scales[0])
    prepare()
    application = QApplication(sys.argv[:1])
    for language in ("en", "zh"):
        for theme in ("light", "dark"):
            name = f"{language}-{theme}-{round(scales[0] * 100)}"
            take(application, given.folder, name, language, theme, pages)
    return 0


def take(
    application: QApplication,
    folder: Path,
    name: str,
    language: str,
    theme: str,
    pages: list[str],
) -> None:
    """Take one picture of each page.

    Args:
        application: Qt's.
        folder: Where pictures go.
        name: Of this kind of picture.
        language: ``en`` or ``zh``.
        theme: ``light`` or ``dark``.
        pages: By name.
    """
    with tempfile.TemporaryDirectory() as data:
        program = Program(application, Path(data))
        about, window = program.about, program.window
        about.preferences.choose(language=language, theme=theme, starts_node=False)
        window.resize(*SIZE)
        window.show()
        chat = window.page("chat")
        chat.store.do(lambda database: _fill(database, language))
        about.status._status = three_pcs()  # noqa: SLF001 - a pool nobody runs
        about.status.changed.emit(about.status.status)
        chat.list.refresh()
        chat.desk.open("shown")
        about.answering.pace_changed.emit(11.2)
        for page in pages:
            window.go(page)
            about.status.changed.emit(three_pcs())
            _settle(application)
            window.grab().save(str(folder / f"{page}-{name}.png"))
            print(f"{page}-{name}.png", flush=True)
        window.hide()
        window.close_pages()
        window.deleteLater()
        program.deleteLater()
        _settle(application)


def _settle(application: QApplication) -> None:
    clock = QElapsedTimer()
    clock.start()
    while clock.elapsed() < SETTLE_MS:
        application.processEvents()


def _fill(database: ChatDatabase, language: str) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
