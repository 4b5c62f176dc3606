"""Joining a pool: one that is seen nearby, or by address, with a code; or by an invite link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLineEdit, QListWidget, QListWidgetItem

from app.devices.code import typed_code
from app.devices.refusal import Refusal
from app.parts.action import Action
from app.parts.card import Card
from app.parts.text import Text
from app.safe_text import one_line
from engine.messages.limits import MAX_ADDRESS_LENGTH, MAX_LINK_LENGTH

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.bridge.problem import Problem
    from app.devices.pairing import Pairing
    from app.look.look import Look
    from app.wording.wording import Wording
    from engine.messages.roster_control import PoolNearby

_ROLE = Qt.ItemDataRole.UserRole
_SHOWN_ROWS = 4
_MAX_POOLS = 64
_LINK_BEGINS = "daisy://"


class JoinCard(Card):
    """Pools nearby, and the code."""

    def __init__(
        self, look: Look, wording: Wording, pairing: Pairing, parent: QWidget | None = None
    ) -> None:
        """Begin with none seen.

        Args:
            look: Followed.
            wording: Words.
            pairing: Asked.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._look = look
        self._wording = wording
        self._pairing = pairing
        self._seen: tuple[PoolNearby, ...] | None = None
        self._told: tuple[str, dict[str, object]] | None = None
        self._heading = Text(look, "lead", bold=True)
        self._hint = Text(look, "small", "quiet")
        self._none = Text(look, "body", "quiet")
        self.pools = QListWidget()
        self.address = QLineEdit()
        self.code = QLineEdit()
        self.code.setMaxLength(MAX_LINK_LENGTH)
        self.address.setMaxLength(MAX_ADDRESS_LENGTH)
        self._labels = {name: Text(look) for name in ("address", "code")}
        self.join = Action(look, "chief")
        self.told = Text(look, "small", "quiet")
        self.refusal = Refusal(look, wording)
        self._build()
        self._connect()
        self._limit_list()
        self.say()

    def _build(self) -> None:
        grid = QGridLayout()
        grid.setColumnStretch(1, 1)
        for row, (name, field) in enumerate((("address", self.address), ("code", self.code))):
            grid.addWidget(self._labels[name], row, 0)
            grid.addWidget(field, row, 1)
            self._labels[name].setBuddy(field)
        buttons = QHBoxLayout()
        buttons.addWidget(self.join)
        buttons.addWidget(self.told, 1)
        for part in (self._heading, self._hint, self._none, self.pools):
            self.rows.addWidget(part)
        self.rows.addLayout(grid)
        self.rows.addLayout(buttons)
        self.rows.addWidget(self.refusal)

    def _connect(self) -> None:
        pairing = self._pairing
        self.join.clicked.connect(self._on_join)
        self.code.returnPressed.connect(self._on_join)
        self.pools.itemActivated.connect(lambda _: self.code.setFocus())
        pairing.pools_seen.connect(self._on_pools)
        pairing.joined.connect(self._on_joined)
        pairing.refused.connect(self._on_refused)
        self._wording.changed.connect(self.say)
        self._look.changed.connect(self._limit_list)

    def say(self) -> None:
        """Set every word."""
        say = self._wording.text
        self._heading.setText(say("devices.join_heading"))
        self._hint.setText(say("devices.join_hint"))
        self.pools.setAccessibleName(say("devices.nearby_name"))
        for name, field in (("address", self.address), ("code", self.code)):
            self._labels[name].setText(say(f"devices.{name}"))
            field.setAccessibleName(say(f"devices.{name}"))
        self.address.setPlaceholderText(say("devices.address_hint"))
        self.code.setPlaceholderText(say("devices.code_hint"))
        self.join.say(say("devices.join"))
        self._none.setText(
            say("devices.nearby_looking" if self._seen is None else "devices.nearby_none")
        )
        if self._told is not None:
            key, values = self._told
            self.told.setText(say(f"devices.{key}", **values))
        self._fill()

    def _on_pools(self, pools: tuple[PoolNearby, ...]) -> None:
        if pools != self._seen:
            self._seen = pools[:_MAX_POOLS]
            self.say()

    def _fill(self) -> None:
        """Show the pools that are seen; the one that is chosen stays so."""
        chosen = self._chosen()
        self.pools.clear()
        for pool in self._seen or ():
            name, address = one_line(pool.name, 40), one_line(pool.address, 60)
            item = QListWidgetItem(self._wording.text("devices.nearby", name=name, address=address))
            item.setData(_ROLE, pool)
            self.pools.addItem(item)
            if chosen is not None and pool.address == chosen.address:
                self.pools.setCurrentItem(item)
        self._limit_list()
        self.pools.setVisible(bool(self._seen))
        self._none.setVisible(not self._seen)

    def _chosen(self) -> PoolNearby | None:
        """Return the pool that is chosen; one that is alone needs no choice."""
        chosen = self.pools.selectedItems()
        if not chosen and self._seen is not None and len(self._seen) == 1:
            return self._seen[0]
        pool: PoolNearby | None = chosen[0].data(_ROLE) if chosen else None
        return pool

    def _on_join(self) -> None:
        if not self.join.isEnabled():
            return  # it is under way
        text = self.code.text().strip()
        if text.startswith(_LINK_BEGINS):
            self._begin("joining_link")
            self._pairing.join(link=text)
            return
        code, chosen = typed_code(text), self._chosen()
        address = self.address.text().strip() or ("" if chosen is None else chosen.address)
        if not address:
            self._tell("choose_pool")
        elif code is None:
            self._tell("code_wrong")
            self.code.setFocus()
        else:
            is_chosen = chosen is not None and address == chosen.address
            name = chosen.name if chosen is not None and is_chosen else address
            self._begin("joining", name=one_line(name, 40))
            self._pairing.join(code=code, address=address)

    def _begin(self, key: str, **values: object) -> None:
        self._tell(key, **values)
        self.refusal.forget()
        self.join.setEnabled(False)
        self.code.clear()  # it is a secret, and good for one time

    def _on_joined(self, host: str) -> None:
        self.join.setEnabled(True)
        self._tell("has_joined", name=one_line(host, 40))

    def _on_refused(self, asked: str, problem: Problem) -> None:
        if asked == "join":
            self.join.setEnabled(True)
            self._told = None
            self.told.clear()
            self.refusal.refuse(problem)
            self.code.setFocus()

    def _tell(self, key: str, **values: object) -> None:
        self._told = (key, values)
        self.told.setText(self._wording.text(f"devices.{key}", **values))

    def _limit_list(self) -> None:
        rows = min(_SHOWN_ROWS, max(1, self.pools.count()))
        self.pools.setFixedHeight(self._look.px(30) * rows + self._look.px(4))
