"""Whose fault it is that a chain broke: by stage along the chain, by name to people; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.errors import PipelineBrokenError, TransportError, error_class_for

if TYPE_CHECKING:
    from engine.errors import DaisyError
    from engine.messages.deployment import Deployment

_BLAMED = re.compile(r"Stage (\d+): (.*)", re.DOTALL)


def blamed(stage_index: int, what: str) -> str:
    """Return what happened with the stage it happened to, as it goes along the chain.

    Args:
        stage_index: In the chain, from 0.
        what: One sentence.
    """
    return f"Stage {stage_index}: {what}"


def is_loss(error: DaisyError) -> bool:
    """Return whether an answer was interrupted because a PC, or the way to it, was lost.

    Args:
        error: What it was interrupted by.
    """
    return isinstance(error, TransportError | PipelineBrokenError)


def why_interrupted(error: DaisyError, tried: Deployment, present: Deployment | None) -> str:
    """Return why an answer was interrupted, for people: the PC by its name, no address.

    Args:
        error: What the placement that was tried failed with.
        tried: That placement's record.
        present: The record now; if it has moved on, it says what became of the PC.
    """
    match = _BLAMED.fullmatch(error.what)
    if not is_loss(error):
        name = None if match is None else _name_at(tried, int(match[1]))
        return error.what if match is None or name is None else f"{name}: {match[2]}"
    told = _told_by(present) if present is not None and present.epoch != tried.epoch else None
    if told is not None:
        return told
    if match is None and isinstance(error, PipelineBrokenError):
        return error.what
    name = _name_at(tried, 0 if match is None else int(match[1]))
    return f"{name or 'A PC that held part of the model'} can't be reached."


def _told_by(record: Deployment) -> str | None:
    """Return the record's own words on the PC that was lost; None if they are of something else."""
    trouble = record.trouble
    if trouble is None or _BLAMED.fullmatch(trouble.what) is not None:
        return None
    return trouble.what if issubclass(error_class_for(trouble.code), TransportError) else None


def _name_at(record: Deployment, stage_index: int) -> str | None:
    """Return what people call the PC that has a stage; None if the record doesn't say."""
    if stage_index >= len(record.stages):
        return None
    node_id = record.stages[stage_index].node_id
    return next((line.name for line in record.plan if line.node_id == node_id), None)
