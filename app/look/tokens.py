"""The few numbers and colours everything is made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ThemeChoice = Literal["light", "dark", "system"]
Step = Literal["small", "body", "lead", "title", "display"]

SPACE_PX = 4  # every distance is a multiple of it
CORNER_PX = 8
COLUMN_PX = 760  # lines longer than this are tiring to read
MOTION_MS = 150  # at most; none where the system asks for less motion
TYPE_PX: dict[Step, int] = {"small": 12, "body": 14, "lead": 16, "title": 20, "display": 28}
MIN_SCALE, MAX_SCALE = 1.0, 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """The colours of one theme, each as ``#RRGGBB``.

    Attributes:
        is_dark: Which of the two it is.
        paper: Behind everything.
        surface: Of what lies on it: fields, cards, menus.
        raised: Of what is pointed at or chosen.
        line: Hairlines.
        ink: Text.
        quiet: Text that matters less.
        heart: The accent: the answer.
        on_heart: Text on it.
        leaf: Good.
        alarm: Not good.
        link: What can be followed.
        code: Behind code.
    """

    is_dark: bool
    paper: str
    surface: str
    raised: str
    line: str
    ink: str
    quiet: str
    heart: str
    on_heart: str
    leaf: str
    alarm: str
    link: str
    code: str


LIGHT = Theme(
    is_dark=False,
    paper="#FBFAF7",
    surface="#FFFFFF",
    raised="#F5F3ED",
    line="#DEDBD2",
    ink="#1B1D22",
    quiet="#5F6672",
    heart="#E0A100",
    on_heart="#1B1D22",
    leaf="#2F7D4F",
    alarm="#B3402E",
    link="#2C5FA8",
    code="#F7F5EF",
)
DARK = Theme(
    is_dark=True,
    paper="#15171B",
    surface="#1D2026",
    raised="#282C34",
    line="#33373F",
    ink="#ECEDEF",
    quiet="#9AA1AD",
    heart="#F5C23B",
    on_heart="#1B1D22",
    leaf="#57B97E",
    alarm="#E5806E",
    link="#86B2F2",
    code="#1A1C21",
)
