"""A link a model wrote is opened only after a person has read where it leads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QMessageBox, QWidget

from app.safe_text import shown

if TYPE_CHECKING:
    from app.wording.wording import Wording

_WEB = re.compile(r"https?://[^\s]+", re.IGNORECASE)
_LONGEST = 2000


def is_web_link(link: str) -> bool:
    """Return whether a link may be opened at all: to the web, and nowhere else.

    Args:
        link: As a model wrote it.
    """
    return len(link) <= _LONGEST and _WEB.fullmatch(link) is not None


def real_address(link: str) -> str:
    """Return an address as the network reads it: letters that look like others are spelled out.

    Args:
        link: To the web.
    """
    encoded = QUrl(link).toEncoded(QUrl.ComponentFormattingOption.FullyEncoded)
    return shown(bytes(encoded.data()).decode("ascii", "replace"))


def ask_to_open(link: str, wording: Wording, parent: QWidget) -> None:
    """Ask, and open a link in the browser if a person says so; returns at once.

    Args:
        link: As a model wrote it; nothing happens for one that leads elsewhere than to the web.
        wording: Of the question.
        parent: Above which it is asked.
    """
    if not is_web_link(link):
        return
    text = wording.text
    box = QMessageBox(parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setWindowTitle(text("chat.link_title"))
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setText(text("chat.link_text"))
    box.setInformativeText(real_address(link))
    opening = box.addButton(text("chat.open"), QMessageBox.ButtonRole.AcceptRole)
    copying = box.addButton(text("chat.copy_link"), QMessageBox.ButtonRole.ActionRole)
    cancel = box.addButton(text("chat.cancel"), QMessageBox.ButtonRole.RejectRole)
    box.setDefaultButton(cancel)
    opening.clicked.connect(lambda: QDesktopServices.openUrl(QUrl(link)))
    copying.clicked.connect(lambda: QGuiApplication.clipboard().setText(link))
    box.open()
