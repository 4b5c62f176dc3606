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
    if report is not None and report.paused_for_s is not None and not report.is_alone:
        minutes = max(1, math.ceil(report.paused_for_s / _MINUTE_S))
        return wording.text("tray.lend_paused", n=minutes)
    return wording.text(_key(lending))


def _key(lending: Lending) -> str:
    """Return the sentence of what holds where it isn't a pause."""
    report = lending.report
    if report is None:
        return "tray.lend_unknown"
    if report.is_alone:
        return "tray.lend_alone"
    if report.mains_only and report.on_battery:
        return "tray.lend_battery"
    if report.rule != "idle":
        return "tray.lend_on" if report.is_lending else "tray.lend_off"
    if not lending.can_see_idle:
        return "tray.idle_unknown"
    return "tray.lend_idle_on" if report.is_lending else "tray.lend_idle_off"
