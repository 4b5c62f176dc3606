"""The style sheet: what Qt's own widgets look like in a theme. Pure."""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING

from app.look.tokens import CORNER_PX, SPACE_PX, TYPE_PX

if TYPE_CHECKING:
    from app.look.tokens import Theme

_SHEET = Template("""
* { color: $ink; font-size: ${body}px; }
QWidget:disabled { color: $quiet; }
QMainWindow, QDialog, QMessageBox, #page { background: $paper; }
QToolTip { background: $surface; color: $ink; border: 1px solid $line; padding: ${s1}px; }
QLabel, QStackedWidget, QScrollArea, QScrollArea > QWidget > QWidget { background: transparent; }
QScrollArea, QListView, QPlainTextEdit, QTextEdit { border: none; background: transparent; }
QListView { outline: none; }
QLabel#note, QLabel#progress, QLabel#quiet, QLabel#codeLanguage { color: $quiet; }
QLabel#note, QLabel#progress, QLabel#codeLanguage, QLabel#alarmNote { font-size: ${small}px; }
QLabel#troubleWhat, QLabel#alarmNote { color: $alarm; }
QLabel#troubleWhat { font-size: ${body}px; }

QFrame#rail { background: $paper; border-right: 1px solid $line; }
QFrame#chatList { background: $paper; border-right: 1px solid $line; }
QFrame#chatSettings { background: $paper; border-left: 1px solid $line; }
QFrame#head { border-bottom: 1px solid $line; }
QFrame#banner {
  background: $raised; border: 1px solid $line; border-radius: ${corner}px;
  margin: ${s2}px ${s4}px 0 ${s4}px;
}
QFrame#composerBox { background: $surface; border: 1px solid $line; border-radius: ${c3}px; }
QFrame#code { background: $code; border: 1px solid $line; border-radius: ${corner}px; }
QFrame#card { background: $surface; border: 1px solid $line; border-radius: ${corner}px; }

QToolButton { background: transparent; border: 1px solid transparent; border-radius: ${c1}px;
  padding: ${s1}px; }
QToolButton:hover { background: $raised; }
QToolButton:focus { border: 1px solid $link; }
QToolButton:checked { background: $raised; }
QToolButton#wordButton { padding: ${s1}px ${s2}px; color: $link; font-size: ${small}px; }
QToolButton#modelButton { padding: ${s1}px ${s2}px; font-weight: 600; }
QToolButton#sendButton { background: $heart; border-radius: ${s4}px; padding: 0; }
QToolButton#sendButton:disabled { background: $raised; }
QToolButton#sendButton:focus { border: 2px solid $link; }
QFrame#code QToolButton { color: $quiet; font-size: ${small}px; padding: 2px ${s2}px; }
QFrame#rail QToolButton { padding: ${s2}px; border-radius: ${corner}px; }

QPushButton { background: $surface; border: 1px solid $line; border-radius: ${c1}px;
  padding: ${s2}px ${s4}px; }
QPushButton:hover { background: $raised; }
QPushButton:focus { border: 1px solid $link; }
QPushButton:default, QPushButton#primary { background: $heart; border-color: $heart;
  color: $on_heart; }
QPushButton:disabled { color: $quiet; background: transparent; }

QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox, QFrame#chatSettings QPlainTextEdit {
  background: $surface; border: 1px solid $line; border-radius: ${c1}px; padding: ${s1}px ${s2}px;
  selection-background-color: $link; selection-color: $paper; }
QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus,
QFrame#chatSettings QPlainTextEdit:focus { border: 1px solid $link; }
QComboBox QAbstractItemView { background: $surface; border: 1px solid $line;
  selection-background-color: $raised; selection-color: $ink; }
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button { width: 0; border: none; }
QMessageBox QLabel#qt_msgbox_label { font-weight: 600; }
QTextEdit, QPlainTextEdit { selection-background-color: $link; selection-color: $paper; }

QMenu { background: $surface; border: 1px solid $line; border-radius: ${c1}px;
  padding: ${s1}px; }
QMenu::item { padding: ${s2}px ${s8}px ${s2}px ${s4}px; border-radius: ${c1}px; }
QMenu::item:selected { background: $raised; }
QMenu::item:disabled { color: $quiet; }
QMenu::separator { height: 1px; background: $line; margin: ${s1}px ${s2}px; }

QScrollBar:vertical { background: transparent; width: ${s3}px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: ${s3}px; margin: 0; }
QScrollBar::handle { background: $line; border-radius: ${s1}px; margin: ${bar}px; }
QScrollBar::handle:hover { background: $quiet; }
QScrollBar::handle:vertical { min-height: ${s8}px; }
QScrollBar::handle:horizontal { min-width: ${s8}px; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QProgressBar { background: $raised; border: none; border-radius: ${bar}px; max-height: ${s2}px;
  min-height: ${s2}px; text-align: center; color: transparent; }
QProgressBar::chunk { background: $leaf; border-radius: ${bar}px; }
QHeaderView::section { background: $paper; border: none; border-bottom: 1px solid $line;
  padding: ${s1}px ${s2}px; color: $quiet; }
QTableView { background: $surface; border: 1px solid $line; gridline-color: $line;
  selection-background-color: $raised; selection-color: $ink; }
QTabBar::tab { padding: ${s2}px ${s3}px; border-bottom: 2px solid transparent; }
QTabBar::tab:selected { border-bottom: 2px solid $heart; }
QTabWidget::pane { border: none; }
""")


def style_sheet(theme: Theme, scale: float) -> str:
    """Return the style sheet.

    Args:
        theme: Its colours.
        scale: 1.0 to 2.5.
    """

    def px(num: float) -> int:
        return max(1, round(num * scale))

    return _SHEET.substitute(
        ink=theme.ink,
        quiet=theme.quiet,
        paper=theme.paper,
        surface=theme.surface,
        raised=theme.raised,
        line=theme.line,
        heart=theme.heart,
        on_heart=theme.on_heart,
        leaf=theme.leaf,
        alarm=theme.alarm,
        link=theme.link,
        code=theme.code,
        body=px(TYPE_PX["body"]),
        small=px(TYPE_PX["small"]),
        corner=px(CORNER_PX),
        c1=px(CORNER_PX * 0.75),
        c3=px(CORNER_PX * 1.5),
        bar=px(SPACE_PX / 2),
        s1=px(SPACE_PX),
        s2=px(SPACE_PX * 2),
        s3=px(SPACE_PX * 3),
        s4=px(SPACE_PX * 4),
        s8=px(SPACE_PX * 8),
    )
