"""What a trouble means for the node it came from, and what people are told; pure.

Three kinds. What will be so again on that PC leaves it out at once, by name, until Daisy restarts
there. What may pass leaves it out the second time. What lies between PCs leaves nobody out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from engine.domain import NodeId
from engine.errors import (
    DaisyError,
    LendingPausedError,
    ModelNotFoundError,
    PeerTimeoutError,
    PeerUnreachableError,
    PipelineBrokenError,
    StageProcessDiedError,
    TransportError,
    error_class_for,
)
from engine.messages.deployment import Trouble
from engine.pool.plan import Exclusion
from engine.pool.sentences import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.pool.deployment_inputs import NodeSeen

LASTING = frozenset({
    "golden_step",
    "compile",
    "model_unsupported",
    "insufficient_memory",
    "storage",
})
MAX_STRIKES = 2  # troubles that may pass, of one node


class LeftOut(msgspec.Struct, frozen=True):
    """A node that is not used; it is again when its engine has restarted."""

    incarnation: int
    exclusion: Exclusion


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """What is held against nodes while one wish is fulfilled.

    Attributes:
        left_out: Those not used, and why.
        strikes: By start of a node: troubles of its stages that may pass.
    """

    left_out: dict[NodeId, LeftOut] = {}
    strikes: dict[tuple[NodeId, int], int] = {}


def charged(ledger: Ledger, node: NodeSeen, trouble: Trouble) -> Ledger:
    """Return the ledger after a trouble with a node's stage.

    Args:
        ledger: As it was.
        node: Whose stage it was.
        trouble: What happened.
    """
    if _is_between_nodes(trouble.code):
        return ledger
    key = (node.node_id, node.incarnation)
    strikes = ledger.strikes.get(key, 0) + 1
    if trouble.code not in LASTING and strikes < MAX_STRIKES:
        return replace(ledger, strikes=ledger.strikes | {key: strikes})
    remedy = f"{trouble.advice} {sentence('restart_remedy')}"
    left_out = LeftOut(node.incarnation, Exclusion(trouble.what, remedy))
    return replace(ledger, left_out=ledger.left_out | {node.node_id: left_out})


def without_restarted(ledger: Ledger, nodes: Mapping[NodeId, NodeSeen]) -> Ledger:
    """Return the ledger without what was held against earlier starts of nodes.

    Args:
        ledger: As it was.
        nodes: As they are seen now; one that is not there is kept in mind.
    """

    def is_same(node_id: NodeId, incarnation: int) -> bool:
        return node_id not in nodes or nodes[node_id].incarnation == incarnation

    left_out = {k: one for k, one in ledger.left_out.items() if is_same(k, one.incarnation)}
    strikes = {key: count for key, count in ledger.strikes.items() if is_same(*key)}
    return Ledger(left_out=left_out, strikes=strikes)


def _is_between_nodes(code: str) -> bool:
    kind = error_class_for(code)
    return issubclass(kind, TransportError | PipelineBrokenError)


# ---- what people are told --------------------------------------------------------------------


def trouble_of(error: DaisyError) -> Trouble:
    """Return an error of ours as it goes into the record.

    Args:
        error: With its two sentences.
    """
    return Trouble(error.code, error.what, error.advice)


def lost(name: str) -> Trouble:
    """Return the trouble with a PC that is not there any more.

    Args:
        name: The PC's, for people.
    """
    return trouble_of(PeerUnreachableError(sentence("lost", pc=name)))


def ended(name: str) -> Trouble:
    """Return the trouble with a PC that said goodbye.

    Args:
        name: The PC's, for people.
    """
    error = PeerUnreachableError(sentence("ended", pc=name), sentence("ended_remedy"))
    return trouble_of(error)


def away(name: str, node: NodeSeen | None) -> Trouble:
    """Return the trouble with a PC that is not there any more, or not since it was counted on.

    Args:
        name: The PC's, for people.
        node: As it is seen now; None if it isn't.
    """
    if node is not None and node.is_reachable:
        return restarted(name)
    return ended(name) if node is not None and node.has_left else lost(name)


def withheld(name: str) -> Trouble:
    """Return the trouble with a PC whose owner lends it no longer.

    Args:
        name: The PC's, for people.
    """
    error = LendingPausedError(sentence("withheld", pc=name), sentence("withheld_remedy"))
    return trouble_of(error)


def unlinked(name: str, trouble: Trouble) -> Trouble:
    """Return a trouble of a chain's link as people are told it: by the PC, not by its address.

    Args:
        name: Of the PC at the link's end.
        trouble: As the chain reported it; one of another kind stays as it is.
    """
    if not issubclass(error_class_for(trouble.code), TransportError):
        return trouble
    return trouble_of(PeerUnreachableError(sentence("unlinked", pc=name)))


def restarted(name: str) -> Trouble:
    """Return the trouble with a PC whose engine began anew, without its stage.

    Args:
        name: The PC's, for people.
    """
    error = PeerUnreachableError(sentence("restarted", pc=name), sentence("restarted_remedy"))
    return trouble_of(error)


def silent(name: str, seconds: float, code: str) -> Trouble:
    """Return the trouble with a PC that doesn't get on.

    Args:
        name: The PC's, for people.
        seconds: Since it last did.
        code: Of the sentence that says what it was to do.
    """
    what = sentence(code, pc=name, seconds=f"{seconds:.0f}")
    return trouble_of(PeerTimeoutError(what))


def stage_gone(name: str) -> Trouble:
    """Return the trouble with a PC that says it doesn't run its stage.

    Args:
        name: The PC's, for people.
    """
    what = sentence("stage_gone", pc=name)
    return Trouble(StageProcessDiedError.code, what, sentence("stage_gone_remedy"))


def nobody_keeps(model: str, names: list[str]) -> Trouble:
    """Return the trouble with a model whose files are on no PC that is there.

    Args:
        model: Its name.
        names: Of the PCs that are known to have them.
    """
    what = sentence("no_keeper", model=model)
    if names:
        what = sentence("no_keeper_named", model=model, pcs=", ".join(names))
    return trouble_of(ModelNotFoundError(what, sentence("no_keeper_remedy")))


def cannot_cut(name: str) -> Trouble:
    """Return the trouble with a PC that didn't cut the model and didn't say why.

    Args:
        name: The PC's, for people.
    """
    return trouble_of(DaisyError(sentence("cannot_cut", pc=name)))
