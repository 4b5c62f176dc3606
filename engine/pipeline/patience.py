"""Which placement a request is tried on next, how long that may take, and when it is given up.

Pure: the time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.errors import DaisyError, PipelineBrokenError, PlacementError, rebuilt

if TYPE_CHECKING:
    from engine.messages.deployment import Deployment, Trouble

MAX_INTERRUPTIONS = 8  # of one answer


class Waits(NamedTuple):
    """How long a request waits, in seconds; each change of the record begins a wait anew."""

    load_s: float = 600.0  # for a model that is being loaded: 20 GB on a slow disk
    mend_s: float = 120.0  # for another placement, after this one broke
    reason_s: float = 0.5  # for the record to say which PC was lost, before the asker is told
    failed_s: float = 10.0  # for a placement that failed to be tried again
    again_s: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)  # before the same placement is


def may_mend(error: DaisyError) -> bool:
    """Whether another placement, or the same a little later, may do what this one could not.

    Args:
        error: What a request failed with. A plain ``PlacementError`` is a PC's that is no head.
    """
    return error.retryable or type(error) is PlacementError


class Patience:
    """That of one request."""

    def __init__(self, waits: Waits, now_s: float) -> None:
        """Begin.

        Args:
            waits: How long to wait for what.
            now_s: When the request came.
        """
        self._waits = waits
        self._record: Deployment | None = None
        self._changed_s = now_s  # of the record, or of our need for another one
        self._failed_since_s: float | None = None
        self._tried_epoch: int | None = None
        self._num_failures = 0  # on that placement
        self._again_s = now_s
        self._num_interruptions = 0
        self._reason: DaisyError | None = None  # while nothing comes
        self._model_sha256: str | None = None

    def bind(self, record: Deployment) -> None:
        """Note that a head took the request: no other model can go on with it.

        Args:
            record: Of the placement whose head it is.
        """
        self._model_sha256 = None if record.wish is None else record.wish.model_sha256

    def progressed(self) -> None:
        """Note that a part of the answer came."""
        self._reason = None

    def failed(self, error: DaisyError, epoch: int, now_s: float, *, was_accepted: bool) -> None:
        """Note that a placement could not answer, or not to the end.

        Args:
            error: Why.
            epoch: Of that placement.
            now_s: When.
            was_accepted: Its head had taken the request. One that hadn't costs nobody anything,
                and is asked again as long as there is hope.

        Raises:
            DaisyError: The error itself, where it can't mend or has come too often.
        """
        is_new = self._tried_epoch != epoch
        self._tried_epoch = epoch
        self._num_failures = 1 if is_new else self._num_failures + 1
        self._num_interruptions += is_new or was_accepted
        if not may_mend(error) or self._num_interruptions > MAX_INTERRUPTIONS:
            raise error
        pauses = self._waits.again_s
        self._again_s = now_s + pauses[min(self._num_failures, len(pauses)) - 1]
        if self._reason is None:
            self._reason = error
            self._changed_s = now_s

    def choose(
        self, record: Deployment | None, now_s: float, *, has_begun: bool
    ) -> Deployment | float:
        """Return the placement to try now, or until when to wait for a change of the record.

        Args:
            record: As it is now; None where none is known.
            now_s: The time.
            has_begun: An asker has a part of the answer already.

        Raises:
            PlacementError: Nothing is loaded, or it takes too long.
            PipelineBrokenError: Another model is loaded now, or none.
            DaisyError: Why the pool failed, or the answer was interrupted.
        """
        if (record and record.order) != (self._record and self._record.order):
            self._record, self._changed_s = record, now_s
        if record is None:
            return self._until(self._waits.failed_s if has_begun else 0.0, now_s, _no_model())
        self._refuse_other_model(record, has_begun=has_begun)
        if record.phase == "failed":
            return self._until_mended(record, now_s, has_begun=has_begun)
        self._failed_since_s = None
        if record.phase != "ready" or record.head is None:
            wait_s = self._waits.load_s if self._reason is None else self._waits.mend_s
            return self._until(wait_s, now_s, self._reason or _still_loading(record, wait_s))
        if self._tried_epoch != record.epoch:
            return record
        until_s = self._until(self._waits.mend_s, now_s, self._reason or _no_model())
        return record if now_s >= self._again_s else min(until_s, self._again_s)

    def _until(self, wait_s: float, now_s: float, error: DaisyError) -> float:
        """Return when a wait is over that began with the last change.

        Raises:
            DaisyError: It is over; the error.
        """
        if now_s >= self._changed_s + wait_s:
            raise error
        return self._changed_s + wait_s

    def _until_mended(self, record: Deployment, now_s: float, *, has_begun: bool) -> float:
        """Return when it is no longer worth hoping that what failed is tried again.

        Raises:
            DaisyError: It is not; why it failed.
        """
        if self._failed_since_s is None:
            self._failed_since_s = now_s
        until_s = self._failed_since_s + (self._waits.failed_s if has_begun else 0.0)
        if now_s >= until_s:
            raise self._trouble(record)
        return until_s

    def _refuse_other_model(self, record: Deployment, *, has_begun: bool) -> None:
        if record.wish is None or record.phase == "unloaded":
            if has_begun:
                raise PipelineBrokenError("The model was unloaded.", "Load it and ask again.")
            raise _no_model()
        if self._model_sha256 not in {None, record.wish.model_sha256}:
            raise PipelineBrokenError(
                f"The pool was given another model: {record.wish.model.name}.", "Ask it anew."
            )

    def _trouble(self, record: Deployment) -> DaisyError:
        trouble: Trouble | None = record.trouble
        if trouble is not None:
            return rebuilt(trouble.code, trouble.what, trouble.advice)
        return self._reason or PlacementError(
            f"The pool can't run {record.wish.model.name if record.wish else 'the model'}.",
            "daisy status shows why.",
        )


def _no_model() -> PlacementError:
    return PlacementError("No model is loaded.", "Load one with daisy load.")


def _still_loading(record: Deployment, wait_s: float) -> PlacementError:
    return PlacementError(
        f"The model is not ready: for {wait_s:g} s the pool has been {record.phase} it.",
        "Look at daisy status, and ask again.",
    )
