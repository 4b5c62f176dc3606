"""A window that asks one question after the other and prints what was acknowledged.

python -m tests.app.talking_window DATA_DIR
"""

import json
import os
import sys
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from app.pages import PageEntry
from app.start import build_surroundings
from app.window import Window


def tell(kind, message_id, text):
    os.write(1, (json.dumps([kind, message_id, text]) + "\n").encode())


def main(data_dir):
    application = QApplication([])
    about = build_surroundings(data_dir, application)
    window = Window(about, [PageEntry("chat", "app.chat.page:ChatPage")])
    page = window.page("chat")
    about.answering.open()
    window.show()
    turns, desk = page.turns, page.desk
    begin = turns.begin

    def noting(turn):
        question = turn.asked[-1]
        tell("kept", question.message_id, question.text)  # what is asked is on disk by now
        begin(turn)

    turns.begin = noting
    grow = page.store.do

    def noting_pieces(job, on_done=None, on_failed=None):
        live = desk.live
        so_far = None if live is None or live.unsaved else (live.message_id, live.answer.text)

        def done(result):
            if so_far is not None and so_far[1]:
                tell("answered", *so_far)
            if on_done is not None:
                on_done(result)

        grow(job, done, on_failed)

    page.store.do = noting_pieces

    def go_on():
        if desk.live is None:
            if len(desk.tree) > 6:
                page.new_chat()
            page.composer.send_asked.emit(f"question {os.urandom(4).hex()} " * 20)
        elif len(desk.live.answer.text) > 200:
            desk.stop()

    timer = QTimer(application)
    timer.timeout.connect(go_on)
    timer.start(5)
    return application.exec()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
