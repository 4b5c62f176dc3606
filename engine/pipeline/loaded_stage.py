"""A shard that is loaded on this PC, whatever placement uses it.

Loading takes seconds to minutes. When the pool places anew because another PC was lost, a stage
that is to hold the same shard in the same way goes on with the process it has.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.config import STAGE_LOAD_DEADLINE_S
from engine.errors import DaisyError
from engine.messages.chain import CloseSequence
from engine.messages.codec import encode_control
from engine.stages.host import StageProcess

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.domain import ModelDescription, SequenceId, StageDescription
    from engine.messages.chain import Placement, StagePlace
    from engine.messages.stage_control import LoadShard
    from engine.pipeline.shard_folder import ShardFolder

SETTLE_WITHIN_S = 5.0  # for what it computes; a prefill chunk of a large model takes a second


class LoadedStage:
    """A stage process with a shard.

    Attributes:
        process: Holds it.
        description: As it was loaded.
        model: Whose layers it has.

    Thread: the node's loop.
    """

    def __init__(
        self,
        process: StageProcess,
        description: StageDescription,
        manifest_sha256: str,
        order: LoadShard,
        model: ModelDescription,
    ) -> None:
        """Take over a process that has loaded.

        Args:
            process: Holds the shard.
            description: As it was loaded.
            manifest_sha256: Of the shards.
            order: What it was told to load, and how.
            model: Whose layers.
        """
        self.process = process
        self.description = description
        self.model = model
        self._manifest_sha256 = manifest_sha256
        self._order = order

    def serves(self, placement: Placement, place: StagePlace, folder: ShardFolder) -> bool:
        """Return whether this is what a line of a placement asks for.

        Args:
            placement: The whole.
            place: The line.
            folder: Its shards.
        """
        is_same = placement.manifest_sha256 == self._manifest_sha256
        return is_same and self._order == folder.order(placement, place)

    async def settle(self, epoch: int, open_sequences: Iterable[SequenceId]) -> bool:
        """Let it finish what it computes, and free what it holds of sequences.

        Args:
            epoch: Of the placement that has ended.
            open_sequences: Of it.

        Returns:
            Whether it may go on; a process that holds anything then is of no use.
        """
        try:
            async with asyncio.timeout(SETTLE_WITHIN_S):
                await self.process.settle()
                for sequence_id in open_sequences:
                    closing = CloseSequence(epoch=epoch, sequence_id=sequence_id)
                    await self.process.send(encode_control(closing))
                usage = await self.process.usage()
        except (DaisyError, TimeoutError):
            return False
        return usage.num_sequences == 0

    async def close(self) -> None:
        """End the process."""
        await self.process.close()


async def load_stage(
    placement: Placement, place: StagePlace, folder: ShardFolder, cpus: tuple[int, ...] | None
) -> LoadedStage:
    """Load a shard in a process of its own.

    Args:
        placement: Who runs what.
        place: This node's line.
        folder: The shards.
        cpus: Processors the stage may use; None for all.

    Fails with ``StageError`` if it can't be loaded, with ``ModelError`` if the shard isn't whole.

    Cancellation: ends the process.
    """
    order = folder.order(placement, place)
    await asyncio.to_thread(folder.verify, place.layers)
    process = StageProcess(cpus=cpus)
    try:
        description = await process.load(order, STAGE_LOAD_DEADLINE_S)
    except BaseException:
        await asyncio.shield(process.close())
        raise
    return LoadedStage(
        process, description, placement.manifest_sha256, order, folder.manifest.model
    )
