"""When a PC lends itself to the pool; pure.

The owner's word is final: a PC that isn't lent takes no stage, and gives back the one it has.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MAX_PAUSE_S = 24 * 3600.0  # a clock that was set back must not pause a PC for ever
IDLE_HOLDS_S = 30.0  # without a word, somebody may be at the PC again

Rule = Literal["now", "idle", "never"]


class LendingChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner chose; outlives a restart.

    Attributes:
        rule: When it lends.
        paused_until_s: Unix time until which it doesn't, whatever the rule; None for no pause.
        mains_only: Not while it runs on its battery, whatever the rule.
    """

    rule: Rule = "now"
    paused_until_s: float | None = None
    mains_only: bool = False


def chosen(
    before: LendingChoice,
    rule: Rule | None,
    pause_s: float | None,
    now_s: float,
    *,
    mains_only: bool | None = None,
) -> LendingChoice:
    """Return a choice after another one.

    Args:
        before: As it was.
        rule: None leaves it. A rule that is chosen ends a pause.
        pause_s: From now; 0 ends a pause, None leaves it.
        now_s: Unix time.
        mains_only: None leaves it.
    """
    until_s = before.paused_until_s if rule is None else None
    if pause_s is not None:
        until_s = now_s + min(pause_s, MAX_PAUSE_S) if pause_s > 0 else None
    return LendingChoice(
        rule=before.rule if rule is None else rule,
        paused_until_s=until_s,
        mains_only=before.mains_only if mains_only is None else mains_only,
    )


def paused_for_s(choice: LendingChoice, now_s: float) -> float | None:
    """Return how long a pause still lasts; None where there is none.

    Args:
        choice: The owner's.
        now_s: Unix time.
    """
    if choice.paused_until_s is None:
        return None
    left_s = choice.paused_until_s - now_s
    return left_s if 0 < left_s <= MAX_PAUSE_S else None


def lends(
    choice: LendingChoice,
    now_s: float,
    *,
    is_idle: bool,
    is_alone: bool,
    on_battery: bool = False,
) -> bool:
    """Return whether a PC lends itself now.

    Args:
        choice: The owner's.
        now_s: Unix time.
        is_idle: Somebody has just said that nobody is at the PC.
        is_alone: Nobody else is in its pool: what runs there is its owner's own.
        on_battery: It isn't plugged in.
    """
    if is_alone:
        return True
    if paused_for_s(choice, now_s) is not None or (choice.mains_only and on_battery):
        return False
    return choice.rule == "now" or (choice.rule == "idle" and is_idle)
