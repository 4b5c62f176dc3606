"""The sign that stands for a long text in a message that is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt, QUrl
from PySide6.QtGui import QColor, QFontMetrics, QImage, QPainter, QTextDocument

if TYPE_CHECKING:
    from PySide6.QtGui import QTextBlock

    from app.chat.input.pasted import Pasted
    from app.look.look import Look
    from app.wording.wording import Wording

_KIBI = 1024


def draw_sign(
    document: QTextDocument, pasted: Pasted, look: Look, wording: Wording, ratio: float
) -> None:
    """Make the picture of a sign, under its name in a document.

    Args:
        document: That shows it.
        pasted: The text it stands for.
        look: Theme and sizes.
        wording: Of what it says.
        ratio: Device pixels in a logical one.
    """
    number = wording.locale.toString
    size = max(1, round(len(pasted.text.encode("utf-8", "replace")) / _KIBI))
    words = wording.text("chat.pasted", size=f"{number(size)} KB", lines=number(pasted.num_lines))
    font = look.font("small")
    metrics = QFontMetrics(font)
    width = metrics.horizontalAdvance(words) + 2 * look.space(2)
    height = metrics.height() + look.space(2)
    image = QImage(
        round(width * ratio), round(height * ratio), QImage.Format.Format_ARGB32_Premultiplied
    )
    image.setDevicePixelRatio(ratio)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QColor(look.theme.line))
    painter.setBrush(look.colour("raised"))
    area = QRectF(0.5, 0.5, width - 1, height - 1)
    painter.drawRoundedRect(area, look.space(1), look.space(1))
    painter.setFont(font)
    painter.setPen(look.colour("ink"))
    painter.drawText(area, Qt.AlignmentFlag.AlignCenter, words)
    painter.end()
    kind = QTextDocument.ResourceType.ImageResource
    document.addResource(kind.value, QUrl(pasted.name), image)


def sign_names(block: QTextBlock) -> list[str]:
    """Return the names of the signs in a line, in order.

    Args:
        block: The line.
    """
    names: list[str] = []
    place = block.begin()
    while not place.atEnd():
        fragment = place.fragment()
        form = fragment.charFormat()
        if form.isImageFormat():
            # Equal signs side by side are one fragment of several letters.
            names.extend([form.toImageFormat().name()] * fragment.length())
        place += 1
    return names
