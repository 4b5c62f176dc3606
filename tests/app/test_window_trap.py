"""A binding of Qt's that loses a reference with each call ends the process after some thousands."""

import subprocess
import sys

CALLS = """
import os
os.environ["QT_QPA_PLATFORM"] = "offscreen"
from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication, QLabel, QPlainTextEdit

class Source(QObject):
    told = Signal(int)

application = QApplication([])
label, field, source = QLabel(), QPlainTextEdit(), Source()
source.told.connect(lambda number: label.setText(str(number)))
for number in range(20_000):
    source.told.emit(number)
    label.setText("x")
    if number % 20 == 0:
        field.setPlainText("y")
        application.processEvents()
assert label.text() == "x"
"""


def test_twenty_thousand_signals_and_calls_end_well():
    ended = subprocess.run([sys.executable, "-c", CALLS], check=False, timeout=60)
    assert ended.returncode == 0
