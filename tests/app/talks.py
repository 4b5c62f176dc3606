"""A chat page that is used as a person uses it."""

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.pages import PageEntry
from app.start import build_surroundings
from app.window import Window

PATIENCE_MS = 15_000  # of a test on a machine that does other things as well


class Room:
    def __init__(self, folder, qtbot, owner, *, language="en", theme="light", starts_node=False):
        self.qtbot = qtbot
        self.is_closed = False
        self.about = build_surroundings(folder, owner)
        self.about.preferences.choose(language=language, theme=theme, starts_node=starts_node)
        self.window = Window(self.about, [PageEntry("chat", "app.chat.page:ChatPage")])
        self.page = self.window.page("chat")
        self.about.node.watch(starts=starts_node)
        self.about.answering.open()
        self.window.resize(1000, 700)
        self.window.show()

    # ---- what a person does -------------------------------------------------------------------

    def type(self, text):
        QTest.keyClicks(self.editor, text)

    def press(self, key, modifier=Qt.KeyboardModifier.NoModifier):
        QTest.keyClick(self.editor, key, modifier)

    def ask(self, text):
        """Write a message and press Enter; return when its answer has begun to be waited for."""
        self.type(text)
        self.press(Qt.Key.Key_Return)
        self.wait(lambda: self.page.desk.live is not None or self.last.role == "assistant")

    def ask_and_wait(self, text):
        self.ask(text)
        self.wait_for_end()

    def press_under(self, message_id, name):
        """Press a button under a message."""
        self.page.view.acted.emit(name, message_id)

    # ---- what a person sees -------------------------------------------------------------------

    @property
    def editor(self):
        return self.page.composer.editor

    @property
    def path(self):
        return self.page.desk.tree.path()

    @property
    def last(self):
        return self.path[-1]

    @property
    def last_view(self):
        return self.page.view.view_of(self.last.message_id)

    def shown_text(self, view=None):
        """Return everything a message's text shows."""
        view = view or self.last_view
        parts = []
        for piece in view.text_view.items:
            editor = getattr(piece, "browser", None) or getattr(piece, "edit", None)
            parts.append(editor.toPlainText())
        return "\n".join(parts)

    # ---- waiting ------------------------------------------------------------------------------

    def wait(self, condition):
        self.qtbot.waitUntil(lambda: bool(condition()), timeout=PATIENCE_MS)

    def wait_for_end(self, within_ms=PATIENCE_MS):
        self.qtbot.waitUntil(
            lambda: self.page.desk.live is None and self.last.role == "assistant", timeout=within_ms
        )
        self.wait(lambda: self.page.view._tools.slices.is_idle and not self.last_view.is_live)

    def wait_for_store(self):
        """Wait until everything that was given to the store is on disk."""
        done = []
        self.page.store.do(lambda _: None, done.append)
        self.wait(lambda: done)

    def close(self):
        if self.is_closed:
            return
        self.is_closed = True
        for part in (self.about.answering, self.about.status, self.about.loading, self.about.node):
            part._link.close()
        self.window.hide()
        self.page.closing()
        self.window.deleteLater()
