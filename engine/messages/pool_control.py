"""The control messages about what the pool runs: asked for, ordered, reported, and fetched.

What a coordinator orders carries a ``Stamp``, and no node obeys one that its fence doesn't admit.
"""

from __future__ import annotations

from engine.domain import ComputeMode, LayerRange, LinkPrecision, StageKind
from engine.messages.deployment import Deployment, NodeProgress, Trouble, Wish
from engine.messages.message import Message
from engine.messages.pool import Stamp

# ---- somebody on a PC, and that PC's node ----------------------------------------------------


class OpenControl(Message, frozen=True):
    """First message to a node's control port; answered by ``Hello``."""

    token: str  # as the node wrote it down for programs of its person
    product_version: str


class LoadModel(Message, frozen=True):
    """Ask a node to have the pool run a model; answered by ``DeploymentReport`` until it runs.

    Only an asker on the same PC may: the source is a path there.
    """

    source: str | None  # a folder with an IR, or a GGUF; None for the embedded model
    context_tokens: int | None = None  # None: what the model takes, up to a limit
    max_sequences: int = 4
    kind: StageKind | None = None  # None: paged where every layer can be
    mode: ComputeMode = "fast"
    is_private: bool = False  # the first and the last stage stay on this PC
    link_precision: LinkPrecision = "auto"  # of hidden states; "auto" leaves it to the mode
    speculate: bool = True  # whether the head may guess ahead; a request may do without as well


class UnloadModel(Message, frozen=True):
    """Ask a node to have the pool run nothing; answered by ``DeploymentReport``."""


class DeploymentReport(Message, frozen=True):
    """How far the pool is, as the asked node knows it; sent whenever it changes."""

    deployment: Deployment | None
    progress: tuple[NodeProgress, ...] = ()
    trouble: Trouble | None = None  # the asked node's own, before there is a deployment
    wish_id: str | None = None  # of what this asker asked for; None before it is a wish


# ---- between the nodes of a pool: what is to run ---------------------------------------------


class MakeWish(Message, frozen=True):
    """A node tells the coordinator what to run; None for nothing. Repeated until it is recorded."""

    wish: Wish | None
    wish_id: str  # also where the wish is None


class DeploymentChanged(Message, frozen=True):
    """The coordinator tells everybody the record, whenever it changes and to each newcomer."""

    stamp: Stamp
    deployment: Deployment


class DeploymentKnown(Message, frozen=True):
    """A node tells a new coordinator the record it has."""

    deployment: Deployment


class KeepModel(Message, frozen=True):
    """Order: fetch a model's files from whoever has them, so that two PCs can cut it."""

    stamp: Stamp
    model_sha256: str


class SplitModel(Message, frozen=True):
    """Order to a node that keeps the model: cut it so. Answered by ``ModelSplit``."""

    stamp: Stamp
    epoch: int
    wish: Wish
    layers: tuple[LayerRange, ...]


class ModelSplit(Message, frozen=True):
    """The answer to ``SplitModel``."""

    epoch: int
    manifest_sha256: str | None  # None where it failed
    trouble: Trouble | None = None


class WarmUp(Message, frozen=True):
    """Order to the head: send a token round the chain. Answered by ``WarmedUp``."""

    stamp: Stamp
    epoch: int


class WarmedUp(Message, frozen=True):
    """The answer to ``WarmUp``."""

    epoch: int
    trouble: Trouble | None = None  # None: a token came round


class EndPlacement(Message, frozen=True):
    """Order: end the stage of this epoch, if one runs here."""

    stamp: Stamp
    epoch: int


class ProgressReported(Message, frozen=True):
    """How far a node is; goes to every node, four times a second at most."""

    progress: NodeProgress


# ---- between the nodes of a pool: files, by the SHA-256 of their bytes -----------------------


class AskChunkList(Message, frozen=True):
    """Ask for a file's chunk list; answered by a ``CHUNK_LIST`` frame or ``ErrorReport``."""

    name: str


class AskChunksThere(Message, frozen=True):
    """Ask which chunks of a file there are; answered by ``ChunksThere`` or ``ErrorReport``."""

    name: str


class ChunksThere(Message, frozen=True):
    """The answer to ``AskChunksThere``."""

    name: str
    bitmap: bytes  # one bit a chunk, the lowest first


class AskChunk(Message, frozen=True):
    """Ask for a piece of a chunk; answered by a ``CHUNK`` frame or ``ErrorReport``."""

    name: str
    index: int
    piece: int  # of the chunk, from 0; each has 1 MiB but a file's last
