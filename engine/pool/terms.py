"""Terms of office, and the fence that keeps the commands of an ended one from taking effect.

Knows nothing of how a term is won. A term is won by one start of one node and by nobody else: its
claimant and that start's number are part of it, so two coordinators never share one, even where
two PCs run with one identity or a data folder was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import LocalProtocolError

if TYPE_CHECKING:
    from engine.messages.pool import Stamp, Term


def is_older(term: Term | None, than: Term | None) -> bool:
    """Return whether a term comes before another; no term comes before every term."""
    return than is not None and (term is None or term < than)


class Fence:
    """Admits the commands of the accepted term and of no other.

    Every node has one, and every stage process. One rule holds for both: an older term is over,
    and a newer one is not in force *here* until it has been accepted, which on a node means
    written to disk. Were a newer command to raise the fence by itself, a crash right after it
    would let the older coordinator in again.

    Thread: the owner's only.
    """

    def __init__(self, pool_id: str, accepted: Term | None = None) -> None:
        """Begin with what was accepted before.

        Args:
            pool_id: The pool whose commands are meant at all.
            accepted: As read from disk on a node, as told by its node in a stage; None for never.
        """
        self.pool_id = pool_id
        self.accepted = accepted
        self.num_stale = 0  # refused: of an older term
        self.num_early = 0  # refused: of a term not accepted here yet; the sender tries again
        self.num_foreign = 0  # refused: of another pool, or not from the term's claimant

    def accept(self, term: Term) -> None:
        """Put a term in force; that of now again is no change.

        Args:
            term: Already on disk, where the fence is a node's.

        Raises:
            LocalProtocolError: The term is older than the one in force.
        """
        if is_older(term, than=self.accepted):
            raise LocalProtocolError(f"Term {term} was accepted after {self.accepted}.")
        self.accepted = term

    def admit(self, stamp: Stamp) -> bool:
        """Return whether a command may take effect, and count it if not.

        Args:
            stamp: As it came with the command.
        """
        if stamp.pool_id != self.pool_id or stamp.sender != stamp.term.claimant:
            self.num_foreign += 1
        elif stamp.term == self.accepted:
            return True
        elif is_older(stamp.term, than=self.accepted):
            self.num_stale += 1
        else:
            self.num_early += 1
        return False
