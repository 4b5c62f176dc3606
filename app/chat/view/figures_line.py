"""The line under an answer: how much, how fast, by whom. Pure but for the words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.chat.records import Figures
    from app.wording.wording import Wording

SEPARATOR = " · "


def figures_line(figures: Figures, wording: Wording) -> str:
    """Return the line.

    Args:
        figures: Of the answer.
        wording: In the language that is chosen.
    """
    number = wording.locale.toString
    parts: list[str] = []
    if figures.completion_tokens:
        num = figures.completion_tokens
        parts.append(wording.text("chat.tokens", n=num, num=number(num)))
    if figures.rate is not None:
        parts.append(wording.text("chat.rate", rate=number(figures.rate, "f", 1)))
    if figures.ttft_s is not None:
        parts.append(wording.text("chat.ttft", s=number(figures.ttft_s, "f", 1)))
    if figures.prompt_tokens and figures.context_tokens:
        used = figures.prompt_tokens + figures.completion_tokens
        whole = number(figures.context_tokens)
        parts.append(wording.text("chat.context_used", used=number(used), whole=whole))
    if figures.pcs:
        parts.append(", ".join(figures.pcs))
    return SEPARATOR.join(parts)


def notes_of(figures: Figures, wording: Wording) -> list[str]:
    """Return what else is to be said of an answer, one sentence each.

    Args:
        figures: Of the answer.
        wording: In the language that is chosen.
    """
    number = wording.locale.toString
    notes: list[str] = []
    if figures.num_left_out:
        num = figures.num_left_out
        context = number(figures.context_tokens)
        notes.append(wording.text("chat.left_out", n=num, num=number(num), context=context))
    notes.extend(
        wording.text("chat.went_on", s=number(pause_s, "f", 1)) for pause_s in figures.pauses_s
    )
    if figures.finish_reason == "length":
        is_full = figures.prompt_tokens + figures.completion_tokens >= figures.context_tokens - 1
        is_full = is_full and figures.context_tokens > 0
        notes.append(wording.text("chat.context_full" if is_full else "chat.length_reached"))
    return notes
