"""What each node last told of itself; it outlives the sessions, for the names of who is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set

    from engine.domain import NodeId
    from engine.messages.pool import NodeReport

MAX_REPORTS = 64  # of nodes, those included that are gone; a pool has 16


class ReportBook:
    """The reports of the other nodes.

    Thread: the owner's only.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._reports: dict[NodeId, NodeReport] = {}  # the one heard of longest ago first

    def all(self) -> dict[NodeId, NodeReport]:
        """Return them by node."""
        return dict(self._reports)

    def keep(self, report: NodeReport, present: Set[NodeId]) -> None:
        """Keep a node's last report; of too many, that of who was heard of longest ago goes.

        Args:
            report: New.
            present: Nodes there is a session with: theirs go last.
        """
        self._reports.pop(report.node_id, None)
        self._reports[report.node_id] = report
        if len(self._reports) > MAX_REPORTS:
            gone_first = (one for one in self._reports if one not in present)
            del self._reports[next(gone_first, next(iter(self._reports)))]
