"""What is said of lending, in the tray and among the settings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.bridge.lending import Lending
    from app.wording.wording import Wording

HOUR_S = 3600.0
_MINUTE_S = 60.0


def lending_sentence(lending: Lending, wording: Wording) -> str:
    """Return what holds now, one sentence.

    Args:
        lending: As the node told it.
        wording: Words.
    """
    report = lending.report
    if report is None:
        return wording.text("tray.lend_unknown")
    if report.is_alone:
        return wording.text("tray.lend_alone")
    if report.paused_for_s is not None:
        minutes = max(1, math.ceil(report.paused_for_s / _MINUTE_S))
        return wording.text("tray.lend_paused", n=minutes)
    if report.rule == "idle" and not lending.can_see_idle:
        return wording.text("tray.idle_unknown")
    if report.rule == "idle":
        return wording.text("tray.lend_idle_on" if report.is_lending else "tray.lend_idle_off")
    return wording.text("tray.lend_on" if report.is_lending else "tray.lend_off")
