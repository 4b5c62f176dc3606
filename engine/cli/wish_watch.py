"""What became of a wish: read from the reports of the node that was asked; pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.messages.deployment import Deployment, Trouble
    from engine.messages.pool_control import DeploymentReport


class Outcome(Enum):
    """Where a wish stands."""

    MAKING = "making"  # the asked node reads or converts the model; the pool knows nothing yet
    RECORDED = "recorded"  # the pool works on it
    DONE = "done"
    FAILED = "failed"  # the record says why
    REFUSED = "refused"  # by the asked node, before there was a wish
    REPLACED = "replaced"  # somebody wished for something else


class LoadWatch:
    """Follows a wish to run a model."""

    def __init__(self) -> None:
        """Begin; the pool knows nothing of the wish."""
        self.is_recorded = False
        self.other: str | None = None  # the model the pool runs instead, as last reported

    def see(self, report: DeploymentReport) -> Outcome:
        """Return where the wish stands by this report.

        Args:
            report: The newest.
        """
        record = report.deployment
        wish = None if record is None else record.wish
        is_ours = wish is not None and wish.wish_id == report.wish_id
        if record is not None and is_ours:
            self.is_recorded = True
            return {"ready": Outcome.DONE, "failed": Outcome.FAILED}.get(
                record.phase, Outcome.RECORDED
            )
        self.other = None if wish is None else wish.model.name
        if self.is_recorded:
            return Outcome.REPLACED  # whatever else the node says of it
        return Outcome.MAKING if report.trouble is None else Outcome.REFUSED


class UnloadWatch:
    """Follows a wish to run nothing."""

    def __init__(self) -> None:
        """Begin; nothing was reported."""
        self._first: str | None = None
        self.model: str | None = None  # that was to be run until then

    def see(self, report: DeploymentReport) -> Outcome:
        """Return where the wish stands by this report.

        Args:
            report: The newest.
        """
        if report.trouble is not None:
            return Outcome.REFUSED
        wish = None if report.deployment is None else report.deployment.wish
        if report.deployment is None or report.deployment.phase == "unloaded" or wish is None:
            return Outcome.DONE
        if self._first is None:
            self._first, self.model = wish.wish_id, wish.model.name
        return Outcome.RECORDED if wish.wish_id == self._first else Outcome.REPLACED


def trouble_of(report: DeploymentReport) -> Trouble | None:
    """Return what a report says went wrong: with the asked node, or else with the pool.

    Args:
        report: Any.
    """
    if report.trouble is not None:
        return report.trouble
    return None if report.deployment is None else report.deployment.trouble


def model_name(record: Deployment | None) -> str | None:
    """Return the name of the model a record is about; None where it is about none.

    Args:
        record: As reported.
    """
    return None if record is None or record.wish is None else record.wish.model.name
