"""Joining a pool nearby: chosen from those that are seen, or by address, with the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLineEdit, QListWidget, QListWidgetItem

from app.devices.code import typed_code
from app.parts.action import Action
from app.parts.card import Card
from app.parts.text import Text
from app.safe_text import one_line

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.devices.pairing import NearbyPool, Pairing
    from app.look.look import Look
    from app.wording.wording import Wording

_ROLE = Qt.ItemDataRole.UserRole
_SHOWN_ROWS = 4
_MAX_POOLS = 64


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
        self._seen: tuple[NearbyPool, ...] | None = None
        self._heading = Text(look, "lead", bold=True)
        self._hint = Text(look, "small", "quiet")
        self._none = Text(look, "body", "quiet")
        self.pools = QListWidget()
        self.address = QLineEdit()
        self.code = QLineEdit()
        self.code.setMaxLength(24)
        self.address.setMaxLength(255)
        self._labels = {name: Text(look) for name in ("address", "code")}
        self.join = Action(look, "chief")
        self.told = Text(look, "small", "quiet")
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
        self.join.clicked.connect(self._on_join)
        self.code.returnPressed.connect(self._on_join)
        self.pools.itemActivated.connect(lambda _: self.code.setFocus())
        pairing.pools_seen.connect(self._on_pools)
        pairing.joined.connect(lambda name: self._tell("joined", pc=one_line(name, 40)))
        pairing.refused.connect(lambda _: self.told.clear())
        wording.changed.connect(self.say)
        look.changed.connect(self._limit_list)
        self._limit_list()
        self.say()

    def say(self) -> None:
        """Set every word."""
        say = self._wording.text
        self._heading.setText(say("devices.join_heading"))
        self._hint.setText(say("devices.join_hint"))
        self.pools.setAccessibleName(say("devices.nearby_name"))
        for name, label in self._labels.items():
            label.setText(say(f"devices.{name}"))
        self.address.setPlaceholderText(say("devices.address_hint"))
        self.code.setPlaceholderText(say("devices.code_hint"))
        self.join.say(say("devices.join"))
        self._none.setText(
            say("devices.nearby_looking" if self._seen is None else "devices.nearby_none")
        )
        self._fill()

    def stop_looking(self) -> None:
        """Take note that nobody looks for pools here."""
        self._seen = ()
        self.say()

    def _on_pools(self, pools: tuple[NearbyPool, ...]) -> None:
        if pools != self._seen:
            self._seen = pools[:_MAX_POOLS]
            self.say()

    def _fill(self) -> None:
        """Show the pools that are seen; the one that is chosen stays so."""
        chosen = self._chosen()
        self.pools.clear()
        for pool in self._seen or ():
            text = self._wording.text(
                "devices.nearby", n=pool.num_pcs, name=one_line(pool.name, 40)
            )
            item = QListWidgetItem(text)
            item.setData(_ROLE, pool)
            self.pools.addItem(item)
            if chosen is not None and pool.address == chosen.address:
                self.pools.setCurrentItem(item)
        self._limit_list()
        self.pools.setVisible(bool(self._seen))
        self._none.setVisible(not self._seen)

    def _chosen(self) -> NearbyPool | None:
        chosen = self.pools.selectedItems()
        pool: NearbyPool | None = chosen[0].data(_ROLE) if chosen else None
        return pool

    def _on_join(self) -> None:
        code = typed_code(self.code.text())
        chosen = self._chosen()
        address = self.address.text().strip()
        if not address and chosen is None:
            self._tell("choose_pool")
        elif code is None:
            self._tell("code_wrong")
            self.code.setFocus()
        else:
            where = address or (chosen.address if chosen is not None else "")
            name = address or (chosen.name if chosen is not None else "")
            self._tell("joining", name=one_line(name, 40))
            self.code.clear()
            self._pairing.join(where, code)

    def _tell(self, key: str, **values: object) -> None:
        self.told.setText(self._wording.text(f"devices.{key}", **values))

    def _limit_list(self) -> None:
        rows = min(_SHOWN_ROWS, max(1, self.pools.count()))
        self.pools.setFixedHeight(self._look.px(30) * rows + self._look.px(4))
