"""One well-known model: what it is, whether it fits, and the one thing to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout

from app.parts.action import Action
from app.parts.amounts import file_size
from app.parts.card import Card
from app.parts.text import Text
from app.pool.words import memory_text
from app.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from PySide6.QtWidgets import QWidget

    from app.look.look import Look
    from app.models.catalogue import CatalogueModel
    from app.models.fit import Fit
    from app.wording.wording import Wording

# The sign, and the token of its colour: the words beside it say the same.
_SIGNS = {
    "here": ("good", "leaf"),
    "pool": ("good", "leaf"),
    "short": ("wrong", "alarm"),
    "unknown": ("hint", "quiet"),
}


class ModelRow(Card):
    """One model of the catalogue.

    Attributes:
        load_wanted: The pool should run it.
        page_wanted: Its maker's page should be shown.
    """

    load_wanted = Signal()
    page_wanted = Signal()

    def __init__(
        self,
        look: Look,
        wording: Wording,
        model: CatalogueModel,
        parent: QWidget | None = None,
    ) -> None:
        """Begin without knowing whether it fits.

        Args:
            look: Followed.
            wording: Words.
            model: Which.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self.model = model
        self._look = look
        self._wording = wording
        self._verdict = "unknown"
        self._name = Text(look, "body", bold=True)
        self._facts = Text(look, "small", "quiet")
        self._sign = QLabel()
        self._fits = Text(look, "small")
        self._why = Text(look, "small", "quiet")
        self._button = Action(look, "plain", "" if model.is_embedded else "open")
        wanted = self.load_wanted if model.is_embedded else self.page_wanted
        self._button.clicked.connect(wanted)
        fits = QHBoxLayout()
        fits.addWidget(self._sign)
        fits.addWidget(self._fits, 1)
        words = QVBoxLayout()
        words.addWidget(self._name)
        words.addWidget(self._facts)
        words.addLayout(fits)
        words.addWidget(self._why)
        beside = QHBoxLayout()
        beside.addLayout(words, 1)
        beside.addWidget(self._button, 0, Qt.AlignmentFlag.AlignVCenter)
        self.rows.addLayout(beside)
        look.changed.connect(self._draw_sign)

    @property
    def sentence(self) -> str:
        """What is told of whether it fits."""
        return f"{self._fits.text()}. {self._why.text()}"

    def show_fit(self, fit: Fit, names: Mapping[str, str], *, can_load: bool) -> None:
        """Show whether it fits.

        Args:
            fit: What becomes of it.
            names: Of the PCs, by id.
            can_load: Nothing else is being loaded.
        """
        say, model = self._wording.text, self.model
        self._verdict = fit.verdict
        self._name.setText(model.name)
        languages = say("models.list_comma").join(
            say(f"models.language_{language}") for language in model.languages
        )
        self._facts.setText(
            say(
                "models.facts",
                maker=model.maker,
                licence=model.licence,
                size=file_size(model.file_bytes),
                languages=languages,
            )
        )
        values = {
            "names": say("models.list_and").join(
                one_line(names.get(node_id, node_id[:6]), 24) for node_id in fit.node_ids
            ),
            "needed": memory_text(fit.needed_bytes),
            "short": memory_text(fit.short_bytes),
        }
        self._fits.setText(say(f"models.fits_{fit.verdict}", **values))
        is_known = fit.verdict != "unknown"
        self._why.setText(say(f"models.why_{fit.verdict}", **values) if is_known else "")
        self._why.setVisible(is_known)
        if model.is_embedded:
            self._button.say(say("models.load"), say("models.load_hint"))
            self._button.setEnabled(can_load)
        else:
            hint = say("models.get_hint", source=model.source)
            self._button.say(say("models.get"), hint)
        self.setAccessibleName(f"{model.name}. {self.sentence}")
        self._draw_sign()

    def _draw_sign(self) -> None:
        icon, colour = _SIGNS[self._verdict]
        side = self._look.px(16)
        ratio = self.devicePixelRatioF()
        pixmap = self._look.pixmap(icon, round(side * ratio), colour)
        pixmap.setDevicePixelRatio(ratio)
        self._sign.setPixmap(pixmap)
