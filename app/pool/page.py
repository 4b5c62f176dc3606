"""The pool's page: picture or table, the plan in a sentence, details, and the last minutes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.bridge.node_process import NodeState
from app.page import Page
from app.parts.action import Action
from app.parts.text import Text
from app.pool.details import PcDetails
from app.pool.legend import Legend
from app.pool.picture import PoolPicture
from app.pool.plot import Plot
from app.pool.ring import Ring, ring_of
from app.pool.table import PoolTable
from app.pool.words import PoolWords

if TYPE_CHECKING:
    from app.surroundings import Surroundings
    from engine.messages.control import Finished
    from engine.messages.pool_status import PoolStatus

_WATCHER = "pool page"
_TABLE = 1
_LOW_PX, _NARROW_PX = 600, 760  # below that not everything has room


class PoolPage(Page):
    """What the pool is, and what it does."""

    title_key = "pool.title"
    icon_name = "pool"

    def __init__(self, surroundings: Surroundings, parent: QWidget | None = None) -> None:
        """Build it, unseen.

        Args:
            surroundings: What pages share.
            parent: Owns it.
        """
        super().__init__(surroundings, parent)
        look, wording = surroundings.look, surroundings.wording
        self._words = PoolWords(wording)
        self._ring = Ring()
        self._has_pool = False
        self._is_narrow = False
        self._rate: float | None = None  # of the running answer
        self._measured: float | None = None  # of the newest one that ended
        self.picture = PoolPicture(look, wording)
        self.table = PoolTable(look, wording)
        self.details = PcDetails(look, wording)
        self.rates = Plot(look, wording, "pool.history_rate", "pool.history_empty")
        self.stages = Plot(look, wording, "pool.history_stages", "pool.history_stages_empty")
        self._legend = Legend(look, wording)
        self._headline = Text(look, "title", bold=True)
        self._plan = Text(look, "body", "quiet").selectable()
        self.act = Action(look, "chief")  # the one next step
        self._add = Action(look, "plain", "devices")
        self._doctor = Action(look, "plain", "doctor")
        self._unload = Action(look)
        self._views = [Action(look), Action(look)]
        self._stack = QStackedWidget()
        self._rows = QVBoxLayout(self)
        self._build()
        self._connect()
        self._say()

    def shown(self) -> None:
        """Follow the pool."""
        self.surroundings.status.watch(_WATCHER)
        style = self.style()
        moves = style.styleHint(style.StyleHint.SH_Widget_Animation_Duration, None, self) > 0
        self.picture.animate(wanted=moves and self.surroundings.preferences.choices.has_motion)

    def hidden(self) -> None:
        """Follow it no longer."""
        self.surroundings.status.unwatch(_WATCHER)

    # ---- building ----------------------------------------------------------------------------

    def _build(self) -> None:
        look = self.surroundings.look
        top = QHBoxLayout()
        top.addWidget(self._headline, 1)
        for button in (self.act, self._unload, self._add, self._doctor):
            top.addWidget(button, 0, Qt.AlignmentFlag.AlignTop)
        self._stack.addWidget(self.picture)
        self._stack.addWidget(self.table)
        middle = QHBoxLayout()
        middle.addWidget(self._stack, 1)
        middle.addWidget(self.details)
        below = QHBoxLayout()
        below.addWidget(self._legend, 1)
        group = QButtonGroup(self)
        for number, view in enumerate(self._views):
            view.setCheckable(True)
            group.addButton(view, number)
            below.addWidget(view)
        self._views[0].setChecked(True)
        group.idClicked.connect(self._on_view)
        plots = QHBoxLayout()
        plots.addWidget(self.rates, 1)
        plots.addWidget(self.stages, 1)
        self._rows.addLayout(top)
        self._rows.addWidget(self._plan)
        self._rows.addLayout(middle, 1)
        self._rows.addLayout(below)
        self._rows.addLayout(plots)
        look.changed.connect(self._dress)
        self._dress()

    def _dress(self) -> None:
        look = self.surroundings.look
        side = look.space(6)
        self._rows.setContentsMargins(side, side, side, look.space(4))
        self._rows.setSpacing(look.space(3))

    def resizeEvent(self, event: object) -> None:
        """Leave out what there is no room for: the minutes first, then the buttons' words."""
        super().resizeEvent(event)  # type: ignore[arg-type]
        self._fit()

    def _fit(self) -> None:
        look = self.surroundings.look
        is_low = self.height() < look.px(_LOW_PX)
        for plot in (self.rates, self.stages):
            plot.setVisible(not is_low)
        is_narrow = self.width() < look.px(_NARROW_PX)
        if is_narrow != self._is_narrow:
            self._is_narrow = is_narrow
            self._say()

    def _connect(self) -> None:
        shared = self.surroundings
        shared.wording.changed.connect(self._say)
        shared.status.changed.connect(self._on_status)
        shared.status.silent.connect(self._on_silent)
        shared.node.state_changed.connect(self._say)
        shared.answering.text_came.connect(self._on_text)
        shared.answering.pace_changed.connect(self._on_pace)
        shared.answering.running_changed.connect(self._on_running)
        shared.answering.finished.connect(self._on_finished)
        self.picture.chosen.connect(self._on_chosen)
        self.table.chosen.connect(self._on_chosen)
        self.details.closed.connect(lambda: self.picture.mark_chosen(None))
        self._add.clicked.connect(lambda: shared.navigation.go("devices"))
        self._doctor.clicked.connect(lambda: shared.navigation.go("doctor"))
        self._unload.clicked.connect(shared.loading.unload)
        self.act.clicked.connect(self._on_act)

    # ---- what comes --------------------------------------------------------------------------

    def _on_status(self, status: PoolStatus) -> None:
        self._ring = ring_of(status)
        self._has_pool = True
        now_s = time.monotonic()
        is_running = self.surroundings.answering.num_running > 0
        self.rates.add("", "", now_s, self._rate if is_running else None)
        for pc in self._ring.petals:
            self.stages.add(pc.node_id, pc.name, now_s, pc.stage_ms)
        self.stages.keep_only({pc.node_id for pc in self._ring.petals})
        if self.isVisible():
            self._show()

    def showEvent(self, event: object) -> None:
        """Show what came meanwhile."""
        super().showEvent(event)  # type: ignore[arg-type]
        self._show()

    def _on_silent(self) -> None:
        self._has_pool = False
        self._ring = Ring()
        self._show()

    def _on_text(self, _request_id: str, _text: str, num_tokens: int) -> None:
        if num_tokens:
            self.picture.token_passed()

    def _on_pace(self, tokens_per_s: float) -> None:
        self._rate = tokens_per_s if tokens_per_s > 0 else None
        self._show_rate()

    def _on_running(self, _count: int) -> None:
        self._show_rate()

    def _on_finished(self, _request_id: str, finished: Finished) -> None:
        if finished.completion_tokens > 1 and finished.decode_s > 0:
            self._measured = (finished.completion_tokens - 1) / finished.decode_s
            self._say()

    def _on_chosen(self, node_id: str) -> None:
        pc = next((pc for pc in self._ring.pcs if pc.node_id == node_id), None)
        if pc is not None:
            self.details.open_for(pc.node_id, self._ring)
            self.picture.mark_chosen(pc.node_id)

    def _on_view(self, number: int) -> None:
        self._stack.setCurrentIndex(number)
        self._legend.setVisible(number != _TABLE)

    def _on_act(self) -> None:
        if not self._has_pool:
            self.surroundings.node.start()
        else:
            self.surroundings.navigation.go("models")

    # ---- what is shown -----------------------------------------------------------------------

    def _show(self) -> None:
        self.picture.show_ring(self._ring)
        self.table.facts.show_ring(self._ring)
        self.details.show_ring(self._ring)
        self._show_rate()
        self._say()

    def _show_rate(self) -> None:
        is_answering = self.surroundings.answering.num_running > 0
        self.picture.show_rate(
            self._rate if is_answering else self._measured, is_answering=is_answering
        )

    def _is_node_away(self) -> bool:
        return self.surroundings.node.state in {NodeState.ABSENT, NodeState.FAILED}

    def _say(self) -> None:
        words = self._words
        if self._has_pool:
            self._headline.setText(words.headline(self._ring))
            self._plan.setText(words.plan(self._ring, self._measured))
        else:
            name = "node_absent" if self._is_node_away() else "node_starting"
            self._headline.setText(words.text("title"))
            self._plan.setText(words.text(name))
        self._plan.setVisible(bool(self._plan.text()))
        is_empty = self._has_pool and not self._ring.model_name
        must_start = not self._has_pool and self._is_node_away()
        self.act.say(words.text("start_node" if must_start else "load_model"))
        self.act.setVisible(is_empty or must_start)
        self._unload.say(words.text("unload"))
        self._unload.setVisible(bool(self._ring.model_name))
        for button, name, hint in (
            (self._add, "add_pc", "add_pc_hint"),
            (self._doctor, "open_doctor", "open_doctor"),
        ):
            button.say(words.text(name), words.text(hint))
            if self._is_narrow:
                button.setText("")
        for view, name in zip(self._views, ("view_picture", "view_table"), strict=True):
            view.say(words.text(name))
